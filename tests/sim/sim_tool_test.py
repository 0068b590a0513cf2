# SPDX-License-Identifier: Apache-2.0
# covers: tools src/sim
"""`kolo sim`: its table, JSON and trace, the same at every run; and what it refuses.

usage: sim_tool_test.py KOLO
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import tap

KOLO = sys.argv[1]


def sim(*words):
    return subprocess.run([KOLO, "sim", *words], env=tap.machine_env(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)


def rows_of(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def test_table():
    done = sim("allgather", "-n", "8", "-b", "1K", "-e", "64K", "-f", "8")
    rows = rows_of(done.stdout)
    tap.check(done.returncode == 0 and [row[0] for row in rows] == ["1024", "8192", "65536"],
              "the table has a row for each size", done.stdout, done.stderr)
    tap.check(all(len(row) == 13 and row[1] == str(int(row[0]) // 32) for row in rows),
              "a row has the thirteen columns of nccl-tests, and its count is that of a block", done.stdout)
    row = rows[-1]
    tap.check(abs(float(row[6]) * float(row[5]) / 65.536 - 1) < 0.01
              and abs(float(row[7]) / float(row[6]) / (7 / 8) - 1) < 0.01,
              "the bandwidths follow from size and time", row)


def test_all():
    done = sim("allreduce", "-n", "6", "-a", "all", "-b", "4K")
    tap.check(done.returncode == 0 and "# allreduce_ring" in done.stdout and "is the fastest" in done.stdout
              and "kolo would choose" in done.stdout, "all algorithms are compared with kolo's choice", done.stdout)
    tap.check("# no rings: " in done.stdout, "an algorithm without a plan for these ranks is named, with the reason",
              done.stdout)


def test_json():
    words = ("allreduce", "-n", "100", "-k", "1", "-a", "doubling", "-b", "64M", "-J", "-")
    done = sim(*words)
    result = json.loads(done.stdout)["results"][0]
    tap.check(result["algorithm"] == "allreduce_doubling" and result["size"] == 64 << 20 and result["time"] > 0
              and result["simulated_tiles"] < result["tiles"], "JSON has the row, and says what was not simulated",
              done.stdout)
    tap.check(sim(*words).stdout == done.stdout, "the same call gives the same output")


def test_machine():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "machine")
        with open(path, "w", encoding="utf-8") as file:
            file.write("ranks_per_host 1\nnet_latency_us 100\nnet_gbs 1\nerror 10\nerror_95 20\nerror_ranks 3\n")
        done = sim("barrier", "-n", "4", "-m", path)
        tap.check("up to 3 ranks were 10 % off on average, 95 of 100 at most 20 %; more ranks are a guess"
                  in done.stdout, "the error of the machine's times is told", done.stdout)
        told = json.loads(sim("barrier", "-n", "4", "-m", path, "-J", "-").stdout)["error"]
        tap.check(told == {"mean": 10, "of_95_in_100": 20, "ranks": 3}, "JSON has it, too", told)
        tap.check(done.returncode == 0 and 100 <= float(rows_of(done.stdout)[0][5]) < 110,
                  "a barrier of four hosts 100 us apart takes one latency", done.stdout, done.stderr)
        with open(path, "w", encoding="utf-8") as file:
            file.write("net_latency 100\n")
        done = sim("barrier", "-n", "4", "-m", path)
        tap.check(done.returncode == 1 and "line 1" in done.stderr and done.stdout == "",
                  "a wrong line of the machine file is named", done.stderr)


def test_choice_for_many_hosts():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "machine")
        with open(path, "w", encoding="utf-8") as file:
            file.write("ranks_per_host 8\nnet_latency_us 2\nnet_gbs 12\nnet_message_us 0.3\n")
        done = sim("allreduce", "-n", "1024", "-m", path, "-b", "64K", "-J", "-")
    row = json.loads(done.stdout)["results"][0]
    tap.check(row["time"] < 100, "the choice for 128 hosts knows that each has a NIC of its own", row)


def test_trace_and_path():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        done = sim("allreduce", "-n", "4", "-k", "2", "-a", "ring", "-b", "64K", "-p", "-t", path)
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    tap.check({event["pid"] for event in slices} == {0, 1} and len({event["tid"] for event in slices}) == 4,
              "the trace has a process a host and a thread a rank")
    starts = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in events if event["ph"] == "f"}
    tap.check(starts and starts.keys() == ends.keys() and all(starts[i] <= ends[i] for i in starts),
              "each arrow has two ends, and goes forward in time")
    last = max(event["ts"] + event["dur"] for event in slices)
    shown = float(rows_of(done.stdout)[0][5])
    tap.check(abs(last - shown) < 0.01, "the last op of the trace ends with the call", last, done.stdout)
    tap.check("Critical path: " in done.stdout and "% bytes on the wire" in done.stdout,
              "the critical path is told in words", done.stdout)


CLUSTER = "ranks_per_host 4\nnet_latency_us 0.01\nnet_gbs 1\ncall_us 0\nlatency_us 0.01\ncopy_gbs 1000\n"


def on_machine(text, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "machine")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return sim(*words, "-m", path)


def time_on(text, ranks=16):
    done = on_machine(text, "alltoall", "-n", str(ranks), "-a", "direct", "-b", "16M", "-J", "-")
    return json.loads(done.stdout)["results"][0]["time"]


def test_what_if():
    rails = CLUSTER + "rails 4\n"
    one, four = time_on(CLUSTER), time_on(rails)
    tap.check(abs(one / four / 4 - 1) < 0.05, "four rails carry four times as much as one", one, four)
    slower = time_on(CLUSTER.replace("net_gbs 1", "net_gbs 0.5") + "rails 4\n")
    tap.check(abs(slower / four / 2 - 1) < 0.05, "links of half the speed take twice the time", slower, four)
    lost = time_on(rails + "lost_rail 2\n")
    tap.check(1.95 < lost / four < 2.5, "a lost rail leaves two ranks of a host on one NIC", lost, four)
    slow = time_on(rails + "slow_nic 5\nslow_nic_factor 3\n")
    tap.check(2 < slow / four < 3.1, "one slow NIC of sixteen delays all", slow, four)
    straggler = time_on(rails + "net_copy_gbs 1\nslow_rank 3\nslow_factor 5\n")
    tap.check(straggler > 1.5 * time_on(rails + "net_copy_gbs 1\n"), "a slow rank delays all", straggler)
    tap.check(time_on(rails, 32) > 1.1 * four, "twice the ranks have more to send to other hosts")
    done = on_machine(CLUSTER + "lost_rail 0\n", "barrier", "-n", "8")
    tap.check(done.returncode == 1 and "rail 0 cannot be lost" in done.stderr, "the last rail cannot be lost",
              done.stderr)


def test_svg():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "use.svg")
        done = on_machine(CLUSTER + "rails 4\nhosts_per_switch 2\nuplink_gbs 1\nslow_nic 5\n", "alltoall", "-n", "16",
                          "-a", "direct", "-b", "16M", "--svg", path)
        tree = xml.etree.ElementTree.parse(path)
    words = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    tap.check(done.returncode == 0 and [word for word in words if word.startswith("host ")]
              == [f"host {i}: cores, NICs" for i in range(4)], "the picture has every host", words, done.stderr)
    shares = [int(word[:-2]) for word in words if word.endswith(" %") and word[0].isdigit()]
    tap.check(len(shares) == 2 * (16 + 2) + 1 and max(shares[:-1]) <= 100, "each NIC and uplink has its two shares",
              shares)
    uplink = [word for word in words if "Busiest link: leaf switch" in word]
    tap.check(len(uplink) == 1 and int(uplink[0].split()[-2]) > 80, "the narrow uplinks are told as the busiest",
              words[:4])


def test_bootstrap():
    machine = "ranks_per_host 8\ncores 4\nnet_latency_us 100\nnet_gbs 1\nstart_process_us 10\nstart_rank_us 100\n" \
              "start_peer_us 1\nstart_message_us 2\nstart_gbs 1\nstart_call_us 7\nstart_call_peer_us 3\n"
    told = json.loads(on_machine(machine, "--bootstrap", "-n", "64", "-J", "-").stdout)
    steps = {step["step"]: step for step in told["steps"]}
    tap.check(steps["launch"]["us"] == 20 and steps["work of the ranks"]["us"] == 2 * (100 + 63)
              and steps["first call"]["us"] == 2 * (7 + 63 * 3), "two ranks share each core of a host", steps)
    hello = steps["hello"]
    tap.check(hello["messages"] == 128 and hello["bytes"] == 128 * 48 + 64 * 184 * 65,
              "in a round each rank tells its bytes and hears those of all", hello)
    per_byte = 1e-3 * (1 + 56 / 64)
    tap.check(abs(hello["us"] - (2 * 128 + hello["bytes"] * per_byte)) < 0.01,
              "the hub handles messages and bytes in turn; those of other hosts cross its NIC", hello)
    barrier = steps["barrier and leave"]
    tap.check(abs(barrier["us"] - (2 * 256 + barrier["bytes"] * per_byte + 400)) < 0.01,
              "the hello needs no trip of its own, and a barrier and a leave need two", barrier)
    addresses = steps["addresses"]
    tap.check(addresses["bytes"] == 128 * 48 + 64 * 532 + (56 + 1) * 64 * 532,
              "ranks of the hub's host get a long answer as memory, written once", addresses)
    done = on_machine(machine, "--bootstrap", "-n", "64")
    tap.check(done.returncode == 0 and f"{told['total_us'] / 1e3:.2f} ms" in done.stdout, "the table has the sum",
              done.stdout)


def test_refusals():
    for words in ((), ("allreduce",), ("--bootstrap",), ("--bootstrap", "allreduce", "-n", "4"),
                  ("nothing", "-n", "4"), ("allreduce", "-n", "0"), ("allreduce", "-n", "4", "-r", "4"),
                  ("allreduce", "-n", "4", "--no-such"), ("allreduce", "-n", "4", "-a", "no-such"),
                  ("allreduce", "-n", "4", "-e", "2T"), ("allreduce", "broadcast", "-n", "4")):
        done = sim(*words)
        tap.check(done.returncode == 2 and done.stderr and not done.stdout, f"refused: kolo sim {' '.join(words)}",
                  done.returncode, done.stderr)
    done = sim("allreduce", "-n", "100000", "-k", "1", "-a", "ring", "-b", "1K")
    tap.check(done.returncode == 1 and "steps" in done.stdout, "a plan that is too large is refused, with its size",
              done.returncode, done.stdout, done.stderr)


def test_collectives():
    names = "allreduce, reduce, broadcast, gather, scatter, allgather, reducescatter, alltoall, barrier"
    for tool in ("sim", "plan"):
        done = subprocess.run([KOLO, tool, "alreduce", "-n", "4"], capture_output=True, text=True)
        tap.check(done.returncode == 2 and '"alreduce" is no ' in done.stderr and names in done.stderr,
                  f"kolo {tool} lists the collectives if it does not know one", done.returncode, done.stderr)
    tap.check(sim("all_reduce", "-n", "4").stdout == sim("allreduce", "-n", "4").stdout != "",
              "all_reduce is allreduce")


tap.run_tests(globals())
