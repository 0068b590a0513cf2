# SPDX-License-Identifier: Apache-2.0
"""The `kolo` command that came with the package: kolo run -n 2 python program.py"""
import os
import pathlib
import shutil
import sys


def main() -> None:
    """Become the command; it never returns."""
    own = pathlib.Path(__file__).resolve().parent / "bin" / "kolo"
    tool = str(own) if own.exists() else shutil.which("kolo")
    if tool is None:
        sys.exit("the kolo command is not installed")
    os.execv(tool, ["kolo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
