# SPDX-License-Identifier: Apache-2.0
"""What must be built for some suites alone, for ./test: the files, as ninja knows them.

usage: targets.py BUILD_DIR SUITE...
"""
import json
import os
import subprocess
import sys


def introspect(folder, what):
    told = subprocess.run(["meson", "introspect", folder, what], capture_output=True, text=True,
                          timeout=60, check=True)
    return json.loads(told.stdout)


def main():
    folder, suites = sys.argv[1], {"kolo:" + name for name in sys.argv[2:]}
    wanted = {target for test in introspect(folder, "--tests") if suites & set(test["suite"])
              for target in test["depends"]}
    root = os.path.realpath(folder)
    print(*(os.path.relpath(file, root) for target in introspect(folder, "--targets")
            if target["id"] in wanted for file in target["filename"]))


main()
