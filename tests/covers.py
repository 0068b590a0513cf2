# SPDX-License-Identifier: Apache-2.0
"""Which test covers which part of the tree: a line near the top of each test's source,

    // covers: src/core/call src/util/crc.c      (C and C++)
    # covers: tools                              (Python, shell)

A folder stands for all that lies below it. ./test --quick PATH reads this, and tests/build/coverage.py
sees that every path is there and every folder of the product is covered.
"""
import os
import re

LINE = re.compile(r"^(?://|#) covers: (.+)$", re.MULTILINE)
SUFFIXES = (".cc", ".c", ".py")
HEAD_BYTES = 6000  # of a file, in which the line must lie


def table(root):
    """{source of a test: paths that it covers}, all below `root`."""
    found = {}
    for folder, _, names in os.walk(os.path.join(root, "tests")):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not (name.endswith(SUFFIXES) or "." not in name) or os.path.islink(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                said = LINE.findall(file.read(HEAD_BYTES))
            if said:
                found[os.path.relpath(path, root)] = [word for line in said for word in line.split()]
    return found


def is_within(path, folder):
    return path == folder or path.startswith(folder + "/")


def closest(root, path):
    """The tests that cover `path` by its own name or, if there are none, by that of the nearest folder;
    for a folder also those that cover a part of it."""
    tests = table(root)
    parts = [test for test, paths in tests.items() if any(is_within(one, path) for one in paths)]
    while not parts and path:
        path = os.path.dirname(path)
        parts = [test for test, paths in tests.items() if path in paths]
    return parts
