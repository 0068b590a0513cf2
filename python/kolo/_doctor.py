# SPDX-License-Identifier: Apache-2.0
"""`python -m kolo doctor` about this Python: which kolo it loads, which torch it has, and who serves it."""
from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from typing import Optional


def _release(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class Report:
    """Lines in the form of `kolo doctor`; `bad` counts those that need a fix."""

    def __init__(self) -> None:
        self.bad = 0

    def _say(self, word: str, text: str, fix: str = "") -> None:
        self.bad += word == "FIX "
        print(f"{word}  {text}" + (f"\n      -> {fix}" if fix else ""), flush=True)

    def look(self) -> int:
        """Print all; the number of lines that need a fix."""
        try:
            from . import loaded_from, version
        except ImportError as error:
            self._say("FIX ", str(error), "pip install the wheel of packaging/wheel, which brings the library")
            return self.bad
        self._say("ok  ", f"python: kolo {'.'.join(map(str, version()))} by {loaded_from}")
        self._look_at_torch()
        return self.bad

    def _look_at_torch(self) -> None:
        try:
            import torch
            import torch.distributed as dist

            release = torch.__version__
        except (ImportError, AttributeError):
            self._say("note", "torch: not installed, so torch.distributed cannot use kolo")
            return
        if not dist.is_available():
            self._say("FIX ", f"torch {release} is built without torch.distributed", "install another build of torch")
            return
        if importlib.util.find_spec("kolo_torch") is None:
            self._say("FIX ", f"torch {release}: kolo_torch is not installed, so nothing serves \"kolo\"",
                      "install the wheel of packaging/wheel --torch, or compile: pip install --no-deps ./torch")
            return
        try:
            import kolo_torch
        except Exception as error:
            self._say("FIX ", f"torch {release}: kolo_torch does not load: {error}",
                      "install the kolo_torch that is made for this torch")
            return
        name = _release("kolo-torch") or "without metadata"
        self._say("ok  ", f"torch {release}: kolo_torch {name} serves \"kolo\" ({kolo_torch.__path__[0]})")
        self._look_at_entry()

    def _look_at_entry(self) -> None:
        if not any(entry.name == "kolo" for entry in importlib.metadata.entry_points(group="torch.backends")):
            self._say("note", "torch does not find kolo_torch by itself: programs must import it",
                      "install it with pip, which writes the entry points")
        if os.environ.get("KOLO_TORCH_AS") == "gloo":
            self._say("ok  ", "KOLO_TORCH_AS=gloo: programs that ask for gloo get kolo on CPU tensors")
        default = os.environ.get("KOLO_TORCH_DEFAULT")
        if default:
            self._say("ok  ", f"KOLO_TORCH_DEFAULT: kolo is the default backend of {default}")
