# SPDX-License-Identifier: Apache-2.0
"""Runs a test of this folder with the Python that has its framework, or says what is not there.

usage: launch.py PACKAGES NAME   (PACKAGES: the folder with kolo_torch, which ./test builds)
NAME.py runs on 2 ranks over kolo, by KOLO_TORCH_AS=gloo alone, then over gloo, or what else the framework
has of its own. Both must tell the same.
"""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDS = {"accelerate_ranks": ("accelerate", "--frameworks"), "trainer_ranks": ("transformers", "--frameworks"),
         "lightgbm_ranks": ("lightgbm", "--frameworks"), "lightning_ranks": ("lightning", "--frameworks-all"),
         "deepspeed_ranks": ("deepspeed", "--frameworks-all"), "ray_actors": ("ray", "--frameworks-all"),
         "ray_trainer": ("pyarrow", "--frameworks-all"),
         "vllm_ranks": ("vllm", "--vllm")}
RANKS = 2
LIMIT_S = 800  # vLLM starts three engines, each in three or four processes


def python_of(module):
    """The Python that has the module, or None."""
    python = ROOT / (".venv-vllm" if module == "vllm" else ".venv-frameworks") / "bin/python"
    find = f"import importlib.util as u, sys; sys.exit(not (u.find_spec({module!r}) and u.find_spec('torch')))"
    there = python.exists() and subprocess.run([python, "-c", find], check=False).returncode == 0
    return python if there else None


def write_metadata(folder):
    """What pip would write: the entry points, by which `import torch` finds the package."""
    text = (ROOT / "torch/pyproject.toml").read_text(encoding="utf-8")
    groups = re.findall(r'^\[project\.entry-points\."(.*)"\]\n((?:.+\n?)+)', text, re.M)
    info = pathlib.Path(folder) / "kolo_torch-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kolo-torch\nVersion: 0\n")
    (info / "entry_points.txt").write_text("".join(f"[{name}]\n" + lines.replace('"', "") for name, lines in groups))


def free_ports(count):
    """Ports that nobody uses."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [str(listener.getsockname()[1]) for listener in listeners]


def environment(packages, folder, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KOLO_TORCH", "TORCH_"))}
    path = os.pathsep.join((str(HERE), packages, str(ROOT / "python"), str(folder)))
    return {**kept, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1",
            "KOLO_LIBRARY": os.path.join(packages, "kolo_torch/libkolo.so.0"), **more}


def run(commands, limit_s):
    """(status, output) of processes that run at the same time; none outlives this."""
    started = [subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True) for command, env, folder in commands]
    ended = []
    try:
        for process in started:
            output = process.communicate(timeout=limit_s)[0]
            ended.append((process.returncode, output))
    except subprocess.TimeoutExpired:
        ended.append((-1, f"no end within {limit_s} s"))
    finally:
        for process in started:
            process.kill()
            process.wait()
    return ended


def on_ranks(python, script, packages, folder, limit_s, **more):
    """What `script` tells on each rank (told.py), or an AssertionError with what it said."""
    master, *ports = free_ports(1 + 2 * RANKS)
    commands = []
    for rank in range(RANKS):
        own = pathlib.Path(folder) / f"rank{rank}"
        own.mkdir(exist_ok=True)
        env = environment(packages, folder, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                          LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=master,
                          FREE_PORTS=",".join(ports), SHARED_FOLDER=str(folder), **more)
        commands.append(([python, str(HERE / f"{script}.py")], env, own))
    ended = run(commands, limit_s)
    told = []
    for status, output in ended:
        lines = [line[len("TOLD "):] for line in output.splitlines() if line.startswith("TOLD ")]
        assert status == 0 and lines, f"status {status}: " + "".join(output for _, output in ended)[-6000:]
        told.append(lines)
    assert len(told) == RANKS
    return told


def attempt(python, name, packages, limit_s, **more):
    """(what the ranks tell, ""), or (None, why they do not)."""
    with tempfile.TemporaryDirectory(prefix="frameworks-") as folder:
        write_metadata(folder)
        try:
            return on_ranks(python, name, packages, folder, limit_s, **more), ""
        except AssertionError as error:
            return None, str(error)


def main():
    packages, name = os.path.abspath(sys.argv[1]), sys.argv[2]
    module, option = NEEDS[name]
    python = python_of(module)
    if python is None:
        print(f"1..0 # SKIP there is no {module} here: ./setup {option}")
        return 0
    if not os.path.exists(os.path.join(packages, "kolo_torch")):
        print(f"1..0 # SKIP kolo_torch is not built in {packages}: ./test does that")
        return 0
    print("1..2")
    kolos, why = attempt(python, name, packages, LIMIT_S, SERVED_BY="kolo", KOLO_TORCH_AS="gloo")
    if kolos is None:
        print(f"not ok 1 - {name} runs over kolo\n# " + why.replace("\n", "\n# ") + "\nok 2 # SKIP it does not run")
        return 1
    print(f"ok 1 - {name} runs over kolo", flush=True)
    for _ in range(3):  # others may take LightGBM's ports before it does
        others, why = attempt(python, name, packages, LIMIT_S, SERVED_BY="gloo")
        if others is not None or module != "lightgbm" or "ocket" not in why:
            break
    same = kolos == others
    print(f"{'ok' if same else 'not ok'} 2 - {name} over kolo tells what it tells without")
    if not same:
        print(f"# kolo {kolos}\n# without {others} " + why.replace("\n", "\n# "))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
