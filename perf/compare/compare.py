#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo beside its peers and beside the floor, all in one run.

Every method (kolo, Open MPI in several settings, MPICH, Gloo, and programs that do the least that a
collective needs) is started once as a job of n ranks and sleeps. For each size each round takes a
sample of every method, one after the other, in an order that turns from round to round; so the
machine's moods fall on all alike, and ratios mean something where times do not.

README.md in the folder above says what the columns are.
"""
import argparse
import contextlib
import copy
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import draw
import machine
import markdown
import methods
import results
from jobs import Dropped, Job
from methods import netns

COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather",
               "scatter", "barrier")
BLOCKED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
TYPES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4, "int64": 8}
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST_CALLS = 1 << 20
MEMORY_SHARE = 0.6
DISTURBED_SHARE = 0.03
RETAKES = 3


def size_of(text):
    """ "64K" as a number."""
    unit = UNITS.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def options():
    """The command line."""
    parser = argparse.ArgumentParser(prog="compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-n", "--ranks", type=int, default=2, help="ranks of each job (2)")
    add("-b", "--minbytes", type=size_of, default=8, help="smallest size (8)")
    add("-e", "--maxbytes", type=size_of, default=64 << 20, help="largest size (64M)")
    add("-f", "--factor", type=int, default=4, help="each size is N times the last (4)")
    add("-c", "--collectives", default=",".join(COLLECTIVES), help="collectives, separated by commas (all)")
    add("-m", "--methods", help="methods, separated by commas; kolo is always included (all installed)")
    add("-x", "--without", default="", help="methods to leave out, separated by commas")
    add("--rounds", type=int, default=11, help="samples of each method at each size (11)")
    add("--sample-ms", type=float, default=4, help="length of a sample; at least one call (4)")
    add("--buffers", choices=("private", "shared"), default="private",
        help="shared: kolo uses kolo_mem_alloc(); the peers always use ordinary memory")
    add("--behind", type=int, default=16, metavar="BYTES",
        help="private buffers begin so many bytes behind a page (16, as malloc() places long ones)")
    add("--inputs", choices=("hot", "rewritten"), default="hot",
        help="rewritten: inputs are rewritten before each call, within the timed part")
    add("--link", choices=("any", "tcp"), default="any",
        help="tcp: kolo, Gloo and the MPI libraries use TCP on the loopback, as between hosts")
    add("--hosts", type=int, default=0, metavar="N",
        help="ranks on N hosts, in blocks, which are network namespaces of this machine (as root); all use TCP")
    add("--rate", type=float, default=10, metavar="GBIT", help="with --hosts: Gbit/s of a host's NIC; 0: no limit (10)")
    add("--tick", type=int, default=50, metavar="US",
        help="with --hosts: packets wait for a tick of so many microseconds where they arrive; 0: for none (50)")
    add("--type", choices=TYPES, default="float32")
    add("--limit", type=float, default=20, help="longest time of a method for one answer, in seconds (20)")
    add("--beside", action="append", default=[], metavar="NAME=BUILD", help="compare with another build of kolo")
    add("--csv", help="write all medians to this file")
    add("--plot", metavar="PREFIX", help="draw PREFIX-all_reduce.png, .svg and so on")
    add("--draw", nargs="+", metavar="CSV", help="measure nothing; draw (--plot) the results of earlier runs")
    add("--markdown", nargs="+", metavar="CSV", help="measure nothing; print tables of the results of earlier runs")
    add("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"),
        help="build folder (build)")
    given = parser.parse_args()
    given.collectives = given.collectives.split(",")
    unknown = [name for name in given.collectives if name not in COLLECTIVES]
    if unknown:
        parser.error(f"-c: {unknown[0]} is not one of {', '.join(COLLECTIVES)}")
    if not 2 <= given.ranks <= 64 or given.factor < 2 or given.rounds < 1 or given.minbytes < 1:
        parser.error("2 to 64 ranks, a factor of 2 or more, a round and a byte at least")
    if not 0 <= given.behind < 4096 or given.behind % 16:
        parser.error("--behind: a multiple of 16 below 4096")
    if given.hosts and (given.hosts < 2 or given.ranks % given.hosts or given.rate < 0 or given.tick < 0):
        parser.error("--hosts: two or more, each with the same number of ranks")
    given.link = "tcp" if given.hosts else given.link
    given.net = None
    os.environ["KOLO_COMPARE_BEHIND"] = str(given.behind)
    return given


# ---- starting --------------------------------------------------------------------------------------


def all_methods(given, folder):
    """What there is to start, kolo first."""
    build, tcp, net = given.build, given.link == "tcp", given.net
    found = [methods.kolo(build, tcp=tcp, net=net)(given.ranks)]
    for number, text in enumerate(given.beside, 1):
        name, _, other = text.partition("=")
        found.append(methods.kolo(other, name, tcp, net, number)(given.ranks))
    found += methods.open_mpi(build, given.ranks, machine.cores(), tcp, net)
    found += [m for m in methods.torch_ops(build, folder, net) if not tcp or m.family == "Gloo"]
    found += methods.peers(build, given.ranks, machine.cores(), tcp, net)
    if tcp:
        found += methods.wire(build, given.ranks, net)
    else:
        found += methods.mpich(build, given.ranks)
        found += methods.floors(build, given.buffers == "shared", given.ranks > machine.cores())
    wanted = set(given.methods.split(",")) if given.methods else None
    return [m for m in found if is_wanted(m, wanted, set(given.without.split(",")))]


def is_wanted(method, wanted, without):
    """Whether -m and -x leave a method. kolo is always there; kolo by another way is not, unless named."""
    names = {method.name} if method.family == "kolo" else {method.name, method.family.lower()}
    if method.name == "kolo":
        return True
    if names & without:
        return False
    return method.family != "kolo" if wanted is None else bool(names & wanted)


def start(method, nranks, folder, net=None):
    """A job, or None with a line that says why."""
    try:
        return Job(method, nranks, folder, net)
    except (OSError, Dropped) as why:
        print(f"# dropped: {method.name}: {why}", flush=True)
        return None


class Session:
    """All jobs of a run; ends them, whatever happens."""

    def __init__(self, given, folder):
        self.given, self.folder, self.jobs, self.flags = given, folder, [], []
        self.probe, self.begin, self.gone_s, self.disturbed = None, None, 0, 0

    def start(self):
        """Start all that there is."""
        for method in all_methods(self.given, self.folder):
            job = start(method, self.given.ranks, self.folder, self.given.net)
            if job is not None:
                self.jobs.append(job)
        if not any(job.name == "kolo" for job in self.jobs):
            sys.exit("compare: kolo did not start")
        worker = methods.program(self.given.build, "floor")
        if worker and not self.given.net:  # a packet does not mind which cache a line is in
            flag = methods.floor(worker, "inline")
            flag.name = "flag"
            self.probe = start(flag, 2, self.folder)
        if self.probe:
            self.probe.ask("open all_reduce 8 float32 0 0", self.given.limit)

    def drop(self, job, why, where):
        """A method that is of no use any more."""
        print(f"# dropped: {job.name}: {why}, {where}", flush=True)
        self.gone_s += job.cpu_s()
        job.kill()
        self.jobs.remove(job)
        if job.name == "kolo":
            sys.exit("compare: nothing to compare without kolo")

    def flag_ns(self):
        """A call of the 8-byte floor of 2 ranks, in this moment: what a cache line takes from core to core."""
        if self.probe is None:
            return None
        try:
            ns = sample_ns(self.probe.ask("run 2000", self.given.limit), 2000)
        except Dropped:
            self.probe.kill()
            self.probe = None
            return None
        self.flags.append(ns)
        return ns

    def used(self):
        """(processor seconds of our processes, of all, taken by the host, seconds) so far."""
        jobs = self.jobs + ([self.probe] if self.probe else [])
        own = self.gone_s + sum(job.cpu_s() for job in jobs) + sum(os.times()[:4])
        return own, *machine.busy_s(), time.monotonic()

    def idle_share(self):
        """Cores that all methods use while none is asked for anything."""
        before, begin = [job.cpu_s() for job in self.jobs], time.monotonic()
        time.sleep(0.5)
        used = sum(job.cpu_s() - cpu for job, cpu in zip(self.jobs, before))
        return max(0, used) / (time.monotonic() - begin)

    def end(self):
        """Nothing is left behind."""
        for job in self.jobs + ([self.probe] if self.probe else []):
            job.quit()


# ---- measuring -------------------------------------------------------------------------------------


def sample_ns(answers, calls):
    """Nanoseconds of a call: from the first rank's begin to the last one's end."""
    times = [[int(word) for word in answer.split()[1:3]] for answer in answers]
    return (max(end for _, end in times) - min(begin for begin, _ in times)) / calls


def take_sample(session, job, calls):
    """Nanoseconds of a call. A sample in which a rank waited for its core, because something else ran there, is
    taken again a few times; the least disturbed counts. Ranks that share cores always wait, and so do Gloo's, for
    threads of their own, and those on hosts, for the kernel's packets."""
    alone, best = session.given.ranks <= machine.cores() and job.family != "Gloo" and not session.given.net, None
    for _ in range(1 + RETAKES if alone else 1):
        answers = job.ask(f"run {calls}", session.given.limit)
        ns = sample_ns(answers, calls)
        share = max(int(answer.split()[3]) for answer in answers) / (ns * calls)
        best = min(best or (share, ns), (share, ns))
        if share <= DISTURBED_SHARE:
            break
        session.disturbed += alone
    return best[1]


def real_size(given, collective, size):
    """The bytes that will move: whole elements, one a block at least."""
    if collective == "barrier":
        return 0
    unit = TYPES[given.type] * (given.ranks if collective in BLOCKED else 1)
    return max(size // unit, 1) * unit


def sizes(given, collective):
    """Every size once."""
    if collective == "barrier":
        return [0]
    found, size = [], given.minbytes
    while size <= given.maxbytes:
        found.append(real_size(given, collective, size))
        size *= given.factor
    return list(dict.fromkeys(found))


def fits(session, collective, size):
    """Whether the buffers of all methods fit the memory."""
    buffers = 2 if collective in ("all_reduce", "all_to_all") else 1 + 1 / session.given.ranks
    return size * buffers * session.given.ranks * len(session.jobs) < MEMORY_SHARE * machine.available_bytes()


def open_point(session, proto, collective, size):
    """Every method allocates, proves its result, and says how fast it is about. `proto` is the row that both rows of
    the point are copied from. Returns jobs to ask."""
    given, asked = session.given, []
    command = f"open {collective} {size} {given.type} {int(given.buffers == 'shared')} " \
              f"{int(given.inputs == 'rewritten')}"
    for job in list(session.jobs):
        try:
            answers = [answer.split() for answer in job.ask(command, given.limit)]
        except Dropped as why:
            session.drop(job, why, f"{collective} of {size} bytes")
            continue
        if answers[0][0] != "opened":
            continue
        ns = max(int(answer[2]) for answer in answers)
        proto.wrong[job.name] = sum(int(answer[1]) for answer in answers)
        proto.calls[job.name] = max(1, min(MOST_CALLS, round(given.sample_ms * 1e6 / max(ns, 1))))
        proto.family[job.name], proto.samples[job.name] = job.family, []
        asked.append(job)
    return asked


def take_round(session, asked, turn, calls, where):
    """{method: microseconds}, one sample each. A method that ends meanwhile is taken out of `asked`."""
    found = {}
    for place in range(len(asked)):
        job = asked[(place + turn) % len(asked)]
        try:
            found[job.name] = take_sample(session, job, calls[job.name]) / 1000
        except Dropped as why:
            session.drop(job, why, where)
    asked[:] = [job for job in asked if job in session.jobs]
    return found


def measure(session, collective, size):
    """The rows of a point: one of the rounds on near cores, one of those on far cores. A round in which the cores
    moved is taken again."""
    proto = results.Row(collective, size, "")
    asked, rows = open_point(session, proto, collective, size), {}
    where = f"{collective} of {size} bytes"
    before = session.flag_ns()
    rounds = moved = 0
    while rounds < session.given.rounds:
        sample_us = take_round(session, asked, rounds + moved, proto.calls, where)
        began, before = before, session.flag_ns()
        cores = results.cores_of(began)
        if cores != results.cores_of(before) and moved < session.given.rounds:
            moved += 1
            continue
        if cores not in rows:
            rows[cores] = copy.deepcopy(proto)
            rows[cores].cores = cores
        rows[cores].add(began, sample_us)
        rounds += 1
    for job in list(asked):
        try:
            job.ask("close", session.given.limit)
        except Dropped as why:
            session.drop(job, why, where)
            asked.remove(job)
    kept = {job.name for job in asked}
    for row in rows.values():
        row.samples = {name: samples for name, samples in row.samples.items() if name in kept}
    return [rows[cores] for cores in sorted(rows, reverse=True)]


# ---- what is printed -------------------------------------------------------------------------------


def link_of(given):
    """ "4 hosts, 10 Gbit/s, tick 50 us"."""
    if not given.hosts:
        return ""
    rate = f"{given.rate:g} Gbit/s" if given.rate else "no limit"
    return f"{given.hosts} hosts, {rate}, tick {given.tick} us"


def print_head(session):
    """What, where, with which versions."""
    given = session.given
    link = link_of(given) or ("over TCP" if given.link == "tcp" else "")
    print(f"# kolo beside its peers{f', {link}' if link else ''}: {given.ranks} ranks, {given.type}, {given.buffers} buffers, "
          f"private ones {given.behind} bytes behind a page, {given.inputs} inputs; medians of {given.rounds} rounds of about {given.sample_ms:g} ms")
    for text in machine.describe():
        print(f"# {text}")
    for job in session.jobs:
        if job.family != "floor":
            print(f"# {job.name}: {job.version}")
    print(f"# idle methods use {session.idle_share():.3f} of a core")
    print_flag(session, "now")


def print_others(session):
    """How alone the measurement was. Launchers count as others; they sleep."""
    own, busy, stolen, seconds = (now - then for now, then in zip(session.used(), session.begin))
    print(f"# other processes used {max(0, busy - own) / seconds:.2f} of {machine.cores()} cores meanwhile, the host "
          f"took {stolen / seconds:.2f}; {session.disturbed} samples were disturbed and taken again")


def print_flag(session, when):
    """The 8-byte floor of this run: about 35 ns where two cores share a cache, 215 where they do not."""
    if when == "now":
        for _ in range(11):
            session.flag_ns()
    if session.flags:
        print(f"# flag, an 8-byte exchange of 2 ranks, {when}: {min(session.flags):.0f} / "
              f"{statistics.median(session.flags):.0f} / {max(session.flags):.0f} ns (min/median/max)", flush=True)


def print_hand_overs(session):
    """With more ranks than cores: what it takes to let another rank of the core run."""
    given = session.given
    if given.ranks <= machine.cores():
        return
    for method in methods.hand_overs(given.build):
        job = start(method, given.ranks, session.folder)
        if job is None:
            continue
        try:
            answer = job.ask("open handover 8 float32 0 0", given.limit)[0].split()
            calls = max(1, round(given.sample_ms * 1e6 / max(1, int(answer[2]))))
            ns = [sample_ns(job.ask(f"run {calls}", given.limit), calls) for _ in range(given.rounds)]
            print(f"# {method.name.removeprefix('floor-')}: {statistics.median(ns) / 1000:.2f} us once round all "
                  "ranks of a core", flush=True)
        except Dropped as why:
            print(f"# dropped: {method.name}: {why}")
        session.gone_s += job.cpu_s()
        job.quit()


def table(session, rows):
    """All rows, printed and added to `rows` as they come."""
    for collective in session.given.collectives:
        print(f"#\n# {collective}\n{results.HEAD}", flush=True)
        first = len(rows)
        for size in sizes(session.given, collective):
            if not fits(session, collective, size):
                print(f"# {size} bytes and more: too little memory for the buffers of all methods")
                break
            for row in measure(session, collective, size):
                rows.append(row)
                print(results.line(row), flush=True)
        for cores in sorted({row.cores for row in rows[first:]}, reverse=True):
            print(results.summary([row for row in rows[first:] if row.cores == cores], cores), flush=True)
    print("#")
    print_flag(session, "all rounds")
    print_others(session)


def keep(given, rows):
    """Files and pictures of what there is, also of a run that was interrupted."""
    what = {"type": given.type, "ranks": given.ranks, "link": link_of(given), "buffers": given.buffers, "inputs": given.inputs}
    found = results.records(rows, what)
    if given.csv:
        results.write_csv(given.csv, found)
    if given.plot and found:
        draw.draw(found, given.plot)


def hosts_of(given):
    """The hosts that are asked for, or the end of the program."""
    try:
        net = netns.linked(given.hosts, round(given.rate * 1000), given.tick)
    except (OSError, subprocess.CalledProcessError) as why:
        sys.exit(f"compare: no hosts here: {why}")
    os.environ["KOLO_COMPARE_HOSTS"] = net.tag
    return net


def run(given):
    """Measure; returns the exit status."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="kolo-compare-") as folder, contextlib.ExitStack() as stack:
        stack.callback(keep, given, rows)
        if given.hosts:
            given.net = hosts_of(given)
            stack.callback(given.net.remove)
        session = Session(given, folder)
        stack.callback(session.end)
        session.start()
        session.begin = session.used()
        print_head(session)
        print_hand_overs(session)
        table(session, rows)
    wrong = sum(sum(row.wrong.values()) for row in rows)
    print(f"# wrong elements: {wrong}")
    return 1 if wrong else 0


def main():
    """Measure, or draw."""
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.markdown:
        print(markdown.page(results.read_csv(given.markdown)))
        return
    if given.draw:
        sys.exit(draw.draw(results.read_csv(given.draw), given.plot or "compare"))
    try:
        status = run(given)
    except KeyboardInterrupt:
        sys.exit("\ncompare: interrupted")
    sys.exit(status)


if __name__ == "__main__":
    main()
