# SPDX-License-Identifier: Apache-2.0
# covers: docs/man
"""The manual is whole, true and clean: a page for every public call, subcommand and variable; options
as --help tells them; nothing that mandoc or groff complains about.

usage: manual.py ROOT PAGES KOLO
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap
import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include"))
import declared  # noqa: E402

HEADERS = ("include/kolo/kolo.h", "include/kolo/codec.h", "include/kolo/members.h", "include/kolo/plugin.h")
READERS = ("src", "transports", "topology", "algos", "tools", "perf", "torch", "python")
SOURCES = (".c", ".h", ".cc", ".cpp", ".py")
# Programs that measure kolo beside others talk to themselves by these.
NOT_READ_BY_KOLO = ("perf/compare/", "perf/torch/")
WORDLESS = ("help", "version")  # subcommands whose one line in kolo(1) says all


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def unescaped(roff):
    """What a reader sees of a line, letter by letter."""
    for escape, sign in (("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ha", "^"), ("\\(ti", "~"),
                         ("\\&", ""), ("\\e", "\\")):
        roff = roff.replace(escape, sign)
    return re.sub(r"\\f[BIRP]", "", roff)


def page(pages, name):
    path = os.path.join(pages, name)
    return unescaped(text_of(path)) if os.path.exists(path) else ""


def run(*command, env=None):
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env or tap.machine_env())


def public_calls(root):
    """{name: its prototype}."""
    found = [one for header in HEADERS for one in declared.functions(text_of(os.path.join(root, header)))]
    return {one.name: one.prototype() for one in found}


def variables_read(root):
    """{name: a file that reads it} of the variables KOLO_*: the strings of that form that are no constant
    of a header."""
    constants = {name for header in HEADERS for name in declared.constants(text_of(os.path.join(root, header)))}
    found = {}
    for path in tree.files(root, *(folder for folder in READERS if os.path.isdir(os.path.join(root, folder)))):
        if path.endswith(SOURCES) and not path.startswith(NOT_READ_BY_KOLO):
            for name in re.findall(r'"(KOLO_[A-Z0-9_]+)"', text_of(os.path.join(root, path))):
                if name not in constants:
                    found.setdefault(name, path)
    return found


def subcommands(kolo):
    return re.findall(r"^  (\w+) ", run(kolo, "help").stdout, re.MULTILINE)


def options(kolo, command):
    """[(options, what they do)] as --help has them, each in one line."""
    found = []
    for line in run(kolo, command, "--help").stdout.splitlines():
        row = re.match(r" {2,6}(-\S.*?)(?: {2,}(.*))?$", line)
        if row:
            found.append([row.group(1), row.group(2) or ""])
        elif found and line.startswith("          "):
            found[-1][1] += " " + line.strip()
    return found


def complaints(root, pages, kolo):
    """What is missing or untrue in a folder of pages."""
    said = []
    for name, prototype in public_calls(root).items():
        text = page(pages, name + ".3")
        synopsis = " ".join(re.sub(r'^\.B "?|"$', "", text, flags=re.MULTILINE).split())
        if prototype + ";" not in synopsis:
            said.append(f"{name}(3) does not show {prototype}")
        if not re.search(rf'^\.SH NAME\n.*\b{name}\b.* - \w', text, re.MULTILINE):
            said.append(f"{name}(3) does not say what {name} is")
    for command in subcommands(kolo):
        text = page(pages, f"kolo-{command}.1")
        if command not in WORDLESS and not text:
            said.append(f"there is no kolo-{command}(1)")
        if f"kolo-{command}(1)" not in page(pages, "kolo.1") and command not in WORDLESS:
            said.append(f"kolo(1) does not name kolo-{command}(1)")
        want = [f".TP\n.B {term}\n{meaning}\n" for term, meaning in options(kolo, command)]
        said += [f"kolo-{command}(1) lacks {one!r}" for one in want if text and one not in text]
        theirs = re.findall(r"^\.B (-.*)$", text, re.MULTILINE)
        if text and theirs != [term for term, _ in options(kolo, command)]:
            said.append(f"kolo-{command}(1) tells of other options: {theirs}")
    env_page, listed = page(pages, "kolo-env.7"), run(kolo, "env").stdout
    for name, path in variables_read(root).items():
        if not re.search(rf"^\.B {name}\b", env_page, re.MULTILINE) or f"  {name}" not in listed:
            said.append(f"{name}, which {path} reads, is not in src/util/variables.def")
    return said + [f"there is no {name}" for name in ("kolo.1", "kolo.7", "kolo-plugin.7")
                   if not page(pages, name)]


def check_that_faults_are_seen(root, pages, kolo):
    with tempfile.TemporaryDirectory(prefix="kolo-manual-") as folder:
        for name in ("kolo_reduce.3", "kolo-topo.1", "kolo-env.7", "kolo.7"):
            copy = os.path.join(folder, "man")
            shutil.copytree(pages, copy)
            os.remove(os.path.join(copy, name))
            tap.check(complaints(root, copy, kolo), f"a manual without {name} is refused")
            shutil.rmtree(copy)
        shutil.copytree(pages, copy)
        with open(os.path.join(copy, "kolo-plan.1"), "a", encoding="utf-8") as file:
            file.write(".TP\n.B \\-\\-novel\nsomething\n")
        tap.check(complaints(root, copy, kolo), "an option that the program does not know is refused")


def check_that_all_is_read(root):
    table = set(re.findall(r'^KOLO_VARIABLE\(\w+, "(\w+)"', text_of(os.path.join(root, "src/util/variables.def")),
                           re.MULTILINE))
    stale = sorted(table - set(variables_read(root)))
    tap.check("KOLO_ALGO" in table and not stale, "every variable of variables.def is read somewhere", *stale)


def check_the_form(pages):
    names = [name for name in sorted(os.listdir(pages)) if re.search(r"\.[137]$", name)]
    for checker, command in (("mandoc", ["mandoc", "-Tlint", "-W", "warning"]),
                             ("groff", ["groff", "-man", "-ww", "-z"])):
        if shutil.which(checker) is None:
            print(f"# no {checker} here: its opinion of the pages is not asked")
            continue
        ran = run(*command, *(os.path.join(pages, name) for name in names))
        said = (ran.stdout + ran.stderr).splitlines()
        tap.check(not said, f"{checker} has nothing to say about {len(names)} pages", *said[:20])


def check_env(kolo):
    env = tap.machine_env(KOLO_DEUBG="INFO", KOLO_ALGO="allreduce:ring", KOLO_SECRET="hush")
    ran = run(kolo, "env", "--set", env=env)
    tap.check(ran.returncode == 1 and "KOLO_DEUBG" in ran.stderr, "kolo env tells of a variable that nobody reads",
              ran.stderr)
    tap.check("  KOLO_ALGO=allreduce:ring" in ran.stdout and "KOLO_COSTS" not in ran.stdout,
              "kolo env --set shows what is set, and no more", ran.stdout)
    tap.check("KOLO_SECRET=" in ran.stdout and "hush" not in ran.stdout, "it keeps the secret", ran.stdout)
    tap.check(run(kolo, "env", "KOLO_ISA").returncode == 0, "kolo env is content where there is nothing to say")


def main():
    root, pages, kolo = sys.argv[1:]
    said = complaints(root, pages, kolo)
    tap.check(len(public_calls(root)) > 50 and len(subcommands(kolo)) > 7 and len(variables_read(root)) > 30,
              "calls, subcommands and variables are found")
    tap.check(not said, "every call, subcommand, option and variable has its page, and it is true", *said)
    check_that_all_is_read(root)
    check_that_faults_are_seen(root, pages, kolo)
    check_the_form(pages)
    check_env(kolo)
    tap.done()


main()
