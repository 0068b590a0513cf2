# SPDX-License-Identifier: Apache-2.0
"""Builds and runs only what a pattern names, for ./test --quick.

A pattern is, in this order:
  a path      a file or folder of the tree: the tests whose line "covers:" names it most closely; a
              test's own source: that test
  a suite     all of its tests: unit, plan, conformance, ...
  a name      part of the name of a meson test, or of its program
  a case      part of the name of a GoogleTest case; the sources tell which programs hold it, so that no
              other program is built
Sanitizers, ./setup and torch play no part.

usage: quick.py ROOT BUILD PATTERN...
"""
import fnmatch
import json
import os
import re
import subprocess
import sys
import time

import covers
import report

CASE = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)|\bTYPED_TEST(?:_P)?\(\s*(\w+),\s*(\w+)\s*\)")
INSTANCE = re.compile(r"\bINSTANTIATE_T\w+_P\(\s*(\w+),\s*(\w+)\s*,")
FILTER = "--gtest_filter="
LONGEST_FILTER = 100_000  # what one string of the environment may hold, less a margin


class Build:
    """What meson says about a build folder: its tests, and the targets that they need."""

    def __init__(self, folder):
        self.folder = os.path.realpath(folder)
        run_ninja(self.folder, ["build.ninja"])  # a meson.build may have changed
        self.tests = self.told("tests")
        self.targets = {target["id"]: target for target in self.told("targets")}

    def told(self, what):
        with open(f"{self.folder}/meson-info/intro-{what}.json", encoding="utf-8") as file:
            return json.load(file)

    def files(self, tests):
        """What ninja must build for these tests."""
        wanted = {target for test in tests for target in test["depends"]}
        return sorted(os.path.relpath(file, self.folder) for target in wanted
                      for file in self.targets[target]["filename"])

    def sources(self, test):
        """The sources that a test itself is made of: those of its program, and scripts it is given."""
        command = [os.path.join(self.folder, word) for word in test["cmd"]]
        programs = [target for target in map(self.targets.get, test["depends"])
                    if set(target["filename"]) & set(command)]
        found = [source for program in programs for part in program["target_sources"]
                 for source in part.get("sources", [])]
        return found + [word for word in command if word.endswith(".py")]


class Chosen:
    """A test to run, and which of its GoogleTest cases: all, or those that one of `cases` matches."""

    def __init__(self, test, cases=None):
        self.test, self.cases = test, cases


def run_ninja(folder, targets):
    jobs = os.environ.get("KOLO_JOBS", str(os.cpu_count()))
    ran = subprocess.run(["ninja", "-C", folder, "-j", jobs, *targets], capture_output=True, text=True)
    if ran.returncode != 0:
        print(ran.stdout, ran.stderr, sep="", file=sys.stderr)
        sys.exit(1)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def case_names(text):
    """Names of the cases in a source, as GoogleTest prints them, without their parameters."""
    pairs = [(a or c, b or d) for a, b, c, d in CASE.findall(text)]
    before = {}
    for instance, suite in INSTANCE.findall(text):
        before.setdefault(suite, []).append(instance)
    return [name for suite, case in pairs
            for name in [f"{suite}.{case}", *(f"{one}/{suite}.{case}/" for one in before.get(suite, []))]]


def holds(name, pattern):
    """Whether a case of that name, or one with a parameter that no source tells, is asked for."""
    cuts = [pattern[:at + 1] for at, letter in enumerate(pattern) if letter == "/"]
    return (fnmatch.fnmatchcase(name, f"*{pattern}*") or
            any(fnmatch.fnmatchcase(name, f"*{cut}") for cut in cuts))


def by_path(root, build, path):
    """The tests that cover a path of the tree, or that are made of it."""
    full = os.path.join(root, path)
    own = [test for test in build.tests if full in build.sources(test)]
    closest = [os.path.join(root, file) for file in covers.closest(root, path)]
    found = []
    for test in build.tests:
        mine = [full] if test in own else [file for file in closest if file in build.sources(test)]
        if mine and (test in own or not own):
            suites = {name.split(".")[0] for file in mine if file.endswith(".cc")
                      for name in case_names(read(file)) if "/" not in name}
            found.append(Chosen(test, [f"{suite}.*" for suite in sorted(suites)] or None))
    return found


def by_case(build, pattern):
    return [Chosen(test, [pattern]) for test in build.tests
            if any(holds(name, pattern) for file in build.sources(test) if file.endswith(".cc")
                   for name in case_names(read(file)))]


def choose(root, build, pattern):
    path = os.path.relpath(os.path.realpath(pattern), root)
    if os.path.exists(os.path.join(root, path)) and not path.startswith(".."):
        return by_path(root, build, path)
    suite = [Chosen(test) for test in build.tests if f"kolo:{pattern}" in test["suite"]]
    named = [Chosen(test) for test in build.tests
             if pattern in test["name"] or pattern in os.path.basename(test["cmd"][0])]
    return suite or named or by_case(build, pattern)


def environment(test):
    return {**os.environ, "KOLO_TUNE_FILE": "none", **test["env"]}


def listed(command, env):
    """Names of the cases that a GoogleTest program would run, or None if it cannot tell."""
    ran = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True, env=env)
    names, suite = [], ""
    for line in ran.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if word.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names if ran.returncode == 0 else None


def narrowed(chosen):
    """(command, environment) that runs the cases asked for, or None where the test has none of them."""
    test = chosen.test
    command, env = test["cmd"], environment(test)
    if chosen.cases is None:
        return command, env
    if test["protocol"] != "gtest":  # ranks of a program: each takes the filter from the environment
        return command, {**env, "GTEST_FILTER": ":".join(f"*{case}*" for case in chosen.cases)}
    names = [name for name in listed(command, env) or []
             if any(fnmatch.fnmatchcase(name, f"*{case}*") for case in chosen.cases)]
    if not names:
        return None
    wanted = ":".join(names)
    if len(wanted) > LONGEST_FILTER:
        return command, env
    return [*(word for word in command if not word.startswith(FILTER)), FILTER + wanted], env


def run(test, command, env):
    """Run a test, print its line, and return how many checks passed and failed."""
    start = time.monotonic()
    try:
        ran = subprocess.run(command, env=env, cwd=test["workdir"], capture_output=True, text=True,
                             errors="replace", timeout=test["timeout"])
        result = {0: "OK", 77: "SKIP"}.get(ran.returncode, f"FAIL, status {ran.returncode}")
        told = {"name": test["name"], "result": result, "stdout": ran.stdout, "stderr": ran.stderr}
    except subprocess.TimeoutExpired as late:
        told = {"name": test["name"], "result": f"TIMEOUT after {test['timeout']} s",
                "stdout": (late.stdout or b"").decode(errors="replace"), "stderr": ""}
    passed, failed, skipped = report.count(told)
    if failed:
        report.show(told)
    print(f"{test['name']}: {passed} passed, {failed} failed, {skipped} skipped, "
          f"{time.monotonic() - start:.1f} s", flush=True)
    return passed + skipped, failed


def main():
    root, folder, patterns = os.path.realpath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    start = time.monotonic()
    build = Build(folder)
    chosen = [one for pattern in patterns for one in choose(root, build, pattern)]
    if not chosen:
        sys.exit(f"test: no path, suite, test or case is called {' or '.join(patterns)}")
    run_ninja(build.folder, build.files([one.test for one in chosen]))
    print(f"built what {len(chosen)} tests need: {time.monotonic() - start:.1f} s", flush=True)
    os.chdir(build.folder)
    totals = [run(one.test, *what) for one in chosen for what in [narrowed(one)] if what]
    good, bad = (sum(column) for column in zip(*totals)) if totals else (0, 0)
    if good + bad == 0:
        sys.exit(f"test: no case is called {' or '.join(patterns)}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
