#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc
"""PyTorch's own tests of torch.distributed, over kolo.

The file is the one of the installed wheel, torch/testing/_internal/distributed/distributed_test.py,
unchanged. Its tests choose themselves by the name of the backend: what gloo runs is taken from the
file as it is for gloo, what only mpi runs (all-to-all on the CPU) from the file as it is for mpi.
The process groups are kolo's, in both. With KOLO_TORCH_AS=gloo in the environment they are kolo's in
gloo's place: the file finds nothing but gloo.

With KOLO_TEST_DEVICE=cuda:N in the environment, on a machine of N GPUs, it is taken as it is for nccl,
with a rank a GPU; of that only ON_GPUS runs.

usage: torch_suite.py [-k PATTERN] [--backend kolo|gloo]
Ranks are forked, so that a test costs no new start of torch. The output is TAP. What fails must be in
torch_suite_known.txt, with its reason, and what is there must fail. Without -k and without
KOLO_TEST_FULL=1 in the environment, only QUICK runs. In gloo's place, every second test of the others runs, and
all with KOLO_TEST_WHOLE=1: the process groups are the same ones.
"""
import argparse
import importlib.util
import logging
import os
import pathlib
import re
import sys
import time
import unittest

GPUS = int(os.environ.get("KOLO_TEST_DEVICE", "cpu").partition(":")[2] or 0)
os.environ["WORLD_SIZE"] = str(GPUS or 3)  # many tests use ranks 1 and 2 as a group
if not GPUS:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402

logging.disable(logging.WARNING)  # which process has which number

import kolo_torch  # noqa: E402

KNOWN = pathlib.Path(__file__).with_name("torch_suite_known.txt")
QUICK = r"(all_reduce_sum|all_gather|all_to_all|reduce_sum|broadcast|send_recv|isend|barrier|scatter|new_group)$"
ON_GPUS = r"(cuda|nccl)"
FILE = "torch.testing._internal.distributed.distributed_test"


AS_GLOO = os.environ.get("KOLO_TORCH_AS") == "gloo"


def load(backend):
    """The file, as it is for `backend`."""
    os.environ["BACKEND"] = backend
    spec = importlib.util.find_spec(FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.PROFILING_SUPPORTED_BACKENDS.append("kolo")
    module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append("kolo")
    return module


def over(module, backend):
    """The file's test class, whose ranks meet over `backend`."""

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *args, **kwargs):
            init = dist.init_process_group

            def init_process_group(*a, **k):
                if "backend" in k:
                    k["backend"] = backend
                init(*a, **k)
                if AS_GLOO:
                    served = dist.group.WORLD._get_backend(torch.device("cpu"))
                    served = getattr(served, "wrapped_pg", served)
                    assert isinstance(served, kolo_torch._C.InPlaceOfGloo), served

            dist.init_process_group = init_process_group
            sys.modules[FILE] = module  # where pickle looks for its classes
            if not GPUS and "accumulate_gradients" not in args[1]:  # whose bodies ask whether it is gloo
                module.BACKEND = backend
            if backend == "kolo":  # torch's own serves gloo alone
                dist.monitored_barrier = kolo_torch.monitored_barrier
            return super()._run(*args, **kwargs)

    return Suite


def is_skipped(suite, name):
    return getattr(getattr(suite, name), "__unittest_skip__", False)


def tests(backend):
    if GPUS:
        nccl = over(load("nccl"), backend)
        names = unittest.TestLoader().getTestCaseNames(nccl)
        yield from (nccl(name) for name in names if not is_skipped(nccl, name))
        return
    gloo, mpi = over(load("gloo"), backend), over(load("mpi"), backend)
    for name in unittest.TestLoader().getTestCaseNames(gloo):
        if not is_skipped(gloo, name):
            yield gloo(name)
        elif not is_skipped(mpi, name) and "all_to_all" in name and "cuda" not in name:
            yield mpi(name)


def known():
    """Names of tests that fail, each with its reason."""
    table = {}
    for line in KNOWN.read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(None, 1)
            table[name] = reason
    return table


def run(test):
    """("passed" | "failed" | "skipped", what is to be said of it)"""
    result = unittest.TestResult()
    test.run(result)
    bad = result.failures + result.errors
    if bad:
        return "failed", bad[0][1]
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "passed", ""


def main():
    if importlib.util.find_spec("expecttest") is None:
        print("1..0 # SKIP PyTorch's own tests need expecttest, which is not installed")
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("-k", dest="pattern")
    parser.add_argument("--backend", default="gloo" if AS_GLOO else "kolo")
    args = parser.parse_args()
    everything = "" if os.environ.get("KOLO_TEST_FULL") == "1" else ON_GPUS if GPUS else QUICK
    pattern = everything if args.pattern is None else args.pattern
    expected = known() if args.backend == "kolo" else {}
    counts = dict.fromkeys(["passed", "failed", "known", "skipped"], 0)
    thin = AS_GLOO and not args.pattern and not os.environ.get("KOLO_TEST_WHOLE")
    for number, test in enumerate(tests(args.backend)):
        name = test._testMethodName
        if not re.search(pattern, name) or (thin and number % 2 and not re.search(QUICK, name)):
            continue
        start = time.monotonic()
        status, text = run(test)
        if status == "failed" and name in expected:
            status, text = "known", expected[name]
        elif status == "passed" and name in expected:
            status, text = "failed", f"it is in {KNOWN.name}, and passes"
        counts[status] += 1
        report(sum(counts.values()), name, status, text, time.monotonic() - start)
    print(f"1..{sum(counts.values())}")
    print("# " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if counts["failed"] else 0


def report(number, name, status, text, seconds):
    """A line of TAP; a test that is known to fail counts as skipped."""
    result = "not ok" if status == "failed" else "ok"
    skip = {"known": " # SKIP known to fail: ", "skipped": " # SKIP "}.get(status)
    print(f"{result} {number} - {name}{skip + text.splitlines()[0] if skip else ''}")
    print(f"# {seconds:.1f} s")
    if status == "failed":
        print("# " + text.strip().replace("\n", "\n# "))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
