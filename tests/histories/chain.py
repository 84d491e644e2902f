"""A server, its replica that can replace it, and a replica of that replica, which it needs after a failover."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from tests.servers.stores import StoreProcess, running_store

__all__ = ["Chain", "chain"]

PATIENCE = 120.0
"""Maximum seconds for a replica to catch up."""

OPTIONS = ("--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0", "--replica-serve-stale-data", "yes")


class Chain:
    """Three servers: the first, its replica, and the replica of the replica."""

    def __init__(self, stores: list[StoreProcess]) -> None:
        self._stores = stores
        for before, after in pairwise(stores):
            _follow(after, before)
        _until(stores[0], b"lag=0")

    @property
    def port(self) -> int:
        """The port of the first server."""
        return self._stores[0].port

    def fail_over(self, lag: float) -> None:
        """Kill the first server while its replica is ``lag`` seconds behind. The replica replaces it."""
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
        """Kill the first server. :meth:`start` starts it again."""
        self._stores[0].kill()

    def start(self) -> None:
        """Start the first server again."""
        self._stores[0].start()


@contextmanager
def chain(folder: Path) -> Iterator[Chain]:
    """Run three servers with files in ``folder`` while the block runs."""
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
