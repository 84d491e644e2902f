"""The frontier in memory keeps the order, the claims and the leases."""

from __future__ import annotations

import gc
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trawl.frontier import MemoryFrontier, Record, lane_queue
from trawl.frontier.lane_queue import MAX_CALLBACKS, FingerprintSet
from trawl.http import Request

LANE = (("a.example",), "http://a.example")


def record(path: str, priority: int = 0, share: float = 0.0) -> Record:
    return Record(
        Request(f"http://a.example/{path}", priority=priority), (("a.example", None),), "http://a.example", share=share
    )


def paths(records: list[Record]) -> list[str]:
    return [one.request.url.rsplit("/", 1)[1] for one in records]


async def test_the_oldest_of_equals_is_leased_first() -> None:
    frontier = MemoryFrontier()
    await frontier.push_many([record("1"), record("2"), record("3")])
    assert paths(await frontier.lease_many(LANE, 2)) == ["1", "2"]
    assert paths(await frontier.lease_many(LANE, 9)) == ["3"]
    assert await frontier.lease_many(LANE, 1) == []


async def test_depth_first_the_newest_of_equals_is_leased_first() -> None:  # F12
    frontier = MemoryFrontier(depth_first=True)
    await frontier.push_many([record("1"), record("2"), record("3", priority=-1)])
    assert paths(await frontier.lease_many(LANE, 3)) == ["2", "1", "3"]


@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0])), max_size=30))
async def test_priority_then_share_then_age_decide(wanted: list[tuple[int, float]]) -> None:
    frontier = MemoryFrontier()
    records = [record(str(i), priority, share) for i, (priority, share) in enumerate(wanted)]
    await frontier.push_many(records)
    leased = await frontier.lease_many(LANE, len(records) + 1)
    assert leased == sorted(records, key=lambda one: (-one.request.priority, -one.share, one.order))


async def test_a_released_lease_keeps_its_old_place() -> None:
    frontier = MemoryFrontier()
    await frontier.push_many([record("1"), record("2"), record("3")])
    first, second = await frontier.lease_many(LANE, 2)
    await frontier.release([second])
    await frontier.release([first])
    assert paths(await frontier.lease_many(LANE, 3)) == ["1", "2", "3"]


async def test_a_claim_is_new_once_and_again_after_it_is_given_back() -> None:
    frontier = MemoryFrontier()
    one, two = b"1" * 16, b"2" * 16
    assert await frontier.claim_many([one, two, one]) == [True, True, False]
    assert await frontier.claim_many([one]) == [False]
    await frontier.disclaim([one])
    assert await frontier.claim_many([one, two]) == [True, False]


async def test_an_acknowledgement_ends_the_lease_and_stores_what_came_of_it() -> None:
    frontier = MemoryFrontier()
    await frontier.push_many([record("1")])
    [lease] = await frontier.lease_many(LANE, 1)
    await frontier.acknowledge(lease, [record("child")])
    statistics = frontier.statistics()
    assert (statistics.pending, statistics.leased, statistics.lanes) == (1, 0, 1)
    assert paths(await frontier.lease_many(LANE, 1)) == ["child"]


async def test_a_replacement_is_leased_at_once_behind_its_equals() -> None:
    frontier = MemoryFrontier()
    await frontier.push_many([record("1"), record("2")])
    [lease] = await frontier.lease_many(LANE, 1)
    again = record("1")
    await frontier.replace(lease, again)
    [second] = await frontier.lease_many(LANE, 1)
    assert again.order > second.order
    assert frontier.statistics().leased == 2


async def test_b20_a_replacement_goes_behind_its_equals_depth_first_too() -> None:
    frontier = MemoryFrontier(depth_first=True)
    await frontier.push_many([record("1"), record("2")])
    [lease] = await frontier.lease_many(LANE, 1)
    again = record("2")
    await frontier.replace(lease, again)
    [other] = await frontier.lease_many(LANE, 1)
    assert again.order > other.order


async def test_the_best_key_tells_what_a_lease_would_give() -> None:
    frontier = MemoryFrontier()
    assert frontier.best(LANE) is None
    await frontier.push_many([record("1"), record("2", priority=5)])
    assert frontier.best(LANE) == (-5, 0.0, 2)
    await frontier.lease_many(LANE, 2)
    assert frontier.best(LANE) is None
    await frontier.aclose()


async def test_f11_each_set_of_amounts_has_a_lane_of_its_own_and_exempt_requests_need_no_scope() -> None:
    frontier = MemoryFrontier()
    scopes = (("api", 6.0), ("x", None))
    costly = Record(Request("http://a.example/6"), scopes, "o", share=6.0, amounts=(6.0, None))
    cheap = Record(Request("http://a.example/3"), scopes, "o", share=3.0, amounts=(3.0, None))
    exempt = Record(Request("http://a.example/0", meta={"dont_throttle": True}), scopes, "o", amounts=(6.0, None))
    await frontier.push_many([costly, cheap, exempt])
    assert costly.lane == (("api", "x"), "o", (6.0, None))
    assert await frontier.lease_many((("api", "x"), "o", (3.0, None)), 9) == [cheap]
    assert await frontier.lease_many(((), "o"), 9) == [exempt]


async def test_i11_a_stored_request_is_found_in_its_lane_until_it_is_leased() -> None:
    frontier = MemoryFrontier()
    one = record("1")
    await frontier.push_many([one])
    assert frontier.lane_of(one.request) == LANE
    assert frontier.lane_of(Request("http://a.example/1")) is None
    await frontier.lease_many(LANE, 1)
    assert frontier.lane_of(one.request) is None


def mark(ones: int) -> bytes:
    return b"1" * ones + b"0" * (16 - ones)


marks = st.integers(0, 16).map(mark)
"""Of these, the end of one and the beginning of the next are often a third."""


@given(st.lists(st.tuples(st.booleans(), st.lists(marks, max_size=5)), max_size=40))
@example([(True, [mark(0), mark(8), mark(16), mark(4)]), (False, [mark(12)]), (True, [mark(12), mark(13)])])
def test_marks_beyond_the_first_are_remembered_as_the_first_are(steps: list[tuple[bool, list[bytes]]]) -> None:
    expected: set[bytes] = set()
    with patch.object(lane_queue, "MAX_IN_SET", 2), patch.object(lane_queue, "BUCKETS", 1):
        seen = FingerprintSet()
        for is_added, some in steps:
            if is_added:
                assert seen.add(some) == [each not in expected.union(some[:i]) for i, each in enumerate(some)]
                expected.update(some)
            else:
                seen.discard(some)
                expected.difference_update(some)
            assert len(seen) == len(expected)


@pytest.mark.long
def test_the_garbage_collector_looks_at_few_of_the_marks() -> None:
    seen = FingerprintSet()
    before = len(gc.get_objects())
    assert all(seen.add(number.to_bytes(16, "little") for number in range(100_000)))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    most = lane_queue.MAX_IN_SET * 2 + lane_queue.BUCKETS + 10
    assert len(gc.get_referents(seen._first, *gc.get_referents(seen))) <= most


class Pages:
    def parse(self) -> None: ...

    def failed(self) -> None: ...


PAGES = Pages()


async def given_back(one: Record) -> Record:
    """A record as it comes out of a frontier in which others are pending."""
    frontier = MemoryFrontier(packed_from=0)
    await frontier.push_many([record("first"), one])
    _, leased = await frontier.lease_many(LANE, 2)
    return leased


def values_of(one: Record) -> list[Any]:
    request = one.request
    headers, *others = request.extras()
    names = ("url", "method", "body", "callback", "errback", "priority", "dont_filter", "depth")
    return [
        *[getattr(request, name) for name in names],
        *[None if headers is None else headers.as_set(), *others],
        *[one.scopes, one.lane, one.origin, one.found_at, one.fingerprint, one.not_before, one.is_exempt],
    ]


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec=None)), st.binary()
)
dicts = st.dictionaries(st.text(), plain, max_size=3)


@settings(max_examples=30)
@given(st.data())
async def test_what_is_packed_comes_back_with_the_same_values(data: st.DataObject) -> None:
    one = record("1")
    request = one.request = Request(
        "http://a.example/1",
        data.draw(st.sampled_from([None, PAGES.parse, len])),
        method=data.draw(st.sampled_from(["GET", "POST"])),
        errback=data.draw(st.sampled_from([None, PAGES.failed])),
        headers=data.draw(st.sampled_from([None, {}, {"Referer": "http://a.example/"}, {"X": ["1", "2"], "Y": None}])),
        body=data.draw(st.binary()),
        meta=data.draw(dicts),
        cb_kwargs=data.draw(dicts),
        dont_filter=data.draw(st.booleans()),
    )
    request.depth = data.draw(st.integers(0, 1000))
    one.found_at = data.draw(st.sampled_from([None, 1.5]))
    one.fingerprint = data.draw(st.sampled_from([None, b"1" * 16]))
    expected = values_of(one)
    leased = await given_back(one)
    assert (repr(values_of(leased)), leased.order) == (repr(expected), 2)


class Other(Request):
    pass


async def test_what_would_not_come_back_as_it_was_is_not_packed() -> None:
    shared: list[int] = []
    url = "http://a.example/1"
    for request in (
        Request(url, meta={"pages": shared}),
        Request(url, cb_kwargs={"pages": shared}),
        Request(url, cookies={"a": "b"}),
        Request(url, meta={"half": "\ud800"}),
        Request(url, meta={"large": 2**64}),
        Other(url),
    ):
        one = record("1")
        one.request = request
        assert (await given_back(one)).request is request
    later = record("1")
    later.not_before = 1.0
    frontier = MemoryFrontier(packed_from=0)
    await frontier.push_many([record("first"), later])
    await frontier.wake(1.0)
    assert (await frontier.lease_many(LANE, 2))[1] is later


async def test_callbacks_that_are_made_anew_each_time_are_not_kept() -> None:
    frontier = MemoryFrontier(packed_from=0)
    pushed = []
    for i in range(MAX_CALLBACKS + 10):
        one = record(str(i))
        one.request.callback = lambda: None
        pushed.append(one)
    await frontier.push_many(pushed)
    leased = await frontier.lease_many(LANE, len(pushed))
    assert [one.request.callback for one in leased] == [one.request.callback for one in pushed]
    assert sum(one is two for one, two in zip(leased, pushed, strict=True)) == 10 + 1  # and the first of the lane


@pytest.mark.long
async def test_the_garbage_collector_looks_at_no_pending_request_beyond_the_first() -> None:
    frontier = MemoryFrontier(packed_from=100)
    gc.collect()
    before = len(gc.get_objects())
    for i in range(5_000):
        one = record(str(i), priority=i % 3)
        one.request.callback = PAGES.parse
        one.request.headers["Referer"] = "http://a.example/"
        await frontier.push_many([one])
    gc.collect()
    assert len(gc.get_objects()) - before < 1_000
    assert len(await frontier.lease_many(LANE, 5_000)) == 5_000
