#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `kolo sim` predicts with what the sweep programs measure over verbs, between the two hosts of a guest
over one rail of Soft-RoCE.

The machine is fitted with one algorithm (see sim_hosts.py): the latency, and the speed of a core that sends and
receives. The processor of a host is its NIC, which makes and takes all packets, and their wire is memory. All other
points are held out.

  tests/guest/run -t 580 python3 perf/sim_verbs.py --build build [-c COLLECTIVE,...] [--csv FILE]

What a guest writes to a file is lost; --csv - prints the points of each collective when it has them.
"""
import argparse
import os
import sys

import sim
import sim_hosts
import verbs

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/guest"))
import guest  # noqa: E402  pylint: disable=wrong-import-position

RENDEZVOUS_BYTES = 64 << 10  # KOLO_VERBS_LONG of transports/verbs
MESSAGE_US = 0.5
NET_GBS = 1  # far faster than the emulated processors


class Hosts(guest.Guest):
    """Each on a CPU of its own, with one rail."""

    def inside(self, host, command):
        return super().inside(host, [*verbs.PINNED, str(host), *command])

    def environment(self, rank, nranks, **more):
        return super().environment(rank, nranks, KOLO_TRANSPORT="verbs", KOLO_IB_HCA=",".join(verbs.DEVICES),
                                   KOLO_TUNE_FILE="none", **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("-c", default=",".join(sim.PROGRAMS))
    parser.add_argument("--csv", help="append the points to this file; -: print them")
    args = parser.parse_args()
    verbs.keep_order()
    net = Hosts()
    sim_hosts.measured_once(net, args.build, "allreduce", "doubling")  # an emulator is slow at first
    machine = sim_hosts.fit(net, args.build, {"net_gbs": NET_GBS, "net_message_us": MESSAGE_US,
                                              "net_rendezvous_bytes": RENDEZVOUS_BYTES})
    print(sim_hosts.text(machine), flush=True)
    rows = []
    for collective in args.c.split(","):
        found = list(sim_hosts.points(net, args.build, collective, "verbs", machine))
        sim_hosts.write(found, args.csv)
        rows += found
    sim.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
