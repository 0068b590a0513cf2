# SPDX-License-Identifier: Apache-2.0
"""A folder includes only what it may: the arrows of CONTRIBUTING.md, read off every #include.

Everything may include its own folder and kolo.h; what else it may include stands in ALLOWED. A file
in a folder without a rule fails, so that a new folder gets one.

usage: include_arrows.py ROOT
"""
import os
import re
import sys
import tempfile

import tap
import tree

LIBRARY = {"src/util", "src/memory", "src/plan", "src/exec", "src/cuda", "src/boot", "src/plugin", "src/tune",
           "src/core", "src/gpu", "algos", "transports", "topology", "plugin.h"}
BELOW_CORE = LIBRARY - {"src/core", "src/gpu"}
# "plugin.h" is kolo/plugin.h, "nccl.h" kolo/nccl/nccl.h; every other name is a folder.
ALLOWED = {
    "include": {"plugin.h"},
    "src/util": set(),
    "src/memory": {"src/util"},
    "src/plan": {"src/util", "plugin.h"},
    "algos": {"src/util", "src/plan", "plugin.h"},
    "src/exec": {"src/util", "src/plan", "plugin.h"},
    "src/cuda": {"src/util", "plugin.h"},
    "src/boot": {"src/util"},
    "transports": {"src/util", "src/memory", "plugin.h"},
    "src/plugin": {"src/util", "src/plan", "transports", "plugin.h"},
    "topology": {"src/util"},
    "src/tune": {"src/util", "src/plan", "src/exec", "topology", "plugin.h"},
    "src/sim": {"src/util", "src/plan", "src/exec", "src/tune", "topology", "plugin.h"},
    "src/core": BELOW_CORE,  # never src/gpu: it reaches GPUs through core/path.h
    "src/gpu": LIBRARY,
    "src/nccl": {"nccl.h"},
    "src/nccl/driver.c": {"src/nccl", "src/util"},  # it loads a library by the rules of src/util/library.h
    "src/mpi": set(),
    "tools": LIBRARY | {"src/sim", "perf", "tests"},
    "tests": LIBRARY | {"src/sim", "src/mpi", "perf", "tools", "examples/plugins", "nccl.h"},
    "perf": set(),
    "perf/kernels.c": {"src/util", "src/exec"},  # measures what no public call reaches alone
    "python": set(),
    "torch": set(),
    "examples": set(),
    "examples/plugins": {"plugin.h"},
}
SUFFIXES = (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh")
SEARCHED = ("", "src", "include")  # what the build passes as -I
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def component(path):
    """What in ALLOWED owns `path`, the base name of a public header, or None."""
    if path in ("include/kolo/kolo.h", "include/kolo/plugin.h", "include/kolo/nccl/nccl.h"):
        return os.path.basename(path)
    if path in ("include/kolo/codec.h", "include/kolo/members.h"):  # parts of kolo.h
        return "kolo.h"
    if path in ALLOWED:  # a file with a rule of its own
        return path
    parts = path.split("/")
    for folder in ("/".join(parts[:2]), parts[0]):
        if folder in ALLOWED:
            return folder
    return None


def resolve(root, source, name, quoted):
    """The path below `root` that an include means, or None for a header of the system."""
    places = [os.path.dirname(source)] if quoted else []
    for place in (*places, *SEARCHED):
        path = os.path.normpath(os.path.join(place, name))
        if os.path.isfile(os.path.join(root, path)):
            return path
    return None


def forbids(source, target):
    """Why `source` may not include `target`, or ""."""
    here, there = component(source), component(target)
    if here in ("kolo.h", "plugin.h", "nccl.h"):
        here = "include"
    if here is None or there is None:
        return f"no rule for the folder of {source if here is None else target}"
    if there not in (here, "kolo.h") and there not in ALLOWED[here]:
        return f"{here} may not include {there}"
    if here == there == "transports":
        mine, its = source.split("/"), target.split("/")
        # What lies in transports/ itself is shared; transports/a/ knows nothing of transports/b/.
        if len(mine) > 2 and len(its) > 2 and mine[1] != its[1]:
            return f"transports/{mine[1]} may not include transports/{its[1]}"
    if here != there == "transports" and target.count("/") > 1 and here not in ("tools", "tests"):
        return f"{target} is private to its transport"
    return ""


def scan(root):
    """(number of arrows read, list of complaints)."""
    arrows, complaints = 0, []
    for source in tree.files(root):
        if not source.endswith(SUFFIXES):
            continue
        if component(source) is None:
            complaints.append(f"{source}: no rule for its folder")
            continue
        with open(os.path.join(root, source), encoding="utf-8") as file:
            text = file.read()
        for match in INCLUDE.finditer(text):
            name, quoted = match.group(1) or match.group(2), match.group(1) is not None
            target = resolve(root, source, name, quoted)
            if target is None and quoted:
                complaints.append(f'{source}: "{name}" is not in the tree')
            if target is None:
                continue
            arrows += 1
            why = forbids(source, target)
            if why:
                complaints.append(f"{source}: includes {name}: {why}")
    return arrows, complaints


def complaints_about(files):
    """The complaints about a tree of {path: text}."""
    with tempfile.TemporaryDirectory(prefix="kolo-arrows-") as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return scan(root)[1]


def check_that_faults_are_seen():
    """Small trees with one wrong arrow each, and some without."""
    headers = dict.fromkeys(
        [
            "include/kolo/kolo.h",
            "include/kolo/plugin.h",
            "include/kolo/nccl/nccl.h",
            "src/util/util.h",
            "src/plan/plan.h",
            "src/exec/exec.h",
            "src/core/comm.h",
            "src/gpu/gpu.h",
            "topology/machine/graph.h",
            "transports/shm/shm.h",
            "transports/transports.h",
        ],
        "",
    )
    wrong = [
        ("src/util/a.c", '"plan/plan.h"', "utilities that include plans"),
        ("src/plan/a.c", '"exec/exec.h"', "a plan that includes the executor"),
        ("algos/a.c", '"src/exec/exec.h"', "an algorithm that includes the executor"),
        ("src/exec/a.c", '"../core/comm.h"', "an executor that includes the core"),
        ("transports/loop/a.c", '"plan/plan.h"', "a transport that includes plans"),
        ("transports/loop/a.c", '"../shm/shm.h"', "a transport that includes another"),
        ("topology/a.c", "<kolo/plugin.h>", "topology that includes plugin.h"),
        ("topology/a.c", "<plan/plan.h>", "topology that includes plans by angle brackets"),
        ("perf/a.c", '"util/util.h"', "a perf program that includes the utilities"),
        ("perf/kernels.c", '"plan/plan.h"', "the kernels' sweep that includes plans"),
        ("examples/a.c", "<kolo/plugin.h>", "an example that includes plugin.h"),
        ("examples/plugins/a/a.c", '"plan/plan.h"', "a plug-in that includes plans"),
        ("src/nccl/a.c", '"util/util.h"', "names of NCCL that include the utilities"),
        ("src/core/a.c", '"../../transports/shm/shm.h"', "a core that includes a transport's private header"),
        ("src/core/a.c", '"gpu/gpu.h"', "a core that includes the GPU paths"),
        ("src/boot/a.c", '"core/comm.h"', "a meeting point that includes the core"),
        ("src/core/a.c", "<kolo/nccl/nccl.h>", "a core that includes the names of NCCL"),
        ("src/core/a.c", '"core/gone.h"', "an include that is not in the tree"),
        ("src/novel/a.c", "<stdio.h>", "a folder without a rule"),
    ]
    for path, include, what in wrong:
        said = complaints_about({**headers, path: f"int x;\n  # include {include}\n"})
        tap.check(len(said) == 1, f"{what} is refused", *said)
    right = [
        ("algos/a.c", '"plan/plan.h"'),
        ("src/exec/a.c", "<kolo/plugin.h>"),
        ("transports/loop/a.c", '"../transports.h"'),
        ("transports/all.c", '"shm/shm.h"'),
        ("src/core/a.c", '"topology/machine/graph.h"'),
        ("tests/unit/a.cc", '"src/core/comm.h"'),
        ("examples/plugins/a/a.c", "<kolo/plugin.h>"),
        ("src/nccl/a.c", "<kolo/nccl/nccl.h>"),
        ("perf/a.c", "<kolo/kolo.h>"),
        ("perf/kernels.c", '"exec/exec.h"'),
    ]
    for path, include in right:
        said = complaints_about({**headers, path: f"#include {include}\n"})
        tap.check(not said, f"{path.rsplit('/', 1)[0]} may include {include}", *said)


def main():
    arrows, complaints = scan(sys.argv[1])
    tap.check(arrows > 0, "includes are found in the tree")
    tap.check(not complaints, f"all {arrows} includes follow the arrows", *complaints)
    check_that_faults_are_seen()
    tap.done()


main()
