# SPDX-License-Identifier: Apache-2.0
# covers: src transports topology
"""The calls between the library's files: folders form layers, and circles of files stay small.

A file uses another if its object leaves a symbol undefined that the other's object defines; nm tells.
Folders stand in ORDER, the lowest first; a folder may use those before it. A circle is a set of files
each of which uses all others, directly or through each other: nobody can read or test one without
all. Tables of plug-ins are declared low and defined high; they are the one way up, and stand in TABLES.

usage: circles.py ROOT BUILD_DIR
"""
import collections
import json
import os
import subprocess
import sys

import tap

ORDER = [
    "src/util", "src/memory", "src/plan", "src/plan/verify", "algos", "src/exec/reduce", "src/exec/lower", "src/exec/ref",
    "src/exec/cpu", "src/exec/proof", "src/cuda", "src/exec/gpu", "src/boot", "transports", "src/plugin",
    "topology/machine", "topology/layout", "topology/formats", "topology/source", "topology/draw",
    "src/tune", "src/core/board", "src/core/link", "src/core/failure", "src/core/health", "src/core/p2p",
    "src/core/call", "src/core/api", "src/core/agree", "src/core/setup", "src/gpu",
]
TABLES = {"kolo_algos", "kolo_algo_count", "kolo_paths", "kolo_transports", "kolo_transport_count"}
# The most files in one circle. The numbers only ever shrink.
LARGEST = 4
# 1: no file of the folder is in a circle.
LARGEST_IN = {"src/core/call": 2, "src/gpu": 2, "transports/tcp": 1, "transports/verbs": 1}


def objects(build):
    """{source: object} of the library's files, below the build folder."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    found = {}
    for command in commands:
        path = os.path.join(command["directory"], command["output"])
        source = os.path.relpath(os.path.join(command["directory"], command["file"]), tap_root)
        if os.path.basename(os.path.dirname(path)).startswith(("libkolo_internal", "libkolo_kernels")) \
                and os.path.exists(path):
            found.setdefault(source, path)
    return found


def symbols(paths):
    """{object: (set of defined global names, set of names left undefined)}."""
    told = subprocess.run(["nm", "-A", "-g", *paths], capture_output=True, text=True, check=True).stdout
    found = {path: (set(), set()) for path in paths}
    for line in told.splitlines():
        path, _, rest = line.partition(":")
        *_, kind, name = rest.split()
        found[path][kind in "Uw"].add(name)
    return found


def graph(files):
    """{source: {source that it uses: a name of it}} of {source: (defined, undefined)}."""
    home = {name: source for source, (defined, _) in files.items() for name in defined}
    return {source: {home[name]: name for name in sorted(undefined)
                     if name in home and home[name] != source and name not in TABLES}
            for source, (_, undefined) in files.items()}


def circles(uses):
    """The strongly connected sets of two nodes and more, the largest first (Tarjan 1972,
    doi:10.1137/0201010, with a stack of its own)."""
    number, low, stack, found = {}, {}, [], []
    for start in sorted(uses):
        if start in number:
            continue
        work = [(start, iter(sorted(uses[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(uses[other]))))
                    break
                if other in stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    at = stack.index(node)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    del stack[at:]
    return sorted(found, key=len, reverse=True)


def layer(source):
    """The longest name of ORDER that holds a file, or its folder."""
    fits = [name for name in ORDER
            if source.startswith(name + "/") or os.path.splitext(source)[0] == name]
    return max(fits, key=len) if fits else os.path.dirname(source)


def arrows_up(uses):
    """"A uses B: name" for every use of a folder that stands higher, or has no place in ORDER.

    Files that lie in src/core itself are its ground floor: below each of its folders."""
    place = {name: at for at, name in enumerate(ORDER)}
    place["src/core"] = place["src/core/board"] - 0.5
    complaints = []
    for source in sorted(uses):
        for other, name in sorted(uses[source].items()):
            here, there = layer(source), layer(other)
            if here not in place or there not in place:
                complaints.append(f"no layer for {source if here not in place else other}")
            elif place[there] > place[here]:
                complaints.append(f"{source} uses {name} of {other}")
    return complaints


def check_that_faults_are_seen():
    chain = {"a": {"b": "f"}, "b": {"c": "g"}, "c": {}}
    tap.check(circles(chain) == [], "a chain is no circle")
    ring = {**chain, "c": {"a": "h"}, "d": {"a": "f"}}
    tap.check(circles(ring) == [["a", "b", "c"]], "a ring of three is one, without its user")
    twins = {"a": {"b": "f"}, "b": {"a": "g", "c": "h"}, "c": {"d": "i"}, "d": {"c": "j"}}
    tap.check(circles(twins) == [["c", "d"], ["a", "b"]] or circles(twins) == [["a", "b"], ["c", "d"]],
              "two rings joined one way are two")
    up = {"src/util/a.c": {"src/plan/b.c": "kolo_b"}, "src/plan/b.c": {"src/util/a.c": "kolo_a"}}
    tap.check(len(arrows_up(up)) == 1, "a low folder that uses a high one is refused")
    tap.check(len(arrows_up({"src/novel/a.c": {"src/util/a.c": "x"}, "src/util/a.c": {}})) == 1,
              "a folder without a layer is refused")
    table = graph({"src/plan/a.c": (set(), {"kolo_algos"}), "algos/r.c": ({"kolo_algos"}, set())})
    tap.check(table["src/plan/a.c"] == {}, "a table may be declared below its folder")


def main():
    found = objects(sys.argv[2])
    read = symbols(sorted(found.values()))
    uses = graph({source: read[path] for source, path in found.items()})
    tap.check(len(uses) > 100, f"objects of the library are found: {len(uses)}")
    up = arrows_up(uses)
    tap.check(not up, "no folder uses one above it", f"{len(up)} arrows", *up)
    rings = circles(uses)
    largest = len(rings[0]) if rings else 1
    tap.check(largest <= LARGEST, f"the largest circle of files has {LARGEST} or less: {largest}",
              *(" ".join(ring) for ring in rings[:3]))
    for folder, most in LARGEST_IN.items():
        inside = collections.defaultdict(dict)
        for source in uses:
            if source.startswith(folder + "/"):
                inside[source] = {o: n for o, n in uses[source].items() if o.startswith(folder + "/")}
        rings = circles(inside)
        tap.check(not rings or len(rings[0]) <= most, f"in {folder} it has {most} or less",
                  *(" ".join(ring) for ring in rings[:3]))
    check_that_faults_are_seen()
    tap.done()


tap_root = os.path.realpath(sys.argv[1])
main()
