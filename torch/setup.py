# SPDX-License-Identifier: Apache-2.0
"""Builds kolo_torch against the torch that is installed, and puts libkolo.so into the package.

libkolo is looked for in KOLO_BUILD (a build folder), in the build folder of the source tree that
this is part of, in the Python package kolo, whose library then serves both, then by pkg-config.
KOLO_TORCH_BUILT names a folder with the package built for this torch: it is packed, not compiled again.
"""
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import setup

# pip builds in an environment of its own, where the torch to build against is not: this interpreter
# finds it when it is asked without that environment.
ASK = [sys.executable, "-I", "-c", "import sys; print('\\n'.join(sys.path))"]
for folder in subprocess.run(ASK, capture_output=True, text=True, check=True).stdout.splitlines():
    if folder not in sys.path:
        sys.path.append(folder)
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # not what is being built
try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError as error:
    sys.exit(f"kolo_torch is built against an installed torch, and there is none: {error}")

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE / "kolo_torch"


def pkg_config(*arguments):
    ran = subprocess.run(["pkg-config", *arguments, "kolo"], capture_output=True, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else None


def kolo_package():
    """(folder of headers, library) of the installed package kolo, if it brings them."""
    try:
        from kolo import include_dir, loaded_from
    except ImportError:
        return None
    return (include_dir(), loaded_from) if include_dir() else None


def find_kolo():
    """(folder of kolo/kolo.h, path of libkolo.so.0, the Python package that brings it or None)"""
    tree = HERE.parent
    for build in filter(None, [os.environ.get("KOLO_BUILD"), tree / "build"]):
        library = pathlib.Path(build) / "libkolo.so.0"
        if library.exists() and (tree / "include/kolo/kolo.h").exists():
            return tree / "include", library, None
    installed = kolo_package()
    if installed:
        return *installed, "kolo"
    folder, include = pkg_config("--variable=libdir"), pkg_config("--variable=includedir")
    if folder and (pathlib.Path(folder) / "libkolo.so.0").exists():
        return pathlib.Path(include), pathlib.Path(folder) / "libkolo.so.0", None
    sys.exit(
        "libkolo.so.0 is missing: build it (meson setup build && ninja -C build in kolo's source), "
        "say where with KOLO_BUILD, install the wheel of packaging/wheel, or install kolo so that pkg-config finds it"
    )


def bundles(folder):
    """Two sources that include all others: torch's headers take the compiler half a minute a source."""
    sources = sorted((HERE / "csrc").glob("*.cpp"))
    python = [path for path in sources if "pybind11" in path.read_text()]
    made = {"binding.cpp": python, "backend.cpp": [path for path in sources if path not in python]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, included in made.items():
        text = "".join(f'#include "{path}"\n' for path in included)
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)
    return [str(folder / name) for name in made]


def main():
    include, library, package_of_library = find_kolo()
    minor = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    following = minor.split(".")[0] + "." + str(int(minor.split(".")[1]) + 1)
    extension = CppExtension(
        "kolo_torch._C",
        sorted(str(path.relative_to(HERE)) for path in (HERE / "csrc").glob("*.cpp")),
        include_dirs=[str(include)],
        extra_compile_args=["-O2", "-g0", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"],
        extra_link_args=[str(library), "-Wl,-rpath,$ORIGIN"],
    )

    class BuildWithLibrary(BuildExtension):
        """Puts libkolo beside the extension, and what torch that was built for."""

        def build_extensions(self):
            extension = self.extensions[0]
            compiled = pathlib.Path(os.environ.get("KOLO_TORCH_BUILT", "")) / self.get_ext_filename(extension.name)
            if os.environ.get("KOLO_TORCH_BUILT") and compiled.exists():
                target = pathlib.Path(self.get_ext_fullpath(extension.name))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(compiled, target)
                return
            self.extensions[0].sources = bundles(pathlib.Path(self.build_temp).resolve())
            super().build_extensions()

        def run(self):
            super().run()
            package = PACKAGE if self.inplace else pathlib.Path(self.build_lib) / "kolo_torch"
            if not package_of_library:
                shutil.copyfile(library, package / "libkolo.so.0")
            (package / "_built_for.py").write_text(
                f'# SPDX-License-Identifier: Apache-2.0\nTORCH = "{torch.__version__}"\n'
            )

    setup(
        version=f"0.1.0+torch{minor}",
        license="Apache-2.0",
        install_requires=[f"torch>={minor},<{following}", *filter(None, [package_of_library])],
        packages=["kolo_torch"],
        package_data={"kolo_torch": ["py.typed", "_C.pyi"]},
        py_modules=["kolo_torch_entry"],
        ext_modules=[extension],
        cmdclass={"build_ext": BuildWithLibrary},
    )


main()
