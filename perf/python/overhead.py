# SPDX-License-Identifier: Apache-2.0
"""What an all-reduce costs more through python/kolo than from C: both in turn, each after a barrier,
by the medians, and by the median of the pairs' differences.

usage: build/tools/kolo run -n 2 python3 perf/python/overhead.py [--limit-us US] [BUILD]
The limit is for the difference of the medians at 1 MiB; above it the status is 1.
"""
import argparse
import ctypes
import os
import pathlib
import statistics
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = {"8 B": 8, "1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20}
PAIRS = 3000


def buffers(nbytes):
    """Two arrays of numpy, or of Python where there is none."""
    try:
        import numpy

        return [numpy.zeros(nbytes // 4, numpy.float32) for _ in range(2)]
    except ImportError:
        import array

        return [array.array("f", bytes(nbytes)) for _ in range(2)]


def measure(comm, kolo, timed, nbytes):
    """Pairs of microseconds, from C and from Python."""
    send, recv = buffers(nbytes)
    views = kolo.Buffer(send), kolo.Buffer(recv)
    pairs = []
    for _ in range(PAIRS):
        c_us = timed(views[0].address, views[1].address, nbytes // 4, comm._handle)
        comm.barrier()
        begin = time.perf_counter_ns()
        comm.all_reduce(send, recv)
        pairs.append((c_us, (time.perf_counter_ns() - begin) / 1e3))
        if c_us < 0:
            sys.exit("overhead.py: a call failed")
    return pairs[PAIRS // 10:]  # the first ones set things up


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--limit-us", type=float)
    parser.add_argument("build", nargs="?", default=str(SOURCE / "build"))
    options = parser.parse_args()
    os.environ.setdefault("KOLO_LIBRARY", options.build + "/libkolo.so.0")
    sys.path.insert(0, str(SOURCE / "python"))
    import kolo

    timed = ctypes.CDLL(options.build + "/perf/libtimed.so").timed_all_reduce
    timed.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    timed.restype = ctypes.c_double
    with kolo.Comm() as comm:
        lines, more = [], 0.0
        for name, nbytes in SIZES.items():
            pairs = measure(comm, kolo, timed, nbytes)
            c_us, python_us = (statistics.median(column) for column in zip(*pairs))
            more = python_us - c_us
            each = statistics.median(b - a for a, b in pairs)
            lines.append(f"{name:>8}{c_us:>11.2f}{python_us:>11.2f}{more:>11.2f}{each:>11.2f}")
        if comm.rank == 0:
            print(f"all_reduce of float32, {comm.size} ranks, {type(buffers(8)[0]).__module__}, {len(pairs)} pairs; us")
            print(f"{'size':>8}{'C':>11}{'Python':>11}{'more':>11}{'by pairs':>11}")
            print("\n".join(lines))
    if options.limit_us is not None and more > options.limit_us:
        sys.exit(f"overhead.py: {more:.2f} us more at 1 MiB, above {options.limit_us}")


main()
