#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times JAX's collectives between processes on CPUs over kolo and over gloo, by turns.

A time is that of one call of a jitted function with one collective, as Python sees it, in a batch that is
waited for at its end. Bytes are those that a process gives. A row is the median over turns of the slowest
process. Needs ./setup --jax.

usage: jax_calls.py [--build FOLDER] [-n PROCESSES] [-b BYTES] [-e BYTES] [-f FACTOR] [-o CALL,...] [--turns T]
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-jax/bin/python"
CALLS = ("psum", "all_gather", "psum_scatter", "ppermute", "all_to_all")
BATCH_S = 0.15
LIMIT_S = 300


# ---- in each process ----


def collectives(lax, ranks):
    return {"psum": lambda x: lax.psum(x, "i"), "all_gather": lambda x: lax.all_gather(x, "i", tiled=True),
            "psum_scatter": lambda x: lax.psum_scatter(x, "i", scatter_dimension=0, tiled=True),
            "ppermute": lambda x: lax.ppermute(x, "i", [(rank, (rank + 1) % ranks) for rank in range(ranks)]),
            "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True)}


def be_rank(args):
    import jax
    import numpy

    rank, ranks = int(os.environ["KOLO_RANK"]), int(os.environ["KOLO_NRANKS"])
    jax.config.update("jax_cpu_collectives_implementation", args["kind"])
    jax.distributed.initialize(args["coordinator"], ranks, rank)
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("i",))
    split = jax.sharding.PartitionSpec("i")
    functions = collectives(jax.lax, ranks)
    times = {}
    for name in args["calls"]:
        function = jax.jit(jax.shard_map(functions[name], mesh=mesh, in_specs=split, out_specs=split))
        for size in args["sizes"]:
            whole = jax.make_array_from_process_local_data(jax.sharding.NamedSharding(mesh, split),
                                                           numpy.ones(size // 4, numpy.float32))
            times[f"{name} {size}"] = time_of(function, whole, args["calls_of"].get(f"{name} {size}"))
    print("TIMES", json.dumps(times), flush=True)


def batch(function, value, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        out = function(value)
    out.block_until_ready()
    return (time.perf_counter() - begin) / calls


def time_of(function, value, calls):
    """Microseconds of a call, the median of five batches. All processes make the same number of calls."""
    batch(function, value, 20)
    return statistics.median(batch(function, value, calls) for _ in range(5)) * 1e6


# ---- the comparison ----


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(options, kind, calls_of):
    """{"call bytes": us of the slowest process} of one turn."""
    args = {"kind": kind, "coordinator": f"127.0.0.1:{free_port()}", "calls": options.calls, "sizes": options.sizes,
            "calls_of": calls_of}
    env = {**os.environ, "KOLO_TUNE_FILE": "none",
           "MPITRAMPOLINE_LIB": os.path.join(options.build, "src/mpi/trampoline/libkolo_mpitrampoline.so")}
    command = [os.path.join(options.build, "tools/kolo"), "run", "-n", str(options.processes), str(PYTHON), __file__,
               "--rank", json.dumps(args)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    told = [json.loads(line.split("TIMES ", 1)[1]) for line in ran.stdout.splitlines() if "TIMES " in line]
    if len(told) != options.processes:
        raise SystemExit(f"jax_calls: {kind}: status {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return {key: max(times[key] for times in told) for key in told[0]}


def sizes_of(options):
    size = options.least
    while size <= options.most:
        yield size
        size *= options.factor


def main():
    if sys.argv[1:2] == ["--rank"]:
        return be_rank(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1])
    parser.add_argument("--build", type=os.path.abspath, default=ROOT / "build")
    parser.add_argument("-n", dest="processes", type=int, default=2)
    parser.add_argument("-b", dest="least", type=int, default=64)
    parser.add_argument("-e", dest="most", type=int, default=65536)
    parser.add_argument("-f", dest="factor", type=int, default=4)
    parser.add_argument("-o", dest="calls", type=lambda text: text.split(","), default=list(CALLS))
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit("jax_calls: there is no JAX here: ./setup --jax")
    options.sizes = list(sizes_of(options))
    keys = [f"{name} {size}" for name in options.calls for size in options.sizes]
    turns = {"mpi": [], "gloo": []}
    calls_of = {kind: dict.fromkeys(keys, 20) for kind in turns}
    for _ in range(options.turns + 1):  # the first tells how many calls fill a batch
        for kind, done in turns.items():
            done.append(run(options, kind, calls_of[kind]))
            calls_of[kind] = {key: max(10, min(3000, int(BATCH_S * 1e6 / us))) for key, us in done[0].items()}
    print(f"{'call':14}{'bytes':>8}{'kolo us':>10}{'gloo us':>10}{'gloo/kolo':>11}")
    for key in keys:
        name, size = key.split()
        kolo, gloo = (statistics.median(turn[key] for turn in turns[kind][1:]) for kind in ("mpi", "gloo"))
        print(f"{name:14}{size:>8}{kolo:10.1f}{gloo:10.1f}{gloo / kolo:11.1f}")


if __name__ == "__main__":
    main()
