# SPDX-License-Identifier: Apache-2.0
"""--elastic under torchrun, whose agent ends all ranks when one fails, and starts all of them again."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from kolo_torch.elastic import GOOD, NOBODY_WAITS, Verdict

from kolo_train.config import Config, UsageError
from kolo_train.job import join


def is_under_torchrun() -> bool:
    """This process has torchrun's agent."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class RestartedMembers:
    """The interface of kolo_torch.elastic.Members, for a group that lives until one of its ranks fails.

    Raises UsageError where torchrun has fewer or more ranks than --elastic says.
    """

    def __init__(self, config: Config) -> None:
        assert config.elastic is not None
        self.least, self.most = config.elastic
        if config.has_server:
            raise UsageError("torchrun's agent ends all workers when one dies: start a parameter server by kolo run")
        job = join(config)
        self.rank, self.size = job.rank, job.ranks
        if not self.least <= self.size <= self.most:
            raise UsageError(f"--elastic {self.least}:{self.most}: torchrun has started {self.size} ranks")
        self.backend = dist.group.WORLD._get_backend(torch.device("cpu"))

    def enter(self) -> bool:
        """All ranks have entered."""
        return True

    def waiting(self) -> list[str]:
        """Nobody: the agent starts all ranks at once."""
        return []

    def agree(self, good: bool) -> Verdict:
        """As Members.agree(). Raises RuntimeError where a rank has failed: the agent starts all again."""
        word, failed = self.backend.agree((GOOD if good else 0) | NOBODY_WAITS)
        if failed or not word & GOOD:
            who = f"rank {failed[0]} has died" if failed else "a rank's part of the step failed"
            raise RuntimeError(f"{who}: torchrun's agent starts all ranks again, if --max-restarts lets it")
        return Verdict(True, [], False)

    def settle(self, _verdict: Verdict) -> bool:
        """The group does not change."""
        return False

    def finish(self) -> None:
        """Nobody waits to enter."""
