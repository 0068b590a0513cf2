# SPDX-License-Identifier: Apache-2.0
# covers: tests/gpu/probe.c
"""The probe tells a driver whose calls wait for all queued work from one whose calls do not.

usage: probe_test.py PROBE   (with KOLO_CUDA_PATH: the simulated driver)
"""
import os
import re
import subprocess
import sys

from tap import check, run_tests

PROBE = sys.argv[1]
STRICT = "100"  # seconds, more than the probe lets a call wait: it is the one that tells


def ask(word, **more):
    """The answers to the questions with a word in their name, by name."""
    said = subprocess.run([PROBE, word], env={**os.environ, **more}, text=True, timeout=100,
                          stdout=subprocess.PIPE, check=True).stdout
    return {line[:32].strip(): line[32:] for line in said.splitlines()}


def test_waits():
    strict, plain = (ask("cuMemFree 1", **more)["cuMemFree 1 KiB"]
                     for more in ({"FAKE_CUDA_STRICT": STRICT}, {}))
    check(strict.startswith("waits; ") and "copy waits" in strict,
          "a free that waits is told, and whom it holds up", strict)
    check(plain.startswith("passes"), "a free that does not wait is told", plain)


def test_passes():
    said = ask("cuMemAlloc", FAKE_CUDA_STRICT=STRICT)
    check(len(said) == 2 and all(text.startswith("passes") for text in said.values()),
          "allocating passes", said)


def test_entries():
    said = ask("entries", FAKE_CUDA_STRICT=STRICT)["entries of a stream"]
    # The stream may have taken the wait out of its queue.
    check(re.match("102[34] entries, then the call waits", said), "the room of a stream is counted", said)
    check("query waits, copy waits" in said, "and whom a call holds up that finds none", said)


def test_queues():
    def stuck(name, **more):
        return int(ask(name, **more)[name].split()[0])

    eight, many, urgent = (stuck(name, FAKE_CUDA_STRICT=STRICT) for name in
                           ("streams, 8 connections", "streams, 32 connections", "urgent streams, 8 connections"))
    check(eight > many and urgent == 0, "streams that share a hardware queue with one that waits are counted",
          eight, many, urgent)
    check(stuck("streams, 8 connections") == 0, "where none share, none are stuck")


def test_processes():
    said = ask("made anew", FAKE_CUDA_STRICT=STRICT, FAKE_CUDA_SHARES="1")
    check("results 0 and 208" in said["a handle of memory made anew"],
          "a handle whose addresses an older mapping has is refused", said)


run_tests(globals())
