# SPDX-License-Identifier: Apache-2.0
"""One process of a JAX program, for jax_test.py.

usage: jax_ranks.py equal     every collective on every type; prints a line for each
       jax_ranks.py late      the last process stops between two collectives
       jax_ranks.py early     it stops before the first one, for which XLA makes a communicator
       jax_ranks.py joined    a sum of processes that meet by kolo.jax.join()
RANK, WORLD_SIZE and COORDINATOR say which process this is; COLLECTIVES is mpi or gloo.
"""
import os
import signal
import sys

WHAT = sys.argv[1]
if WHAT == "joined":
    import kolo.jax
import jax
import numpy
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

RANK, RANKS = int(os.environ.pop("RANK")), int(os.environ.pop("WORLD_SIZE"))
TYPES = ("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 complex64 complex128").split()
COUNT = 12  # of a process's elements, a multiple of the processes


def shift(x):
    return lax.ppermute(x, "i", [(rank, (rank + 1) % RANKS) for rank in range(RANKS)])


def shift_one(x):
    return lax.ppermute(x, "i", [(0, RANKS - 1)])


MOVES = {"all_gather": lambda x: lax.all_gather(x, "i", tiled=True), "ppermute": shift, "ppermute of one": shift_one,
         "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True)}
SUMS = {"psum": lambda x: lax.psum(x, "i"),
        "psum_scatter": lambda x: lax.psum_scatter(x, "i", scatter_dimension=0, tiled=True)}
ORDERS = {"pmax": lambda x: lax.pmax(x, "i"), "pmin": lambda x: lax.pmin(x, "i")}


def mesh_of(devices):
    return jax.sharding.Mesh(numpy.array(devices), ("i",))


def values(kind):
    """Small whole numbers: a sum of them is exact in any order."""
    numbers = (numpy.arange(COUNT) * 3 + RANK * 5) % 7
    if kind == "bool":
        return numbers % 2 == 1
    return (numbers + (1j * (numbers - 3) if kind.startswith("complex") else 0)).astype(kind)


def on_all(function, own):
    """What a function of all processes gives this one."""
    mesh = mesh_of(jax.devices())
    split = PartitionSpec("i")
    whole = jax.make_array_from_process_local_data(NamedSharding(mesh, split), own)
    mapped = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=split, out_specs=split))
    return numpy.asarray(mapped(whole).addressable_data(0))


def reduced(function, own):
    """A reduction of a divided array: XLA makes an all-reduce of it, also one by * or by &."""
    split = NamedSharding(mesh_of(jax.devices()), PartitionSpec("i"))
    whole = jax.make_array_from_process_local_data(split, own)
    return numpy.asarray(jax.jit(function)(whole).addressable_data(0))


def factors(kind):
    """Of a product that is exact."""
    bits = values("int32") % 2
    return (1 + (1j if kind.startswith("complex") else 1) * bits).astype(kind)


def equal():
    for kind in TYPES[1:]:
        print("TOLD product", kind, reduced(jax.numpy.prod, factors(kind)).tolist(), flush=True)
    for function in (jax.numpy.all, jax.numpy.any):
        print("TOLD", function.__name__, reduced(function, values("bool")).tolist(), flush=True)
    for kind in TYPES:
        functions = dict(MOVES)
        if kind != "bool":
            functions |= SUMS
        if not kind.startswith("complex") and kind != "bool":
            functions |= ORDERS
        for name, function in functions.items():
            print("TOLD", name, kind, on_all(function, values(kind)).tolist(), flush=True)
    print("TOLD end", flush=True)


def stop(is_late):
    own = values("float32")
    if is_late:
        on_all(SUMS["psum"], own)
    jax.devices()  # which all processes tell each other
    print("TOLD ready", flush=True)
    if RANK == RANKS - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        on_all(SUMS["psum"], own)
        print("TOLD no error", flush=True)
    except Exception as error:  # of JAX, or of XLA
        print("TOLD", type(error).__name__, str(error).replace("\n", " "), flush=True)
    os._exit(0)  # JAX's shutdown waits for the stopped process


jax.config.update("jax_cpu_collectives_implementation", os.environ["COLLECTIVES"])
jax.config.update("jax_enable_x64", True)
jax.distributed.initialize(os.environ["COORDINATOR"], RANKS, RANK)
if WHAT == "joined":
    kolo.jax.join()
    print("TOLD", on_all(SUMS["psum"], values("int32")).tolist())
else:
    {"equal": equal, "late": lambda: stop(True), "early": lambda: stop(False)}[WHAT]()
