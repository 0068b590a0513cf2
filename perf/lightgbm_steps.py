#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LightGBM's network over kolo and over its own sockets, by turns: the time that training spends in it.

usage: lightgbm_steps.py [--rows N] [--columns N] [--rounds N] [--turns N]   (with .venv-frameworks/bin/python3, after a build)

Two ranks train the data-parallel learner on rows of their own. Over kolo the time is that inside the hooks; over
sockets it is what LightGBM says of itself at its end. Either has the wait for the other rank in it. What counts is
the rank that spent less, which waited less. The models are compared.
"""
import argparse
import hashlib
import os
import re
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RANKS = 2


def rank_main(over, rows, columns, rounds, ports):
    """Train as one rank; prints the seconds of all and of the hooks, and a digest of the trees."""
    import kolo
    import kolo.lightgbm
    import lightgbm
    import numpy

    rank = int(os.environ["RANK"])
    random = numpy.random.default_rng(7)
    x = random.normal(size=(rows, columns))
    y = x[:, 0] * 2 + numpy.sin(x[:, 1]) + random.normal(size=rows) * 0.1
    spent = [0.0]

    def timed(make):
        def with_comm(comm):
            inner = make(comm)

            def run(*arguments):
                begin = time.perf_counter()
                inner(*arguments)
                spent[0] += time.perf_counter() - begin

            return run

        return with_comm

    if over == "kolo":
        kolo.lightgbm._reduce_scatter = timed(kolo.lightgbm._reduce_scatter)
        kolo.lightgbm._all_gather = timed(kolo.lightgbm._all_gather)
        comm = kolo.Comm()
        network = kolo.lightgbm.attach(comm)
    else:
        network = {"machines": ",".join(f"127.0.0.1:{port}" for port in ports), "local_listen_port": ports[rank],
                   "num_machines": RANKS, "pre_partition": True, "time_out": 1}
    settings = {"objective": "regression", "num_leaves": 31, "verbosity": 1, "tree_learner": "data", "seed": 1,
                "num_threads": 1, "force_col_wise": True, **network}
    mine = slice(rank, None, RANKS)
    data = lightgbm.Dataset(x[mine], y[mine], params=settings)
    begin = time.perf_counter()
    model = lightgbm.train(settings, data, num_boost_round=rounds)
    took = time.perf_counter() - begin
    trees = model.model_to_string().split("\nparameters:")[0]
    print(f"took {took} spent {spent[0]} trees {hashlib.sha256(trees.encode()).hexdigest()}", flush=True)
    if over == "kolo":
        kolo.lightgbm.detach()
        comm.close()
    else:
        lightgbm.basic._LIB.LGBM_NetworkFree()


def free_ports():
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(RANKS)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def turn(over, args):
    """(seconds of training, seconds in the network, trees) of one job."""
    words = [sys.executable, __file__, "--rank", over, str(args.rows), str(args.columns), str(args.rounds),
             *map(str, free_ports())]
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "KOLO_JOB": f"lightgbm-{os.getpid()}",
                   "KOLO_LIBRARY": os.path.join(ROOT, "build/libkolo.so.0"), "KOLO_NRANKS": str(RANKS)}
    jobs = [subprocess.Popen(words, env={**environment, "RANK": str(rank), "KOLO_RANK": str(rank)}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(RANKS)]
    said = [job.communicate()[0] for job in jobs]
    if any(job.returncode for job in jobs):
        sys.exit("\n".join(said))
    took = [float(re.search(r"took (\S+)", one)[1]) for one in said]
    spent = [float(re.search(r"spent (\S+)" if over == "kolo" else r"Finished linking network in (\S+)", one)[1])
             for one in said]
    return max(took), min(spent), {re.search(r"trees (\S+)", one)[1] for one in said}


def main():
    if sys.argv[1:2] == ["--rank"]:
        over, *numbers = sys.argv[2:]
        rows, columns, rounds, *ports = map(int, numbers)
        return rank_main(over, rows, columns, rounds, ports)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rows", 20000), ("columns", 50), ("rounds", 20), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    found = {"kolo": [], "sockets": []}
    trees = set()
    for _ in range(args.turns):
        for over, times in found.items():
            took, spent, made = turn(over, args)
            times.append((took, spent))
            trees |= made
    if len(trees) != 1:
        sys.exit(f"the models differ: {trees}")
    took, spent = ({over: statistics.median(one[i] for one in times) for over, times in found.items()} for i in (0, 1))
    for over in found:
        print(f"{over:>8}: training {took[over]:.3f} s, in the network {spent[over]:.3f} s")
    print(f"sockets over kolo: training {took['sockets'] / took['kolo']:.2f}, network {spent['sockets'] / spent['kolo']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
