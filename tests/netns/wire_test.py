# SPDX-License-Identifier: Apache-2.0
# covers: transports/tcp
"""What goes over the wire between two hosts: no more bytes than must, and only on their interface.

usage: wire_test.py PERF...   (the perf programs)
"""
import os
import re
import subprocess
import sys

from hosts import finish, need, tails
from tap import check, run_tests

PERF = {os.path.basename(path).removesuffix("_perf"): path for path in sys.argv[1:]}
HOSTS = need(2)
PLACES = [0, 0, 1, 1]
SIZE = 16 << 20
CALLS = 10

# Bytes that each host must send at least, for a call of SIZE bytes as the table has it, of 4 ranks
# of which two are on each host. Roots are on the first one.
LEAST = {"all_reduce": (SIZE, SIZE), "broadcast": (SIZE, 0), "reduce": (0, SIZE),
         "all_gather": (SIZE // 2, SIZE // 2), "reduce_scatter": (SIZE // 2, SIZE // 2),
         "gather": (0, SIZE // 2), "scatter": (SIZE // 2, 0), "alltoall": (SIZE, SIZE)}
# This machine's memory carries these frames, as fast as a rank copies. Where the network costs no
# more than a copy, an algorithm that sends twice as much may be the fastest, and kolo may choose it.
# So the ranks are told the costs of a network of 1e10 bit/s between hosts of two cores.
NETWORK = {"KOLO_COSTS": "cores=4,net_latency_us=20,net_gbs=1.25"}
# Headers of frames, TCP and Ethernet, and acknowledgements, beside the payload.
SLACK = 1.05


def sent(program, calls):
    """Bytes that each host sent while 4 ranks made so many calls, and how the ranks ended."""
    before = [HOSTS.sent_bytes(host) for host in (0, 1)]
    ends = HOSTS.run(PLACES, [program, "-b", str(SIZE), "-e", str(SIZE), "-n", str(calls), "-w", "0", "-c", "0"],
                     **NETWORK)
    return [HOSTS.sent_bytes(host) - was for host, was in zip((0, 1), before)], ends


def test_bytes():
    """The difference of two runs, so that what coming up takes does not count."""
    for name, least in LEAST.items():
        few, ends = sent(PERF[name], CALLS)
        many, more = sent(PERF[name], 2 * CALLS)
        good = all(status == 0 for status, _ in ends + more)
        calls = 2 * CALLS  # out of place and in place
        a_call = [(b - a) / calls for a, b in zip(few, many)]
        fits = all(got <= SLACK * want + 0.01 * SIZE for got, want in zip(a_call, least))
        check(good and fits, f"4 ranks on 2 hosts: {name} sends no more between them than it must",
              f"least {least}, sent {[round(each) for each in a_call]} a call", *tails(ends + more))


def test_listeners():
    """While a job runs, its host listens on no other address than that of the interface."""
    ranks = HOSTS.start([0, 1], [PERF["all_reduce"], "-b", "8", "-e", "8", "-n", "2000000"])
    found = []
    while not found and all(rank.poll() is None for rank in ranks):
        seen = subprocess.check_output(HOSTS.inside(1, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]), text=True)
        found = re.findall(r"^ *\d+: ([0-9A-F]+):[0-9A-F]+ [0-9A-F:]+ 0A ", seen, re.M)
    for rank in ranks:
        rank.kill()
    finish(ranks)
    own = "".join(f"{int(part):02X}" for part in reversed(HOSTS.address(1).split(".")))
    check(found and set(found) == {own}, "only the chosen interface is listened on", f"{found} are not {own}")


run_tests(globals())
