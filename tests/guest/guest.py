# SPDX-License-Identifier: Apache-2.0
"""The guest's two hosts, their rails, and what may go wrong with these. For scripts in the guest."""
import contextlib
import json
import os
import re
import secrets
import subprocess
import threading
import time

import hosts

# The interfaces of each rail, host 0's first; device rxe<i> is on v<i>.
RAILS = (("v0", "v1"), ("v2", "v3"))


class Guest(hosts.Hosts):
    """Two hosts that are there already: see the script `hosts`."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self.family = 4
        self.names = ["host0", "host1"]
        self.secret = secrets.token_hex(32)
        self.port = 20000

    def inside(self, host, command):
        """As `hosts on` does, without a shell: starting one takes an emulated processor half a second."""
        return ["nsenter", f"--net=/run/netns/host{host}", f"--mount=/run/mounts/host{host}",
                f"--wd={os.getcwd()}", *command]

    def call(self, host, *command, limit_s=60):
        """Status and output of a command on a host."""
        done = subprocess.run(self.inside(host, command), capture_output=True, text=True, timeout=limit_s,
                              check=False)
        return done.returncode, done.stdout + done.stderr


class Heard:
    """What running ranks have printed so far, line by line.

    A test waits for what it needs to see, not for a time: how much an emulated processor does in a second
    depends on what else its machine does. `LIMIT_S` only ends a test whose ranks hang.
    """

    LIMIT_S = 300

    def __init__(self, processes):
        self.processes = processes
        self.lines = [[] for _ in processes]
        self._readers = [threading.Thread(target=self._read, args=pair) for pair in enumerate(processes)]
        for reader in self._readers:
            reader.start()

    def _read(self, rank, process):
        for line in process.stdout:
            self.lines[rank].append(line.rstrip())

    def found(self, pattern):
        """The lines of all ranks that fit, rank 0's first."""
        return [line for lines in self.lines for line in list(lines) if re.search(pattern, line)]

    def wait(self, pattern, count=1):
        """Whether that many lines fit, now or before a rank ends or the limit is over."""
        deadline = time.monotonic() + self.LIMIT_S
        while len(self.found(pattern)) < count:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                return len(self.found(pattern)) >= count
            time.sleep(0.05)
        return True

    def kill(self):
        """End all ranks."""
        for process in self.processes:
            process.kill()
        self.join()

    def join(self):
        """Wait until all ranks have ended; the statuses."""
        statuses = [process.wait() for process in self.processes]
        for reader in self._readers:
            reader.join()
        for process in self.processes:
            process.stdout.close()
        return statuses

    def tails(self):
        """The last lines of all ranks."""
        return [f"rank {rank}: {line}" for rank, lines in enumerate(self.lines) for line in lines[-6:]]


def must(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextlib.contextmanager
def netem(interfaces, *what):
    """What is sent from these interfaces is lost, delayed ... as tc-netem(8) says."""
    for each in interfaces:
        must("tc", "qdisc", "add", "dev", each, "root", "netem", *what)
    try:
        yield
    finally:
        for each in interfaces:
            subprocess.run(["tc", "qdisc", "del", "dev", each, "root"], check=False, capture_output=True)


def tcp_netem(host, *what):
    """The same of what a host sends by TCP; no arguments: no more."""
    must("ip", "netns", "exec", f"host{host}", "tc", "qdisc", *(
        ["add", "dev", "eth0", "root", "netem", *what] if what else ["del", "dev", "eth0", "root"]))


def resources():
    """Of each RDMA device how many queue pairs, registrations ... there are."""
    out = subprocess.check_output(["rdma", "-j", "resource", "show"], text=True)
    return {each["ifname"]: {kind: each[kind] for kind in ("pd", "cq", "qp", "mr")}
            for each in json.loads(out)}


def left_over(at_first):
    """What there is now, where it is not what there was; the kernel takes back what the dead had soon."""
    for _ in range(50):
        now = resources()
        if now == at_first:
            return None
        time.sleep(0.1)
    return f"{now}, at first {at_first}"


def counter(device, name):
    """One of rxe's counters, such as completer_retry_err or sent_pkts."""
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}", encoding="ascii") as file:
        return int(file.read())
