# SPDX-License-Identifier: Apache-2.0
# covers: transports/verbs
"""What happens over verbs when the wire loses, waits or breaks, a device goes, or a rank dies: right results,
or the named error in time, and nothing is kept.

usage: faults_test.py FAULTS PERF   (the program of tests/multirank/faults.c, all_reduce_perf)
"""
import signal
import subprocess
import sys
import time

from guest import RAILS, Guest, left_over, must, netem, resources
from hosts import tails
from ranks import Ranks, latest, survivors_name
from tap import check, run_tests

FAULTS, PERF = sys.argv[1:]
GUEST = Guest()
TIMEOUT_MS = 4000
EMULATED_MS = 8000  # what the guest's slow processors may take beyond what is promised
ONE_RAIL = {"KOLO_TRANSPORT": "verbs", "KOLO_IB_HCA": "rxe0,rxe1"}
TWO_RAILS = {"KOLO_TRANSPORT": "verbs"}
BOTH_ENDS = [each for rail in RAILS for each in rail]
AT_FIRST = resources()


def sweep(most="256K", env=None, calls=3):
    """All-reduce over two hosts, checked; how the ranks ended."""
    return GUEST.run([0, 1], [PERF, "-b", "8", "-e", most, "-f", "32", "-n", str(calls), "-w", "1"], **(env or TWO_RAILS))


def good(ends):
    return all(status == 0 for status, _ in ends)


def nothing_is_left(after):
    check(not left_over(AT_FIRST), f"no queue pair, registration or completion queue is left after {after}",
          left_over(AT_FIRST))


def start(what, timeout_ms=TIMEOUT_MS, env=None):
    job = Ranks(GUEST.start([0, 1], [FAULTS, what, str(timeout_ms)], **(env or TWO_RAILS)))
    job.wait_until_at_work()
    return job


def test_1_losses():
    """Lost and late packets are the devices' business: calls are right."""
    for loss in ("0.1%", "1%"):
        with netem(BOTH_ENDS, "loss", loss):
            ends = sweep("1M" if loss == "0.1%" else "64K", ONE_RAIL, 10)
        check(good(ends), f"{loss} of the packets lost: every result is right",
              *tails(ends))
    with netem(BOTH_ENDS, "delay", "50ms"):
        ends = sweep("64K")
    check(good(ends), "50 ms on every packet: every result is right", *tails(ends))
    nothing_is_left("losses")


def test_2_link_down():
    """A wire that is gone for 2 s: calls wait for it, or go on over the other rail."""
    for rails, env in (("the only rail", ONE_RAIL), ("one rail of two", TWO_RAILS)):
        job = Ranks(GUEST.start([0, 1], [FAULTS, "large", "20000"], **env))
        job.wait_until_at_work()
        must("ip", "link", "set", "v0", "down")
        time.sleep(2)
        alive = all(rank.poll() is None for rank in job.ranks)
        must("ip", "link", "set", "v0", "up")
        hosts_again()
        time.sleep(3)
        alive = alive and all(rank.poll() is None for rank in job.ranks)
        job.ranks[1].kill()
        since = time.time() * 1e3
        reports = job.ends()
        check(alive and survivors_name(1, reports, since, 2000 + EMULATED_MS), f"{rails} is down for 2 s: calls go on",
              *reports, *job.said)
    nothing_is_left("a link that was down")


def hosts_again():
    """What `ip link set down` has taken from v0 and its neighbour: routes, and the neighbours that were set."""
    must("ip", "route", "replace", "10.78.0.2", "dev", "v0", "src", "10.78.0.1", "table", "100")
    for device, address in (("v0", "10.78.0.2"), ("v1", "10.78.0.1")):
        other = "v1" if device == "v0" else "v0"
        with open(f"/sys/class/net/{other}/address", encoding="ascii") as file:
            must("ip", "neighbour", "replace", address, "lladdr", file.read().strip(), "dev", device)


def test_3_cut_off():
    """All rails down for good: a rank names the other at the time-out. Their other wire is whole, so it may tell the
    other, which then repeats what it was told."""
    for what in ("small", "large"):
        job = start(what)
        since = time.time() * 1e3
        for device in ("v0", "v2"):
            must("ip", "link", "set", device, "down")
        reports = job.ends()
        for device in ("v0", "v2"):
            must("ip", "link", "set", device, "up")
        hosts_again()
        must("ip", "route", "replace", "10.78.1.2", "dev", "v2", "src", "10.78.1.1", "table", "102")
        check(all(report and report[0] in ("KOLO_ERR_LINK", "KOLO_ERR_TIMEOUT") for report in reports) and
              any(report[1] == 1 - rank or f"for rank {1 - rank};" in report[2]
                  for rank, report in enumerate(reports)) and
              latest(reports, since) < TIMEOUT_MS + EMULATED_MS,
              f"both rails are cut for good ({what}): who is waited for is named at the time-out",
              f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)
    nothing_is_left("a cut")


def test_4_death():
    """kill -9 with work posted: the survivor names the dead, at once."""
    for what in ("small", "large", "all", "idle"):
        job = start(what, 20000)
        since = time.time() * 1e3
        job.ranks[1].kill()
        reports = job.ends()
        check(survivors_name(1, reports, since, 2000 + EMULATED_MS), f"a rank is killed ({what}): the other names it at once",
              f"after {latest(reports, since):.0f} ms", *reports, *job.said)
    nothing_is_left("kill -9")


def test_5_stop():
    """A rank that is stopped is named at the time-out."""
    job = start("small")
    since = time.time() * 1e3
    job.ranks[1].send_signal(signal.SIGSTOP)
    job.ranks[0].wait(60)
    job.ranks[1].kill()
    reports = job.ends()
    check(survivors_name(1, reports, since, TIMEOUT_MS + EMULATED_MS, "KOLO_ERR_TIMEOUT"),
          "a rank is stopped: the other names it at the time-out", *reports, *job.said)


def test_6_memlock():
    """Too little memory that may be locked: the ranks end, and say what to set. Root may lock what it likes, so they
    are somebody else."""
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "bash", "-c",
                'ulimit -l 64 && exec "$@"', "bash"]
    ends = GUEST.run([0, 1], [*somebody, PERF, "-b", "8", "-e", "8", "-n", "1"], **TWO_RAILS)
    check(all(status not in (0, None) and "may lock 64 KiB" in out and "ulimit -l unlimited" in out
              for status, out in ends), "ranks that may lock 64 KiB are told of the limit and what to set", *tails(ends))
    nothing_is_left("too little memory")


def test_7_device_gone():
    """`rdma link delete` under a job, last, for the device does not come back as it was. rdma_rxe cannot be taken away
    from who has it open: the deletion waits for them, and meanwhile nothing may break."""
    job = start("small", 20000)
    with subprocess.Popen(["rdma", "link", "delete", "rxe2"]) as deletion:
        time.sleep(3)
        alive = all(rank.poll() is None for rank in job.ranks)
        since = time.time() * 1e3
        job.ranks[1].kill()
        reports = job.ends()
        check(alive and survivors_name(1, reports, since, 2000 + EMULATED_MS), "a device of two is deleted: calls go on",
              *reports, *job.said)
        ended = deletion.wait(60)
    check(ended == 0 and "rxe2" not in resources(), "it goes once the ranks have gone", ended, resources())
    ends = sweep()
    check(good(ends), "the next job does with the other one", *tails(ends))


run_tests(globals())
