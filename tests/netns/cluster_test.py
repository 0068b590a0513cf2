# SPDX-License-Identifier: Apache-2.0
# covers: examples/cluster
"""The commands of examples/cluster/kubernetes.yaml, on hosts in the place of pods.

usage: cluster_test.py SOURCE_ROOT
The name of the first pod appears only when the second has asked for it in vain.
"""
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from hosts import finish, need, tails
from python_of import add_to_path, python_with
from tap import check, run_tests

ROOT = Path(sys.argv[1])
PYTHON = python_with(ROOT, "torch.distributed.run", "kolo_torch")
add_to_path(ROOT)
MANIFEST = (ROOT / "examples/cluster/kubernetes.yaml").read_text(encoding="utf-8")
HOSTS = need(2)
LIMIT_S = 500
NAME = "train-0.train"
SECRET = secrets.token_hex(32)


def command():
    """The script of the container, for a few steps."""
    block = re.search(r"\n( +)- \|\n((?:\1  .*\n)+)", MANIFEST)
    script = "\n".join(line.strip() for line in block[2].splitlines())
    short = script.replace("--steps 200", "--steps 3 --layers 1 --width 32 --batch 8 --check")
    return script, short


def environment(host, folder):
    """What the manifest sets, and Kubernetes itself."""
    plain = dict(re.findall(r"- name: (\w+)\n +value: \"(.*)\"", MANIFEST))
    return {**os.environ, **plain, "JOB_COMPLETION_INDEX": str(host), "KOLO_SECRET": SECRET,
            "PATH": f"{folder}:{os.environ['PATH']}", "TORCH_CPP_LOG_LEVEL": "WARNING"}


class Names:
    """/etc/hosts of each host, as ip netns exec shows it."""

    def __init__(self):
        self.files = []
        for name in HOSTS.names:
            folder = Path("/etc/netns") / name
            folder.mkdir(parents=True)
            self.files.append(folder / "hosts")
            self.files[-1].write_text("127.0.0.1 localhost\n" + own_names(), encoding="utf-8")

    def add(self, line):
        """In place: the file is mounted."""
        for file in self.files:
            with open(file, "a", encoding="utf-8") as more:
                more.write(line + "\n")

    def remove(self):
        for file in self.files:
            shutil.rmtree(file.parent, ignore_errors=True)
        if Path("/etc/netns").exists() and not os.listdir("/etc/netns"):
            os.rmdir("/etc/netns")


def own_names():
    """A pod's own name is in its /etc/hosts."""
    return f"127.0.1.1 {os.uname().nodename}\n"


def test_the_manifest():
    """Two pods, started at once."""
    script, short = command()
    check(script != short and script.startswith("exec torchrun "), "the manifest has the command", script)
    names = Names()
    with tempfile.TemporaryDirectory(prefix="kolo-cluster-") as folder:
        torchrun = Path(folder) / "torchrun"
        torchrun.write_text(f'#!/bin/sh\nexec {PYTHON} -m torch.distributed.run "$@"\n', encoding="utf-8")
        torchrun.chmod(0o755)
        try:
            pods(names, folder, short)
        finally:
            names.remove()


def end_all():
    """What runs on the hosts takes too long: agents and ranks."""
    for name in HOSTS.names:
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
        for pid in pids.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def pods(names, folder, script):
    """Runs them; the second one looks for the first in vain before there is a name."""
    processes = [subprocess.Popen(HOSTS.inside(host, ["sh", "-c", script]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env=environment(host, folder)) for host in (0, 1)]
    late = threading.Timer(LIMIT_S, end_all)
    late.start()
    said = []
    for line in processes[1].stdout:
        said.append(line)
        if "cannot be retrieved" in line:
            break
    names.add(f"{HOSTS.address(0)} {NAME}")
    check(any("cannot be retrieved" in line for line in said), "the second pod asks before the name is there", *said[-5:])
    ends = finish(processes, LIMIT_S + 60)
    late.cancel()
    check(all(status == 0 for status, _ in ends) and "4 ranks over kolo" in ends[0][1] and "EQUAL" in ends[0][1],
          "once the name is there, four ranks of two pods train, and get the weights of one rank", *tails(ends))


run_tests(globals())
