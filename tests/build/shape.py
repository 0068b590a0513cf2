# SPDX-License-Identifier: Apache-2.0
# covers: src tools perf torch
"""The shape of the source that a reader relies on: files and folders of a size one can hold in the
head, a word that means one thing, a communicator that is a list of parts.

usage: shape.py ROOT
"""
import collections
import os
import re
import sys
import tempfile

import tap
import tree

PRODUCT = ("src", "transports", "topology", "algos", "include", "tools", "perf", "torch", "python", "train")
SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".S", ".py")
LINES = 500
FILES = 20
FLAT = {"algos"}  # a catalogue: one file an algorithm, listed in the registry
COMM = "src/core/comm.h"
COMM_MEMBERS = 16
COMM_INCLUDERS = 15
# A tag may be defined again where no file can see both: names of other libraries, and single programs.
ALONE = ("tools/", "perf/", "examples/", "src/nccl/")
# kolo/plugin.h declares these; each transport defines its own.
OPAQUE = {"kolo_endpoint", "kolo_link"}
TAG = re.compile(r"^(?:typedef\s+)?(?:struct|union|enum)\s+(?:_Alignas\(\w+\)\s+)?(\w+)\s*\{", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def text_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def sources(root):
    return [path for path in tree.files(root, *(top for top in PRODUCT if os.path.isdir(os.path.join(root, top))))
            if path.endswith(SUFFIXES)]


def long_files(root):
    return [f"{path}: {lines} lines" for path in sources(root)
            if (lines := text_of(root, path).count("\n")) > LINES]


def full_folders(root):
    count = collections.Counter(os.path.dirname(path) for path in sources(root)
                                if path.startswith(("src/", "topology/", "transports/", "tools/"))
                                and path.endswith((".c", ".h", ".cu", ".S")))
    return [f"{folder}: {files} files" for folder, files in sorted(count.items()) if files > FILES]


def tags_defined_twice(root):
    """Tags of structs, unions and enums that two files of the library define."""
    where = collections.defaultdict(set)
    for path in sources(root):
        if path.endswith((".c", ".h")) and not path.startswith(ALONE):
            for tag in TAG.findall(COMMENT.sub("", text_of(root, path))):
                own = tag in OPAQUE and path.startswith("transports/")
                where[tag].add("transports" if own else path)
    # A source's own tag without the library's prefix is seen by that source alone.
    return [f"{tag}: {', '.join(sorted(files))}" for tag, files in sorted(where.items())
            if len(files) > 1 and (tag.startswith("kolo_") or sum(f.endswith(".h") for f in files))]


def members(text):
    """How many members `struct kolo_comm` has."""
    body = re.search(r"^struct kolo_comm \{\n(.*?)^\};", COMMENT.sub("", text), re.MULTILINE | re.DOTALL)
    if body is None:
        return 0
    flat = re.sub(r"\{[^{}]*\}", "", body.group(1))
    return sum(1 + declaration.count(",") for declaration in flat.split(";") if declaration.strip())


def includers(root):
    return [path for path in sources(root) if path.startswith(("src/", "transports/", "topology/"))
            and path.endswith(".c") and '#include "core/comm.h"' in text_of(root, path)]


def check_that_faults_are_seen():
    with tempfile.TemporaryDirectory(prefix="kolo-shape-") as root:
        files = {"src/a/long.c": "int x;\n" * (LINES + 1), "src/a/one.h": "struct kolo_x {\n    int a;\n};\n",
                 "src/b/two.h": "struct kolo_x {\n    int b;\n};\n",
                 **{f"src/c/f{i}.c": "int y;\n" for i in range(FILES + 1)}}
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        tap.check(len(long_files(root)) == 1, "a file that is too long is refused")
        tap.check(len(full_folders(root)) == 1, "a folder that is too full is refused")
        tap.check(len(tags_defined_twice(root)) == 1, "a tag that two files define is refused")
    two = "struct kolo_comm {\n    int rank, nranks; /* a, b; */\n    struct {\n        int c;\n    } d;\n};\n"
    tap.check(members(two) == 3, "members are counted", str(members(two)))


def main():
    root = sys.argv[1]
    for name, found in ((f"no file of the product has more than {LINES} lines", long_files(root)),
                        (f"no folder has more than {FILES} source files",
                         [line for line in full_folders(root) if line.split(":")[0] not in FLAT]),
                        ("no tag is defined twice", tags_defined_twice(root))):
        tap.check(not found, name, *found)
    count = members(text_of(root, COMM))
    tap.check(0 < count <= COMM_MEMBERS, f"the communicator has at most {COMM_MEMBERS} members: {count}")
    found = includers(root)
    tap.check(len(found) <= COMM_INCLUDERS,
              f"{COMM} is included by at most {COMM_INCLUDERS} sources: {len(found)}", *found)
    check_that_faults_are_seen()
    tap.done()


main()
