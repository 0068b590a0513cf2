# SPDX-License-Identifier: Apache-2.0
"""Runs several scripts that print TAP, one after another, and prints one TAP of them: a guest takes half a minute to
start, so that it serves all of them.

usage: scripts.py SCRIPT [ARG...] [-- SCRIPT [ARG...]]...
"""
import os
import re
import subprocess
import sys
import time


def commands(words):
    """The lists of words between `--`."""
    parts = [[]]
    for word in words:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def main():
    count, bad = 0, 0
    for command in commands(sys.argv[1:]):
        begun, planned = time.monotonic(), False
        name = os.path.basename(command[0])
        with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as script:
            for line in script.stdout:
                found = re.match(r"(ok|not ok) \d+ - (.*)", line)
                count += bool(found)
                planned = planned or line.startswith("1..")
                if found:
                    print(f"{found[1]} {count} - {found[2]}")
                elif not line.startswith("1.."):
                    print(line, end="")
                sys.stdout.flush()
        bad += script.returncode != 0
        if not planned:
            count += 1
            print(f"not ok {count} - {name} comes to its end\n# it ended with status {script.returncode}")
        print(f"# {name} took {time.monotonic() - begun:.0f} s", flush=True)
    print(f"1..{count}")
    return 1 if bad else 0


sys.exit(main())
