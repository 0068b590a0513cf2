# SPDX-License-Identifier: Apache-2.0
# covers: src/gpu/hier
"""Hosts with several GPUs each: calls go inside hosts and between them. A host is a user namespace.

usage: layers_hosts_test.py HOST   (the program of layer_hosts.cc)
"""
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tap import check, done

HOST, = sys.argv[1:]
LIMIT_S = 200
SHORT = "KOLO_TEST_SHORT" in os.environ
SOON_S = 20  # on a busy machine, too; well before the 50 s of the time-out


def start(hosts, size, what, **more):
    """The hosts' processes, each with its ranks."""
    env = {**os.environ, "KOLO_ROOT": f"127.0.0.1:{20000 + os.getpid() % 10000}",
           "KOLO_JOB": secrets.token_hex(8),  # else ranks may meet those of another run on this machine
           "KOLO_SECRET": secrets.token_hex(32), "KOLO_SOCKET_IFNAME": "lo", "KOLO_CUDA_HIER_BYTES": "0",
           **more}
    return [subprocess.Popen([HOST, str(host), str(hosts), str(size), what], text=True, env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            for host in range(hosts)]


def end_of(process):
    """Its status and output."""
    try:
        out = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out = process.communicate()[0] + "it hung"
    return process.returncode, out


def finish(processes):
    """The same of each; all are read at once, as each waits for the others."""
    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(end_of, processes))


def check_collectives(hosts, size):
    ends = finish(start(hosts, size, "check", KOLO_DEBUG="INFO"))
    if any(status == 77 for status, _ in ends):
        print(f"1..0 # SKIP {ends[0][1].strip()}")
        sys.exit(0)
    said = [line for _, out in ends for line in out.splitlines()]
    check(all(status == 0 for status, _ in ends),
          f"on {hosts} hosts with {size} GPUs each every collective is right, and moves 1/{size} through the host",
          *[line for line in said if line.startswith("rank ")][:9], *said[-3:])
    layers = [line for line in said if f"{hosts} groups of {size} GPUs" in line]
    check(len(layers) == 2 * hosts * size, "the log tells the layers", *layers[:1], len(layers))


def read_pids(processes, size):
    """The ranks' processes, once all have made calls."""
    pids = {}
    for process in processes:
        for _ in range(size):
            line = process.stdout.readline()
            found = re.match(r"rank (\d+) is (\d+)", line)
            if found is None:
                return line
            pids[int(found.group(1))] = int(found.group(2))
    return pids


def check_lost(victim, how):
    timeout_ms, status = {signal.SIGKILL: (50000, "KOLO_ERR_PEER"), signal.SIGSTOP: (4000, "KOLO_ERR_TIMEOUT")}[how]
    processes = start(2, 2, str(victim), KOLO_TIMEOUT_MS=str(timeout_ms))
    pids = read_pids(processes, 2)
    check(len(pids) == 4, "ranks on two hosts work together", pids)
    begin = time.monotonic()
    os.kill(pids[victim], how)
    lines, took_s = [], 0
    for host, process in enumerate(processes):
        for _ in range(1 if host == victim // 2 else 2):
            lines.append(process.stdout.readline())
        took_s = time.monotonic() - begin
    if how == signal.SIGSTOP:
        os.kill(pids[victim], signal.SIGKILL)
    ends = finish(processes)
    named = [line.split("#")[0].split(":")[-1].strip() for line in lines]
    if how == signal.SIGSTOP:  # whom a rank waited for may have waited for the one that is stopped
        check([name.split()[0] for name in named] == [status] * 3 and took_s < SOON_S + 8,
              f"{how.name} of rank {victim} is {status} on every other rank", *lines, f"{took_s:.1f} s")
        return
    check(named == [f"{status} {victim}"] * 3,
          f"{how.name} of rank {victim} is {status} on every other rank, by its number", *lines)
    check(took_s < SOON_S, f"which takes less than {SOON_S} s", f"{took_s:.1f} s")
    check(all(end == 0 for end, _ in ends), "and those that are left go on without it", *ends)


check_collectives(2, 2)
if not SHORT:
        check_collectives(2, 4)
for lost in (0, 3):
    check_lost(lost, signal.SIGKILL)
check_lost(1, signal.SIGSTOP)
done()
