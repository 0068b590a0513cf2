# SPDX-License-Identifier: Apache-2.0
"""Walks the source tree, leaving out what is built or fetched."""
import os


def files(root, *folders):
    """Paths, relative to `root` and sorted, of the files under its `folders` (all by default).

    Hidden folders and build* at the top are left out; tests/build is not one of those.
    """
    found = []
    for folder in folders or ("",):
        for here, below, names in os.walk(os.path.join(root, folder)):
            top = os.path.samefile(here, root)
            below[:] = [
                name
                for name in below
                if not name.startswith(".")
                and name != "__pycache__"
                and not (top and name.startswith("build"))
            ]
            found += [os.path.relpath(os.path.join(here, name), root) for name in names]
    return sorted(found)


def first_lines(path, count):
    """The first `count` lines of a text file, or [] where it is not text."""
    try:
        with open(path, encoding="utf-8") as file:
            return [file.readline().rstrip("\n") for _ in range(count)]
    except UnicodeDecodeError:
        return []
