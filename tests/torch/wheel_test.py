# SPDX-License-Identifier: Apache-2.0
# covers: torch packaging/wheel python/kolo/_doctor.py python/kolo/__main__.py
"""The wheel of kolo_torch: installed without a compiler, it serves init_process_group("kolo")."""
import glob
import os
import pathlib
import subprocess
import sys
import tempfile

import torch

from ranks import run_tests

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).resolve().parent
MINOR = ".".join(torch.__version__.split(".")[:2])
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
PROGRAM = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("kolo")
t = torch.ones(3) + dist.get_rank()
dist.all_reduce(t)
import kolo, kolo_torch
own = kolo_torch.__file__.startswith(sys.prefix) and kolo.loaded_from.startswith(sys.prefix)
os.write(1, f"{t.tolist()} {own}\\n".encode())
dist.destroy_process_group()
"""


def run(command, folder, **more):
    """(status, what it said) in an environment without a compiler, and without this tree's packages."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KOLO_LIBRARY")}
    env.update({"PATH": f"{folder}/venv/bin", **more})
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=150)
    return ran.returncode, ran.stdout + ran.stderr


def make(folder):
    """Both wheels and an environment with nothing but torch; the reason if that cannot be had."""
    made = subprocess.run(["bash", str(ROOT / "packaging/wheel"), "--torch", MINOR, str(BUILD), f"{folder}/dist"],
                          env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": ""}, capture_output=True,
                          text=True, check=False, timeout=400)
    if made.returncode == 77:
        return made.stderr.splitlines()[-1]
    assert made.returncode == 0, made.stdout + made.stderr
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", f"{folder}/venv"], check=True, timeout=150)
    site = glob.glob(f"{folder}/venv/lib/python*/site-packages")[0]
    # Beside torch's own, as pip would have put it there, without copying a gigabyte.
    pathlib.Path(site, "torch.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]))
    return None


def test_it_installs_and_serves_two_ranks_where_there_is_no_compiler():
    with tempfile.TemporaryDirectory(prefix="torch-wheel-") as folder:
        reason = make(folder)
        if reason:
            return reason
        wheels = glob.glob(f"{folder}/dist/*.whl")
        status, said = run([*PIP, "venv/bin/python", "install", "--no-index", "--no-deps", *wheels], folder)
        assert status == 0, said
        status, said = run(["kolo", "run", "-n", "2", "--no-prefix", "python", "-c", PROGRAM], folder)
        assert status == 0 and said.count("[3.0, 3.0, 3.0] True") == 2, said
        status, said = run(["python", "-m", "kolo", "doctor", "-n", "2"], folder, KOLO_TORCH_AS="gloo")
        served = f'torch {torch.__version__}: kolo_torch 0.1.0+torch{MINOR} serves "kolo"'
        assert served in said and "KOLO_TORCH_AS=gloo: programs" in said, said
        if (pathlib.Path(torch.__file__).parents[1] / "kolo_torch").exists():
            return None  # somebody has installed it beside torch, too
        status, said = run([*PIP, "venv/bin/python", "uninstall", "-y", "kolo_torch"], folder)
        assert status == 0, said
        status, said = run(["python", "-m", "kolo", "doctor", "-n", "2"], folder)
        assert status == 1 and "kolo_torch is not installed" in said, said
    return None


if __name__ == "__main__":
    run_tests(globals())
