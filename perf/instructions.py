#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a repeated call of 8 bytes costs in instructions, by callgrind.

One of two ranks runs under valgrind, some fifty times slower than the other, so that its peer's flag
is nearly always there when it looks. Two runs of different length are subtracted, which leaves what
one more call costs; what is spent in waiting is shown apart. valgrind has no AVX-512, so the AVX2
kernels are counted. Needs valgrind; usage: instructions.py [BUILD]
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COLLECTIVES = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
CALLS = (2000, 10000)
ROW = re.compile(r"^\s*([0-9,]+) \([^)]*\)\s+(\S*:(\S+))")


def count(build, collective, calls, scratch):
    """Instructions of rank 0 in `calls` calls: (outside waits, in waits)."""
    out = pathlib.Path(scratch) / "callgrind.out"
    loop = f"{build}/perf/instructions_loop {collective} {calls}"
    grind = f"valgrind --tool=callgrind --toggle-collect=kolo_{collective} --callgrind-out-file={out}"
    script = f"if [ $KOLO_RANK = 0 ]; then exec {grind} {loop}; else exec {loop}; fi"
    run = subprocess.run([f"{build}/tools/kolo", "run", "-n", "2", "sh", "-c", script],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"instructions.py: {collective}: {run.stderr.strip()[-500:]}")
    text = subprocess.run(["callgrind_annotate", "--threshold=100", str(out)],
                          capture_output=True, text=True, check=True).stdout
    work = wait = 0
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            number = int(match.group(1).replace(",", ""))
            if "wait_slow" in match.group(3) or "wait_asleep" in match.group(3):
                wait += number
            else:
                work += number
    return work, wait


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                         pathlib.Path(__file__).resolve().parent.parent / "build")
    for tool in ("valgrind", "callgrind_annotate"):
        if shutil.which(tool) is None:
            sys.exit(f"instructions.py: {tool} is not there; Debian has it in the package valgrind")
    print("instructions of a repeated call of 8 bytes, 2 ranks, rank 0; entry to return")
    print(f"{'collective':<16}{'a call':>8}{'waiting':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        for collective in COLLECTIVES:
            short = count(build, collective, CALLS[0], scratch)
            long = count(build, collective, CALLS[1], scratch)
            each = [(b - a) / (CALLS[1] - CALLS[0]) for a, b in zip(short, long)]
            print(f"{collective:<16}{each[0]:>8.0f}{each[1]:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
