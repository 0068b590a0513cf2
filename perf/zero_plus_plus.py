#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that ZeRO's ways of training send between hosts, and their losses. The hosts are network namespaces
of this machine. The bytes are those that each host's interface has counted, headers included.

usage: zero_plus_plus.py [--build FOLDER] [--hosts N] [--ranks N] [--steps N] [WAY[:PRECISION]...]   (as root)
       A rank runs in this Python, which needs PyTorch, scikit-learn and matplotlib.
"""
import argparse
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/netns"))
import hosts  # noqa: E402

WAYS = ("zero3", "hpz", "qwz", "qgz", "zero++", "zero3:bf16", "zero++:bf16")
LIMIT_S = 3600


def measure(args, net, way, precision):
    """(bytes of a step between hosts, mean loss of the last tenth of the steps)."""
    places = [host for host in range(args.hosts) for _ in range(args.ranks)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command = [sys.executable, "-m", "kolo_train", "--parallel", way, "--precision", precision,
                   "--steps", str(args.steps), "--json", path]
        before = sum(net.sent_bytes(host) for host in range(args.hosts))
        ends = net.run(places, command, LIMIT_S, KOLO_JOB=net.tag + way + precision, KOLO_LOCAL_SIZE=str(args.ranks),
                       KOLO_CODEC="always", OMP_NUM_THREADS="1",
                       PYTHONPATH=f"{ROOT}/train:{os.path.abspath(args.build)}/torch")
        if any(status != 0 for status, _ in ends):
            raise RuntimeError("\n".join(hosts.tails(ends)))
        sent = sum(net.sent_bytes(host) for host in range(args.hosts)) - before
        with open(path, encoding="utf-8") as file:
            losses = json.load(file)["losses"]
    tail = losses[-max(1, len(losses) // 10):]
    return sent / args.steps, sum(tail) / len(tail)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of a host")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("ways", nargs="*", default=WAYS)
    args = parser.parse_args()
    net = hosts.Hosts(args.hosts)
    if net.why:
        sys.exit(f"no network namespaces here: {net.why}")
    first = {}
    print("way       precision  bytes a step  of the first    loss  of the first", flush=True)
    try:
        for asked in args.ways:
            way, _, precision = asked.partition(":")
            precision = precision or "fp32"
            sent, loss = measure(args, net, way, precision)
            sent_first, loss_first = first.setdefault(precision, (sent, loss))
            print(f"{way:<10}{precision:<9}{sent:>14,.0f}{sent / sent_first:>14.3f}{loss:>8.4f}{loss / loss_first:>14.4f}",
                  flush=True)
    finally:
        net.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
