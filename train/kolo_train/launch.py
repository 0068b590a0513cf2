# SPDX-License-Identifier: Apache-2.0
"""Starting the ranks: processes of this machine with the environment that torchrun would give them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from kolo_train.config import UsageError

STARTED = ("TORCHELASTIC_RUN_ID", "KOLO_RANK", "KOLO_TRAIN_RANK")


def is_rank() -> bool:
    """This process was started as a rank already: by torchrun, by kolo run, or by start_ranks()."""
    return any(name in os.environ for name in STARTED)


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_elastic(ranks: tuple[int, int], command: Sequence[str]) -> int:
    """Become `kolo run --elastic`, which replaces ranks that fail. Raises UsageError where there is no kolo."""
    kolo = shutil.which("kolo")
    if kolo is None:
        raise UsageError("--elastic is started by kolo run, and there is no kolo in PATH: build/tools has it")
    os.execv(kolo, [kolo, "run", "--elastic", f"{ranks[0]}:{ranks[1]}", *command])


def start_ranks(ranks: int, command: Sequence[str]) -> int:
    """Run `command` as each of `ranks` ranks; the status is 0 only if every rank's is.

    The first rank that fails ends the others: they would wait for it.
    """
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    running: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends this ends the ranks
    try:
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "KOLO_TRAIN_RANK": str(rank)}
            running.append(subprocess.Popen(command, env={**os.environ, **shared, **own}))
        return _wait_for(running)
    except KeyboardInterrupt:
        return 130
    finally:
        _end(running)


def _wait_for(running: list[subprocess.Popen[bytes]]) -> int:
    """The first status that is not 0, as soon as there is one."""
    left = {process.pid: process for process in running}
    while left:
        pid, status = os.wait()
        process = left.pop(pid, None)
        if process is not None:
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                rank = running.index(process)
                print(
                    f"kolo_train: rank {rank} ended with status {process.returncode}",
                    file=sys.stderr,
                )
                return process.returncode if process.returncode > 0 else 128 - process.returncode
    return 0


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """End those that still run; what the first failure makes them say is given 5 s."""
    for process in running:
        if process.returncode is None:
            try:
                process.wait(timeout=5 if any(other.returncode for other in running) else 0.1)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
    for process in running:
        if process.returncode is None:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
