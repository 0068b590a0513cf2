#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `kolo sim` predicts with what the sweep programs measure over TCP, between hosts that are
network namespaces of this machine, each behind a NIC that tbf(8) holds to a rate, and, with --tick, whose packets
wait for the next tick of a clock.

The machine is fitted with one algorithm of 2 hosts (see sim_hosts.py): the latency, and the speed of a core that
sends and receives. Half a microsecond of each message is processor time. The rate of the NIC is that of tbf, less
the headers of Ethernet, IP and TCP. All other points are held out.

usage: sim_tcp.py [--build FOLDER] [-n HOSTS,...] [-c COLLECTIVE,...] [--mbit RATE] [--tick US] [--csv FILE]   (as root)
"""
import argparse
import contextlib
import sys

import netns
import sim
import sim_hosts

PAYLOAD = 1448 / 1514  # of a full frame, as tbf counts it
MESSAGE_US = 0.5


@contextlib.contextmanager
def linked(ranks, mbit, tick):
    net = netns.linked(ranks, mbit, tick)
    try:
        yield net
    finally:
        net.remove()


def fit(build, mbit, tick=0):
    """The machine file, as names and values."""
    with linked(2, mbit, tick) as net:
        return sim_hosts.fit(net, build, {"net_gbs": mbit * PAYLOAD / 8000, "net_message_us": MESSAGE_US})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("-n", default="2,4")
    parser.add_argument("-c", default=",".join(sim.PROGRAMS))
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--tick", type=int, default=0)
    parser.add_argument("--csv", help="append the points to this file; -: print them")
    args = parser.parse_args()
    machine = fit(args.build, args.mbit, args.tick)
    print(sim_hosts.text(machine), flush=True)
    name = f"{args.mbit} Mbit/s" + (f", tick {args.tick} us" if args.tick else "")
    rows = []
    for ranks in [int(n) for n in args.n.split(",")]:
        for collective in args.c.split(","):
            with linked(ranks, args.mbit, args.tick) as net:
                found = list(sim_hosts.points(net, args.build, collective, name, machine))
            sim_hosts.write(found, args.csv)
            rows += found
    sim.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
