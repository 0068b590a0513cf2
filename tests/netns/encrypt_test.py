# SPDX-License-Identifier: Apache-2.0
# covers: transports/tcp src/boot/wire.c
"""KOLO_ENCRYPT between two hosts: right results, no readable byte on the wire, and all ranks agree.

usage: encrypt_test.py COLLECTIVES PERF LIBRARY SOURCE   (the ranks' checks, all_reduce_perf, libkolo)
"""
import os
import re
import socket
import sys
import threading

from hosts import need, tails
from tap import check, run_tests

COLLECTIVES, PERF, LIBRARY, SOURCE = sys.argv[1:]
HOSTS = need(2)
ETH_P_ALL = 3
# Every rank sends these bytes, in short and in long messages.
MARK = b"read me on the wire if you can: "
RANK = """
import kolo
mark = %r
with kolo.Comm() as comm:
    for times in (1, 100, 100000):
        out = bytearray(len(mark) * times * comm.size)
        comm.all_gather(bytearray(mark * times), out)
        assert out == mark * times * comm.size
""" % MARK
# The rendezvous carries addresses of ranks, which begin with this word and the number of sockets.
ADDRESS = b"pctk\x01\0"


def inside(host):
    """Move this thread into the host's network."""
    with open(f"/run/netns/{HOSTS.names[host]}", encoding="utf-8") as file:
        if hasattr(os, "setns"):
            os.setns(file.fileno(), os.CLONE_NEWNET)
        else:
            import ctypes
            ctypes.CDLL(None).setns(file.fileno(), 0x40000000)


class Capture(threading.Thread):
    """All packets of a host's interface, as long as `with` lasts."""

    def __init__(self, host):
        super().__init__()
        self.host, self.packets, self.ends = host, [], threading.Event()
        self.listens = threading.Event()

    def run(self):
        inside(self.host)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as wire:
            wire.bind(("eth0", 0))
            wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            wire.settimeout(0.2)
            self.listens.set()
            while True:
                try:
                    self.packets.append(wire.recv(1 << 16))
                except TimeoutError:
                    if self.ends.is_set():
                        return

    def __enter__(self):
        self.start()
        self.listens.wait()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.join()

    def count(self, text):
        return sum(text in packet for packet in self.packets)


def talk(**more):
    return HOSTS.run([0, 1], [sys.executable, "-c", RANK], PYTHONPATH=os.path.join(SOURCE, "python"),
                     KOLO_LIBRARY=LIBRARY, **more)


def all_good(ends):
    return all(status == 0 for status, _ in ends)


def test_nothing_is_readable():
    """What a capture shows without encryption, it does not show with it."""
    with Capture(0) as plain:
        ends = talk(KOLO_ENCRYPT="0")
    check(all_good(ends) and plain.count(MARK) > 10 and plain.count(ADDRESS) > 0,
          "a capture reads data and addresses of ranks", plain.count(MARK), plain.count(ADDRESS), *tails(ends))
    with Capture(0) as sealed:
        ends = talk(KOLO_ENCRYPT="1")
    check(all_good(ends) and len(sealed.packets) > 100, "and sees as much traffic with KOLO_ENCRYPT=1",
          len(sealed.packets), *tails(ends))
    check(sealed.count(MARK[:12]) == 0, "but no byte of the data", sealed.count(MARK[:12]))
    check(sealed.count(ADDRESS) == 0, "and no address", sealed.count(ADDRESS))


def test_collectives():
    """Every collective, type and operation."""
    ends = HOSTS.run([0, 1, 0], [COLLECTIVES], KOLO_TEST_SHORT="1", KOLO_ENCRYPT="1")
    said = ends[0][1] or ""
    good = len(re.findall(r"^ok ", said, re.M))
    check(all_good(ends) and good > 0 and "not ok" not in said, "every collective is right, encrypted",
          f"{good} were", *tails(ends), *re.findall(r"^not ok.*", said, re.M)[:5])


def test_long_calls():
    """Messages of all lengths, over one connection and over four."""
    for sockets in ("1", "4"):
        ends = HOSTS.run([0, 1], [PERF, "-b", "8", "-e", "16M", "-f", "8", "-n", "3"], KOLO_ENCRYPT="1",
                         KOLO_NSOCKS_PERTHREAD=sockets, KOLO_DEBUG="INFO", KOLO_DEBUG_SUBSYS="NET")
        check(all_good(ends) and "Out of bounds values : 0 OK" in ends[0][1] and ", encrypted" in ends[0][1],
              f"up to 16 MiB arrive right, encrypted, over {sockets} connections", *tails(ends))


def test_all_agree():
    """A rank that does not encrypt is refused, and told so."""
    for here, there in (("1", "0"), ("0", "1")):
        ranks = [HOSTS.start([host], [PERF, "-b", "8", "-e", "8", "-n", "1"], KOLO_NRANKS="2", KOLO_RANK=str(host),
                             KOLO_ENCRYPT=encrypt)[0] for host, encrypt in ((0, here), (1, there))]
        ends = [(rank.wait(60), rank.stdout.read()) for rank in ranks]
        check(all(status not in (0, None) for status, _ in ends) and
              all("KOLO_ENCRYPT is" in out for _, out in ends),
              f"KOLO_ENCRYPT={here} beside KOLO_ENCRYPT={there} is refused on both hosts", *tails(ends))


run_tests(globals())
