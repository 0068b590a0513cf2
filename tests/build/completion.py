# SPDX-License-Identifier: Apache-2.0
# covers: tools
"""Bash completes the `kolo` command: subcommands, options, algorithms, files.

usage: completion.py ROOT KOLO
"""
import os
import re
import subprocess
import sys
import tempfile

import tap

ASK = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_kolo
printf '%s\\n' "${COMPREPLY[@]}"
"""


def main():
    root, kolo = sys.argv[1], os.path.abspath(sys.argv[2])
    script = os.path.join(root, "tools/kolo.bash")

    def answers(*words, folder="."):
        ran = subprocess.run(["bash", "-c", ASK, "bash", script, kolo, *words], capture_output=True, text=True,
                             check=False, cwd=folder, env=tap.machine_env())
        return set(ran.stdout.split()) if not ran.stderr else {ran.stderr}

    def said(*command):
        return subprocess.run([kolo, *command], capture_output=True, text=True, check=True).stdout

    commands = set(re.findall(r"^  (\w+) ", said("help"), re.MULTILINE))
    tap.check(answers("") == commands and "tune" in commands, "after kolo come all subcommands", answers(""))
    tap.check(answers("pl") == {"plan"}, "a beginning is completed", answers("pl"))
    for command in sorted(commands - {"help", "version"}):
        want = set(re.findall(r"^ {2,6}(?:-\w, )?(--[a-z-]+)", said(command, "--help"), re.MULTILINE))
        got = answers(command, "-")
        tap.check(got == want and "--help" in got, f"after kolo {command} come the options of its --help", got ^ want)
    tap.check({"allreduce_ring", "allreduce"} <= answers("plan", "allre"), "kolo plan takes an algorithm or a collective")
    tap.check(answers("run", "--bind", "") == {"core", "none"}, "kolo run --bind takes core or none")
    tap.check("KOLO_ALGO" in answers("env", "KOLO_A"), "kolo env takes a variable")
    with tempfile.TemporaryDirectory(prefix="kolo-completion-") as folder:
        with open(os.path.join(folder, "machine.xml"), "w", encoding="utf-8"):
            pass
        for words in (("topo", "mach"), ("topo", "--svg", "mach"), ("plan", "-t", "mach"), ("log", "mach"),
                      ("run", "-n", "2", "./a.out", "mach")):
            got = answers(*words, folder=folder)
            tap.check(got == {"machine.xml"}, f"kolo {' '.join(words)} is completed by a file", got)
        got = answers("topo", "-n", "mach", folder=folder)
        tap.check(not got, "a number is not completed by a file", got)
        got = answers("run", "-n", "2", "bas", folder=folder)
        tap.check("bash" in got, "kolo run takes a command of the path", got)
    tap.done()


main()
