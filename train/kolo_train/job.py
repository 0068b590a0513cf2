# SPDX-License-Identifier: Apache-2.0
"""This process as a rank of a job: who it is, and the process group that joins it to the others."""

from __future__ import annotations

import gc
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from kolo_train.config import Config, UsageError

TIMEOUT = timedelta(minutes=10)
ELASTIC_TIMEOUT = timedelta(seconds=30)  # after which the others go on without a rank


@dataclass(frozen=True)
class Job:
    """The rank of this process, the number of ranks, and where its tensors live."""

    rank: int
    ranks: int
    device: torch.device

    def share(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of a global batch: an equal piece of its first dimension.

        Raises UsageError where the batch cannot be divided.
        """
        if len(tensor) % self.ranks:
            raise UsageError(f"a batch of {len(tensor)} cannot be shared by {self.ranks} ranks: choose a multiple")
        return tensor.chunk(self.ranks)[self.rank]


def join(config: Config) -> Job:
    """Join the job that the environment describes: torchrun's variables, or those of kolo run.

    Raises UsageError where the backend is not installed.
    """
    pg_options = None
    if config.backend == "kolo":
        try:
            import kolo_torch  # registers the backend
        except ImportError as error:
            raise UsageError(
                f"--backend kolo needs the package kolo_torch: pip install ./torch ({error}); --backend gloo needs none"
            ) from error
        pg_options = kolo_torch.Options(codec=config.codec)
    method, rank, ranks = whereabouts()
    local_rank = int(os.environ.get("LOCAL_RANK", os.environ.get("KOLO_LOCAL_RANK", rank)))
    device = _device(config, local_rank)
    share_cores(ranks)
    dist.init_process_group(
        config.backend, init_method=method, rank=rank, world_size=ranks, timeout=TIMEOUT, pg_options=pg_options
    )
    return Job(rank, ranks, device)


def share_cores(ranks: int) -> None:
    """Ranks share the cores: more threads than that take turns on them."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))


def leave() -> None:
    """Leave the job; the ranks may do so in any order."""
    gc.collect()  # modules and schedules that refer to each other, and to process groups
    if dist.is_initialized():
        dist.destroy_process_group()


def whereabouts() -> tuple[str, int, int]:
    """Where the ranks meet, which this is, and how many there are."""
    if "RANK" in os.environ:
        return "env://", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if "KOLO_RANK" in os.environ:
        name = f"kolo-train-{os.getuid()}-{os.environ['KOLO_JOB'].replace('/', '-')}"
        store = Path(tempfile.gettempdir()) / name
        return f"file://{store}", int(os.environ["KOLO_RANK"]), int(os.environ["KOLO_NRANKS"])
    raise UsageError("no rank: RANK and WORLD_SIZE, or KOLO_RANK and KOLO_NRANKS, are not set")


def need_cuda() -> None:
    """Raises UsageError where this PyTorch cannot use a GPU."""
    if torch.version.cuda is None:
        raise UsageError(f"--device cuda: PyTorch {torch.__version__} is built without CUDA")
    if not torch.cuda.is_available():
        raise UsageError(f"--device cuda: PyTorch {torch.__version__} sees no GPU")


def _device(config: Config, local_rank: int) -> torch.device:
    if config.device == "cpu":
        return torch.device("cpu")
    need_cuda()
    torch.cuda.set_device(local_rank % torch.cuda.device_count())
    torch.backends.cudnn.allow_tf32 = False  # fp32 means float32: convolutions would take 19 bits of it
    return torch.device("cuda", torch.cuda.current_device())
