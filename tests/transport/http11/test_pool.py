"""What is kept, for how long, and what goes first."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.errors import UnsupportedScheme
from trawl.transport.http11.connection import Connection
from trawl.transport.http11.pool import MAX_IDLE, MAX_ORIGINS, Pool, room_for_idle


class Idle:
    """A wire on which nothing happens but its end."""

    def __init__(self) -> None:
        self.peer: str | None = None
        self.is_cut = False
        self.is_open = True
        self.was_left = False

    def send_nowait(self, data: bytes) -> int:
        raise AssertionError

    async def send(self, data: bytes) -> None:
        raise AssertionError

    async def receive_soon(self) -> bytes:
        raise AssertionError

    async def receive(self) -> bytes:
        raise AssertionError

    def is_quiet(self) -> bool:
        return not self.was_left

    def session(self) -> None:
        raise AssertionError

    def close(self, *, is_cut: bool = False) -> None:
        self.is_open = False


def given_back(pool: Pool, origin: str, now: float) -> Idle:
    """A connection that is idle in the pool from ``now`` on."""
    wire = Idle()
    pool.give(pool.origin(origin), Connection(wire), now)
    return wire


def taken(pool: Pool, origin: str, now: float) -> object:
    connection = pool.take(pool.origin(origin), now)
    return None if connection is None else connection.wire


A, B = "http://a.example", "https://b.example:8443"


def test_the_youngest_of_an_origin_is_taken_first() -> None:
    pool = Pool(keepalive=30.0, max_idle=10)
    old, other, young = given_back(pool, A, 1.0), given_back(pool, B, 2.0), given_back(pool, A, 3.0)
    assert [taken(pool, A, 4.0) for _ in range(3)] == [young, old, None]
    assert taken(pool, B, 4.0) is other
    assert len(pool) == 0


def test_the_oldest_of_all_is_closed_when_there_are_too_many() -> None:
    pool = Pool(keepalive=30.0, max_idle=2)
    first, second, third = (given_back(pool, origin, 1.0) for origin in (A, B, A))
    assert [first.is_open, second.is_open, third.is_open] == [False, True, True]
    assert [taken(pool, A, 1.0), taken(pool, A, 1.0)] == [third, None]


def test_what_ran_out_is_closed_whoever_asks() -> None:
    pool = Pool(keepalive=30.0, max_idle=10)
    wire = given_back(pool, A, 0.0)
    states = []
    for now in (29.0, 30.0):
        assert taken(pool, B, now) is None
        states.append(wire.is_open)
    assert states == [True, False]
    wire = given_back(pool, A, 31.0)
    given_back(pool, B, 62.0)
    assert not wire.is_open


def test_those_that_the_server_has_left_are_closed_and_passed_over() -> None:
    pool = Pool(keepalive=30.0, max_idle=10)
    good, left = given_back(pool, A, 0.0), given_back(pool, A, 0.0)
    left.was_left = True
    assert taken(pool, A, 1.0) is good
    assert not left.is_open


def test_nothing_is_kept_without_a_keepalive_or_after_the_end() -> None:
    assert not given_back(Pool(keepalive=0.0, max_idle=10), A, 0.0).is_open
    pool = Pool(keepalive=30.0, max_idle=10)
    before = given_back(pool, A, 0.0)
    pool.close()
    assert not before.is_open
    assert not given_back(pool, A, 0.0).is_open
    assert taken(pool, A, 0.0) is None


def test_sites_without_a_connection_are_forgotten_when_there_are_too_many() -> None:
    pool = Pool(keepalive=30.0, max_idle=10)
    kept = given_back(pool, A, 0.0)
    in_use = pool.origin(B)
    for number in range(2 * MAX_ORIGINS):
        pool.origin(f"http://{number}.example")
    assert len(pool._origins) <= 2 * MAX_ORIGINS
    assert taken(pool, A, 1.0) is kept
    assert pool.origin(B) is not in_use
    wire = Idle()
    pool.give(in_use, Connection(wire), 1.0)
    assert taken(pool, B, 1.0) is wire


def test_other_schemes_have_no_site() -> None:
    with pytest.raises(UnsupportedScheme, match="'ftp'"):
        Pool(keepalive=1.0, max_idle=1).origin("ftp://a.example")


def test_the_limit_of_open_files_decides_how_many_stay() -> None:
    allowed, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for most, idle in ((64, 16), (1_024, 496), (10_000, MAX_IDLE)):
            if hard == resource.RLIM_INFINITY or most <= hard:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                assert room_for_idle() == idle
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


@given(
    st.integers(min_value=1, max_value=4),
    st.lists(
        st.tuples(
            st.sampled_from(["take", "give", "leave"]),
            st.sampled_from([A, B, "http://c.example"]),
            st.integers(min_value=0, max_value=3),
        )
    ),
)
def test_every_connection_is_idle_or_in_use_or_closed(most: int, steps: list[tuple[str, str, int]]) -> None:
    pool, now = Pool(keepalive=5.0, max_idle=most), 0.0
    wires: list[Idle] = []
    in_use: list[tuple[str, Connection]] = []
    for action, origin, seconds in steps:
        now += seconds
        if action == "take":
            connection = pool.take(pool.origin(origin), now)
            if connection is None:
                wire = Idle()
                wires.append(wire)
                connection = Connection(wire)
            assert connection.wire.is_quiet()
            in_use.append((origin, connection))
        elif action == "give" and in_use:
            origin, connection = in_use.pop(0)  # noqa: PLW2901
            pool.give(pool.origin(origin), connection, now)
        elif wires:
            wires[-1].was_left = True
        using = {id(connection.wire) for _, connection in in_use}
        assert all(wire.is_open for wire in wires if id(wire) in using)
        assert sum(wire.is_open for wire in wires) == len(using) + len(pool)
        assert len(pool) <= most
    pool.close()
    assert sum(wire.is_open for wire in wires) == len(in_use)
