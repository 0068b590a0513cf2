# SPDX-License-Identifier: Apache-2.0
# covers: src/core/codec.c src/tune/coded.c
"""Compressed calls of several ranks: the told bound holds, and all ranks get the same bits.

usage: codec_test.py CODEC   (the program of codec.c)
"""
import os
import re
import subprocess
import sys

from ranks import output_of
from tap import check, run_tests

CODEC, = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
SLOW_NET = "net_latency_us=50,net_gbs=0.1"  # 1 Gbit/s
NEAR = "cores=2,latency_us=0.2,copy_gbs=20,reduce_gbs=40"  # two cores of one L3, with nobody beside


def run(nranks, *arguments, **more):
    env = {**os.environ, **more, "KOLO_NRANKS": str(nranks),
           "KOLO_JOB": f"codec-{os.getpid()}-{nranks}-{'-'.join(more.values()).replace('=', '')[:60]}"}
    ranks = [subprocess.Popen([CODEC, *arguments], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env={**env, "KOLO_RANK": str(rank)})
             for rank in range(nranks)]
    said = [output_of(process, 120) for process in ranks]
    return [process.returncode for process in ranks], said


def kept(nranks, want, **more):
    statuses, said = run(nranks, "check", want, **more)
    how = " ".join(more.values())
    check(statuses == [0] * nranks, f"{nranks} ranks ({how}) keep the bound, {want}", statuses, *said)


def test_shared_memory():
    """Whatever the number of ranks, and in rank order, too."""
    for nranks in range(2, 9) if WHOLE else (2, 8):
        kept(nranks, "compressed", KOLO_CODEC="always")
    kept(3, "compressed", KOLO_CODEC="always", KOLO_DETERMINISTIC="1", KOLO_VERIFY="1")


def test_messages():
    """Over connections, as between hosts."""
    for nranks in range(2, 9) if WHOLE else (4,):
        kept(nranks, "compressed", KOLO_CODEC="always", KOLO_TRANSPORT="tcp")


def test_no_codec():
    kept(2, "uncompressed", KOLO_CODEC="never", KOLO_TRANSPORT="tcp")


def choices(nranks, **more):
    """What the log says of the choices of compressed calls, by collective, codec and bytes."""
    statuses, said = run(nranks, "check", "either", KOLO_DEBUG="INFO", KOLO_DEBUG_SUBSYS="TUNE", **more)
    check(statuses == [0] * nranks, f"{nranks} ranks ({' '.join(more.values())}) keep the bound", statuses, *said)
    lines = re.findall(r"(\w+): (\d+) Bytes, codec (\w+) -> (\w+) \((.*?)\)", "\n".join(said))
    return {(coll, codec, int(size)): (how, why) for coll, size, codec, how, why in lines}


def test_choice_by_price():
    """Slow links pay for the codec from a size on; shared memory of near cores never does."""
    seen = choices(2, KOLO_TRANSPORT="tcp", KOLO_COSTS=SLOW_NET)
    by_size = sorted((size, how) for (coll, codec, size), (how, _) in seen.items()
                     if coll == "AllReduce" and codec == "int8")
    hows = [how for _, how in by_size]
    check(hows and hows[0] == "uncompressed" and hows[-1] == "compressed" and hows == sorted(hows, reverse=True),
          "over a slow link short calls go uncompressed, and long calls compressed", by_size)
    seen = choices(2, KOLO_TRANSPORT="shm", KOLO_COSTS=NEAR)
    check(seen and all(how == "uncompressed" for how, _ in seen.values()),
          "in shared memory of near cores all calls go uncompressed", seen)


def test_rules():
    """A ring of three encodes partial sums again, so that its rule leaves the call uncompressed."""
    seen = choices(3, KOLO_CODEC="always", KOLO_ALGO="allreduce:ring")
    said = {how for (coll, _, _), how in seen.items() if coll == "AllReduce"}
    check(said == {("uncompressed", "no admissible plan")}, "a rule for a ring of 3 ranks goes before the codec", said)


def test_mismatch():
    """Ranks that name different codecs hear of both calls."""
    for transport in ("shm", "tcp"):
        statuses, said = run(3, "mismatch", KOLO_TRANSPORT=transport)
        named = [text for text in said if text.startswith("KOLO_ERR_MISMATCH") and "codec int8" in text and
                 "codec bf16" in text]
        check(len(named) == 3, f"all ranks name both codecs over {transport}", statuses, *said)
    statuses, said = run(2, "check", KOLO_CODEC="sometimes")
    check(all("KOLO_CODEC" in text and "always" in text for text in said), "a wrong KOLO_CODEC is refused",
          statuses, *said)


run_tests(globals())
