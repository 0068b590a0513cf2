# SPDX-License-Identifier: Apache-2.0
# covers: transports/verbs
"""The verbs transport between two hosts: what is right, over which rails, and what becomes of it when
these fail.

usage: verbs_test.py PERF   (all_reduce_perf)
"""
import re
import signal
import sys
import time

from guest import Guest, Heard, counter, must, netem, resources
from hosts import tails
from tap import check, run_tests

PERF = sys.argv[1]
GUEST = Guest()
SHORT = ["-b", "8", "-e", "4M", "-f", "16", "-n", "3", "-w", "1"]
# Packets are sent again after 4.096 us * 2^16 = 268 ms, three times: what is dead is found out soon. On
# busy cores answers come later than 67 ms, and Soft-RoCE then takes packets that it repeats for new ones.
SOON = {"KOLO_IB_TIMEOUT": "16", "KOLO_IB_RETRY_CNT": "3"}
ROW = r"^ *1048576 +262144 +float "
LOG = {"KOLO_DEBUG": "INFO", "KOLO_DEBUG_SUBSYS": "INIT,NET,SHM"}


def right(ends):
    return all(status == 0 for status, _ in ends) and "Out of bounds values : 0 OK" in (ends[0][1] or "")


def lines(ends, pattern):
    """What the ranks logged that fits."""
    return [line for _, out in ends for line in (out or "").splitlines() if re.search(pattern, line)]


def sent():
    return [counter(f"rxe{i}", "sent_pkts") for i in range(4)]


def test_two_rails():
    """Chosen without being asked, over both rails, and nothing is left behind."""
    before, had = sent(), resources()
    # A ring's halves of 256 KiB are parted between the rails; short messages take any rail that is idle.
    ends = GUEST.run([0, 1], [PERF, *SHORT], KOLO_ALGO="allreduce:ring", **LOG)
    check(right(ends), "two ranks on two hosts are right over verbs", *tails(ends))
    edges = lines(ends, r"Channel \d\d/0 : (0\[0\] -> 1\[1\]|1\[0\] -> 0\[0\]) via NET/IB/[01]$")
    check(edges and edges == lines(ends, " via "), "the log names NET/IB for each edge", *lines(ends, " via "))
    check(all(lines(ends, f"{edge}.* via NET/IB/{rail}$") for edge in (r"0\[0\] -> 1", r"1\[1\] -> 0|1\[0\] -> 0")
              for rail in (0, 1)), "and both rails, each a channel's", *edges)
    grown = [after - start for start, after in zip(before, sent())]
    check(min(grown) > 100, "both rails of both hosts carried it", grown)
    check(resources() == had, "no queue pair, no registration stays", had, resources())


def test_more_ranks():
    """Shared memory inside a host, verbs between them."""
    ends = GUEST.run([0, 1, 0, 1], [PERF, *SHORT])
    check(right(ends), "four ranks on two hosts are right", *tails(ends))


def test_same_host():
    """Asked for, ranks of one host use it, too."""
    ends = GUEST.run([0, 0], [PERF, *SHORT], KOLO_TRANSPORT="verbs")
    check(right(ends), "two ranks of one host are right over verbs", *tails(ends))


def test_choice_of_rails():
    before = sent()
    ends = GUEST.run([0, 1], [PERF, *SHORT], KOLO_IB_HCA="rxe2,rxe3", KOLO_IB_TC="104")
    grown = [after - start for start, after in zip(before, sent())]
    check(right(ends) and max(grown[:2]) < 100 < min(grown[2:]), "KOLO_IB_HCA chooses the rail", grown, *tails(ends))
    ends = GUEST.run([0, 1], [PERF, *SHORT], KOLO_IB_DISABLE="1", **LOG)
    check(right(ends) and lines(ends, "via NET/Socket/0"), "without verbs they use TCP", *tails(ends))
    ends = GUEST.run([0, 1], [PERF, *SHORT], KOLO_IB_HCA="mlx5", KOLO_TRANSPORT="verbs")
    check(not right(ends) and lines(ends, "KOLO_IB_HCA=mlx5"), "a device that is not there is named", *tails(ends))


def test_losses():
    """Lost packets are sent again by the queue pairs."""
    before = counter("rxe0", "completer_retry_err") + counter("rxe1", "completer_retry_err")
    with netem(["v0", "v1", "v2", "v3"], "loss", "0.5%"):
        ends = GUEST.run([0, 1], [PERF, *SHORT], KOLO_IB_TIMEOUT="14")
    check(right(ends), "0.5 % loss changes nothing", *tails(ends))
    after = counter("rxe0", "completer_retry_err") + counter("rxe1", "completer_retry_err")
    check(after >= before, "and is seen by the counters", before, after)


def endless(**env):
    """Ranks that sum 1 MiB and check it for ever; rank 0 prints a row for each few calls."""
    return Heard(GUEST.start([0, 1], [PERF, "-b", "1M", "-e", "1M", "-n", "1", "-w", "0", "-N", "0"], **env))


def test_dead_rail():
    """A rail that dies leaves its traffic to the other, and is used again when it is back."""
    dies, back = "NET/IB/0 : rank .* over rxe[01] port 1: ", "NET/IB/0 : .* over rxe[01] port 1 .*, again"
    job = endless(**SOON, **LOG)
    seen = [job.wait(ROW)]
    must("ip", "link", "set", "v0", "down")
    seen += [job.wait(dies), job.wait(ROW, len(job.found(ROW)) + 2)]  # the first may have begun before
    must("ip", "link", "set", "v0", "up")
    seen += [job.wait(back), job.wait(ROW, len(job.found(ROW)) + 2)]
    job.kill()
    rows = [line.split() for line in job.found(ROW)]
    check(all(seen) and all(row[8] == row[12] == "0" for row in rows), "a rail that dies and comes back changes nothing",
          seen, *rows, *job.tails())
    check(job.found(dies), "the log names rank, device, port and status", *job.found("NET/IB"))
    check(job.found(back), "it is used again", *job.found("NET/IB"))


def test_dead_rank():
    """A rank that dies is found out by its control connection, long before a packet's time is up."""
    job = endless(KOLO_IB_TIMEOUT="22")
    ran = job.wait(ROW)
    job.processes[1].send_signal(signal.SIGKILL)
    begun = time.monotonic()
    status = job.join()[0]
    check(ran and time.monotonic() - begun < 20 and status != 0 and any("rank 1" in line for line in job.lines[0]),
          "a rank that is killed is named at once", ran, status, *job.tails())


run_tests(globals())
