# SPDX-License-Identifier: Apache-2.0
# covers: meson.build
"""What `meson install` lays down is whole, and enough: programs are built against it and run.

usage: install.py ROOT BUILD PREFIX LIBDIR LIBEXECDIR CC... -- CXX...
"""
import os
import shutil
import subprocess
import sys
import tempfile

import tap
import tree

COMPILED = {".c": ("c", "-std=c17"), ".cc": ("cpp", "-std=c++17"), ".cpp": ("cpp", "-std=c++17")}
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def lines(ran):
    return (ran.stdout + ran.stderr).splitlines()


class Prefix:
    """The installed tree, and programs that use it as if it lay where it is meant to."""

    def __init__(self, where, prefix, libdir, libexecdir, compilers):
        self.prefix = os.path.join(where, prefix.lstrip("/"))
        self.lib, self.libexec = os.path.join(self.prefix, libdir), os.path.join(self.prefix, libexecdir)
        self.kolo = os.path.join(self.prefix, "bin/kolo")
        self.compilers = compilers
        self.env = tap.machine_env(LD_LIBRARY_PATH=self.lib, PKG_CONFIG_SYSROOT_DIR=where,
                                   PKG_CONFIG_PATH=os.path.join(self.lib, "pkgconfig"),
                                   KOLO_TUNE_FILE="none")

    def run(self, *command, timeout=60):
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.env,
                              timeout=timeout)

    def flags(self, *asked):
        return self.run("pkg-config", *asked, "kolo").stdout.split()

    def compile(self, source, program):
        """As a user does: the compiler, and what pkg-config says."""
        language, standard = COMPILED[os.path.splitext(source)[1]]
        return self.run(*self.compilers[language], standard, *WARNINGS, source, "-o", program,
                        *self.flags("--cflags", "--libs"))


def check_files(there, root, build):
    found = set(tree.files(there.prefix))
    def has(*names):
        return [name for name in names if name not in found]
    lib, libexec = (os.path.relpath(path, there.prefix) for path in (there.lib, there.libexec))
    headers = ["include/" + path for path in tree.files(os.path.join(root, "include")) if path.endswith(".h")]
    missing = has("bin/kolo", f"{lib}/libkolo.so", f"{lib}/libkolo.so.0", f"{lib}/pkgconfig/kolo.pc",
                  f"{lib}/kolo/libnccl.so", f"{lib}/kolo/libnccl.so.2", *headers)
    tap.check(not missing, "command, libraries, headers and kolo.pc are installed", *missing)
    built = {name for name in os.listdir(os.path.join(build, "perf")) if name.endswith("_perf")}
    missing = has(*(f"{libexec}/kolo/{name}" for name in built))
    tap.check("all_reduce_perf" in built and not missing, f"the {len(built)} sweep programs are installed", *missing)
    built = os.listdir(os.path.join(build, "docs/man"))
    pages = [f"share/man/man{name[-1]}/{name}" for name in built if name.endswith((".1", ".3", ".7"))]
    missing = has("share/bash-completion/completions/kolo", *pages)
    tap.check(not missing, f"{len(pages)} pages of the manual and bash's completion are installed", *missing)
    strange = [path for path in found if path.endswith((".a", ".py", ".map"))]
    tap.check(not strange, "nothing that only the build needs is installed", *strange)


def check_programs(there, root, folder):
    ran = there.run(there.kolo, "version")
    said = there.run("pkg-config", "--modversion", "kolo").stdout.strip()
    tap.check(ran.stdout == f"kolo {said}\n", "kolo.pc tells the version that `kolo version` does",
              *lines(ran), said)
    perf = os.path.join(there.libexec, "kolo/all_reduce_perf")
    ran = there.run(there.kolo, "run", "-n", "2", perf, "-b", "8", "-e", "1K", "-n", "2")
    tap.check(ran.returncode == 0 and "# Out of bounds values : 0 OK" in ran.stdout,
              "the installed command runs an installed sweep", *lines(ran))
    examples = [path for path in tree.files(root, "examples")
                if os.path.splitext(path)[1] in COMPILED and not path.startswith("examples/plugins/")]
    for path in examples:
        ran = there.compile(os.path.join(root, path), os.path.join(folder, os.path.basename(path) + ".out"))
        tap.check(ran.returncode == 0, f"{path} is built with pkg-config alone", *lines(ran))
    lost = os.path.join(folder, "lost.c")
    with open(lost, "w", encoding="utf-8") as file:
        file.write("#include <kolo/kolo.h>\nint kolo_log(int);\nint main(void)\n{\n    return kolo_log(0);\n}\n")
    ran = there.compile(lost, os.path.join(folder, "lost"))
    tap.check("kolo_log" in ran.stderr and ran.returncode != 0,
              "a program that calls an inner function is not linked", *lines(ran))


def check_names_of_nccl(there, root, folder):
    """A program that knows NCCL's header only, built and run against what is installed."""
    include, lib = (there.run("pkg-config", "--variable=" + name, "kolo").stdout.strip()
                    for name in ("ncclincludedir", "nccldir"))
    program = os.path.join(folder, "outside")
    ran = there.run(*there.compilers["c"], "-std=c17", *WARNINGS, os.path.join(root, "tests/nccl/outside.c"),
                    "-I" + include, "-L" + lib, "-lnccl", "-o", program)
    tap.check(ran.returncode == 0, "a program for NCCL is built against the names that are installed", *lines(ran))
    there.env["LD_LIBRARY_PATH"] = lib + ":" + there.lib
    there.env["KOLO_CUDA_PATH"] = "/no/driver"
    ran = there.run(program)
    tap.check(ran.returncode == 0, "and runs with them", *lines(ran))
    ran = there.run("ldd", program)
    tap.check(f"{lib}/libnccl.so.2" in ran.stdout, "which lie where pkg-config says", *lines(ran))


def main():
    root, build, prefix, libdir, libexecdir = sys.argv[1:6]
    cut = sys.argv.index("--")
    compilers = {"c": sys.argv[6:cut], "cpp": sys.argv[cut + 1 :]}
    meson = shutil.which("meson")
    if meson is None or shutil.which("pkg-config") is None:
        print("1..0 # SKIP no meson or pkg-config on the path")
        return
    with tempfile.TemporaryDirectory(prefix="kolo-install-") as folder:
        where = os.path.join(folder, "root")
        ran = subprocess.run([meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", where],
                             capture_output=True, text=True, check=False)
        tap.check(ran.returncode == 0, "meson install ends well", *lines(ran))
        there = Prefix(where, prefix, libdir, libexecdir, compilers)
        check_files(there, root, build)
        check_programs(there, root, folder)
        check_names_of_nccl(there, root, folder)
    tap.done()


main()
