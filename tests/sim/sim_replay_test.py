# SPDX-License-Identifier: Apache-2.0
# covers: tools src/sim
"""`kolo sim --replay`: the calls of flight records on another machine. Records are made here, so that the
right answer is known: what the ranks compute, and what `kolo sim` says of each call.

usage: sim_replay_test.py KOLO
"""
import json
import os
import subprocess
import sys
import tempfile

import tap

KOLO = sys.argv[1]
MACHINE = "ranks_per_host 1\nnet_latency_us 50\nnet_gbs 1\n"


def kolo_sim(folder, *words):
    machine = os.path.join(folder, "machine")
    with open(machine, "w", encoding="utf-8") as file:
        file.write(MACHINE)
    return subprocess.run([KOLO, "sim", "-m", machine, *words], env=tap.machine_env(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)


def entry(number, name, begin_us, took_us, elements, group="1", **more):
    """A call of float32 as PyTorch writes it, whose vectors have so many elements."""
    return {"collective_seq_id": number, "process_group": [group, "a description"], "profiling_name": name,
            "input_sizes": [[elements]], "output_sizes": [[elements]], "input_dtypes": ["Float"],
            "output_dtypes": ["Float"], "state": "completed", "is_p2p": False, "frames": [{"name": "f", "line": 1}],
            "time_created_ns": begin_us * 1000, "time_discovered_started_ns": None, "duration_ms": took_us / 1e3,
            **more}


def write(folder, name, entries, ranks=2, groups=("1",)):
    path = os.path.join(folder, name)
    dump = {"version": "2.4", "entries": entries, "pg_config": {
        group: {"name": group, "desc": "quoted \" and \u00e4", "ranks": str(list(range(ranks)))} for group in groups}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dump, file)
    return path


def replay(folder, *words):
    done = kolo_sim(folder, "--replay", "-J", "-", *words)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def call_us(folder, collective, ranks, size):
    done = kolo_sim(folder, collective, "-n", str(ranks), "-b", str(size), "-J", "-")
    return next(row["time"] for row in json.loads(done.stdout)["results"] if row["chosen"])


def near(a, b):
    return abs(a - b) < 1e-6 * max(abs(a), abs(b)) + 1e-6


def two_ranks(folder, first=1):
    """Rank 1 computes 300 us before the second call, rank 0 only 100; both 50 before the third."""
    ends = []
    for rank, compute in ((0, 100), (1, 300)):
        at, entries = 1_000_000, []
        for number, (name, elements, gap) in enumerate(
                (("nccl:all_reduce", 1000, 0), ("nccl:_reduce_scatter_base", 4000, compute),
                 ("kolo:all_gather", 3, 50)), first):
            at += gap
            entries.append(entry(number, name, at, 10, elements))
            at += 10
        entries[1]["output_sizes"] = [[2000]]
        ends.append(write(folder, f"rank{rank}", entries))
    return ends


def test_timeline():
    with tempfile.TemporaryDirectory() as folder:
        told = replay(folder, *two_ranks(folder))
        calls = {(row["collective"], row["bytes"]): row for row in told["calls"]}
        expected = {("allreduce", 4000): call_us(folder, "allreduce", 2, 4000),
                    ("reducescatter", 8000): call_us(folder, "reducescatter", 2, 16000),
                    ("allgather", 12): call_us(folder, "allgather", 2, 24)}
        tap.check(calls.keys() == expected.keys() and all(near(calls[key]["predicted_us"], us)
                                                          for key, us in expected.items()),
                  "each call takes what kolo sim says of a call of its collective and block", told, expected)
        tap.check(near(told["predicted_ms"] * 1e3, 300 + 50 + sum(expected.values())),
                  "a call begins when its last rank is there", told, expected)
        tap.check(near(told["recorded_ms"] * 1e3, 380) and near(told["compute_ms"] * 1e3, 250)
                  and near(told["waits_ms"] * 1e3, 100), "recorded time, computation and waits are told apart", told)


def waited(number, name, begin_us, took_us, wait_us, elements, **more):
    return entry(number, name, begin_us, took_us, elements, time_waited_ns=None if wait_us is None else wait_us * 1000,
                 **more)


def test_calls_beside_computation():
    """Two calls are made 100 us apart, and the rank waits 400 us after the first for both."""
    with tempfile.TemporaryDirectory() as folder:
        calls = [waited(1, "kolo:all_reduce", 1000, 20, 1400, 1 << 16), waited(2, "kolo:all_reduce", 1100, 300, 1400, 1000),
                 waited(3, "kolo:barrier", 1500, 10, 1500, 0)]
        path = write(folder, "one", calls)
        long, short, barrier = (call_us(folder, name, 2, size) for name, size in
                                (("allreduce", 1 << 18), ("allreduce", 4000), ("barrier", 0)))
        told = replay(folder, path)
        expected = max(400, long + short) + 100 + barrier
        tap.check(near(told["predicted_ms"] * 1e3, expected) and near(told["compute_ms"] * 1e3, 500)
                  and told["overlapping"] == 0, "a rank computes until it waits, and a call waits for the one before",
                  told, expected)
        machine = os.path.join(folder, "shared")
        with open(machine, "w", encoding="utf-8") as file:
            file.write(MACHINE + "net_core_share 0.5\n")
        slow = replay(folder, path, "-m", machine)
        tap.check(told["compute_ms"] < slow["compute_ms"] < told["compute_ms"] + (long + short) / 2e3,
                  "a busy NIC takes its share of the core from computation beside it", told, slow)


def test_messages():
    """Rank 0 sends at once and again 50 us later; rank 1 expects the second only after 1000 us."""
    with tempfile.TemporaryDirectory() as folder:
        sender = write(folder, "sender", [waited(0, "kolo:send 0->1", 100, 5, None, 1000, is_p2p=True),
                                          waited(0, "kolo:send 0->1", 150, 5, 150, 1000, is_p2p=True)])
        receiver = write(folder, "receiver", [waited(0, "kolo:recv 1<-0", 100, 55, 100, 1000, is_p2p=True),
                                              waited(0, "kolo:recv 1<-0", 1155, 5, 1155, 1000, is_p2p=True)])
        told = replay(folder, sender, receiver)
        us = call_us(folder, "scatter", 2, 2 * 4000)
        tap.check([(row["collective"], row["bytes"], row["calls"]) for row in told["calls"]] == [("message", 4000, 2)],
                  "a message counts once", told)
        tap.check(near(told["predicted_ms"] * 1e3, us + 1000), "it leaves when it is sent", told, us)


def test_windows_and_scale():
    with tempfile.TemporaryDirectory() as folder:
        paths = two_ranks(folder)
        with open(paths[1], encoding="utf-8") as file:
            dump = json.load(file)
        dump["entries"] = dump["entries"][1:]
        with open(paths[1], "w", encoding="utf-8") as file:
            json.dump(dump, file)
        told = replay(folder, *paths)
        tap.check([row["collective"] for row in told["calls"]] == ["reducescatter", "allgather"],
                  "a call that one rank's record has lost is left out", told)
        told = replay(folder, "-n", "16", *paths)
        tap.check(near(told["calls"][0]["predicted_us"], call_us(folder, "reducescatter", 16, 16 * 8000)),
                  "with -n the calls are made on so many ranks", told)


def test_groups_and_entries_without_a_time():
    with tempfile.TemporaryDirectory() as folder:
        entries = [entry(1, "nccl:all_reduce", 100, 10, 1000), entry(1, "gloo:barrier", 120, 10, 0, group="2"),
                   entry(2, "nccl:send 0->1", 140, 10, 1000, is_p2p=True),
                   entry(2, "nccl:all_reduce", 160, 10, 1000, state="scheduled", duration_ms=None),
                   entry(3, "nccl:all_reduce", 180, 10, 1000)]
        path = write(folder, "one", entries, groups=("1", "2"))
        told = replay(folder, path)
        tap.check([(row["collective"], row["calls"]) for row in told["calls"]] == [("allreduce", 2), ("barrier", 1)],
                  "calls of several communicators are replayed, messages and unfinished calls are not", told)
        done = kolo_sim(folder, "--replay", path)
        tap.check(done.returncode == 0 and "records of 1 of 2 ranks" in done.stdout
                  and "1 calls are not over" in done.stdout and "1 entries are messages" in done.stdout,
                  "and the table says so", done.stdout, done.stderr)


def test_files_of_one_process():
    """kolo writes a file for each communicator of a process."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(folder, group, [entry(1, "nccl:all_reduce", at, 10, 1000, group=group)], groups=(group,))
                 for group, at in (("a", 500), ("b", 600))]
        for path in paths:
            with open(path, encoding="utf-8") as file:
                dump = json.load(file)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**dump, "kolo": {"rank": 0, "host": "one", "pid": 7}}, file)
        told = replay(folder, *paths)
        tap.check(near(told["predicted_ms"] * 1e3, 90 + 2 * call_us(folder, "allreduce", 2, 4000)),
                  "the files of one process are one timeline", told)


def test_refusals():
    with tempfile.TemporaryDirectory() as folder:
        good = two_ranks(folder)
        order = write(folder, "order", [entry(2, "nccl:all_reduce", 10, 1, 8), entry(1, "nccl:all_reduce", 20, 1, 8),
                                        entry(3, "nccl:all_reduce", 30, 1, 8)])
        with open(good[0], encoding="utf-8") as file:
            text = file.read()
        wrong = {"cut": text[:len(text) // 2], "deep": '{"entries": ' + "[" * 100, "word": '{"entries": nothing}',
                 "escape": '{"a\\q": 1}', "empty": "", "no call": '{"entries": []}',
                 "no group": json.dumps({"entries": [entry(1, "nccl:barrier", 1, 1, 0)]})}
        for name, content in wrong.items():
            path = os.path.join(folder, "wrong")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            said = replay(folder, path)
            tap.check(isinstance(said, str) and "wrong" in said, f"refused, with the file's name: {name}", said)
        other = write(folder, "other", [entry(1, "nccl:all_gather", 10, 1, 1000)])
        said = replay(folder, good[0], other)
        tap.check(isinstance(said, str) and "do not fit together" in said, "refused: another collective", said)
        said = replay(folder, good[0], order)
        tap.check(isinstance(said, str) and "do not fit together" in said and "call 2" in said,
                  "records of other jobs are refused, with the calls that do not fit", said)
        tap.check(kolo_sim(folder, "--replay").returncode == 2, "refused: --replay without a file")


tap.run_tests(globals())
