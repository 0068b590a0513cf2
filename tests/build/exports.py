# SPDX-License-Identifier: Apache-2.0
"""libkolo.so exports the functions that a public header marks KOLO_EXPORT, and nothing else.

usage: exports.py ROOT LIBRARY
"""
import os
import re
import subprocess
import sys

import tap
import tree

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)
DECLARATION = re.compile(r"\bKOLO_EXPORT\b([^;{]*?)\b(kolo_\w+)\s*\(")


def marked(text):
    """Names of the functions that a header's text marks KOLO_EXPORT."""
    text = DIRECTIVE.sub("", COMMENT.sub("", text))
    return {match.group(2) for match in DECLARATION.finditer(text)}


def exported(library):
    """Dynamic symbols that the library defines, without their version."""
    ran = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    symbols = set()
    for line in ran.stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # "A" is the name of a version, not of something to call
            symbols.add(name.split("@")[0])
    return symbols


def check_the_reader():
    text = """
#define KOLO_EXPORT __attribute__((visibility("default")))
#define KOLO_TWICE(x) \\
    KOLO_EXPORT int kolo_macro(x)
/* KOLO_EXPORT int kolo_comment(void); */
KOLO_EXPORT KOLO_CHECK kolo_status
kolo_two_lines(const void *send, int (*kolo_callback)(int));
KOLO_EXPORT int kolo_version(void); // KOLO_EXPORT int kolo_gone(void);
int kolo_hidden(void);
static inline int kolo_inline(void) { return kolo_version(); }
"""
    want = {"kolo_two_lines", "kolo_version"}
    tap.check(marked(text) == want, "the reader sees the marked functions only", marked(text))


def main():
    root, library = sys.argv[1:]
    include = os.path.join(root, "include")
    declared = set()
    for header in tree.files(include):
        with open(os.path.join(include, header), encoding="utf-8") as file:
            declared |= marked(file.read())
    symbols = exported(library)
    check_the_reader()
    tap.check("kolo_all_reduce" in declared, "kolo_all_reduce is marked KOLO_EXPORT")
    missing, extra = sorted(declared - symbols), sorted(symbols - declared)
    tap.check(not missing, f"all {len(declared)} marked functions are exported", *missing)
    tap.check(not extra, "nothing else is exported", *extra)
    tap.done()


main()
