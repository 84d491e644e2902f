"""Kills and cancels at every step of a crawl: what a SIGKILL would leave on the disk at each, and what a cancel does.

A kill leaves what is on the disk and nothing else. So one run is watched, and whenever its files have changed between
two steps of its tasks, they are copied; each copy is then resumed as another process would. With inline blocking work
a write to the disk lies within one step; that a step can be cut in its middle is for the database (SQLite's promise)
and for the feeds (``tests/feeds``) to bear.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import trio

from tests.jobs.site import Runs

__all__ = ["Canceller", "Photographer", "killed_after", "put_back"]


class Photographer(trio.abc.Instrument):
    """Copies a folder at each step after which it is not as it was.

    Attributes:
        pictures: The copies, in order, each with the number of sends before it.
        steps: Steps seen.
    """

    def __init__(self, folder: Path, album: Path) -> None:
        self._folder = folder
        self._album = album
        self._last = b""
        self.pictures: list[Path] = []
        self.steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Take a picture if something has changed."""
        self.steps += 1
        print_ = self._print()
        if print_ == self._last:
            return
        self._last = print_
        picture = self._album / f"{len(self.pictures):04}"
        shutil.copytree(self._folder, picture)
        self.pictures.append(picture)

    def _print(self) -> bytes:
        """What the files hold; the shared memory of the WAL says nothing that the WAL does not."""
        digest = hashlib.blake2b()
        for path in sorted(self._folder.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm"):
                digest.update(path.name.encode() + path.read_bytes())
        return digest.digest()


def put_back(picture: Path, folder: Path) -> None:
    """Make the folder what it was when the picture was taken."""
    shutil.rmtree(folder)
    shutil.copytree(picture, folder)


async def killed_after(runs: Runs, seconds: float, album: Path) -> None:
    """Run for so long; what a kill leaves then is what the next run finds."""
    folder = runs.directory.parent
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def kill() -> None:
                await trio.sleep(seconds)
                shutil.copytree(folder, album)
                scope.cancel()

            nursery.start_soon(kill)
            await runs.run()
            nursery.cancel_scope.cancel()
    put_back(album, folder)


class Canceller(trio.abc.Instrument):
    """Cancels a scope at one step of one program.

    Attributes:
        steps: Steps seen.
        scope: What is cancelled.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self.steps = 0
        self.scope: trio.CancelScope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Cancel, if it is time."""
        self.steps += 1
        if self.steps == self._at:
            self.scope.cancel()
