# SPDX-License-Identifier: Apache-2.0
"""Runs a test of this folder with the first Python that has torch, or says that there is none.

usage: launch.py PACKAGES SCRIPT   (PACKAGES: the folder with kolo_torch, which ./test builds)
"""
import os
import subprocess
import sys

PACKAGES, SCRIPT = sys.argv[1:]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


# Whether modules can be found: to import torch, too, would take each test two seconds of a processor.
FIND = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ('torch', 'expecttest', 'numpy'))))"


def has_torch(python):
    try:
        return subprocess.run([python, "-c", FIND], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main():
    pythons = [p for p in (os.path.join(ROOT, ".venv/bin/python3"), "python3") if has_torch(p)]
    if not pythons:
        print("1..0 # SKIP no Python here has torch, expecttest and numpy: ./setup --torch")
        return 0
    if not os.path.exists(os.path.join(PACKAGES, "kolo_torch")):
        print(f"1..0 # SKIP kolo_torch is not built in {PACKAGES}: ./test does that")
        return 0
    environment = {**os.environ, "PYTHONPATH": PACKAGES, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    environment["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    device = []
    if "KOLO_TEST_DEVICE" in environment:
        environment["PYTHONPATH"] += ":" + os.path.dirname(os.path.abspath(__file__))
        device = ["-m", "fake_device"]
    sys.stdout.flush()
    os.execvpe(pythons[0], [pythons[0], *device, SCRIPT], environment)


sys.exit(main())
