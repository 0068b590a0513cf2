# SPDX-License-Identifier: Apache-2.0
# covers: perf/compare
"""`compare` as a user starts it, with kolo and the floors only: rows in the table and in the CSV file.

usage: compare_table.py COMPARE.PY BUILD LIMITS   (the program of limits.c)
"""
import csv
import ctypes
import os
import signal
import subprocess
import sys
import tempfile

from tap import check, done

COMPARE, BUILD, LIMITS = sys.argv[1:]
SIZES = ["64", "65536"]
LIMIT_S = 120


def compare(ranks, *options, limits=()):
    """Exit status and output of a run of one round."""
    command = [*limits, sys.executable, COMPARE, "--build", BUILD, "-n", str(ranks), "-b", "64", "-e", "64K",
               "-f", "1024", "--rounds", "1", "--sample-ms", "0.1", "-m", "kolo,floor", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return ran.returncode, ran.stdout, ran.stderr


class Part(ctypes.Structure):
    """struct iovec."""
    _fields_ = [("at", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


def may_copy():
    """Whether the system lets this process read a child's memory; a container may forbid it."""
    mark, got = ctypes.create_string_buffer(b"k"), ctypes.create_string_buffer(1)
    child = os.fork()
    if child == 0:
        signal.pause()
    here, there = Part(ctypes.addressof(got), 1), Part(ctypes.addressof(mark), 1)
    copied = ctypes.CDLL(None).process_vm_readv(child, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return copied == 1


def rows(table):
    """The sizes in a table, one a row."""
    return [line.split()[0] for line in table.splitlines() if line and not line.startswith("#")]


def prints_and_writes(buffers, ranks):
    """A run of two collectives: the table, and the file."""
    with tempfile.TemporaryDirectory(prefix="kolo-compare-test-") as folder:
        path = os.path.join(folder, "out.csv")
        status, table, errors = compare(ranks, "-c", "all_reduce,broadcast", "--buffers", buffers, "--csv", path)
        told = [*table.splitlines(), *errors.splitlines()[-5:]]
        check(status == 0 and rows(table) == SIZES * 2, f"{buffers} buffers: a row for each size", *told)
        check("# wrong elements: 0" in table, f"{buffers} buffers: nothing is wrong", *told)
        check("dropped" not in table, f"{buffers} buffers: every method lasts to the end", *told)
        written = []
        if status == 0:
            with open(path, encoding="utf-8", newline="") as file:
                written = list(csv.DictReader(file))
        found = {(row["collective"], row["bytes"], row["method"]) for row in written if float(row["median_us"]) > 0}
        wanted = {(name, size, method) for name in ("all_reduce", "broadcast") for size in SIZES
                  for method in ("kolo", "floor-slots")}
        wanted |= {(name, SIZES[1], method) for name in ("all_reduce", "broadcast")
                   for method in ("floor-slots-past", *(("floor-copied",) if COPIES else ()))}
        check(wanted <= found, f"{buffers} buffers: the file has each method at each size", *sorted(found))


def forbidden():
    """Where the system forbids copies between processes, the floors that need them have no rows."""
    with tempfile.TemporaryDirectory(prefix="kolo-compare-test-") as folder:
        path = os.path.join(folder, "out.csv")
        status, table, errors = compare(2, "-c", "broadcast", "--csv", path, limits=(LIMITS, "cma"))
        told = [*table.splitlines(), *errors.splitlines()[-5:]]
        lasts = rows(table) == SIZES and "dropped" not in table
        check(status == 0 and lasts, "forbidden copies: the other floors last to the end", *told)
        with open(path, encoding="utf-8", newline="") as file:
            found = {row["method"] for row in csv.DictReader(file)}
        check("floor-slots" in found and "floor-copied" not in found, "forbidden copies: no rows", *sorted(found))


def on_hosts():
    """Ranks on hosts of their own: a row for each size, and files that say so."""
    with tempfile.TemporaryDirectory(prefix="kolo-compare-test-") as folder:
        path = os.path.join(folder, "out.csv")
        status, table, errors = compare(2, "-c", "broadcast", "--hosts", "2", "--rate", "1", "--csv", path)
        if "compare: no hosts here" in errors:
            print(f"# on hosts: {errors.strip()}")
            return
        told = [*table.splitlines(), *errors.splitlines()[-5:]]
        check(status == 0 and rows(table) == SIZES and "dropped" not in table, "on hosts: a row for each size", *told)
        with open(path, encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
        links = {row["link"] for row in found}
        check(links == {"2 hosts, 1 Gbit/s, tick 50 us"}, "on hosts: the file says which", *links)
        # 64 KiB at 1 Gbit/s take half a millisecond, less a burst of 16 KiB; through memory a tenth of that.
        long = [float(row["median_us"]) for row in found if row["bytes"] == SIZES[1]]
        check(len(long) == 2 and min(long) > 350, "on hosts: bytes take the time of their wire", *map(str, long))


def refuses():
    """An option that makes no sense."""
    status, table, errors = compare(2, "-c", "all_reduec")
    check(status == 2 and not table and "all_reduec" in errors, "an unknown collective is refused by name", errors)


COPIES = may_copy()
prints_and_writes("private", 2)
prints_and_writes("shared", 3)
forbidden()
on_hosts()
refuses()
done()
