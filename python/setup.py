# SPDX-License-Identifier: Apache-2.0
"""Packs python/kolo with libkolo, the kolo command and the headers into one wheel.

They are taken from KOLO_BUILD, else from the build folder of the source tree that this is part of.
With KOLO_BUILD empty the package is Python alone, for a system that has the library itself.
"""
import os
import pathlib
import re
import shutil
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent
BUILD = os.environ.get("KOLO_BUILD", str(TREE / "build"))
VERSION = re.search(r"version: '([^']+)'", (TREE / "meson.build").read_text(encoding="utf-8")).group(1)
PARTS = {"lib/libkolo.so.0": "libkolo.so.0", "bin/kolo": "tools/kolo"}


class BuildWithLibrary(build_py):
    """Puts the library, the command and the headers into the package."""

    def run(self):
        super().run()
        if not BUILD:
            return
        package = pathlib.Path(self.build_lib) / "kolo"
        for name, source in PARTS.items():
            built = pathlib.Path(BUILD) / source
            if not built.exists():
                sys.exit(f"{built} is missing: build it (meson setup build && ninja -C build), or say where with KOLO_BUILD")
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, package / name)
            (package / name).chmod(0o755)
        shutil.copytree(TREE / "include/kolo", package / "include/kolo", dirs_exist_ok=True)


class OfThisMachine(Distribution):
    """The wheel is of this machine, but of no one Python: nothing is compiled against it."""

    def has_ext_modules(self):
        return bool(BUILD)


def wheel_of_any_python():
    from wheel.bdist_wheel import bdist_wheel

    class Wheel(bdist_wheel):
        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    return Wheel


setup(
    version=VERSION,
    license="Apache-2.0",
    packages=["kolo"],
    package_data={"kolo": ["py.typed"]},
    entry_points={"console_scripts": ["kolo = kolo.__main__:main"]} if BUILD else {},
    distclass=OfThisMachine,
    cmdclass={"build_py": BuildWithLibrary, **({"bdist_wheel": wheel_of_any_python()} if BUILD else {})},
)
