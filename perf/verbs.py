# SPDX-License-Identifier: Apache-2.0
"""kolo over verbs beside what else uses them, all in one run between the two hosts of a guest.

  tests/guest/run -t 580 python3 perf/verbs.py build

Messages of kolo beside perftest's ib_write_lat and ib_write_bw (Debian: perftest), which do the least that a
device can be asked for; all-reduce of two ranks beside Open MPI's over the same devices; and both by TCP on a
wire of the same kind. Every number is the median of rounds that take turns. A guest's processors are emulated,
so that times say nothing about hardware: only the ratios of one run do, and they count instructions more than
wires.

Open MPI goes by libfabric (mtl ofi, provider verbs;ofi_rxm), with queues that Soft-RoCE can give. What else it
has in Debian 12 does not start there: pml ucx (UCX 1.13) ends with a time-out of its datagrams, and btl openib
finds no way to connect over RoCE.
"""
import argparse
import os
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "compare"))
from jobs import Dropped, Job, Method  # noqa: E402  pylint: disable=wrong-import-position

HOSTS = os.path.join(HERE, "..", "tests", "guest", "hosts")
PINNED = ("taskset", "-c")  # a host has a CPU of its own, which is also where its packets arrive
DEVICES = ("rxe0", "rxe1")
GID_INDEX = "1"  # RoCE v2 over IPv4
ROUNDS = 3
LIMIT_S = 60
LIBFABRIC = {"FI_UNIVERSE_SIZE": "2", "FI_OFI_RXM_MSG_TX_SIZE": "128", "FI_OFI_RXM_MSG_RX_SIZE": "128",
             "FI_OFI_RXM_TX_SIZE": "256", "FI_OFI_RXM_RX_SIZE": "256", "FI_VERBS_TX_SIZE": "128",
             "FI_VERBS_RX_SIZE": "128"}
PINGS, PING_BYTES = 300, 8
STREAM_BYTES = [64 << 10, 512 << 10, 4 << 20, 8 << 20]
REDUCE_BYTES = [8, 256, 8 << 10, 64 << 10, 512 << 10, 4 << 20]
ADDRESS = "10.77.0.1"


class Ports:
    """A port of its own for every job."""

    last = 20000

    @classmethod
    def next(cls):
        cls.last += 7
        return cls.last


def kolo_environment(transport):
    """Of a job of two ranks on one rail."""
    return {"KOLO_ROOT": f"{ADDRESS}:{Ports.next()}", "KOLO_SECRET": secrets.token_hex(32), "KOLO_NRANKS": "2",
            "KOLO_TRANSPORT": transport, "KOLO_IB_HCA": ",".join(DEVICES), "KOLO_TUNE_FILE": "none"}


# ---- messages ----------------------------------------------------------------------------------------


def both(command_of, environment=None):
    """Output of rank 0 of a command on both hosts."""
    ranks = [subprocess.Popen([HOSTS, "on", str(host), *PINNED, str(host), *command_of(host)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **(environment or {}), "KOLO_RANK": str(host)})
             for host in (0, 1)]
    try:
        outs = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        for rank in ranks:
            rank.kill()
        sys.exit(f"verbs: {command_of(0)} did not end in time")
    for rank, out in zip(ranks, outs):
        if rank.returncode != 0:
            sys.exit(f"verbs: {command_of(0)}: status {rank.returncode}: {out[-400:]}")
    return outs[0]


def pair(build, transport, kind, calls, bytes_list):
    """Microseconds of a message of each size."""
    out = both(lambda _: [os.path.join(build, "perf", "pair"), kind, str(calls), *map(str, bytes_list)],
               kolo_environment(transport))
    return {int(size): float(us) for size, us in re.findall(r"^(\d+) ([\d.]+)$", out, re.M)}


def perftest(name, size, count, port):
    """The numbers of the line that one of perftest's programs ends with. The client gives up where nobody listens
    yet, so it tries again."""
    again = 'for i in 1 2 3 4 5 6 7 8; do [ "$0" = 0 ] || sleep 1; "$@" && exit; done; exit 1'
    out = both(lambda host: ["bash", "-c", again, str(host), name, "-d", DEVICES[host], "-x", GID_INDEX, "-F",
                             "-s", str(size), "-n", str(count), "-p", str(port), *([] if host == 0 else [ADDRESS])])
    lines = re.findall(rf"^ *{size} +{count} +(.*)$", out, re.M)
    if not lines:
        sys.exit(f"verbs: {name} printed no result: {out[-400:]}")
    return [float(word) for word in lines[-1].split()]


def write_ping():
    """Microseconds one way, the median, which it calls typical."""
    return perftest("ib_write_lat", PING_BYTES, PINGS, Ports.next())[2]


def write_stream(size):
    """Microseconds of a message, by the average bandwidth in MiB/s."""
    return size / (perftest("ib_write_bw", size, stream_calls(size), Ports.next())[1] * (1 << 20)) * 1e6


def stream_calls(size):
    """About 8 MiB, but messages enough for a queue."""
    return max(8, (8 << 20) // size)


def messages(build):
    """A row a size."""
    has_peer = shutil.which("ib_write_lat") and shutil.which("ib_write_bw")
    for what, sizes in (("ping", [PING_BYTES]), ("stream", STREAM_BYTES)):
        for size in sizes:
            samples = {"verbs": [], "tcp": [], "peer": []}
            for _ in range(ROUNDS):
                for transport in ("verbs", "tcp"):
                    calls = PINGS if what == "ping" else stream_calls(size)
                    samples[transport].append(pair(build, transport, what, calls, [size])[size])
                if has_peer:
                    samples["peer"].append(write_ping() if what == "ping" else write_stream(size))
            show(what, size, samples)


# ---- all-reduce ----------------------------------------------------------------------------------------


def open_mpi(build):
    """Open MPI over the same devices; they are in the first namespace, as are its connections."""
    worker, launcher = os.path.join(build, "perf", "compare_openmpi"), shutil.which("mpirun.openmpi")
    if launcher is None or not os.path.exists(worker):
        return {}
    rank = 'FI_VERBS_IFACE="v$OMPI_COMM_WORLD_RANK" exec "$0" by "$OMPI_COMM_WORLD_RANK" ' \
           'taskset -c "$OMPI_COMM_WORLD_RANK" "$1"'
    command = [launcher, "--oversubscribe", "--bind-to", "none", "-n", "2", "--mca", "pml", "cm", "--mca", "mtl", "ofi",
               "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm", "bash", "-c", rank, HOSTS, worker]
    may = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {"peer": Method("openmpi", "Open MPI", command, {**LIBFABRIC, **may})}


def methods(build):
    """kolo by each, and Open MPI."""
    worker = os.path.join(build, "perf", "compare_kolo")
    rank = 'exec "$0" on "$KOLO_RANK" taskset -c "$KOLO_RANK" "$1"'
    ours = {transport: Method(transport, "kolo", ["bash", "-c", rank, HOSTS, worker], kolo_environment(transport),
                              each=True) for transport in ("verbs", "tcp")}
    return {**ours, **open_mpi(build)}


def sample_us(job, calls):
    """Microseconds of a call, from the first rank's begin to the last one's end."""
    times = [[int(word) for word in answer.split()[1:3]] for answer in job.ask(f"run {calls}", LIMIT_S)]
    return (max(end for _, end in times) - min(begin for begin, _ in times)) / calls / 1000


def reduce_row(jobs, size):
    """Samples of each job at one size."""
    calls = {}
    for name, job in jobs.items():
        opened = [answer.split() for answer in job.ask(f"open all_reduce {size} float32 0 0", LIMIT_S)]
        if opened[0][0] != "opened" or any(int(answer[1]) for answer in opened):
            sys.exit(f"verbs: {name}: {opened}")
        calls[name] = max(2, min(1000, round(50e6 / max(int(answer[2]) for answer in opened))))
    samples = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            samples[name].append(sample_us(job, calls[name]))
    for job in jobs.values():
        job.ask("close", LIMIT_S)
    return samples


def all_reduce(build):
    """A row a size, checked by the workers."""
    jobs = {}
    with tempfile.TemporaryDirectory(prefix="kolo-verbs-") as folder:
        try:
            for name, method in methods(build).items():
                jobs[name] = Job(method, 2, folder)
            for size in REDUCE_BYTES:
                show("all_reduce", size, {"peer": [], **reduce_row(jobs, size)})
        except Dropped as why:
            for log in sorted(os.listdir(folder)):
                if log.endswith(".log"):
                    with open(os.path.join(folder, log), encoding="utf-8") as file:
                        print(f"{log}: {file.read()[-2000:]}", file=sys.stderr)
            sys.exit(f"verbs: {why}")
        finally:
            for job in jobs.values():
                job.quit()


# ---- what is printed ---------------------------------------------------------------------------------


def size_text(size):
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size // unit} {letter}"
    return str(size)


def show(what, size, samples):
    """A row of the table, in markdown: times and, made inside rounds, ratios."""
    verbs = samples["verbs"]
    ratio = {name: f"{statistics.median(b / a for a, b in zip(verbs, samples[name])):.2f}" if samples[name] else "-"
             for name in ("peer", "tcp")}
    time = {name: f"{statistics.median(taken):.1f}" if taken else "-" for name, taken in samples.items()}
    print(f"| {what} | {size_text(size)} | {time['verbs']} | {time['peer']} | {ratio['peer']} | {time['tcp']} | "
          f"{ratio['tcp']} |", flush=True)


def keep_order():
    """What arrives at a host is worked on by its CPU. Left to the CPU that sent it, packets of a queue pair overtake
    each other where a sender changes its CPU, which no cable lets them, and each is waited for."""
    for end in range(4):
        with open(f"/sys/class/net/v{end}/queues/rx-0/rps_cpus", "w", encoding="ascii") as mask:
            mask.write(str(1 << end % 2))


def main():
    parser = argparse.ArgumentParser(prog="verbs.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--only", choices=("messages", "all_reduce"))
    given = parser.parse_args()
    build = os.path.abspath(given.build)
    keep_order()
    print("| what | bytes | kolo, us | peer, us | peer/kolo | kolo by TCP, us | TCP/kolo |\n|---|---|---|---|---|---|---|",
          flush=True)
    if given.only != "all_reduce":
        messages(build)
    if given.only != "messages":
        all_reduce(build)


if __name__ == "__main__":
    main()
