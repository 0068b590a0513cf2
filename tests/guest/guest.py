# SPDX-License-Identifier: Apache-2.0
"""The guest's two hosts, their rails, and what may go wrong with these. For scripts in the guest."""
import contextlib
import json
import os
import secrets
import subprocess
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
