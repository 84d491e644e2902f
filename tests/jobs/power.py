"""Simulates power cuts with a disk that keeps only synced data, as the worst disk may.

Written data is in the system's memory until the disk stores it. Two calls guarantee that: ``fsync`` of a file for its
content, and ``fsync`` of a folder for the names in it. The simulation records both calls. It also records the syncs of
SQLite. With ``synchronous = FULL``, SQLite syncs at each commit, and otherwise only at a checkpoint, for example when a
database is closed. SQLite also syncs the folder when it creates a log. A cut then leaves only synced data. Because a
system may also write earlier, some cuts keep all written data below some of the folders.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

__all__ = ["Cuts", "Disk"]

SYNCED_AT_COMMIT = 2  # the value of FULL


class Disk:
    """Records which data of a folder is on the disk.

    Args:
        folder: The folder, including its content. Existing data counts as synced.
        monkeypatch: Removes the patches at the end.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._names: dict[int, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        self._is_folder: set[int] = set()
        self._held: dict[int, int] = {}  # an open descriptor per inode, so that no other file gets its number
        for path in (folder, *folder.rglob("*")):
            self._sync(path)

        def fsync(descriptor: Any) -> None:  # do not wait for the real disk
            number = os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno()).st_ino
            for path in (folder, *folder.rglob("*")):
                if path.stat().st_ino == number:
                    self._sync(path)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(sqlite3, "connect", self._connected(sqlite3.connect))

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def left(self, into: Path, latest: Iterable[str] = ()) -> None:
        """Write the files that a cut would leave now to ``into``. Entries named in ``latest`` keep all written data."""
        self._build(self.folder, into)
        for name in latest:
            shutil.rmtree(into / name, ignore_errors=True)
            (into / name).unlink(missing_ok=True)
            if (self.folder / name).is_dir():
                shutil.copytree(self.folder / name, into / name)
            elif (self.folder / name).exists():
                shutil.copy(self.folder / name, into / name)

    def _build(self, path: Path, into: Path, number: int | None = None) -> None:
        number = path.stat().st_ino if number is None else number
        if number not in self._is_folder:
            into.write_bytes(self._contents.get(number, b""))
            return
        into.mkdir()
        for name, inner in self._names.get(number, {}).items():
            self._build(path / name, into / name, inner)

    def _sync(self, path: Path) -> None:
        number = path.stat().st_ino
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
        if not path.is_dir():
            self._contents[number] = path.read_bytes()
            return
        self._is_folder.add(number)
        entries = {inner.name: inner for inner in path.iterdir() if not inner.name.endswith("-shm")}
        self._names[number] = {name: inner.stat().st_ino for name, inner in entries.items()}
        self._is_folder |= {inner.stat().st_ino for inner in entries.values() if inner.is_dir()}

    def _sync_database(self, path: Path) -> None:
        for one in (path.with_name(f"{path.name}-wal"), path, path.parent):
            if one.exists():
                self._sync(one)

    def _connected(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        disk = self

        class Connection(sqlite3.Connection):
            path: Path | None = None

            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                cursor = super().execute(statement, *values)
                if statement == "COMMIT":
                    [(level,)] = super().execute("PRAGMA synchronous").fetchall()
                    self._synced(is_now=level >= SYNCED_AT_COMMIT)
                self._synced(is_now="wal_checkpoint" in statement or "journal_mode = WAL" in statement)
                return cursor

            def close(self) -> None:
                super().close()
                self._synced(is_now=True)

            def _synced(self, *, is_now: bool) -> None:
                if is_now and self.path is not None:
                    disk._sync_database(self.path)

        def connected(database: Any, *more: Any, **options: Any) -> sqlite3.Connection:
            made = connect(database, *more, factory=Connection, **options)
            path = Path(str(database))
            if isinstance(made, Connection) and disk.folder in path.parents:
                made.path = path
            return made

        return connected


class Cuts(trio.abc.Instrument):
    """Copies the files that a cut would leave, after each step of a task that changes them.

    Args:
        disk: The simulated disk.
        album: The folder for the copies.
        latest: Sets of entries whose written data has reached the disk. Each set gets its own copies.

    Attributes:
        pictures: The copies in order, without duplicates.
    """

    def __init__(self, disk: Disk, album: Path, latest: Iterable[Iterable[str]] = ((),)) -> None:
        self._disk = disk
        self._album = album
        self._latest = [tuple(names) for names in latest]
        self._seen: set[bytes] = set()
        self.pictures: list[Path] = []
        album.mkdir()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Make the copies for this step."""
        for names in self._latest:
            picture = self._album / f"{len(self.pictures):04}"
            self._disk.left(picture, names)
            digest = hashlib.blake2b()
            for path in sorted(picture.rglob("*")):
                digest.update(str(path.relative_to(picture)).encode() + (path.read_bytes() if path.is_file() else b""))
            if digest.digest() in self._seen:
                shutil.rmtree(picture)
            else:
                self._seen.add(digest.digest())
                self.pictures.append(picture)
