#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compressed calls beside uncompressed ones over TCP, between hosts that are network namespaces of this
machine, each behind a NIC that tbf(8) holds to a rate (see netns.py). The table is that of codec.c.

usage: codec.py [--build FOLDER] [-n HOSTS] [--mbit RATE,...] [-c COLLECTIVE,...] [--rounds N] [BYTES...]
       (as root)
"""
import argparse
import os
import sys

import netns
from netns import hosts


def measure(args, mbit):
    net = hosts.Hosts(args.n)
    try:
        if net.why:
            raise RuntimeError(net.why)
        netns.shape(net, mbit)
        for collective in args.c.split(","):
            command = [os.path.abspath(f"{args.build}/perf/codec"), collective, str(args.rounds), *args.bytes]
            ends = net.run(list(range(args.n)), command, KOLO_COSTS=f"net_latency_us=50,net_gbs={mbit / 8000}")
            if any(status != 0 for status, _ in ends):
                raise RuntimeError("\n".join(hosts.tails(ends)))
            for line in ends[0][1].splitlines():
                print(f"{args.n} hosts, {mbit} Mbit/s: {line}", flush=True)
    finally:
        net.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--mbit", default="1000")
    parser.add_argument("-c", default="all_reduce,all_gather,reduce_scatter")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("bytes", nargs="*")
    args = parser.parse_args()
    for mbit in args.mbit.split(","):
        measure(args, int(mbit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
