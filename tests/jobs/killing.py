"""Simulates a SIGKILL and a cancellation at every step of a crawl.

A kill leaves only the files on the disk. So one run is watched, and its files are copied whenever they have changed
between two steps of its tasks. Each copy is then resumed as by another process. With inline blocking work, a write to
the disk happens within one step. A kill in the middle of a step is covered by SQLite's guarantees and by
``tests/feeds``.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import trio

from tests.jobs.site import Runs

__all__ = ["Canceller", "Photographer", "killed_after", "put_back"]


class Photographer(trio.abc.Instrument):
    """Copies a folder after each step that changes it.

    Attributes:
        pictures: The copies in order, each with the number of sends before it.
        steps: Number of steps so far.
    """

    def __init__(self, folder: Path, album: Path) -> None:
        self._folder = folder
        self._album = album
        self._last = b""
        self.pictures: list[Path] = []
        self.steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Copy the folder if it has changed."""
        self.steps += 1
        print_ = self._print()
        if print_ == self._last:
            return
        self._last = print_
        picture = self._album / f"{len(self.pictures):04}"
        shutil.copytree(self._folder, picture)
        self.pictures.append(picture)

    def _print(self) -> bytes:
        """Return a digest of the files.

        The shared memory of the WAL has no further data, and the running callbacks change without a step of the job.
        """
        digest = hashlib.blake2b()
        for path in sorted(self._folder.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm") and not path.name.startswith("callbacks."):
                digest.update(path.name.encode() + path.read_bytes())
        return digest.digest()


def put_back(picture: Path, folder: Path) -> None:
    """Restore the folder from a copy."""
    shutil.rmtree(folder)
    shutil.copytree(picture, folder)


async def killed_after(runs: Runs, seconds: float, album: Path) -> None:
    """Run for some seconds, and leave the files for the next run as after a kill."""
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
        steps: Number of steps so far.
        scope: The cancel scope.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self.steps = 0
        self.scope: trio.CancelScope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Cancel the scope at the chosen step."""
        self.steps += 1
        if self.steps == self._at:
            self.scope.cancel()
