# SPDX-License-Identifier: Apache-2.0
# covers: src/boot/wire.c transports/tcp
"""Connections of strangers while a job comes up and runs: they change nothing.

usage: strangers_test.py PERF   (all_reduce_perf)
"""
import hashlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time

from hosts import finish, need, tails
from tap import check, run_tests

PERF, = sys.argv[1:]
HOSTS = need(2)
COMMAND = [PERF, "-b", "8", "-e", "64K", "-f", "64", "-n", "20"]
LATE_S = 2.0  # a rank comes so long after the other, so that strangers meet a hub that waits


def inside(host):
    """Move this thread into the host's network."""
    with open(f"/run/netns/{HOSTS.names[host]}", encoding="utf-8") as file:
        if not hasattr(os, "setns"):
            import ctypes
            return ctypes.CDLL(None).setns(file.fileno(), 0x40000000) == 0
        os.setns(file.fileno(), os.CLONE_NEWNET)
    return True


def hello(name_hash=0, rank=1, nranks=2, version=0):
    """A frame like a rank's first one."""
    body = struct.pack("<IiiiiI", version, nranks, rank, 1000, 1000, name_hash) + os.urandom(32)
    digest = hashlib.sha256(body).digest()[:16]  # and random bytes in place of a MAC
    return struct.pack("<IHHII", 0x4F4C4F4B, 2, 1, 0, len(body)) + digest + os.urandom(16) + body


STRANGERS = {
    "a port scan": (b"", False, 200),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: kolo\r\n\r\n", True, 50),
    "one byte and silence": (b"K", True, 50),
    "1,000 idle connections": (b"", True, 1000),
    "a greeting of another version": (hello(), True, 50),
    "a greeting twice": (hello() * 2, True, 50),
    "random bytes": (os.urandom(4096), True, 50),
}


def pester(port, say, stays, count, stop):
    """Connect `count` times to the hub of rank 0's host, from the other host, until told to stop."""
    inside(1)
    held = []
    while not stop.is_set():
        try:
            peer = socket.create_connection((HOSTS.address(0), port), timeout=0.2)
            if say:
                peer.sendall(say)
        except OSError:
            time.sleep(0.001)
            continue
        if stays:
            held.append(peer)
        else:
            peer.close()
        if len(held) >= count:
            stop.wait(0.02)
            held.pop(0).close()
    for peer in held:
        peer.close()


def job_s(say=None, stays=False, count=0):
    """Seconds from when the last rank starts to the end, and how the ranks ended."""
    stop = threading.Event()
    env = HOSTS.environment(0, 2)
    ranks = [subprocess.Popen(HOSTS.inside(0, COMMAND), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=env)]
    thread = threading.Thread(target=pester, args=(HOSTS.port, say, stays, count, stop)) if count else None
    if thread:
        thread.start()
    time.sleep(LATE_S)
    begin = time.monotonic()
    ranks.append(subprocess.Popen(HOSTS.inside(1, COMMAND), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env=HOSTS.environment(1, 2)))
    ends = finish(ranks, 60)
    took = time.monotonic() - begin
    stop.set()
    if thread:
        thread.join()
    return took, ends


def test_strangers():
    """Each kind against the meeting point and, as the ports are the same host's, its neighbours."""
    alone = min(job_s()[0] for _ in range(3))
    for name, (say, stays, count) in STRANGERS.items():
        took, ends = job_s(say, stays, count)
        for _ in range(2):  # other processes of the machine delay it, too
            if took > 2 * alone + 0.5:
                took = min(took, job_s(say, stays, count)[0])
        check(all(status == 0 for status, _ in ends), f"{name}: the job is right all the same", *tails(ends))
        check(took <= 2 * alone + 0.5, f"{name}: the job takes no more than twice its time",
              f"{took:.2f} s, alone {alone:.2f} s")


def test_secret():
    """A rank with another secret is told so, and the one that waits names what it saw."""
    waits = subprocess.Popen(HOSTS.inside(0, COMMAND), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**HOSTS.environment(0, 2), "KOLO_TIMEOUT_MS": "4000"})
    wrong = subprocess.Popen(HOSTS.inside(1, COMMAND), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**HOSTS.environment(1, 2), "KOLO_SECRET": "ab" * 32, "KOLO_TIMEOUT_MS": "4000"})
    (first, said), (second, told) = finish([waits, wrong], 60)
    check(second not in (0, None) and "secret" in told, "a rank with another secret is told so", told[-300:])
    check(first not in (0, None) and "rank 1" in said, "the rank that waits names who did not come", said[-300:])


run_tests(globals())
