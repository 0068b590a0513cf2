# SPDX-License-Identifier: Apache-2.0
# covers: tools/log/log.c tools/log/build.c tools/log/comm.c tools/log/comm_lines.c tools/log/fault.c
# covers: tools/log/json.c tools/log/member.c tools/log/take.c tools/log/text.c tools/log/trees.c
"""Logs as people have them: several communicators, parts of ranks, old versions, other libraries,
jobs that died, and every dress that containers, terminals and web pages put on lines. tests/data/logs
has a small log for each kind, and expected.json what a person reads in it.

usage: logs_test.py KOLO SOURCE
"""
import gzip
import html
import json
import os
import re
import subprocess
import sys
import tempfile

from log_parse import differences
from tap import check, machine_env, run_tests

KOLO, SOURCE = sys.argv[1:]
LOGS = os.path.join(SOURCE, "tests", "data", "logs")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")


def kolo(*args, data=None):
    ran = subprocess.run([KOLO, "log", *args], input=data, capture_output=True, timeout=60, check=False,
                         env=machine_env())
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


def parse(*args, data=None):
    status, out, err = kolo("--json", *args, data=data)
    return status, json.loads(out) if out else {}, err


def check_folder(folder):
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    for name, wanted in expected.items():
        file, *options = name.split()
        args = [*options, os.path.join(folder, file)]
        status, got, err = parse(*args)
        text = kolo(*args)[1]
        wrong = differences(wanted, got, text)
        check(status == wanted.get("status", 0) and not wrong, f"{name} is read as people read it", wrong, err)
        check(not CONTROL.search(text) and " 0 ranks" not in text and " 0 hosts" not in text,
              f"the text on {name} has no control character and no count of 0", text)
        svg = kolo(*options, "--svg", "-", os.path.join(folder, file))[1]
        check(not got.get("rings") or "Rings" in svg, f"{name} is drawn", svg[:200])


def test_each_kind_of_log():
    check_folder(LOGS)


def as_docker(line):
    return json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-02T10:24:27Z"})


def as_coloured(line):
    middle = len(line) // 2
    return f"\x1b[32m{line[:middle]}\x1b[0m\x1b[1;31m{line[middle:]}\x1b[K\x1b]0;title\x07"


DRESSES = {
    "Docker's JSON": as_docker,
    "a collector's JSON": lambda line: json.dumps({"ts": 1, "labels": {"pod": "a"}, "message": line}) + ",",
    "JSON with every character escaped": lambda line: '{"log":"' + "".join(f"\\u{ord(c):04x}" for c in line) + '"}',
    "colours": as_coloured,
    "colours that cat -v wrote out": lambda line: f"^[[32m{line[:9]}^[[0m{line[9:]}^[[m",
    "HTML": lambda line: f'<span class="ansi-green">{html.escape(line)}</span><br/>',
    "a quotation": lambda line: f"> `{line}`",
    "mpirun's tags": lambda line: f"[1,3]<stdout>:{line}",
    "a timestamp and a NUL": lambda line: f"2026-01-02T10:24:27.123Z stdout F \0 {line}",
    "CR and LF": lambda line: line + "\r",
}


def plain_parse(name):
    path = os.path.join(LOGS, name)
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    return lines, parse(path)[1]


def without_lines(got):
    """The parse without the numbers of lines, which a dress may change."""
    return {**got, "issues": [re.sub(r" line \d+", " line", issue) for issue in got["issues"]]}


def test_what_is_around_a_line_does_not_change_the_parse():
    for name in ("layers-2.7.log", "equal-2.27.log", "send-2.4.log", "rccl.log", "uses.log"):
        lines, plain = plain_parse(name)
        for dress, put_on in DRESSES.items():
            data = "".join(put_on(line) + "\n" for line in lines).encode()
            status, got, err = parse("-", data=data)
            wrong = [key for key in plain if without_lines(got).get(key) != without_lines(plain)[key]]
            check(status == 0 and not wrong, f"{name} in {dress} is read alike", wrong, err,
                  {key: got.get(key) for key in wrong})
        got = parse("-", data="\r".join(lines).encode())[1]
        check(without_lines(got) == without_lines(plain), f"{name} with CR for LF is read alike")
        got = parse("-", data=b"\xef\xbb\xbf" + "\n".join(lines).encode())[1]
        check(got == plain, f"{name} behind a byte order mark, without a last LF, is read alike")


def test_writes_of_two_processes_into_one_line_are_parted():
    lines, plain = plain_parse("equal-2.27.log")
    cut = next(i for i, line in enumerate(lines) if "via P2P" in line)
    for where in ("message", "prefix", "end"):
        first, second = lines[cut], lines[cut + 1]
        at = {"message": first.index("->") + 1, "prefix": first.index("NCCL") + 2, "end": len(first)}[where]
        torn = [*lines[:cut], first[:at] + second, first[at:], *lines[cut + 2:]]
        got = parse("-", data="\n".join(torn).encode())[1]
        check(got["transports"] == plain["transports"] and got["rings"] == plain["rings"],
              f"a line that another one interrupts in its {where} is put together", got["transports"])


def test_a_pipe_and_several_files_are_read():
    lines, plain = plain_parse("layers-2.7.log")
    got = parse("/dev/stdin", data="\n".join(lines).encode())[1]
    check(got == plain, "a pipe is read like a file")
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for host in ("alpha", "beta"):
            names.append(os.path.join(folder, host))
            with open(names[-1], "w", encoding="utf-8") as file:
                file.write("\n".join(line for line in lines if not line.startswith(("alpha", "beta")) or
                                     line.startswith(host)))
        got = parse(*names)[1]
        wrong = [key for key in plain if key != "issues" and got[key] != plain[key]]
        check(not wrong, "a file of each host gives the same parse", wrong, got["communicators"])


def test_a_file_of_no_use_is_named_for_what_it_is():
    text = "\n".join(plain_parse("send-2.4.log")[0])
    kinds = {"gzip": gzip.compress(text.encode()), "UTF-16": text.encode("utf-16"), "binary": bytes(range(256)) * 9,
             "is empty": b"", "NCCL_DEBUG=INFO": b"step 1\nstep 2\n",
             "UTF-16 text: iconv -f UTF-16LE": text.encode("utf-16-le"), "zip archive": b"PK\x03\x04" + b"x" * 99}
    for kind, data in kinds.items():
        status, out, err = kolo("-", data=data)
        check(status == 1 and kind in err and not CONTROL.search(out + err), f"a file of the kind {kind} ends with 1",
              status, err, out)
    status, _, err = kolo("--comm", "3", "-", data=text.encode())
    check(status == 1 and "no communicator 3 among the 1" in err, "a communicator that is not there is refused", err)


def crosses(one, two):
    """Whether two line segments (x, y, x, y) cross."""
    def side(line, x, y):
        return (line[2] - line[0]) * (y - line[1]) - (line[3] - line[1]) * (x - line[0])
    return (side(one, *two[:2]) * side(one, *two[2:]) < 0 and side(two, *one[:2]) * side(two, *one[2:]) < 0)


def test_rings_are_drawn_without_crossings():
    rings = {"one host": "0 2 1 4 3 5", "a ring that comes to a host twice": "0 3 1 4 2 5"}
    for name, ring in rings.items():
        lines = [f"{'ab'[rank // 3]}:{rank}:1 [0] NCCL INFO comm 0x1{rank} rank {rank} nranks 6 commId 0x7 - Init START"
                 for rank in range(6 if name != "one host" else 0)]
        svg = kolo("--svg", "-", "-", data="\n".join([*lines, f"a:0:1 [0] NCCL INFO Channel 00/01 : {ring}"]).encode())[1]
        arrows = [tuple(map(float, found)) for found in
                  re.findall(r'<path d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"[^>]*marker-end', svg)]
        pairs = [(a, b) for i, a in enumerate(arrows) for b in arrows[:i] if crosses(a, b)]
        check(len(arrows) == 6 and not pairs, f"the ring of {name} is drawn without a crossing", len(arrows), pairs)


def test_control_characters_do_not_reach_the_terminal():
    evil = ("h:1:2 [0] NCCL INFO Channel 00 : 0[1] -> 1[2] via P2P/\x1b[31mX\x07\x9b\u009bY\n"
            "h:1:2 [0] bad.cc:1 NCCL WARN said \x1b]0;owned\x07 \x9bmore\x08\x7f\n"
            "h:1:2 [0] NCCL INFO NCCL_ALGO set by environment to \x1b[2Jring\n")
    for args in ([], ["--json"], ["--svg", "-"]):
        status, out, err = kolo(*args, "-", data=evil.encode())
        check(status == 0 and not CONTROL.search(out + err), f"kolo log {' '.join(args)} passes no control character",
              ascii(out))


run_tests(globals())
