# SPDX-License-Identifier: Apache-2.0
"""--elastic with a parameter server: workers that die are left out, and others are taken in.

The server is the rank that founded the group. It notices a worker's death at once, and its step goes on
without. At the border of a step it tells the workers that the group changes, as their pushes come; then
all of them leave the dead out and take in who waits. Nobody else has the optimizer's state, so the server's
death ends the job.
"""

from __future__ import annotations

import os
import time
from typing import Any, NoReturn

from kolo_torch.elastic import Verdict

from kolo_train.elastic import ServerLost, Told, Trainer, only_of_group
from kolo_train.ways.parameter_server import SERVER, ParameterServer, Then


class ServerTrainer(Trainer):
    """One rank of the job: the server or a worker."""

    way: ParameterServer

    def step(self) -> None:
        if self.way.is_server:
            self._serve()
        else:
            self._work()

    def _serve(self) -> None:
        """A step that counts unless all workers were lost; then the change of the group, if there is one."""
        start = time.perf_counter()
        loss = self.way.serve()
        if loss is not None:
            took = time.perf_counter() - start
            (self.told.gaps if self.way.lost else self.told.seconds).append(took)
            self.told.losses.append(loss)
            self.told.number += 1
        if self.told.number < self.config.steps and (self.way.lost or self.members.waiting()):
            self.way.dismiss(Then.REGROUP)
            self.follow(self.members.agree(True))

    def _work(self) -> None:
        try:
            self.way.work(self.told.number)
            self.told.number += 1
        except RuntimeError as error:
            only_of_group(error)
            self.follow(self.members.agree(False))
            return
        if self.way.then == Then.REGROUP:
            self.follow(self.members.agree(True))

    def finished(self) -> bool:
        return self.way.finished(self.told.number, self.config.steps)

    def settle(self, verdict: Verdict) -> bool:
        if SERVER in verdict.failed:
            self._end_without_server()
        changed = super().settle(verdict)
        if self.members.rank == SERVER and not self.way.is_server:  # it died during the change
            self._end_without_server()
        return changed

    def _end_without_server(self) -> NoReturn:
        said = f"the parameter server, {self.told.server}, has died, and with it the optimizer's state"
        self.members.fail(said)
        raise ServerLost(said)

    def _state(self) -> dict[str, Any]:
        self.told.server = f"rank {os.environ['KOLO_RANK']} of kolo run, process {os.getpid()}"
        return {**super()._state(), "version": self.way.version}

    def _load(self, state: dict[str, Any]) -> None:
        self.way.version = state["version"]
        if self.members.rank == SERVER:
            super()._load(state)
            return
        self.way.whole_model().load_state_dict(state["model"])
        self.told = Told(**state["told"])

    def _data_note(self) -> str:
        return self.way.notes()[-1]
