# SPDX-License-Identifier: Apache-2.0
# covers: src/nccl include/kolo/nccl
"""libnccl.so.2 has each name that NVIDIA's has, as weak or strong as there, and no other; the header
declares each function of 2.28 that a program calls, under both names.

usage: names_test.py LIBRARY HEADER NAMES NM...
"""
import re
import subprocess
import sys

from tap import check, done


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def ran(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def listed(path):
    """{name: (W or T, whether 2.28.9 has it)}."""
    rows = [line.split() for line in text_of(path).splitlines() if not line.startswith("#")]
    return {row[1]: (row[0], len(row) == 2) for row in rows}


def declared(header):
    """The functions that the header declares, under their plain names."""
    return set(re.findall(r"^KOLO_NCCL_FUNCTION\([^,]*, (nccl\w+),", text_of(header), re.MULTILINE))


# Of the device API, which has a header of its own, or of NCCL's inside.
NOT_DECLARED = re.compile(r"ncclDevComm|ncclTeam|CreateRequirement$|ncclLLA2A|ncclResetDebugInitInternal$")


def main():
    library, header, names, *nm = sys.argv[1:]
    want = listed(names)
    rows = [line.split() for line in ran(*nm, "-D", "--defined-only", library).splitlines()]
    found = {row[-1]: row[-2] for row in rows}
    check(len(want) > 190, "names are listed")
    missing, more = sorted(set(want) - set(found)), sorted(set(found) - set(want))
    check(not missing, "each name is there", *missing)
    check(not more, "no other name is there", *more)
    other = [f"{name} is {found[name]}" for name in want if name in found and found[name] != want[name][0]]
    check(not other, "what a tool may replace is weak, what it calls then is strong", *other)
    dynamic = ran("readelf", "-d", library)
    check("[libnccl.so.2]" in dynamic, "its soname is libnccl.so.2", dynamic)
    check(re.search(r"NEEDED.*\[libkolo\.so\.0\]", dynamic), "it uses libkolo.so.0 as programs do", dynamic)
    public = {name for name, (_, old) in want.items() if old and name.startswith("nccl")}
    public = {name for name in public if not NOT_DECLARED.search(name)}
    undeclared, strange = sorted(public - declared(header)), sorted(declared(header) - public)
    check(not undeclared and not strange, f"the header declares the {len(public)} calls of 2.28", *undeclared, *strange)
    done()


main()
