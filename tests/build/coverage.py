# SPDX-License-Identifier: Apache-2.0
"""Every folder of the product is covered by a test, as the lines "covers:" of the tests say
(tests/covers.py), and every path in these lines is there.

usage: coverage.py ROOT
"""
import os
import sys
import tempfile

import tap
import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import covers  # noqa: E402

PRODUCT = ("src", "transports", "topology", "algos", "tools", "perf", "torch", "python", "train")
SOURCES = (".c", ".h", ".cc", ".cpp", ".cu", ".py")


def product_folders(files):
    """Folders of the product that hold a source."""
    return sorted({os.path.dirname(path) for path in files
                   if path.split("/")[0] in PRODUCT and path.endswith(SOURCES)})


def missing_paths(root, table):
    return [f"{test}: {path}" for test, paths in table.items() for path in paths
            if not os.path.exists(os.path.join(root, path))]


def uncovered(folders, table):
    """Folders of which no part is covered: neither they, nor one above or below them."""
    named = {path for paths in table.values() for path in paths}
    return [folder for folder in folders
            if not any(covers.is_within(folder, path) or covers.is_within(path, folder) for path in named)]


def check_that_faults_are_seen():
    with tempfile.TemporaryDirectory(prefix="kolo-coverage-") as root:
        for path, text in {"tests/a_test.cc": "// covers: src/a src/gone\n", "src/a/a.c": "", "src/b/b.c": ""}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        table = covers.table(root)
        tap.check(missing_paths(root, table) == ["tests/a_test.cc: src/gone"], "a path that is gone is seen")
        tap.check(uncovered(["src/a", "src/b"], table) == ["src/b"], "a folder that no test covers is seen")
        tap.check(covers.closest(root, "src/a/a.c") == ["tests/a_test.cc"], "a file is covered by its folder's test")


def main():
    root = sys.argv[1]
    files, table = tree.files(root), covers.table(root)
    missing = missing_paths(root, table)
    tap.check(not missing, "every path that a test covers is there", *missing)
    left = uncovered(product_folders(files), table)
    tap.check(not left, "every folder of the product is covered by a test", *left)
    silent = [path for path in files if path.startswith("tests/") and
              path.rsplit(".", 1)[0].endswith("_test") and path not in table]
    tap.check(not silent, "every test says what it covers", *silent)
    check_that_faults_are_seen()
    tap.done()


main()
