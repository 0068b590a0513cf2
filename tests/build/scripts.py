# SPDX-License-Identifier: Apache-2.0
"""Every script parses, and those that are called by name have their run bit.

usage: scripts.py ROOT
"""
import os
import subprocess
import sys
import tempfile

import tap
import tree

CALLED = ("setup", "demo", "test", ".ci/run", "packaging/deb", "packaging/wheel", "tests/soak", "docs/site/build")


def language(root, path):
    """"python", "bash" or ""."""
    first = (tree.first_lines(os.path.join(root, path), 1) + [""])[0]
    if path.endswith(".py") or (first.startswith("#!") and "python" in first):
        return "python"
    if path.endswith(".sh") or (first.startswith("#!") and first.endswith(("bash", "/sh"))):
        return "bash"
    return ""


def complaint(root, path, kind):
    """What the language says to the script, "" if it parses."""
    full = os.path.join(root, path)
    if kind == "bash":
        ran = subprocess.run(["bash", "-n", full], capture_output=True, text=True, check=False)
        return "" if ran.returncode == 0 else ran.stderr
    with open(full, encoding="utf-8") as file:
        text = file.read()
    try:
        compile(text, path, "exec")
    except SyntaxError as error:
        return str(error)
    return ""


def check_that_faults_are_seen():
    with tempfile.TemporaryDirectory(prefix="kolo-scripts-") as root:
        for name, text in {"a.sh": "if true; then\n", "a.py": "def f(:\n"}.items():
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
            kind = language(root, name)
            tap.check(complaint(root, name, kind), f"{kind} that does not parse is refused")


def main():
    root = sys.argv[1]
    for path in tree.files(root) + tree.files(root, ".ci"):
        kind = language(root, path)
        if kind:
            said = complaint(root, path, kind)
            tap.check(not said, f"{path} is {kind} that parses", *said.splitlines())
    for path in CALLED:
        tap.check(os.access(os.path.join(root, path), os.X_OK), f"{path} has its run bit")
    check_that_faults_are_seen()
    tap.done()


main()
