# SPDX-License-Identifier: Apache-2.0
"""Which methods there are: kolo, the floors, and each peer that is installed, in several settings."""
import glob
import os
import shutil
import subprocess
import sys

from jobs import Method

sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import netns  # noqa: E402

# What --buffers private may use, and what it may not: memory that peers map.
FLOORS_PRIVATE = ("inline", "slots", "slots-nt", "slots-past", "slots-turns", "slots-two-phase",
                  "slots-two-phase-past", "slots-two-phase-turns", "copied", "copied-halves")
FLOORS_SHARED = ("pull", "pull-nt", "push", "push-nt")
OPEN_MPI = {
    "openmpi": [],
    "openmpi-copy": ["--mca", "btl_vader_single_copy_mechanism", "none"],
    "openmpi-cma": ["--mca", "btl_vader_single_copy_mechanism", "cma"],
    "openmpi-sm": ["--mca", "coll_sm_priority", "100"],
}
OPEN_MPI_TCP = {
    "openmpi-tcp": ["--mca", "btl", "tcp,self"],
    "openmpi-tcp2": ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_links", "2"],
}
OPEN_MPI_HOSTS = {
    "openmpi-tcp": ["--mca", "btl", "tcp,self,vader"],
    "openmpi-tcp2": ["--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_links", "2"],
}
OPEN_MPI_YIELDS = ["--mca", "mpi_yield_when_idle", "1"]
OPEN_MPI_CROWDED = {"openmpi-yield": OPEN_MPI_YIELDS}
# The libraries of ./setup --peers, in the settings that are worth trying.
# method: (library, family, options of its launcher, environment)
PEERS = {
    "openmpi5": ("openmpi", "Open MPI 5", [], {}),
    "openmpi5-copy": ("openmpi", "Open MPI 5", ["--mca", "smsc", "^cma,knem,xpmem"], {}),
    "mpich5": ("mpich", "MPICH 5", [], {}),
    "mpich5-release": ("mpich", "MPICH 5", [],
                       {f"MPIR_CVAR_{what}_POSIX_INTRA_ALGORITHM": "release_gather"
                        for what in ("ALLREDUCE", "BCAST", "REDUCE", "BARRIER")}),
    "intel": ("impi", "Intel MPI", [], {"I_MPI_FABRICS": "shm"}),
}
# The same over TCP. A provider of libfabric that is asked for by name is taken, or the job fails.
PEERS_TCP = {
    "openmpi5-tcp": ("openmpi", "Open MPI 5", ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"], {}),
    "mpich5-tcp": ("mpich", "MPICH 5", [], {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}),
    "intel-tcp": ("impi", "Intel MPI", [], {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp",
                                            "I_MPI_COLL_INTRANODE": "pt2pt"}),
}
# Between hosts: TCP from host to host, and what the library likes within a host.
PEERS_HOSTS = {
    "openmpi5-tcp": ("openmpi", "Open MPI 5", ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self,sm"], {}),
    "mpich5-tcp": ("mpich", "MPICH 5", [], {"UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}),
    "intel-tcp": ("impi", "Intel MPI", [], {"I_MPI_FABRICS": "shm:ofi", "I_MPI_OFI_PROVIDER": "tcp"}),
}
PEERS_HOSTS_CROWDED = {
    "openmpi5-yield": ("openmpi", "Open MPI 5", [*PEERS_HOSTS["openmpi5-tcp"][2], *OPEN_MPI_YIELDS], {}),
    "intel-yield": ("impi", "Intel MPI", [], {**PEERS_HOSTS["intel-tcp"][3], "I_MPI_THREAD_YIELD": "2"}),
}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PRTE_AS_ROOT = {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent")


def program(build, name):
    """A worker of a build, or None."""
    path = os.path.join(build, "perf", f"compare_{name}")
    return path if os.access(path, os.X_OK) else None


def kolo(build, name="kolo", tcp=False, net=None, number=0):
    """kolo of a build; by TCP alone, if that is asked for. On hosts the ranks of each `number` have a meeting place of
    their own."""
    worker, tool = program(build, "kolo"), os.path.join(build, "tools", "kolo")
    if worker is None or not os.access(tool, os.X_OK):
        sys.exit(f"compare: {build} has no perf/compare_kolo and tools/kolo; build it first: ninja -C {build}")

    def make(nranks):
        if net:
            place = {"KOLO_ROOT": f"{net.address(0)}:{net.port + number}", "KOLO_SECRET": net.secret,
                     "KOLO_JOB": f"{net.tag}-{number}", "KOLO_LOCAL_SIZE": str(nranks // len(net.names))}
            return Method(name, name, [os.path.abspath(worker)], place, each=True)
        return Method(name, name, [tool, "run", "-n", str(nranks), "--bind", "none", "--no-prefix", "--", worker],
                      {"KOLO_TRANSPORT": "tcp"} if tcp else {})
    return make


# ---- launchers -------------------------------------------------------------------------------------


def on_hosts(net, command):
    """A launcher's command where all hosts reach it."""
    return [AGENT, netns.MEETING_PLACE, *command] if net else command


def hydra(launcher, nranks, net, worker, *, pins=True):
    """The command of MPICH's launcher and its descendants."""
    here = ["-launcher", "rsh", "-launcher-exec", AGENT, "-hosts", ",".join(map(net.address, range(len(net.names)))),
            "-ppn", str(nranks // len(net.names))] if net else ["-launcher", "fork"]
    return on_hosts(net, [launcher, *here, *(["-bind-to", "none"] if pins else []), "-n", str(nranks), worker])


def orte(launcher, agent, nranks, net, worker, options):
    """The command of Open MPI's launcher, which names its rsh by the option `agent`."""
    here = [*agent, AGENT, "--host", ",".join(f"{net.address(host)}:{nranks // len(net.names)}"
                                              for host in range(len(net.names)))] if net else ["--oversubscribe"]
    return on_hosts(net, [launcher, "-n", str(nranks), *here, "--bind-to", "none", *options, worker])


def wire(build, nranks, net=None):
    """The floor of two ranks with a connection between them."""
    worker = program(build, "wire")
    here = {"KOLO_COMPARE_ADDRESS": net.address(0)} if net else {}
    return [Method("floor-wire", "floor", [worker], here, each=True)] if worker and nranks == 2 else []


def floors(build, shared, crowded):
    """The floors that the buffers allow; those of private buffers serve shared ones as well. With more
    ranks than cores each waits in two ways."""
    worker = program(build, "floor")
    names = FLOORS_PRIVATE + (FLOORS_SHARED if shared else ())
    if crowded:
        names = tuple(name + how for name in names if not name.endswith(("-nt", "-turns"))
                      for how in ("", "-futex"))
    return [floor(worker, name) for name in names] if worker else []


def floor(worker, name):
    """One floor."""
    return Method(f"floor-{name}", "floor", [worker, name], each=True)


def hand_overs(build):
    """How ranks of one core let each other run."""
    worker = program(build, "floor")
    return [floor(worker, name) for name in ("hand-over", "hand-over-futex")] if worker else []


def open_mpi(build, nranks, cores, tcp=False, net=None):
    """Open MPI in the settings that are worth trying; the best of them counts."""
    worker, launcher = program(build, "openmpi"), shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if worker is None or launcher is None:
        return []
    settings = dict(OPEN_MPI_HOSTS if net else OPEN_MPI_TCP if tcp else OPEN_MPI)
    if nranks > cores and (net or not tcp):
        settings.update({"openmpi-yield": [*OPEN_MPI_HOSTS["openmpi-tcp"], *OPEN_MPI_YIELDS]} if net
                        else OPEN_MPI_CROWDED)
    root = AS_ROOT if os.geteuid() == 0 else {}
    return [Method(name, "Open MPI",
                   orte(launcher, ["--mca", "plm_rsh_agent"], nranks, net, os.path.abspath(worker), options), root)
            for name, options in settings.items()]


def mpich(build, nranks):
    """MPICH."""
    worker, launcher = program(build, "mpich"), shutil.which("mpiexec.hydra") or shutil.which("mpirun.mpich")
    if worker is None or launcher is None:
        return []
    return [Method("mpich", "MPICH", hydra(launcher, nranks, None, worker))]


def peers(build, nranks, cores, tcp=False, net=None):
    """The libraries of ./setup --peers that were there when `build` was configured."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ".venv-peers")
    settings, found = dict(PEERS_HOSTS if net else PEERS_TCP if tcp else PEERS), []
    if net and nranks > cores:
        settings.update(PEERS_HOSTS_CROWDED)
    for name, (library, family, options, environment) in settings.items():
        worker, prefix = program(build, f"peer_{library}"), os.path.join(folder, library)
        launcher = os.path.join(prefix, "bin", "mpiexec")
        if worker is None or not os.access(launcher, os.X_OK):
            continue
        worker = os.path.abspath(worker)
        root = {**AS_ROOT, **PRTE_AS_ROOT} if os.geteuid() == 0 and library == "openmpi" else {}
        command = orte(launcher, ["--prtemca", "plm_ssh_agent"], nranks, net, worker, options) \
            if library == "openmpi" else hydra(launcher, nranks, net, worker, pins=library != "impi")
        here = {"LD_LIBRARY_PATH": os.path.join(prefix, "lib"), "I_MPI_ROOT": prefix, "I_MPI_PIN": "0", **root,
                **environment}
        found.append(Method(name, family, command, here))
    return found


def torch_ops(build, folder, net=None):
    """What PyTorch programs call, if this Python or that of .venv has PyTorch. Gloo: ranks pinned like the
    others, and, because it has a thread beside each rank, left to the system; the better counts. kolo: its
    backend, where it was built. vLLM's and DeepSpeed's operations: where ./setup --peers brought them."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    library = os.path.join(build, "perf", "libcompare_worker.so")
    wire_of = {"GLOO_SOCKET_IFNAME": "eth0"} if net else {}
    found = {"gloo": ("gloo", "Gloo", wire_of), "gloo-free": ("gloo", "Gloo", {**wire_of, "KOLO_COMPARE_FREE": "1"})}
    backend = os.path.join(os.path.abspath(build), "torch")
    if os.path.isdir(backend):
        found["kolo-torch"] = ("kolo", "kolo", {"PYTHONPATH": backend})
    for name, family in (("vllm", "vLLM"), ("deepspeed", "DeepSpeed")):
        for package in glob.glob(os.path.join(root, ".venv-peers", name, "lib", "python3*", "site-packages")):
            found[name] = (name, family, {"KOLO_COMPARE_PEER": package})
    for python in (os.path.join(root, ".venv", "bin", "python3"), sys.executable):
        if os.path.exists(library) and shutil.which(python) and subprocess.run(
                [python, "-c", "import torch.distributed"], capture_output=True, check=False).returncode == 0:
            script = os.path.join(here, "torch_ops.py")
            return [Method(name, family, [python, script, whose, library, os.path.join(folder, f"{name}.store")],
                           free, True) for name, (whose, family, free) in found.items()]
    return []
