# SPDX-License-Identifier: Apache-2.0
"""Which methods there are: kolo, the floors, and each peer that is installed, in several settings."""
import glob
import os
import shutil
import subprocess
import sys

from jobs import Method

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
OPEN_MPI_CROWDED = {"openmpi-yield": ["--mca", "mpi_yield_when_idle", "1"]}
# The libraries of ./setup --peers, in the settings that are worth trying.
# method: (library, family, options of its launcher, environment)
PEERS = {
    "openmpi5": ("openmpi", "Open MPI 5", ["--oversubscribe", "--bind-to", "none"], {}),
    "openmpi5-copy": ("openmpi", "Open MPI 5",
                      ["--oversubscribe", "--bind-to", "none", "--mca", "smsc", "^cma,knem,xpmem"], {}),
    "mpich5": ("mpich", "MPICH 5", ["-launcher", "fork", "-bind-to", "none"], {}),
    "mpich5-release": ("mpich", "MPICH 5", ["-launcher", "fork", "-bind-to", "none"],
                       {f"MPIR_CVAR_{what}_POSIX_INTRA_ALGORITHM": "release_gather"
                        for what in ("ALLREDUCE", "BCAST", "REDUCE", "BARRIER")}),
    "intel": ("impi", "Intel MPI", ["-launcher", "fork"], {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"}),
}
# The same over TCP. A provider of libfabric that is asked for by name is taken, or the job fails.
PEERS_TCP = {
    "openmpi5-tcp": ("openmpi", "Open MPI 5",
                     ["--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"], {}),
    "mpich5-tcp": ("mpich", "MPICH 5", ["-launcher", "fork", "-bind-to", "none"],
                   {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}),
    "intel-tcp": ("impi", "Intel MPI", ["-launcher", "fork"],
                  {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp", "I_MPI_COLL_INTRANODE": "pt2pt",
                   "I_MPI_PIN": "0"}),
}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def program(build, name):
    """A worker of a build, or None."""
    path = os.path.join(build, "perf", f"compare_{name}")
    return path if os.access(path, os.X_OK) else None


def kolo(build, name="kolo", tcp=False):
    """kolo of a build; by TCP alone, if that is asked for."""
    worker, tool = program(build, "kolo"), os.path.join(build, "tools", "kolo")
    if worker is None or not os.access(tool, os.X_OK):
        sys.exit(f"compare: {build} has no perf/compare_kolo and tools/kolo; build it first: ninja -C {build}")

    def make(nranks):
        return Method(name, name, [tool, "run", "-n", str(nranks), "--bind", "none", "--no-prefix", "--", worker],
                      {"KOLO_TRANSPORT": "tcp"} if tcp else {})
    return make


def wire(build, nranks):
    """The floor of two ranks with a connection between them."""
    worker = program(build, "wire")
    return [Method("floor-wire", "floor", [worker], each=True)] if worker and nranks == 2 else []


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


def open_mpi(build, nranks, cores, tcp=False):
    """Open MPI in the settings that are worth trying; the best of them counts."""
    worker, launcher = program(build, "openmpi"), shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if worker is None or launcher is None:
        return []
    settings = {**(OPEN_MPI_TCP if tcp else OPEN_MPI), **(OPEN_MPI_CROWDED if nranks > cores and not tcp else {})}
    root = AS_ROOT if os.geteuid() == 0 else {}
    return [Method(name, "Open MPI",
                   [launcher, "-n", str(nranks), "--oversubscribe", "--bind-to", "none", *options, worker], root)
            for name, options in settings.items()]


def mpich(build, nranks):
    """MPICH."""
    worker, launcher = program(build, "mpich"), shutil.which("mpiexec.hydra") or shutil.which("mpirun.mpich")
    if worker is None or launcher is None:
        return []
    return [Method("mpich", "MPICH", [launcher, "-launcher", "fork", "-bind-to", "none", "-n", str(nranks), worker])]


def peers(build, nranks, tcp=False):
    """The libraries of ./setup --peers that were there when `build` was configured."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ".venv-peers")
    found = []
    for name, (library, family, options, environment) in (PEERS_TCP if tcp else PEERS).items():
        worker, prefix = program(build, f"peer_{library}"), os.path.join(folder, library)
        launcher = os.path.join(prefix, "bin", "mpiexec")
        if worker is None or not os.access(launcher, os.X_OK):
            continue
        root = {**AS_ROOT, "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} \
            if os.geteuid() == 0 and library == "openmpi" else {}
        command = [launcher, *options, "-n", str(nranks), worker]
        here = {"LD_LIBRARY_PATH": os.path.join(prefix, "lib"), "I_MPI_ROOT": prefix, **root, **environment}
        found.append(Method(name, family, command, here))
    return found


def torch_ops(build, folder):
    """What PyTorch programs call, if this Python or that of .venv has PyTorch. Gloo: ranks pinned like the
    others, and, because it has a thread beside each rank, left to the system; the better counts. kolo: its
    backend, where it was built. vLLM's and DeepSpeed's operations: where ./setup --peers brought them."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    library = os.path.join(build, "perf", "libcompare_worker.so")
    found = {"gloo": ("gloo", "Gloo", {}), "gloo-free": ("gloo", "Gloo", {"KOLO_COMPARE_FREE": "1"})}
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
