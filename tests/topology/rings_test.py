# SPDX-License-Identifier: Apache-2.0
# covers: topology/layout src/core/setup/layout_file.c src/core/setup/log.c
"""A communicator on a recorded machine: what goes between its ranks is what its log says, what the
planner planned, and what `kolo log` reads out of the log.

usage: rings_test.py KOLO SWEEPS TRACE SOURCE   (the kolo tool, the folder of the sweep programs, the
tracing transport, the source folder)
"""
import json
import os
import subprocess
import sys
import tempfile

from tap import check, done

KOLO, SWEEPS, TRACE, SOURCE = map(os.path.abspath, sys.argv[1:])
OWN = os.path.join(SOURCE, "tests", "data")
RECORDED = os.path.join(SOURCE, "..", "shared", "data", "topologies")
LANES, BYTES = 16, 840 << 10  # which up to eight rings part evenly
SHORT = ("smi-dgx1v-4nic.txt", "rccl-topo_4p4h.xml", "hwloc-nvidia-dgx2.xml")  # without --full


def run(args, **env):
    return subprocess.run(args, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "KOLO_DEBUG": "", "KOLO_TOPO_FILE": "", **env})


def sweep(machine, ranks, collective, algo, folder, root=0):
    """Run a collective with ranks as threads; the log's parse, and {(from, to): bytes} by the trace."""
    log, trace = os.path.join(folder, "log"), os.path.join(folder, "trace")
    if os.path.exists(log):
        os.remove(log)  # logs are appended to
    program = os.path.join(SWEEPS, collective + "_perf")
    rule = collective.replace("_", "") + ":" + algo
    ran = run([program, "-t", str(ranks), "-b", str(BYTES), "-e", str(BYTES), "-n", "1", "-w", "0",
               *(["-r", str(root)] if collective != "all_reduce" else [])],
              KOLO_TOPO_FILE=machine, KOLO_DEBUG="INFO", KOLO_DEBUG_FILE=log, KOLO_PLUGIN=TRACE,
              KOLO_TRANSPORT="trace", KOLO_TRACE_FILE=trace, KOLO_VERIFY="1",
              KOLO_ALGO=rule + ";allgather:direct")  # the program's own: Bruck's last step is long enough to count
    check(ran.returncode == 0, f"{rule} runs on {os.path.basename(machine)}", ran.stdout[-600:],
          ran.stderr[-600:])
    parsed = run([KOLO, "log", "--json", log])
    with open(trace, encoding="utf-8") as file:
        lines = [tuple(map(int, line.split())) for line in file]
    return json.loads(parsed.stdout), {(a, b): sent for a, b, sent, _ in lines}


def ring_edges(parsed, channels):
    """How many of the rings use each directed pair."""
    uses = {}
    for channel in range(channels):
        ring = parsed["rings"][str(channel)]
        for i, rank in enumerate(ring):
            edge = (rank, ring[(i + 1) % len(ring)])
            uses[edge] = uses.get(edge, 0) + 1
    return uses


def tree_edges(parsed, root=None):
    """How many of the trees use each pair: both ways, or only away from `root`."""
    uses = {}
    for tree in parsed["trees"].values():
        near = {int(rank): set() for rank in tree}
        for rank, place in tree.items():
            if place["parent"] >= 0:
                near[int(rank)].add(place["parent"])
                near[place["parent"]].add(int(rank))
        reached, seen = [root if root is not None else 0], set()
        while reached:
            rank = reached.pop()
            seen.add(rank)
            for other in near[rank] - seen:
                reached.append(other)
                for edge in ((rank, other), (other, rank))[:1 if root is not None else 2]:
                    uses[edge] = uses.get(edge, 0) + 1
    return uses


def check_traffic(name, sent, uses, share):
    """`share`: bytes of one call that one use of an edge carries."""
    check(set(sent) == set(uses), f"on {name} data goes along the edges of the log and no other",
          sorted(set(sent) ^ set(uses)))
    calls = {bytes_ / (uses.get(edge, 1) * share) for edge, bytes_ in sent.items()}
    check(len(calls) == 1 and calls.pop() % 1 == 0, f"on {name} each edge carries its share of bytes",
          sent)


def check_machine(machine, folder):
    name = os.path.basename(machine)
    planned = json.loads(run([KOLO, "topo", "--json", machine]).stdout)
    if "plan" not in planned or planned["plan"]["gpus"] < 2:
        return
    plan = planned["plan"]
    ranks, rings = plan["gpus"], plan["channels"] // 2
    lanes = min(rings, LANES)
    parsed, sent = sweep(machine, ranks, "all_reduce", "rings" if rings > 1 else "ring", folder)
    check_traffic(name, sent, ring_edges(parsed, lanes), 2 * (ranks - 1) * BYTES // (lanes * ranks))
    # The same cycles, whichever rank they begin with.
    cycle = lambda ring: ring[ring.index(0):] + ring[:ring.index(0)]
    wanted = [cycle(ring["ranks"]) for ring in plan["rings"][:lanes]]
    got = [parsed["rings"][str(channel)] for channel in range(lanes)]
    check(got == wanted, f"the log of a job on {name} shows the rings that kolo topo shows", got, wanted)
    check(max(parsed["nchannels"]) == min(plan["channels"], LANES),
          f"a job on {name} has a channel for each ring and each tree", parsed["nchannels"])
    check(parsed["tree_inconsistencies"] == 0 and parsed["ranks_with_trees"] == ranks,
          f"kolo log finds every rank's trees of a job on {name}", parsed["issues"])
    check_trees(name, machine, plan, folder)


def check_trees(name, machine, plan, folder):
    """All-reduce goes up and down the trees, broadcast away from its root, reduce towards it."""
    ranks, rings = plan["gpus"], plan["channels"] // 2
    pairs = min(rings, LANES // 2)
    parsed, sent = sweep(machine, ranks, "all_reduce", "tree", folder)
    share = BYTES // (2 * pairs)
    check_traffic(f"{name} by trees", sent, tree_edges(parsed), share)
    got = [[parsed["trees"][str(t)][str(rank)]["parent"] for rank in range(ranks)] for t in range(2 * pairs)]
    wanted = [plan["trees"][t % pairs + t // pairs * rings] for t in range(2 * pairs)]
    check(got == wanted and len(parsed["trees"]) == 2 * pairs,
          f"the log of a job on {name} shows the trees that kolo topo shows", got, wanted)
    root = ranks - 1
    parsed, sent = sweep(machine, ranks, "broadcast", "tree", folder, root)
    check_traffic(f"{name} by broadcast", sent, tree_edges(parsed, root), share)
    parsed, sent = sweep(machine, ranks, "reduce", "tree", folder, root)
    check_traffic(f"{name} by reduce", sent,
                  {(b, a): count for (a, b), count in tree_edges(parsed, root).items()}, share)


def check_dump(folder):
    machine, copy = os.path.join(OWN, "smi-4gpu.txt"), os.path.join(folder, "dump.xml")
    ran = run([os.path.join(SWEEPS, "all_reduce_perf"), "-t", "4", "-b", "8", "-e", "8", "-n", "1"], KOLO_TOPO_FILE=machine,
              KOLO_TOPO_DUMP_FILE=copy)
    same = run([KOLO, "topo", "--diff", machine, copy])
    check(ran.returncode == 0 and same.stdout == "alike\n",
          "KOLO_TOPO_DUMP_FILE gets the machine of KOLO_TOPO_FILE", ran.stderr, same.stdout)


def main():
    machines = [os.path.join(OWN, "smi-4gpu.txt"), os.path.join(OWN, "nccl-8gpu-4nic.xml"),
                os.path.join(OWN, "smi-8gpu-cube-mesh.txt"), os.path.join(OWN, "hwloc-4gpu-nvswitch.xml")]
    if os.path.isdir(RECORDED):
        full = os.environ.get("KOLO_TEST_FULL") == "1"
        machines += [os.path.join(RECORDED, name) for name in sorted(os.listdir(RECORDED))
                     if (full or name in SHORT) and name.endswith((".xml", ".txt")) and "v3format" not in name]
    with tempfile.TemporaryDirectory(prefix="kolo-rings-") as folder:
        for machine in machines:
            check_machine(machine, folder)
        check_dump(folder)
    done()


main()
