"""A job in memory. A kill keeps only the committed data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import trio

from trawl.frontier import OutboxItem
from trawl.frontier.job import Job

__all__ = ["FakeJob"]


class FakeJob(Job):
    """A job without a disk, which commits only on request."""

    def __init__(self) -> None:
        self.name = "job"
        self.directory = Path("job")
        self.is_new = True
        self.commits = 0
        self._items: list[bytes] = []
        self._kept: dict[str, bytes] = {}
        self._start = 0
        self._lasting: tuple[list[bytes], dict[str, bytes], int] = ([], {}, 0)
        self._hooks: list[Callable[[], None]] = []

    def hold(self, *items: bytes) -> None:
        """Acknowledge a request with ``items``."""
        self._items += items

    async def give(self, items: Sequence[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        self._items += items

    def killed(self) -> FakeJob:
        """Return the job as another process finds it after a kill."""
        job = FakeJob()
        job.is_new = False
        job._items, job._kept, job._start = deepcopy(self._lasting)
        job._lasting = deepcopy(self._lasting)
        return job

    @property
    def kept(self) -> Mapping[str, bytes]:
        return self._kept

    @property
    def outbox_end(self) -> int:
        return len(self._lasting[0])

    @property
    def outbox_start(self) -> int:
        return self._start

    def keep(self, name: str, blob: bytes | None, part: int | None = None) -> None:
        if blob is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = blob

    def before_commit(self, hook: Callable[[], None]) -> None:
        self._hooks.append(hook)

    async def sync(self) -> None:
        await self.commit()

    async def commit(self) -> None:
        await trio.lowlevel.checkpoint()
        for hook in self._hooks:
            hook()
        self.commits += 1
        self._lasting = deepcopy((self._items, self._kept, self._start))

    async def outbox_after(self, position: int, limit: int) -> Sequence[OutboxItem]:
        await trio.lowlevel.checkpoint()
        assert position >= self._start  # finished items are forgotten
        items = self._lasting[0][position : position + limit]
        return [OutboxItem(number, item) for number, item in enumerate(items, position + 1)]

    def outbox_done(self, position: int) -> None:
        self._start = position

    async def aclose(self) -> None:
        await self.commit()
