# SPDX-License-Identifier: Apache-2.0
"""The tests in this folder, as TAP (testanything.org): one line a check, its name a sentence.

Each script calls check() for what it finds, and at its end done() or run_tests().
"""
import os
import sys

_checks = []


def check(ok, name, *details):
    """One result; `details` are printed where it failed."""
    _checks.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(_checks)} - {name}")
    if not ok:
        for detail in details:
            print(f"# {detail}")
    sys.stdout.flush()


def machine_env(**env):
    """The environment without what would describe another machine than this one, and with `env`. The
    plug-ins that hwloc is to do without stay as they are: they may not suit a sanitizer."""
    return {**{k: v for k, v in os.environ.items()
               if not k.startswith(("KOLO_", "HWLOC_")) or k == "HWLOC_PLUGINS_BLACKLIST"}, **env}


def done():
    """Print the plan and leave with a status that says whether all passed."""
    print(f"1..{len(_checks)}")
    sys.exit(0 if _checks and all(_checks) else 1)


def run_tests(names):
    """Call every test_*() of a script, whose globals() these are, and be done."""
    for name, test in sorted(names.items()):
        if name.startswith("test_"):
            test()
    done()
