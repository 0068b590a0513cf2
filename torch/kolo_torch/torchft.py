# SPDX-License-Identifier: Apache-2.0
"""Process groups of kolo for torchft (fault-tolerant training, pip install torchft).

    from kolo_torch.torchft import ProcessGroupKolo
    group = ProcessGroupKolo(timeout=timedelta(seconds=60))  # for torchft.Manager(pg=group, ...)

A replica that dies ends the calls of the others within milliseconds, with its number in the text, and
abort() ends a call that waits. So a manager needs no short time-out.
"""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _DistributedBackendOptions
from torchft.process_group import ProcessGroupBaby, ProcessGroupWrapper

import kolo_torch

_KIND = dist.ProcessGroup.BackendType.CUSTOM


def _join(store, rank, world_size, timeout, global_ranks=None, name="torchft"):
    """The group of torch's class whose only backend is kolo's, on CPU tensors and on CUDA tensors."""
    joins = _DistributedBackendOptions()
    joins.store, joins.group_rank, joins.group_size = store, rank, world_size
    joins.timeout, joins.group_id = timeout, name
    joins.global_ranks_in_group = list(global_ranks or [])
    backend = kolo_torch.create(joins, None)
    group = dist.ProcessGroup(store, rank, world_size)
    group._set_default_backend(_KIND)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        group._register_backend(torch.device(device), _KIND, backend)
    return group, backend


class ProcessGroupKolo(ProcessGroupWrapper):
    """A group of kolo that torchft's Manager configures anew for each quorum.

    timeout: a datetime.timedelta for each call, and for the replicas of a quorum to come together.
    """

    def __init__(self, timeout=timedelta(seconds=60)):
        super().__init__(timeout)
        self._backend = None

    def _create_pg(self, store, rank, world_size):
        group, self._backend = _join(store, rank, world_size, self._timeout, self._global_ranks,
                                     f"torchft_quorum_{self._quorum_id}")
        return group

    def abort(self, errored=True):
        """End all calls of the group, here and on the other replicas."""
        if self._backend is not None:
            self._backend.abort()
        super().abort(errored=errored)

    def shutdown(self):
        """Leave the group."""
        backend, self._backend = self._backend, None
        super().shutdown()
        if backend is not None:
            backend.shutdown()

    def errored(self):
        """The error that ended the group, or None. It is there as soon as a replica dies, also while
        no call runs."""
        if self._backend is None:
            return None
        try:
            self._backend.raise_failure()
        except RuntimeError as error:
            return RuntimeError(f"the group was aborted: {error}")
        return None

    def set_timeout(self, timeout):
        super().set_timeout(timeout)
        if self._backend is not None:
            self._backend.set_timeout(timeout)

    def getBackendName(self):
        return "torchft-kolo"


class ProcessGroupBabyKolo(ProcessGroupBaby):
    """A group of kolo in a process of its own, which abort() and configure() kill."""

    @classmethod
    def _create_pg(cls, store, rank, world_size):
        return _join(store, rank, world_size, timedelta(seconds=60))[0]

    def getBackendName(self):
        return "torchft-baby-kolo"
