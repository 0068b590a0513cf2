# SPDX-License-Identifier: Apache-2.0
"""The program in README.md compiles without a warning and prints what README.md says.

usage: readme.py ROOT LIBRARY KOLO CC...
"""
import os
import re
import subprocess
import sys
import tempfile

import tap

RANKS = 4


def block(text, language):
    """The first fenced block of that language."""
    found = re.search(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return found.group(1) if found else ""


def main():
    root, library, kolo, compiler = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    folder = os.path.dirname(os.path.abspath(library))
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        text = file.read()
    want = sorted(block(text, "text").splitlines())
    tap.check(len(want) == RANKS, f"README.md shows {RANKS} lines of output")
    with tempfile.TemporaryDirectory(prefix="kolo-readme-") as where:
        source, program = os.path.join(where, "hello.c"), os.path.join(where, "hello")
        with open(source, "w", encoding="utf-8") as file:
            file.write(block(text, "c"))
        command = [*compiler, "-Wall", "-Wextra", "-Werror", source, "-o", program]
        command += ["-I", os.path.join(root, "include"), "-L", folder, "-lkolo", f"-Wl,-rpath,{folder}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        tap.check(ran.returncode == 0, "the program in README.md compiles", *ran.stderr.splitlines())
        if ran.returncode == 0:
            command = [kolo, "run", "-n", str(RANKS), program]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            got = sorted(ran.stdout.splitlines())
            tap.check(got == want, "it prints what README.md says", *got, *ran.stderr.splitlines())
    tap.done()


main()
