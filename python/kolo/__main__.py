# SPDX-License-Identifier: Apache-2.0
"""The `kolo` command that came with the package: kolo run -n 2 python program.py"""
import os
import pathlib
import shutil
import subprocess
import sys


def main() -> None:
    """Become the command; it never returns. doctor also looks at this Python and its torch."""
    own = pathlib.Path(__file__).resolve().parent / "bin" / "kolo"
    tool = str(own) if own.exists() else shutil.which("kolo")
    if tool is None:
        sys.exit("the kolo command is not installed")
    if sys.argv[1:2] == ["doctor"] and not {"-h", "--help"} & set(sys.argv):
        from ._doctor import Report

        bad = Report().look()
        sys.exit(subprocess.call([tool, *sys.argv[1:]]) or int(bad > 0))
    os.execv(tool, ["kolo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
