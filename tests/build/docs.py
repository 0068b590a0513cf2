# SPDX-License-Identifier: Apache-2.0
# covers: docs README.md
"""Every Markdown document of the tree is true: its commands work and print the text below them.

The ```sh blocks of a document run in one shell, in a folder that looks like the source tree. A ```text
block is a part of the output of the ```sh block above it: "..." stands for anything, a number with a
point for any number. A ```console block is a session: a line that begins with "$ " is a command, the
lines below it are a part of its output. A ```c block is the file that the paragraph above it names. A
```python block compiles. A ```log block is a picture of output and is not checked.

Paths, functions and variables in a document exist; links.py looks at links. The examples in the commands' manual pages
run as well. README.md stays short, and its times are those of perf/RESULTS.md.

usage: docs.py ROOT BUILD PREFIX LIBDIR LIBEXECDIR CC...
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap

import tap
import tree

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# Lines that are not typed again here, and who runs them.
RUN_ELSEWHERE = (
    (r"\./(demo|test|setup)\b", "what runs this was started by them"),
    (r"(meson (setup|configure)|ninja) ", "this tests what they have built"),
    (r"bash \.ci/run", "continuous integration runs it"),
    (r"(KIT/)?tests/(soak|guest/run|gpu/\w+)\b", "needs minutes, a virtual machine or a GPU"),
    (r"pre-commit ", "needs a checkout by git"),
    (r"sudo apt(-get)? ", "installs packages"),
    (r"\S*pip install .*\./torch", "./test builds kolo_torch by itself"),
    (r".*perf/torch/compare\.py|.*torchrun ", "needs PyTorch"),
    (r".*\bvllm serve ", "tests/frameworks runs vLLM"),
    (r"packaging/deb\b", "tests/packaging makes the packages and installs them"),
    (r"packaging/wheel|pip install dist/", "tests/python makes and installs the wheel; here python/ is on the path"),
    (r".*-m kolo_train", "tests/train trains"),
    (r"(sudo )?ldconfig\b", "what is installed here goes again"),
)
# Examples of pages that need what is not here: a GPU, or a job that hangs.
NEEDS_MORE = re.compile(r"nvidia-smi|machine\.txt|kolo ps")
INSTALL = re.compile(r"(sudo )?meson install -C build\b.*")
KINDS = ("sh", "text", "c", "python", "log")
README_LINES, README_WORDS = 140, 1300
SECONDS = 180


def session(text):
    """The ```sh and ```text blocks that a ```console block stands for."""
    blocks = []
    for line in text.splitlines(keepends=True):
        kind, line = ("sh", line[2:]) if line.startswith("$ ") else ("text", line)
        if blocks and kind == "text" == blocks[-1][0]:
            blocks[-1] = ("text", blocks[-1][1] + line)
        elif line.strip():
            blocks.append((kind, line))
    return blocks


def fences(text):
    """[(kind, lines, the paragraph above)] of a document."""
    found = []
    for match in FENCE.finditer(text):
        above = text[: match.start()].rstrip("\n").rsplit("\n\n", 1)[-1]
        kind, lines = match.group(1), match.group(2)
        found += [(part, each, above) for part, each in (session(lines) if kind == "console" else [(kind, lines)])]
    return found


def is_run_elsewhere(line):
    return any(re.match(pattern, line) for pattern, _ in RUN_ELSEWHERE)


def script_of(found, install):
    """The shell's text: the blocks, each behind a mark."""
    lines = []
    for number, (kind, text, _) in enumerate(found):
        if kind == "sh":
            lines.append(f"echo '@@@ {number}'")
            for line in text.splitlines():
                lines.append(":" if is_run_elsewhere(line) else INSTALL.sub(install, line))
    return "\n".join(lines) + "\n"


def pattern_of(line):
    """What a line of a ```text block matches."""
    pattern = re.escape(" ".join(line.split()))
    pattern = re.sub(r"\d+\\\.\d+(?!\\\.)", r"[0-9]+(?:\\.[0-9]+)?", pattern)
    return re.compile("^" + pattern.replace(r"\.\.\.", ".*").replace(r"\ ", " +") + "$", re.MULTILINE)


def lacking(expected, printed):
    """The lines of a ```text block that were not printed."""
    printed = "\n".join(" ".join(line.split()) for line in printed.splitlines())
    return [line for line in expected.splitlines() if not pattern_of(line).search(printed)]


class Place:
    """A folder that looks like the source tree, and the environment of a reader of the README."""

    def __init__(self, folder, root, build, prefix, libdir, libexecdir):
        self.folder, there = os.path.join(folder, "kolo"), os.path.join(folder, "installed")
        os.mkdir(self.folder)
        for name in os.listdir(root):
            if not name.startswith((".", "build")):
                os.symlink(os.path.join(root, name), os.path.join(self.folder, name))
        os.symlink(build, os.path.join(self.folder, "build"))
        base = os.path.join(there, prefix.lstrip("/"))
        lib = os.path.join(base, libdir)
        # The loader and pkg-config know /usr/local, but not the folder that stands for it here.
        self.install = (f"meson install -C build --no-rebuild --quiet --destdir {there}; "
                        f"export PATH={base}/bin:{base}/{libexecdir}/kolo:$PATH LD_LIBRARY_PATH={lib}"
                        f" PKG_CONFIG_SYSROOT_DIR={there} PKG_CONFIG_PATH={lib}/pkgconfig")
        self.env = tap.machine_env(HOME=folder, PYTHONPATH=os.path.join(root, "python"), PYTHONDONTWRITEBYTECODE="1", KOLO_TUNE_FILE="none", OMPI_ALLOW_RUN_AS_ROOT="1",
                                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def run(self, script):
        """(status, {number of a block: what it printed}); nothing that it started goes on."""
        with subprocess.Popen(["bash", "-eu", "-c", script], cwd=self.folder, env=self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              errors="replace", start_new_session=True) as shell:
            try:
                printed, _ = shell.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                printed = shell.communicate()[0] + f"\n(not done after {SECONDS} s)"
        parts = re.split(r"^@@@ (\d+)\n", printed, flags=re.MULTILINE)
        return shell.returncode, {int(number): text for number, text in zip(parts[1::2], parts[2::2])}


def write_programs(found, folder, compiler, check):
    for kind, text, above in found:
        if kind != "c":
            continue
        names = re.findall(r"`([\w.]+\.c)`", above)
        check(names, "a program has a name in the paragraph above it", *above.splitlines())
        path = os.path.join(folder, names[-1])
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        ran = subprocess.run([*compiler, *WARNINGS, "-I", os.path.join(folder, "include"), "-fsyntax-only", path],
                             capture_output=True, text=True, check=False)
        check(ran.returncode == 0, f"{names[-1]} compiles without a warning", *ran.stderr.splitlines())


def compile_python(found, check):
    for kind, text, _ in found:
        if kind == "python":
            try:
                compile(textwrap.dedent(text), "block", "exec")
                check(True, f"it is Python: {text.splitlines()[0].strip()[:60]}")
            except SyntaxError as error:
                check(False, f"it is Python: {text.splitlines()[0].strip()[:60]}", error)


def try_document(text, place, compiler, check):
    """Runs a document and looks at what it prints."""
    found = fences(text)
    check(all(kind in KINDS for kind, _, _ in found), "every fence says what is in it",
          *(kind for kind, _, _ in found))
    write_programs(found, place.folder, compiler, check)
    compile_python(found, check)
    script = script_of(found, place.install)
    status, printed = place.run(script)
    last = max(printed, default=-1)
    check(status == 0, "every command ends well", f"in or after: {found[last][1] if last >= 0 else ''}",
          *printed.get(last, "").splitlines()[-20:])
    above = -1
    for number, (kind, block, _) in enumerate(found):
        if kind == "sh":
            above = number
        elif kind == "text":
            missing = lacking(block, printed.get(above, ""))
            check(not missing, f"it prints what is said: {block.splitlines()[0].strip()[:60]}",
                  *missing, "instead of:", *printed.get(above, "").splitlines()[-30:])


PATH = re.compile(r"`((?:include|src|algos|transports|topology|tools|perf|tests|docs|examples|torch|train|python|packaging"
                  r"|debian|\.ci|\.github)/[\w./-]*)`")
VARIABLE = re.compile(r"\b(KOLO_[A-Z_]+)=")


def lost_names(root, text, source):
    """The paths, functions and variables that a document names and that are not in the tree."""
    paths = [path for path in PATH.findall(text) if not os.path.exists(os.path.join(root, path))]
    functions = [name for name in re.findall(r"`(kolo_\w+)\(\)`", text) if not re.search(rf"\b{name}\(", source)]
    known = variables_of(root) | {"KOLO_TEST_FULL", "KOLO_TEST_SHORT", "KOLO_TEST_WHOLE", "KOLO_FUZZ_SECONDS",
                               "KOLO_GPU_TARGETS"}
    return paths + functions + [name for name in VARIABLE.findall(text) if name not in known]


def variables_of(root):
    """The variables of the environment that kolo reads."""
    with open(os.path.join(root, "src/util/variables.def"), encoding="utf-8") as file:
        return set(re.findall(r'^KOLO_VARIABLE\(\w+, "(\w+)"', file.read(), re.MULTILINE))


def check_the_variables(root):
    """docs/environment.md has a row for each variable, and for no other."""
    with open(os.path.join(root, "docs/environment.md"), encoding="utf-8") as file:
        told = set(re.findall(r"^\| `(KOLO_\w+)`", file.read(), re.MULTILINE))
    known = variables_of(root)
    tap.check(told == known, f"docs/environment.md has the {len(known)} variables", *sorted(told ^ known))


def source_of(root):
    """All of the library's C, as one text."""
    texts = []
    for path in tree.files(root, "include", "src", "transports", "algos"):
        if path.endswith((".c", ".h")):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts.append(file.read())
    return "\n".join(texts)


def check_that_faults_are_seen(make_place, compiler):
    wrong = {
        "a command that fails": "```sh\nfalse\ntrue\n```\n",
        "output that is another": "```sh\necho rank 1\n```\n```text\nrank 2\n```\n",
        "a program with a warning": "`a.c`\n\n```c\nint main(void) { int unused; }\n```\n",
        "a fence without a name": "```\nls\n```\n",
        "a session that prints something else": "```console\n$ echo 1\n1\n$ echo 2\n3\n```\n",
        "Python that does not parse": "```python\nimport =\n```\n",
    }
    for what, text in wrong.items():
        said = []
        with make_place() as place:
            try_document(text, place, compiler, lambda ok, *_: said.append(bool(ok)))
        tap.check(not all(said), f"{what} is refused")
    right = ("```sh\necho rank 3: 17.25 us\n```\n```text\nrank 3: 0.5 ...\n```\n"
             "```console\n$ echo a; echo b\nb\n$ true\n```\n")
    said = []
    with make_place() as place:
        try_document(right, place, compiler, lambda ok, *_: said.append(bool(ok)))
    tap.check(all(said), "numbers with a point may differ", *said)


def check_the_pages(root, place, compiler):
    """The examples of kolo(1) and of its subcommands' pages end well; ./a.out is an example program."""
    lines = []
    for name in sorted(os.listdir(os.path.join(root, "docs/man"))):
        if name.endswith(".1.in"):
            with open(os.path.join(root, "docs/man", name), encoding="utf-8") as file:
                for block in re.findall(r"^\.EX\n(.*?)^\.EE", file.read(), re.DOTALL | re.MULTILINE):
                    lines += block.replace("\\-", "-").splitlines()
    lines = [line for line in lines if not NEEDS_MORE.search(line)]
    script = [" ".join([*compiler, "examples/all_reduce.c -o a.out -Iinclude -Lbuild -lkolo -Wl,-rpath,$PWD/build"]),
              'export PATH="$PWD/build/tools:$PATH"', "echo '@@@ 0'", *lines]
    status, printed = place.run("\n".join(script))
    tap.check(len(lines) > 10 and status == 0, f"the {len(lines)} examples in the commands' pages end well",
              *printed.get(0, "").splitlines()[-20:])


def check_the_figures(root, text):
    """README.md is short; the times in its table are those of perf/RESULTS.md."""
    lines, words = text.count("\n"), len(text.split())
    tap.check(lines <= README_LINES and words <= README_WORDS, f"README.md has {lines} lines and {words} words",
              f"at most {README_LINES} and {README_WORDS}: the rest belongs into docs/")
    with open(os.path.join(root, "perf/RESULTS.md"), encoding="utf-8") as file:
        results = file.read()
    rows = re.findall(r"^\| kolo, [^|]*microseconds \|(.*)\|\n\| time of [^|]*\|(.*)\|$", text, re.MULTILINE)
    figures = [f" {time.strip()} \u00b7 {ratio.strip()} \u00b7 " for row in rows
               for time, ratio in zip(*(cells.split("|") for cells in row))]
    lost = [figure for figure in figures if figure not in results]
    tap.check(len(figures) > 4 and not lost, f"the {len(figures)} times and ratios in README.md are in perf/RESULTS.md", *lost)


class MakePlace:
    """A Place for a while."""

    def __init__(self, *where):
        self.where = where

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="docs-")
        return Place(self.folder, *self.where)

    def __exit__(self, *_):
        shutil.rmtree(self.folder)


def main():
    root, where, compiler = sys.argv[1], sys.argv[1:6], sys.argv[6:]
    if shutil.which("meson") is None or shutil.which("pkg-config") is None:
        print("1..0 # SKIP no meson or pkg-config on the path")
        return
    source = source_of(root)
    lost = lost_names(root, "`src/gone.c` `src/util/util.h` `kolo_gone()` `kolo_all_reduce()` KOLO_GONE=1 KOLO_ALGO=ring", source)
    tap.check(lost == ["src/gone.c", "kolo_gone", "KOLO_GONE"], "a path, function or variable that is gone is seen", *lost)
    check_the_variables(root)
    for name in [path for path in tree.files(root) if path.endswith(".md")]:
        with open(os.path.join(root, name), encoding="utf-8") as file:
            text = file.read()
        lost = lost_names(root, text, source)
        tap.check(not lost, f"{name}: what it names is there", *lost)
        with MakePlace(*where) as place:
            try_document(text, place, compiler, lambda ok, what, *more, name=name:
                         tap.check(ok, f"{name}: {what}", *more))
        if name == "README.md":
            check_the_figures(root, text)
    with MakePlace(*where) as place:
        check_the_pages(root, place, compiler)
    check_that_faults_are_seen(lambda: MakePlace(*where), compiler)
    tap.done()


main()
