# SPDX-License-Identifier: Apache-2.0
"""Hosts, as far as any program can tell: network namespaces on one bridge, made and removed here."""
import atexit
import os
import secrets
import signal
import subprocess
import sys

LIMIT_S = 300


def ip(*args):
    """Run ip(8); what it says where it fails."""
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or "it failed"


class Hosts:
    """`count` namespaces with the addresses 10.77.0.1 and so on, at a bridge in one more; or, of
    family 6, fd77::1 and so on, and no IPv4."""

    def __init__(self, count, family=4):
        self.family = family
        self.tag = f"kolo{os.getpid()}"
        self.names = [f"{self.tag}h{i}" for i in range(count)]
        self.bridge = f"{self.tag}br"
        self.secret = secrets.token_hex(32)
        self.port = 20000 + os.getpid() % 10000
        atexit.register(self.remove)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.why = self._make()

    def _make(self):
        steps = [("netns", "add", self.bridge),
                 ("-n", self.bridge, "link", "add", "br0", "type", "bridge"),
                 ("-n", self.bridge, "link", "set", "br0", "up")]
        for i, name in enumerate(self.names):
            steps += [
                ("netns", "add", name),
                ("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}",
                 "netns", self.bridge),
                ("-n", self.bridge, "link", "set", f"port{i}", "master", "br0", "up"),
                ("-n", name, "addr", "add", *self.subnet(i), "dev", "eth0"),
                ("-n", name, "link", "set", "lo", "up"),
                ("-n", name, "link", "set", "eth0", "up")]
        for step in steps:
            try:
                why = ip(*step)
            except OSError as error:
                return f"ip: {error}"
            if why:
                return f"ip {' '.join(step)}: {why}"
        return ""

    def remove(self):
        """Take all of them away."""
        for name in [*self.names, self.bridge]:
            if os.path.exists(f"/run/netns/{name}"):
                ip("netns", "del", name)

    def address(self, host):
        """Of host number `host`."""
        return f"fd77::{host + 1:x}" if self.family == 6 else f"10.77.0.{host + 1}"

    def subnet(self, host):
        """Arguments of ip(8); an IPv6 address is there at once, without a search for another."""
        return [self.address(host) + "/64", "nodad"] if self.family == 6 else [self.address(host) + "/24"]

    def root(self):
        """Where ranks meet."""
        host = self.address(0)
        return f"[{host}]:{self.port}" if self.family == 6 else f"{host}:{self.port}"

    def inside(self, host, command):
        """The command as it runs on that host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def sent_bytes(self, host):
        """Bytes that the host has sent over its interface, with all headers."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        return int(subprocess.check_output(self.inside(host, ["cat", path])))

    def environment(self, rank, nranks, **more):
        """Of a rank that meets the others at rank 0's host."""
        return {**os.environ, "KOLO_RANK": str(rank), "KOLO_NRANKS": str(nranks),
                "KOLO_ROOT": self.root(), "KOLO_SECRET": self.secret, **more}

    def start(self, places, command, **more):
        """Rank i of the command on host places[i]; the processes."""
        return [subprocess.Popen(self.inside(host, command), stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True,
                                 env=self.environment(rank, len(places), **more))
                for rank, host in enumerate(places)]

    def run(self, places, command, limit_s=LIMIT_S, **more):
        """The same to its end: status and output of each rank (None where it did not end)."""
        return finish(self.start(places, command, **more), limit_s)


def finish(processes, limit_s=LIMIT_S):
    """Status and output of each."""
    ends = []
    for process in processes:
        try:
            out, _ = process.communicate(timeout=limit_s)
            ends.append((process.returncode, out))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            ends.append((None, out))
    return ends


def tails(ends):
    """The last lines of the ranks that failed."""
    return [f"rank {rank}: status {status}: {line}"
            for rank, (status, out) in enumerate(ends) if status != 0
            for line in (out or "").splitlines()[-6:]]


_made = {}


def made(count, otherwise):
    """Hosts, made once for a count. None, after a line that begins with `otherwise`, where they cannot be made."""
    if count not in _made:
        hosts = Hosts(count)
        _made[count] = None if hosts.why else hosts
        if hosts.why:
            print(f"# {otherwise}: no network namespaces here: {hosts.why}")
    return _made[count]


def need(count, family=4):
    """Hosts, or the end of the script: skipped, with the reason."""
    hosts = Hosts(count, family)
    if hosts.why:
        print(f"1..0 # SKIP no network namespaces here: {hosts.why}")
        sys.exit(0)
    return hosts
