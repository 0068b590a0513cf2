# SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed as forked processes, and the tests in this folder as TAP.

A test is a function whose name is a sentence, test_that_sums_are_right(); it calls on_ranks(), or
asserts by itself. torch is loaded once and forked, so that a rank costs no new start of it: the
parent must not compute with torch. KOLO_TEST_DEVICE=cuda:N makes tensors of the ranks CUDA's, those
of rank r on GPU r modulo N: `gpu` is that of fake_device.py, or a real one where torch is built for it.
"""
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

import kolo_torch  # noqa: F401  (registers the backend)

DEVICE = os.environ.get("KOLO_TEST_DEVICE", "cpu")
if DEVICE != "cpu" and torch.version.cuda is None:
    from fake_device import gpu
elif DEVICE != "cpu":
    from real_device import gpu

LIMIT_S = 90
context = multiprocessing.get_context("fork")


def _rank(body, rank, ranks, store, pipe, init):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if DEVICE != "cpu":
        gpus = int(DEVICE.partition(":")[2] or 1)
        gpu.set_device(rank % gpus)
        torch.set_default_device(f"cuda:{rank % gpus}")
    try:
        options = {"backend": "kolo", "timeout": timedelta(seconds=60), **init}
        dist.init_process_group(init_method=f"file://{store}", rank=rank, world_size=ranks, **options)
        result = body(rank)
        if dist.is_initialized():
            dist.destroy_process_group()
        answer = ("ok", result)
    except BaseException:
        answer = ("failed", traceback.format_exc())
    pipe.send_bytes(pickle.dumps(answer))  # torch's own pickler would share memory of a process that ends
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # as multiprocessing's own children: without what the parent registered


def start(body, ranks, folder, **init):
    """[(process, pipe)] of `ranks` processes that run body(rank) in one process group."""
    started = []
    for rank in range(ranks):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (body, rank, ranks, os.path.join(folder, "store"), theirs, init)
        process = context.Process(target=_rank, args=arguments)
        process.start()
        theirs.close()
        started.append((process, ours))
    return started


def collect(started, limit_s=LIMIT_S):
    """[("ok", result) | ("failed", traceback) | ("died", exit code) | ("hung", None)] of each rank."""
    end, results = time.monotonic() + limit_s, []
    for process, pipe in started:
        try:
            came = pipe.poll(max(0, end - time.monotonic()))
            results.append(pickle.loads(pipe.recv_bytes()) if came else ("hung", None))
        except EOFError:
            process.join(5)
            results.append(("died", process.exitcode))
    for process, _ in started:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()
    return results


def on_ranks(ranks, body, limit_s=LIMIT_S, **init):
    """What body(rank) returned on each of `ranks` ranks. Every rank must end well, within `limit_s` seconds."""
    with tempfile.TemporaryDirectory(prefix="torch-test-") as folder:
        results = collect(start(body, ranks, folder, **init), limit_s)
    for rank, (state, result) in enumerate(results):
        assert state == "ok", f"rank {rank} of {ranks} {state}: {result}"
    return [result for _, result in results]


def alone(body):
    """What body(0) returns in a process group of one rank: the reference of the others."""
    return on_ranks(1, body)[0]


def run_tests(names, gpus_by_turns=False):
    """Call every test_*() of a module, whose globals() these are; print TAP and leave. A test that cannot
    run here returns the reason. By turns: on the simulated driver every second test has one GPU for all ranks,
    and the others have two; with KOLO_TEST_WHOLE all have both."""
    tests = sorted(name for name in names if name.startswith("test_"))
    if gpus_by_turns and DEVICE != "cpu" and torch.version.cuda is None and not os.environ.get("KOLO_TEST_WHOLE"):
        tests = tests[int(DEVICE.partition(":")[2] or 1) % 2 :: 2]
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    failed = 0
    print(f"1..{len(tests)}", flush=True)
    for number, name in enumerate(tests, 1):
        sentence = name[len("test_") :].replace("_", " ")
        if pattern not in name:
            print(f"ok {number} - {sentence} # SKIP not asked for", flush=True)
            continue
        try:
            reason = names[name]()
            print(f"ok {number} - {sentence}{f' # SKIP {reason}' if reason else ''}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {sentence}")
            print("# " + traceback.format_exc().replace("\n", "\n# "), flush=True)
    sys.exit(1 if failed else 0)
