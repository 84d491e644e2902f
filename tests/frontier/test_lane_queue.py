"""A lane's records in memory: whatever is added, taken and given back, the best come out first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.frontier import Record
from trawl.frontier.lane_queue import LaneQueue, RecordEncoder
from trawl.http import Request, host_scope

ORIGIN = "http://a.example"


def record(order: int, priority: int = 0, share: float = 0.0) -> Record:
    # The text of scopes and origin is made anew, as it is for each link of a page.
    made = Record(Request(f"{ORIGIN}/{order}", priority=priority), (("".join(["a.", "example"]), None),), str(ORIGIN))
    made.order, made.share = order, share
    return made


def key(one: Record) -> tuple[int, float, int]:
    return (-one.request.priority, -one.share, one.order)


def records(line: LaneQueue) -> list[Record]:
    return [line._record(held) for held in line._all_held()]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([0, 0, 0, 1, -1]), st.sampled_from([0.0, 0.0, 0.5])),
        st.tuples(st.just("take"), st.integers(1, 70), st.just(0.0)),
        st.tuples(st.just("give back"), st.integers(1, 5), st.just(0.0)),
    ),
    max_size=60,
)


@given(steps, st.booleans(), st.integers(0, 150), st.booleans())
def test_the_best_come_out_first_whatever_was_done_before(
    steps: list[tuple[str, int, float]], newest_first: bool, standing: int, is_packed: bool
) -> None:
    sign = -1 if newest_first else 1
    line = LaneQueue(record(sign), RecordEncoder(), newest_first=newest_first)
    held, gone, order = [record(sign)], [], 1
    for _ in range(standing):
        order += 1
        held.append(record(sign * order))
        line.add(held[-1], is_packed=is_packed)
    for what, number, share in steps:
        if what == "add":
            order += 1
            one = record(sign * order, number, share)
            held.append(one)
            line.add(one, is_packed=is_packed)
        elif what == "take":
            held.sort(key=key)
            taken, held = held[:number], held[number:]
            assert list(map(key, line.take(number))) == list(map(key, taken))
            gone += taken
        else:
            for _ in range(min(number, len(gone))):
                held.append(gone.pop())
                line.add(held[-1], is_packed=is_packed)
        assert len(line) == len(held)
        assert line.best() == min(map(key, held), default=None)
        assert sorted(map(key, records(line))) == sorted(map(key, held))


def test_what_is_taken_is_not_kept() -> None:
    line = LaneQueue(record(1), RecordEncoder())
    for order in range(2, 100):
        line.add(record(order))
    line.take(20)
    assert [one.order for one in records(line)] == list(range(21, 100))
    assert not any(isinstance(one, Record) and one.order <= 20 for one in line._queue)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("other", ["b.example", None], ids=["several hosts", "one host"])
def test_the_records_of_a_host_are_removed_and_the_line_goes_on(newest_first: bool, other: str | None) -> None:
    """Packed or not, in their order or at an old place."""
    sign = -1 if newest_first else 1
    line = LaneQueue(record(sign), RecordEncoder(), newest_first=newest_first)
    for order in range(2, 60):
        added = record(sign * order, priority=order % 10 == 0)
        if other is not None and order % 3 == 0:
            added.request.url = f"http://{other}/{order}"
        line.add(added, is_packed=order % 2 == 0)
    taken = line.take(9)
    line.add(taken[0])
    hosts = [host_scope(one.request.url) for one in records(line)]
    assert line.remove(lambda url: host_scope(url) == "none.example") == 0
    assert line.remove(lambda url: host_scope(url) == "a.example") == hosts.count("a.example") > 20
    assert {host_scope(one.request.url) for one in records(line)} == ({other} if other else set())
    assert line.remove(lambda url: host_scope(url) == other) == len(hosts) - hosts.count("a.example")
    assert (len(line), line.best()) == (0, None)
    line.add(record(sign * 70))
    line.add(record(sign * 71))
    assert sorted(abs(one.order) for one in line.take(9)) == [70, 71]


def test_records_of_a_line_share_their_scopes_and_their_origin() -> None:
    first, second = record(1), record(2)
    assert first.scopes is not second.scopes
    line = LaneQueue(first, RecordEncoder())
    line.add(second)
    assert second.scopes is first.scopes
    assert second.origin is first.origin


@pytest.mark.parametrize("newest_first", [False, True])
def test_amounts_that_differ_are_not_shared(newest_first: bool) -> None:
    first, second = record(1), record(2)
    second.scopes = (("a.example", 3.0),)
    line = LaneQueue(first, RecordEncoder(), newest_first=newest_first)
    line.add(second)
    assert second.scopes == (("a.example", 3.0),)
    assert first.scopes == (("a.example", None),)
