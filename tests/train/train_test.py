# SPDX-License-Identifier: Apache-2.0
# covers: train
"""Training on several ranks: the ranks are started here, what they do is in ways.py.

usage: train_test.py SOURCE_ROOT BACKEND RANKS GROUP...
"""
import sys
from pathlib import Path

from python_of import add_to_path, python_with

ROOT, BACKEND, RANKS, GROUPS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
PYTHON = python_with(ROOT, "torch", "sklearn", *(["kolo_torch"] if BACKEND == "kolo" else []))
add_to_path(ROOT)
from kolo_train.launch import start_ranks  # noqa: E402  found by the line above

sys.exit(start_ranks(RANKS, [PYTHON, str(ROOT / "tests/train/ways.py"), BACKEND, *GROUPS]))
