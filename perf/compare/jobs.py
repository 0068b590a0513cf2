# SPDX-License-Identifier: Apache-2.0
"""The methods of compare as jobs: started once, asleep until asked, ended for certain.

A job is n processes, one a rank, that connect to a socket of ours (worker.h has the conversation).
What does not answer in time is killed and dropped; the rest goes on.
"""
import array
import os
import select
import signal
import socket
import subprocess
import time

START_LIMIT_S = 180  # one method compiles when it first starts


class Dropped(Exception):
    """A method that is gone: its process died, failed, or did not answer in time."""


class Method:
    """What to start: `family` is what it counts as ("Open MPI"), `command` starts all ranks, or one
    of them where `each` is true."""

    def __init__(self, name, family, command, environment=None, each=False):
        self.name, self.family, self.command, self.each = name, family, command, each
        self.environment = environment or {}


class Job:
    """A method that runs. Ranks' answers are lines; `text` is what they said of themselves. With `net`, ranks of their
    own commands are on its hosts, in blocks."""

    def __init__(self, method, nranks, folder, net=None):
        self.name, self.family, self.nranks, self._net = method.name, method.family, nranks, net
        self.version, self.pids = "", {}
        self._peers, self._lines, self._rest = [None] * nranks, {}, {}
        self._memory = os.memfd_create(f"compare-{method.name}", os.MFD_CLOEXEC)
        self._log = open(os.path.join(folder, f"{method.name}.log"), "w+", encoding="utf-8")
        self._processes = []
        self._folder = folder
        try:
            self._start(method)
        except (OSError, Dropped):
            self.kill()
            raise

    def _start(self, method):
        path = os.path.join(self._folder, f"{self.name}.socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(self.nranks)
            environment = {**os.environ, "KOLO_COMPARE_SOCKET": path, "KOLO_COMPARE_METHOD": self.name,
                           "TMPDIR": self._folder, "OMP_NUM_THREADS": "1", **method.environment}
            # Process groups of one session. Linux may make each session a group of its scheduler (autogroup), and
            # a rank's yield lets no rank of another group run.
            for rank in range(self.nranks if method.each else 1):
                own = {"KOLO_RANK": str(rank), "KOLO_NRANKS": str(self.nranks)} if method.each else {}
                self._processes.append(subprocess.Popen(
                    self._command(method, rank), env={**environment, **own}, stdin=subprocess.DEVNULL, stdout=self._log,
                    stderr=self._log, preexec_fn=os.setpgrp))
            deadline = time.monotonic() + START_LIMIT_S
            for _ in range(self.nranks):
                self._meet(listener, deadline)
        os.unlink(path)
        answers = self.answers(START_LIMIT_S)
        self.version = answers[0].removeprefix("ready ")

    def _command(self, method, rank):
        """What to start as this rank, or as all of them."""
        if self._net is None or not method.each:
            return method.command
        return self._net.inside(rank * len(self._net.names) // self.nranks, method.command)

    def _meet(self, listener, deadline):
        """One rank's hello, and the memory that its ranks share in return."""
        while not select.select([listener], [], [], 0.05)[0]:
            if time.monotonic() > deadline:
                raise Dropped("did not start in time" + self.said())
            if any(process.poll() is not None for process in self._processes):
                raise Dropped("ended while starting" + self.said())
        peer, _ = listener.accept()
        hello = peer.recv(128).decode().split()
        rank = int(hello[2])
        self.pids[rank] = int(hello[3])
        self._peers[rank], self._rest[rank] = peer, b""
        peer.sendmsg([b"m"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._memory]))])

    def said(self):
        """The last line that the method wrote, for a message."""
        self._log.flush()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip(" -\n*")]
        return f" ({lines[-1][:160]})" if lines else ""

    def ask(self, command, limit_s):
        """Every rank's answer to a command."""
        for peer in self._peers:
            try:
                peer.sendall(command.encode() + b"\n")
            except OSError:
                raise Dropped("died" + self.said()) from None
        return self.answers(limit_s)

    def answers(self, limit_s):
        """One line of each rank. Raises Dropped: one failed, died, or took longer than the limit."""
        waiting, got = dict(enumerate(self._peers)), {}
        deadline = time.monotonic() + limit_s
        while waiting:
            ready = select.select(list(waiting.values()), [], [], max(0, deadline - time.monotonic()))[0]
            if not ready:
                raise Dropped(f"no answer within {limit_s:.0f} s{self.said()}")
            for rank in [rank for rank, peer in waiting.items() if peer in ready]:
                line = self._read(rank)
                if line is not None:
                    got[rank] = line
                    del waiting[rank]
        failed = [line for line in got.values() if line.startswith("failed")]
        if failed:
            raise Dropped(failed[0] + self.said())
        return [got[rank] for rank in range(self.nranks)]

    def _read(self, rank):
        """The rank's line if it is complete."""
        try:
            data = self._peers[rank].recv(4096)
        except OSError:
            data = b""
        if not data:
            raise Dropped("died" + self.said())
        line, end, rest = (self._rest[rank] + data).partition(b"\n")
        self._rest[rank] = rest if end else line
        return line.decode() if end else None

    def cpu_s(self):
        """Processor seconds that the ranks have used, their threads included."""
        total = 0
        for pid in self.pids.values():
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    fields = file.read().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return total / os.sysconf("SC_CLK_TCK")

    def quit(self):
        """Ends well, or is killed."""
        try:
            for peer in self._peers:
                peer.sendall(b"quit\n")
            deadline = time.monotonic() + 5
            for process in self._processes:
                process.wait(max(0, deadline - time.monotonic()))
        except (OSError, AttributeError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self):
        """The ranks first, so that a launcher sees them end and cleans up; then what is left."""
        for pid in self.pids.values():
            _signal(os.kill, pid, signal.SIGKILL)
        for sent, wait_s in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
            for process in self._processes:
                if process.poll() is None:
                    _signal(os.killpg, process.pid, sent)
            for process in self._processes:
                try:
                    process.wait(wait_s)
                except subprocess.TimeoutExpired:
                    pass
        for peer in self._peers:
            if peer is not None:
                peer.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
        self.pids = {}


def _signal(send, target, number):
    try:
        send(target, number)
    except ProcessLookupError:
        pass
