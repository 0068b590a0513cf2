# SPDX-License-Identifier: Apache-2.0
# covers: torch
"""The package: found without an import, loaded for the right torch only, the default where asked."""
import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from ranks import run_tests

import kolo_torch

PACKAGES = pathlib.Path(kolo_torch.__file__).parent.parent


def python(program, path=PACKAGES, **environment):
    """(status, what it said) of a program that finds the package in `path`."""
    environment = {**os.environ, "PYTHONPATH": str(path), **environment}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout + ran.stderr


def copy(folder):
    for name in ("kolo_torch", "kolo_torch_entry.py"):
        source = PACKAGES / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)


def test_a_torch_of_another_release_is_refused_with_what_to_do():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        copy(folder)
        (folder / "kolo_torch/_built_for.py").write_text('TORCH = "2.5.1"\n')
        status, said = python("import kolo_torch", folder)
        assert status != 0 and "built for torch 2.5.1" in said and "pip install" in said, said
        status, said = python("import torch; import kolo_torch_entry; kolo_torch_entry.autoload()", folder)
        assert (status, said) == (0, ""), said


def test_the_package_is_typed_and_its_stub_is_true():
    folder = PACKAGES / "kolo_torch"
    assert (folder / "py.typed").exists()
    stub = ast.parse((folder / "_C.pyi").read_text(encoding="utf-8")).body
    told = {node.name for node in stub if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    there = {name for name in vars(kolo_torch._C) if not name.startswith("_")}
    assert told == there, (told, there)
    options = next(node for node in stub if getattr(node, "name", "") == "Options")
    members = {node.target.id for node in options.body if isinstance(node, ast.AnnAssign)}
    assert members == {"deterministic", "algo", "transport", "codec"} <= set(vars(kolo_torch.Options)), members


def test_a_default_backend_is_kolo_where_the_environment_says_so():
    program = (
        "import torch, torch.distributed as dist, kolo_torch_entry as k; k.autoload();"
        "dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1, device_id=None);"
        "print(dist.get_default_backend_for_device('cpu'))"
    )
    status, said = python(program, KOLO_TORCH_DEFAULT="cpu,cuda")
    assert (status, said.strip()) == (0, "kolo"), said
    status, said = python(program)
    assert (status, said.strip()) == (0, "gloo"), said


def test_a_group_of_the_default_backend_says_kolo_and_ends_well():
    program = (
        "import torch, torch.distributed as dist, kolo_torch_entry as k; k.autoload();"
        "dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1);"
        "dist.all_reduce(torch.ones(2)); dist.new_group([0]); dist.barrier();"
        "print(dist.get_backend()); dist.destroy_process_group()"
    )
    status, said = python(program, KOLO_TORCH_DEFAULT="cpu")
    assert (status, said.strip()) == (0, "kolo"), said


def test_under_mpirun_a_group_finds_its_ranks_by_itself():
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        return "there is no mpirun"
    program = (
        "import os, torch, torch.distributed as dist, kolo_torch_entry as k; k.autoload()\n"
        "dist.init_process_group({!r})\n"
        "t = torch.ones(2) + dist.get_rank(); dist.all_reduce(t)\n"
        "line = f'sum {{t[0].item()}} of {{dist.get_world_size()}} {{dist.get_backend()}}\\n'\n"
        "os.write(1, line.encode())\n"  # in one piece: mpirun mixes the pieces of its ranks
        "dist.destroy_process_group()\n"
    )
    for backend in ("kolo", "gloo", None):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGES), "KOLO_TORCH_AS": "gloo",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        ran = subprocess.run([mpirun, "-n", "2", "--oversubscribe", sys.executable, "-c", program.format(backend)],
                             env=environment, capture_output=True, text=True, timeout=60)
        said = [line for line in ran.stdout.splitlines() if line.startswith("sum")]
        assert said == [f"sum 3.0 of 2 {backend or 'undefined'}"] * 2, (backend, ran.stdout, ran.stderr)


def test_registering_does_not_load_the_library():
    program = (
        "import sys, torch, kolo_torch_entry; kolo_torch_entry.register(); kolo_torch_entry.register();"
        "print('kolo_torch' in sys.modules, 'kolo' in torch.distributed.Backend.backend_list)"
    )
    status, said = python(program)
    assert (status, said.strip()) == (0, "False True"), said


def test_a_process_has_one_library_for_kolo_and_kolo_torch():
    packages = f"{PACKAGES}{os.pathsep}{pathlib.Path(__file__).resolve().parents[2] / 'python'}"
    show = "print({l.split()[-1] for l in open('/proc/self/maps') if 'libkolo.so' in l} == {'LIBRARY'})"
    with tempfile.TemporaryDirectory() as folder:
        theirs, own = PACKAGES / "kolo_torch/libkolo.so.0", pathlib.Path(folder).resolve() / "libkolo.so.0"
        shutil.copy(theirs, own)
        for first, second in (("kolo", "kolo_torch"), ("kolo_torch", "kolo")):
            status, said = python(f"import {first}, {second}; " + show.replace("LIBRARY", str(own)), packages,
                                  KOLO_LIBRARY=str(own))
            assert (status, said.strip()) == (0, "True"), (first, said)
    (status, said) = python("import kolo_torch; " + show.replace("LIBRARY", str(theirs)))
    assert (status, said.strip()) == (0, "True"), said


if __name__ == "__main__":
    run_tests(globals())
