# SPDX-License-Identifier: Apache-2.0
# covers: examples/plugins include/kolo/plugin.h
"""The plug-ins of examples/plugins as projects of their own: built against what `meson install` lays
down, proved, and used by jobs of programs that know nothing of them.

usage: outside_test.py SOURCE BUILD PREFIX LIBDIR LIBEXECDIR
"""
import os
import shutil
import subprocess
import sys
import tempfile

from tap import check, done, machine_env

SOURCE, BUILD, PREFIX, LIBDIR, LIBEXECDIR = sys.argv[1:]
EXAMPLES = os.path.join(SOURCE, "examples", "plugins")


class Installed:
    """kolo as it is installed, below a folder, and the plug-ins that are built against it."""

    def __init__(self, where):
        self.where = where
        prefix = where + PREFIX
        self.kolo, self.lib = prefix + "/bin/kolo", f"{prefix}/{LIBDIR}"
        self.sweep = f"{prefix}/{LIBEXECDIR}/kolo/all_reduce_perf"
        self.env = machine_env(PKG_CONFIG_PATH=self.lib + "/pkgconfig", PKG_CONFIG_SYSROOT_DIR=where, KOLO_TUNE_FILE="none",
                               LD_LIBRARY_PATH=":".join(filter(None, [self.lib, os.environ.get("LD_LIBRARY_PATH")])))

    def run(self, *command, **env):
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env={**self.env, **env})

    def plugin(self, name):
        return f"{self.lib}/kolo/libkolo_{name}.so"

    def sweeps(self, **env):
        return self.run(self.kolo, "run", "-n", "3", self.sweep, "-b", "8", "-e", "256K", "-f", "32", "-n", "2", **env,
                        KOLO_DEBUG="INFO")


def said(ran):
    return (ran.stdout + ran.stderr).splitlines()[-40:]


def check_builds(there, name):
    build = f"{there.where}/{name}"
    for step in (("setup", build, f"{EXAMPLES}/{name}", "--prefix", PREFIX, "--libdir", LIBDIR, "-Dwerror=true"),
                 ("install", "-C", build, "--destdir", there.where)):
        ran = there.run("meson", *step)
        if ran.returncode != 0:
            break
    check(ran.returncode == 0 and os.path.exists(there.plugin(name)),
          f"{name} is built and installed by its own project", *said(ran))


def check_algorithm(there):
    for nranks in (1, 2, 5, 16):
        ran = there.run(there.kolo, "plan", "--plugin", there.plugin("algo_allreduce_star"), "-n", str(nranks), "--verify")
        check(ran.returncode == 0 and "proved" in ran.stdout, f"its algorithm is proved for {nranks} ranks", *said(ran))
    ran = subprocess.run([there.kolo, "plan", "--plugin", "libkolo_algo_allreduce_star.so", "-n", "2", "--verify"],
                         cwd=there.lib + "/kolo", capture_output=True, text=True, check=False, env=there.env)
    check(ran.returncode == 0, "kolo plan takes a file of this folder", *said(ran))
    ran = there.sweeps(KOLO_PLUGIN=there.plugin("algo_allreduce_star"), KOLO_ALGO="allreduce:star")
    check(ran.returncode == 0 and "Algo STAR" in ran.stdout + ran.stderr and "# Out of bounds values : 0 OK" in ran.stdout,
          "a job runs its algorithm, with right results", *said(ran))


def check_transport(there):
    ran = there.run(f"{BUILD}/tests/conformance/conformance", "--gtest_filter=*/dgram",
                    "--plugin=" + there.plugin("transport_dgram"))
    check(ran.returncode == 0 and "[  PASSED  ]" in ran.stdout, "its transport passes the conformance suite", *said(ran))
    ran = there.sweeps(KOLO_PLUGIN=there.plugin("transport_dgram"), KOLO_TRANSPORT="dgram")
    check(ran.returncode == 0 and "via DGRAM" in ran.stdout + ran.stderr, "a job runs over its transport", *said(ran))


def check_tuner(there):
    ran = there.sweeps(KOLO_PLUGIN=there.plugin("tuner_least"))
    check(ran.returncode == 0 and "(tuner): " in ran.stdout + ran.stderr, "a job asks its tuner", *said(ran))


def check_python(there):
    """The library is loaded RTLD_LOCAL there: a plug-in that calls it finds it only if it is linked with it."""
    program = "import kolo; c = kolo.Comm(); x = bytearray([1]); c.all_reduce(x); print(f'{x[0]}\\n', end='')"
    ran = there.run(there.kolo, "run", "-n", "2", "--no-prefix", sys.executable, "-c", program,
                    PYTHONPATH=SOURCE + "/python", KOLO_LIBRARY=there.lib + "/libkolo.so.0", KOLO_ALGO="allreduce:star",
                    KOLO_PLUGIN=there.plugin("algo_allreduce_star"))
    check(ran.stdout.split() == ["2", "2"], "ranks in Python run its algorithm", *said(ran))


def check_old(there):
    """One built with the header of an older interface."""
    headers, old = there.where + "/old", there.where + "/libkolo_tuner_least.so"
    shutil.copytree(f"{SOURCE}/include/kolo", headers + "/kolo")
    with open(headers + "/kolo/plugin.h", "r+", encoding="utf-8") as file:
        text = file.read().replace("#define KOLO_PLUGIN_ABI 1u", "#define KOLO_PLUGIN_ABI 0u")
        file.seek(0)
        file.write(text)
    there.run("cc", "-shared", "-fPIC", "-I", headers, f"{EXAMPLES}/tuner_least/least.c", "-o", old)
    ran = there.run(there.kolo, "run", "-n", "1", there.sweep, KOLO_PLUGIN=old)
    check(ran.returncode != 0 and f"plug-in refused: {old} has plug-in ABI 0, this is 1" in ran.stdout + ran.stderr,
          "a plug-in of an older interface is refused by name and number", *said(ran))


def main():
    if shutil.which("meson") is None or shutil.which("pkg-config") is None:
        print("1..0 # SKIP no meson or pkg-config on the path")
        return
    os.umask(0o022)  # what others can write is refused
    with tempfile.TemporaryDirectory(prefix="kolo-outside-") as where:
        there = Installed(os.path.realpath(where))
        ran = there.run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", there.where)
        check(ran.returncode == 0, "kolo is installed", *said(ran))
        for name in sorted(os.listdir(EXAMPLES)):
            check_builds(there, name)
        check_algorithm(there)
        check_transport(there)
        check_tuner(there)
        check_python(there)
        check_old(there)
    done()


main()
