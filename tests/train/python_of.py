# SPDX-License-Identifier: Apache-2.0
"""Which Python the tests of training run in, and what they may import."""
import os
import subprocess
import sys
from pathlib import Path


FIND = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


def python_with(root, *modules):
    """The first Python that finds all modules: the project's own, then this one. Where none does, the
    test says so and ends as skipped. Importing them would take each test three seconds of a processor."""
    for python in (str(Path(root) / ".venv/bin/python3"), sys.executable):
        asked = [python, "-c", FIND, *modules]
        if Path(python).exists() and subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return python
    print(f"1..0 # SKIP no Python here has all of {', '.join(modules)}: ./setup --torch, pip install ./torch")
    sys.exit(0)


def add_to_path(root):
    """kolo_train for this process, and with the helpers of tests for those it starts."""
    sys.path.insert(0, str(Path(root) / "train"))
    folders = [str(Path(root) / "train"), str(Path(root) / "tests/build"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
