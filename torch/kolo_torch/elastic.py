# SPDX-License-Identifier: Apache-2.0
"""The default process group of an elastic job: it goes on without ranks that die, and takes others in.

    members = kolo_torch.elastic.Members.of_job()     # under kolo run --elastic MIN:MAX
    ... members.enter() ...                           # now torch.distributed's default group
    verdict = members.agree(good)                     # after each step; good: this rank's part went well
    members.settle(verdict)                           # True: the group has changed

The ranks meet in the folder that `kolo run --elastic` makes. A new rank says there that it waits; the
group's rank 0 sees it, and the group invites it by kolo_comm_reconfigure(). Locks, which the kernel
drops with their process, tell whether a group lives. So no rank is needed for more than its part.
"""
from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed.distributed_c10d import _DistributedBackendOptions

import kolo_torch

from ._C import KoloBackend, Options, create_id
from ._C import enter as _enter

GOOD, NOBODY_WAITS = 1, 2  # bits of the word on which the ranks agree
POLL_S = 0.005


class _Made(Options):
    """Makes init_process_group() take a backend that is there already."""

    def __init__(self, backend: KoloBackend, timeout: timedelta) -> None:
        super().__init__(timeout)
        self.made = backend


@dataclass(frozen=True)
class Verdict:
    """The decision of the ranks that live, alike on all of them."""

    good: bool
    failed: list[int]
    someone_waits: bool


class Members:
    """This process as a member of the group, alone at first.

    folder: where the ranks meet, for their user only. name: of this process, unique in the job.
    least, most: how many ranks the job needs and has. timeout: of each call, and for a rank that is
    invited and does not come. Not for several threads.
    """

    def __init__(self, folder: Path, name: str, least: int, most: int, options: Options, timeout: timedelta) -> None:
        self.folder, self.name, self.least, self.most = folder, name, least, most
        self.options, self.timeout = options, timeout
        self.life, self.changes, self.offers, self.waits = secrets.token_hex(8), 0, 0, 0
        self._alive = os.open(folder / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        alone = _DistributedBackendOptions()
        alone.store, alone.group_rank, alone.group_size = dist.HashStore(), 0, 1
        alone.timeout, alone.group_id, alone.global_ranks_in_group = timeout, "elastic", []
        self.backend = kolo_torch.create(alone, options)
        self._become_world(self.backend)

    @classmethod
    def of_job(cls, options: Options | None = None, timeout: timedelta = timedelta(seconds=30)) -> Members:
        """Raises RuntimeError outside of kolo run --elastic."""
        where = os.environ.get("KOLO_ELASTIC_DIR")
        if not where:
            raise RuntimeError("this is no elastic job: start it by kolo run --elastic MIN:MAX")
        least, most = (int(number) for number in os.environ["KOLO_ELASTIC"].split(":"))
        name = f"{os.environ['KOLO_RANK']}.{os.environ['KOLO_RESTARTS']}"
        if options is None:
            options = Options(timeout)
        return cls(Path(where), name, least, most, options, timeout)

    @property
    def rank(self) -> int:
        """The number of this rank in the group; it changes with the group."""
        return int(self.backend.rank())

    @property
    def size(self) -> int:
        """The number of ranks in the group."""
        return int(self.backend.size())

    # ---- a new rank

    def enter(self) -> bool:
        """Found the group, or enter the one that runs. False: the job has finished meanwhile.

        The founder returns alone; see settle(). Raises nothing if the group dies meanwhile: another
        one is founded.
        """
        self._wait()
        while not (self.folder / "finished").exists():
            invitation = _read(self.folder / f"invite.{self._waiting_name}")
            if invitation is not None:
                if self._accept(invitation):
                    return True
                self._wait()
            elif self._found():
                return True
            time.sleep(POLL_S)
        self._waiting.unlink(missing_ok=True)
        return False

    @property
    def _waiting_name(self) -> str:
        return f"{self.name}.{self.waits}"

    @property
    def _waiting(self) -> Path:
        return self.folder / f"wait.{self._waiting_name}"

    def _wait(self) -> None:
        self.waits += 1
        _write(self._waiting, os.getpid())

    def _accept(self, invitation: dict[str, object]) -> bool:
        self._waiting.unlink(missing_ok=True)
        self.life, self.changes, self.offers = str(invitation["life"]), int(str(invitation["changes"])), 0
        fcntl.flock(self._alive, fcntl.LOCK_SH)
        try:
            id_, size, rank = (str(invitation[key]) for key in ("id", "size", "rank"))
            backend = _enter(self._store(), bytes.fromhex(id_), int(size), int(rank), self._own_options())
        except dist.DistBackendError:  # the others go on without this rank
            fcntl.flock(self._alive, fcntl.LOCK_UN)
            return False
        self._become_world(backend)
        return True

    def _found(self) -> bool:
        """Whether no group lives, and this rank is the one that founds the next."""
        with (self.folder / "founding").open("w") as founding:
            try:
                fcntl.flock(founding, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            fcntl.flock(self._alive, fcntl.LOCK_SH)  # nobody comes between: this rank holds `founding`
        self._waiting.unlink(missing_ok=True)
        return True

    # ---- a member

    def agree(self, good: bool) -> Verdict:
        """The common verdict on the step. All ranks that live call this, also after a failure.

        Raises DistBackendError where the others have gone on without this rank.
        """
        nobody = self.rank != 0 or not self._offer()
        word, failed = self.backend.agree((GOOD if good else 0) | (NOBODY_WAITS if nobody else 0))
        return Verdict(bool(word & GOOD), failed, not word & NOBODY_WAITS)

    def settle(self, verdict: Verdict) -> bool:
        """Follow the verdict: go on without those that failed, or take in those that wait. Whether the
        group has changed. All ranks with the verdict call this."""
        if verdict.failed or not verdict.good:
            self._shrink(verdict.failed)
            return True
        return verdict.someone_waits and self._take_in()

    def finish(self) -> None:
        """The job is done: who still waits to enter need not."""
        _write(self.folder / "finished", True)

    def fail(self, why: str) -> None:
        """The job cannot go on, although ranks live: kolo run says why, and ends it with the next rank that fails."""
        _write(self.folder / "failed", why)

    def waiting(self) -> list[str]:
        """Who waits to enter, by name; no more than there is room for."""
        names = sorted(path.name.removeprefix("wait.") for path in self.folder.glob("wait.*") if _lives(path))
        return names[: max(0, self.most - self.size)]

    def _offer(self) -> bool:
        """As rank 0: write down whom the group is to take in, if anyone."""
        names = self.waiting()
        if names:
            _write(self._offered, {"id": create_id().hex(), "names": names})
        return bool(names)

    @property
    def _offered(self) -> Path:
        return self.folder / f"offer.{self.life}.{self.changes}.{self.offers}"

    def _shrink(self, failed: list[int]) -> None:
        while True:
            try:
                smaller = self.backend.shrink(failed, 0, self._own_options())
                break
            except dist.DistBackendError:  # one more has died
                failed = self.backend.agree(0)[1]
        self.changes, self.offers = self.changes + 1, 0
        self._become_world(smaller)

    def _take_in(self) -> bool:
        offer = _read(self._offered)
        assert offer is not None, "rank 0 wrote it before it agreed"
        self.offers += 1
        names = [str(name) for name in offer["names"]]  # type: ignore[attr-defined]
        size = self.size + len(names)
        store = self._store(self.changes + 1)
        for place, name in enumerate(names):  # every member does: rank 0 may be dead by now
            words = {"id": offer["id"], "size": size, "rank": self.size + place, "life": self.life,
                     "changes": self.changes + 1}
            _write(self.folder / f"invite.{name}", words)
        try:
            members = [*range(self.size), *(-1 for _ in names)]
            larger = self.backend.reconfigure(store, bytes.fromhex(str(offer["id"])), members)
        except dist.DistBackendError:  # a rank that was invited did not come
            for name in names:
                (self.folder / f"wait.{name}").unlink(missing_ok=True)
            return False
        self.changes, self.offers = self.changes + 1, 0
        self._become_world(larger)
        return True

    # ---- torch's default group

    def _own_options(self) -> Options:
        return Options(self.timeout, deterministic=self.options.deterministic, algo=self.options.algo,
                       transport=self.options.transport, codec=self.options.codec)

    def _store(self, changes: int | None = None) -> dist.Store:
        """Where the members of the group at this change of it find each other's keys."""
        changes = self.changes if changes is None else changes
        return dist.PrefixStore(f"{self.life}/{changes}", dist.FileStore(str(self.folder / "store"), -1))

    def _become_world(self, backend: KoloBackend) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        self.backend = backend
        dist.init_process_group("kolo", store=self._store(), rank=self.rank, world_size=self.size,
                                timeout=self.timeout, pg_options=_Made(backend, self.timeout))


def _write(path: Path, value: object) -> None:
    """Others see all of it or nothing; who may not read the folder does not see it at all."""
    part = path.with_name(f"part.{os.getpid()}")
    part.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    part.replace(path)


def _read(path: Path) -> dict[str, object] | None:
    try:
        value: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return value
    except FileNotFoundError:
        return None


def _lives(path: Path) -> bool:
    """Whether the process that wrote its number there lives; else the file goes."""
    pid = _read(path)
    if pid is None:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        state = "X"
    if state in "ZX":
        path.unlink(missing_ok=True)
    return state not in "ZX"
