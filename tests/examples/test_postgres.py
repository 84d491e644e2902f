"""examples/postgres.py with SQLite in place of the server, behind the calls of psycopg that it makes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from examples.postgres import PostgresBooks
from trawl.testing import DemoSite, SimulatedWeb, simulate

SETTINGS = {"DOWNLOAD_DELAY": 60.0, "RANDOMIZE_DOWNLOAD_DELAY": False}


class Connection:
    """Does what a connection of psycopg's does, in SQLite; it breaks at each statement that is in ``broken_at``."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.closed = False

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        self.server.statements += 1
        if self.server.statements in self.server.broken_at:
            self.closed = True
            raise ConnectionError("the connection is lost")
        assert not self.closed
        with self.server.table:
            self.server.table.execute(statement.replace("%s", "?"), values)

    def close(self) -> None:
        self.closed = True


class Server:
    """What ``psycopg`` is for the example.

    Attributes:
        connections: Those that were made, in order.
        broken_at: The numbers of the statements, from 1, that break their connection.
    """

    def __init__(self, path: str) -> None:
        self.table = sqlite3.connect(path)
        self.connections: list[Connection] = []
        self.statements = 0
        self.broken_at: set[int] = set()

    def connect(self, where: str, *, autocommit: bool, connect_timeout: int) -> Connection:
        assert (where, autocommit, connect_timeout > 0) == ("postgresql:///books", True, True)
        self.connections.append(Connection(self))
        return self.connections[-1]

    def rows(self) -> list[tuple[Any, ...]]:
        return self.table.execute("SELECT url, title, price, seen FROM books ORDER BY url").fetchall()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(":memory:")
    monkeypatch.setitem(sys.modules, "psycopg", SimpleNamespace(connect=server.connect))
    yield server
    server.table.close()


def a_web() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host(DemoSite.host, handler=DemoSite(), robots=DemoSite.robots)
    return web


def test_each_book_has_a_row_which_the_next_crawl_updates(server: Server) -> None:
    first = simulate(PostgresBooks, a_web(), SETTINGS)
    rows = server.rows()
    assert len(first.items) == len(rows) == 86
    [emma] = [row for row in rows if row[1] == "Emma"]
    assert (emma[0], emma[3][:10]) == (f"http://{DemoSite.host}/books/emma/", "2025-01-01")
    simulate(PostgresBooks, a_web(), {**SETTINGS, "DOWNLOAD_DELAY": 120.0})
    again = server.rows()
    assert [row[:3] for row in again] == [row[:3] for row in rows]
    assert all(new[3] > old[3] for new, old in zip(again, rows, strict=True) if old[0] != rows[0][0])
    assert [connection.closed for connection in server.connections] == [True, True]


def test_a_connection_that_breaks_is_made_again_and_the_item_counted(server: Server) -> None:
    server.broken_at = {5}
    sim = simulate(PostgresBooks, a_web(), SETTINGS, errors="collect")
    assert (len(server.rows()), sim.stats["item_error_count"], len(server.connections)) == (85, 1, 2)


def test_without_a_database_nothing_is_sent(server: Server) -> None:
    server.broken_at = {1}
    web = a_web()
    with pytest.raises(ConnectionError, match="is lost"):
        simulate(PostgresBooks, web, SETTINGS)
    assert len(server.connections) == 1
