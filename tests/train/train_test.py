# SPDX-License-Identifier: Apache-2.0
"""Training on several ranks: the ranks are started here, what they do is in ways.py.

usage: train_test.py SOURCE_ROOT BACKEND RANKS GROUP...
Skips where PyTorch, scikit-learn or the backend is not installed.
"""
import os
import subprocess
import sys
from pathlib import Path

ROOT, BACKEND, RANKS, GROUPS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
NEEDED = "import torch, sklearn" + (", kolo_torch" if BACKEND == "kolo" else "")
LIMIT_S = 400


def python_with(modules):
    """The first Python that has all: the project's own, then this one; None where none has."""
    for python in (str(ROOT / ".venv/bin/python3"), sys.executable):
        if Path(python).exists() and not subprocess.run([python, "-c", modules], capture_output=True, check=False).returncode:
            return python
    return None


PYTHON = python_with(NEEDED)
if PYTHON is None:
    print(f"1..0 # SKIP no Python here can \"{NEEDED}\": ./setup --torch")
    sys.exit(0)
sys.path.insert(0, str(ROOT / "train"))
from kolo_train.launch import start_ranks  # noqa: E402

os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "train"), str(ROOT / "tests/build"), os.environ.get("PYTHONPATH", "")])
sys.exit(start_ranks(RANKS, [PYTHON, str(ROOT / "tests/train/ways.py"), BACKEND, *GROUPS]))
