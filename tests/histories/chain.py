"""A server with a replica that can take its place: of this there is a replica too, as it must have one then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from tests.servers.stores import StoreProcess, running_store

__all__ = ["Chain", "chain"]

PATIENCE = 20.0
"""Seconds within which a replica has caught up."""

OPTIONS = ("--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0", "--replica-serve-stale-data", "yes")


class Chain:
    """Three servers: the first, its replica, and the replica of that."""

    def __init__(self, stores: list[StoreProcess]) -> None:
        self._stores = stores
        for before, after in pairwise(stores):
            _follow(after, before)
        _until(stores[0], b"lag=0")

    @property
    def port(self) -> int:
        """Where the first listens."""
        return self._stores[0].port

    def fail_over(self, lag: float) -> None:
        """Kill the first while its replica is behind by so many seconds; that one takes its place."""
        first, second, third = self._stores
        second.stop()
        time.sleep(lag)
        first.kill()
        second.go_on()
        second.ask("REPLICAOF", "NO", "ONE")
        first.start()
        _follow(first, third)
        self._stores = [second, third, first]

    def kill(self) -> None:
        """Kill the first, which :meth:`start` starts again."""
        self._stores[0].kill()

    def start(self) -> None:
        """Start it again."""
        self._stores[0].start()


@contextmanager
def chain(folder: Path) -> Iterator[Chain]:
    """Three servers whose files are in ``folder``, until the block ends."""
    with ExitStack() as stack:
        stores = []
        for name in ("first", "second", "third"):
            (folder / name).mkdir(parents=True)
            stores.append(stack.enter_context(running_store("redis", folder / name, *OPTIONS)))
        yield Chain(stores)


def _follow(replica: StoreProcess, store: StoreProcess) -> None:
    replica.ask("REPLICAOF", "127.0.0.1", str(store.port))
    _until(replica, b"master_link_status:up")


def _until(store: StoreProcess, words: bytes) -> None:
    deadline = time.monotonic() + PATIENCE
    while words not in (said := store.ask("INFO", "replication")):
        assert time.monotonic() < deadline, said
        time.sleep(0.02)
