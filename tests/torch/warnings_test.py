# SPDX-License-Identifier: Apache-2.0
# covers: torch src/boot src/util
"""Warnings at the default log level: who waits says on standard error for which rank."""
import os
import sys

if os.environ.pop("TORCH_CPP_LOG_LEVEL", None):  # launch.py silences c10d, whose log this is about
    os.execv(sys.executable, [sys.executable, *sys.argv])

import signal  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
from datetime import timedelta  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from ranks import run_tests  # noqa: E402

import kolo_torch  # noqa: E402,F401

LIMIT_S = 120


def start_rank(rank, store, before_call):
    """(process id, file of what it says) of one of two ranks. before_call(rank) runs between init and call."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(theirs, 2)
            os.close(theirs)
            os.close(ours)
            dist.init_process_group("kolo", init_method=f"file://{store}", rank=rank, world_size=2,
                                    timeout=timedelta(seconds=LIMIT_S))
            before_call(rank)
            t = torch.ones(1)
            dist.all_reduce(t)
            dist.destroy_process_group()
            os._exit(0 if t.item() == 2 else 1)
        except BaseException as error:
            os.write(2, f"failed: {error}\n".encode())
            os._exit(1)
    os.close(theirs)
    return pid, os.fdopen(ours, encoding="utf-8", errors="replace")


def read_until(file, words):
    """The first line of a rank that has the words; "" if the rank has ended without it."""
    for line in file:
        if all(word in line for word in words):
            return line
    return ""


def end(pids):
    """The exit statuses of the ranks."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def kill_later(pids):
    """A timer that ends ranks which would wait for ever; the caller cancels it."""
    def kill():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(LIMIT_S, kill)
    timer.daemon = True
    timer.start()
    return timer


def test_a_rank_that_stops_is_named_on_standard_error():
    def stop(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    with tempfile.TemporaryDirectory(prefix="torch-test-") as folder:
        started = [start_rank(rank, os.path.join(folder, "store"), stop) for rank in range(2)]
        pids = [pid for pid, _ in started]
        timer = kill_later(pids)
        line = read_until(started[0][1], ["[c10d] kolo:", "rank 1", "stopped"])
        os.kill(pids[1], signal.SIGCONT)
        statuses = end(pids)
        timer.cancel()
    assert "[W" in line and statuses == [0, 0], (line, statuses)


def test_a_rank_that_does_not_come_is_named_after_ten_seconds():
    """To a call, and to join: rank 1, and rank 0, whose id the others need. All three at once."""
    ready, go = os.pipe()
    at_once = lambda rank: None  # noqa: E731
    to_call = lambda rank: rank == 1 and os.read(ready, 1)  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="torch-test-") as folder:
        stores = [os.path.join(folder, f"store{job}") for job in range(3)]
        called = [start_rank(rank, stores[0], to_call) for rank in range(2)]
        joined = [start_rank(1 - who, stores[1 + who], at_once) for who in range(2)]
        pids = [pid for pid, _ in called + joined]
        timer = kill_later(pids)
        lines = [read_until(called[0][1], ["[c10d] kolo: comm", "has waited", "rank 1"]),
                 read_until(joined[0][1], ["[c10d] kolo: group", "rank 0 to join"]),
                 read_until(joined[1][1], ["[c10d] kolo: the job of 2 ranks", "rank 1 to join"])]
        os.write(go, b"x")
        pids += [start_rank(who, stores[1 + who], at_once)[0] for who in range(2)]
        statuses = end(pids)
        timer.cancel()
    assert all(lines) and statuses == [0] * 6, (lines, statuses)


if __name__ == "__main__":
    run_tests(globals())
