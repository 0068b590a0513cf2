# SPDX-License-Identifier: Apache-2.0
"""Makes "kolo" known to torch.distributed without loading it: what torch's entry points call.

`import torch` calls autoload() (entry point torch.backends); newer releases call register() when the
name is first asked for (torch.distributed.backends); vLLM calls serve_vllm(). kolo_torch itself, and
with it libkolo, is loaded by the first process group.
"""
import functools
import inspect
import logging
import os
import sys
from datetime import timedelta

import torch.distributed as dist


def _create(group, options):
    import kolo_torch

    return kolo_torch.create(group, options)


_new_gloo = None  # how an object of ProcessGroupGloo is made without kolo
_said = False


def gloo_options(timeout):
    """Options of a group in gloo's place. Their list of gloo's network devices is empty."""
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    return options


def needs_gloo():
    """Whether a group in gloo's place makes its gloo at once, because there is a device whose tensors kolo
    leaves to it. A message of such a tensor would wait else until the other rank has one, too."""
    import torch

    return torch.accelerator.is_available()


def kept_gloo(store, rank, size, timeout):
    """A group of gloo's own, for what kolo does not serve in gloo's place. Its devices connect when data
    first go that way: so nobody waits here until the other ranks come."""
    gloo = _new_gloo(dist.ProcessGroupGloo)
    options, interfaces = gloo_options(timeout), os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    options._devices = [gloo.create_device(interface=name, lazy_init=True) for name in filter(None, interfaces)] or \
        [gloo.create_default_device(lazy_init=True)]
    type(gloo).__init__(gloo, store, rank, size, options)
    return gloo


def _arguments(store, rank, size, timeout=dist.default_pg_timeout if dist.is_available() else None):
    """The arguments of ProcessGroupGloo() with which kolo can make a group."""
    return store, rank, size, timeout


def _create_as_gloo(store, rank, size, timeout):
    import kolo_torch

    global _said
    if not _said and rank == 0:
        logging.getLogger("kolo_torch").warning("gloo is served by kolo: KOLO_TORCH_AS=gloo")
    _said = True  # of the other groups the first rank is silent, too
    group = dist.distributed_c10d._DistributedBackendOptions()
    group.store, group.group_rank, group.group_size, group.timeout = store, rank, size, timeout
    return kolo_torch.create_as_gloo(group)


def _serve_gloo():
    """From now on ProcessGroupGloo(store, rank, size, timeout) makes a group of kolo's, whoever calls
    it: torch does for every group of gloo. With other arguments, such as gloo's own options, it makes
    one of gloo, and so does a subclass."""
    global _new_gloo
    gloo = dist.ProcessGroupGloo
    if _new_gloo is not None:
        return
    _new_gloo = gloo.__new__
    signature = inspect.signature(_arguments)

    def new(cls, *given, **named):
        named = {name: value for name, value in named.items() if value is not False}
        try:
            arguments = signature.bind(*given, **named)
        except TypeError:
            return _new_gloo(cls)
        arguments.apply_defaults()
        if cls is not gloo or not isinstance(arguments.arguments["timeout"], timedelta):
            return _new_gloo(cls)
        return _create_as_gloo(*arguments.args)

    gloo.__new__ = staticmethod(new)


def _default_backend():
    """What init_process_group() takes where it is given no backend."""
    import torch

    return dist.Backend.default_device_backend_map.get(torch._C._get_accelerator().type)


def _is_launched():
    """Whether mpirun or srun started this process, and not one that sets what torch reads."""
    if "RANK" in os.environ:
        return False
    # Slurm's batch, interactive and external steps have high numbers, and one process.
    step = os.environ.get("SLURM_STEP_ID", "none")
    by_srun = step.isdigit() and int(step) < 0xFFFFFFF0 and "SLURM_PROCID" in os.environ
    return by_srun or any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"))


def _is_served(backend):
    name = str(backend or _default_backend()).lower()
    return "kolo" in name or (_new_gloo is not None and "gloo" in name)


def _wrap_init():
    """init_process_group() without a backend names kolo where that is the default: torch 2.13 looks
    for gloo else. Under mpirun and srun a group of kolo finds rank and size by itself."""
    init = dist.init_process_group
    if hasattr(init, "by_kolo"):
        return

    @functools.wraps(init)
    def init_process_group(backend=None, init_method=None, *given, **named):
        if backend is None and named.get("device_id") is None and _default_backend() == "kolo":
            backend = "kolo"
        free = not given and not {"store", "rank", "world_size"} & named.keys()
        if free and init_method in (None, "env://") and _is_launched() and _is_served(backend):
            import kolo_torch

            init_method = None
            named.update(kolo_torch.rendezvous(named.get("timeout") or dist.default_pg_timeout))
        return init(backend, init_method, *given, **named)

    init_process_group.by_kolo = True
    for name in ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"):
        if getattr(sys.modules.get(name), "init_process_group", None) is init:
            sys.modules[name].init_process_group = init_process_group


def register():
    """Register the backend; again does nothing. KOLO_TORCH_DEFAULT=cpu,cuda: make it the default of
    these devices. KOLO_TORCH_AS=gloo: serve groups of gloo."""
    if not dist.is_available():
        return
    if "kolo" not in dist.Backend.backend_list:
        dist.Backend.register_backend("kolo", _create, extended_api=True, devices=["cpu", "cuda"])
        if os.environ.get("KOLO_TORCH_AS", "") not in ("", "gloo"):
            logging.getLogger("kolo_torch").warning("KOLO_TORCH_AS: kolo serves in the place of gloo only")
    if os.environ.get("KOLO_TORCH_AS") == "gloo" and dist.is_gloo_available():
        _serve_gloo()
    if os.environ.get("KOLO_TORCH_DEFAULT") or _is_launched():
        _wrap_init()
    for device in filter(None, os.environ.get("KOLO_TORCH_DEFAULT", "").split(",")):
        dist.Backend.default_device_backend_map[device.strip()] = "kolo"


def serve_vllm():
    """vLLM calls this in each of its processes (entry point vllm.general_plugins). In gloo's place kolo
    gives its platform for CPUs a communicator, too."""
    if os.environ.get("KOLO_TORCH_AS") != "gloo":
        return
    from vllm.platforms import cpu

    cpu.CpuPlatform.get_device_communicator_cls = classmethod(lambda cls: "kolo_torch.vllm.Communicator")


def autoload():
    """An exception would make `import torch` fail for programs that never wanted kolo: there is
    none, and `import kolo_torch` will tell what is wrong."""
    try:
        register()
    except Exception:
        pass
