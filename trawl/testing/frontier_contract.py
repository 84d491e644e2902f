"""The contract of frontiers as tests, for trawl's stores and your own. Public through :mod:`trawl.testing`.

Derive a test class and override :meth:`FrontierContract.store`. pytest then finds the tests::

    class TestMine(FrontierContract):
        is_durable = True

        @contextmanager
        def store(self):
            with tempfile.TemporaryDirectory() as directory:
                yield lambda: opened(directory)      # an async context manager that gives the frontier

If several processes share a store, run the suite on a wrapper that presents the frontiers of all processes as one
frontier. A call of the wrapper must return only after each process has received the records that other processes stored
for it.

Each test creates its own store and runs Trio on a virtual clock. The last test needs Hypothesis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from math import inf
from typing import Any, TypeAlias

import trio
from trio.testing import MockClock

from trawl.frontier import Frontier, LaneKey, Record
from trawl.http import Request

__all__ = ["FrontierContract", "Opener", "lane_of", "make_fingerprint", "make_record"]

Opener: TypeAlias = "Callable[[], AbstractAsyncContextManager[Frontier]]"
"""Opens a frontier on the store. It may be called again after the previous frontier was closed."""

Body: TypeAlias = "Callable[[Frontier], Awaitable[None]]"


def make_fingerprint(path: str, host: str = "a.example") -> bytes:
    """Return a fingerprint for a path on a host."""
    return f"{host}/{path}".encode().rjust(16, b"-")[-16:]


def lane_of(host: str = "a.example") -> LaneKey:
    """Return the lane of a host's records."""
    return (host,), f"http://{host}"


def make_record(path: str, host: str = "a.example", *, priority: int = 0, share: float = 0.0) -> Record:
    """Return a record of a host's lane, with a fingerprint."""
    request = Request(f"http://{host}/{path}", priority=priority)
    return Record(request, ((host, None),), f"http://{host}", make_fingerprint(path, host), share=share)


def paths(records: Sequence[Record]) -> list[str]:
    """Return the paths of records, in their order."""
    return [record.request.url.partition("example/")[2] for record in records]


async def claim_and_push(frontier: Frontier, records: Sequence[Record]) -> list[str]:
    """Store the new records as a crawl does. Returns their paths."""
    are_new = await frontier.claim_many([make_fingerprint(path) for path in paths(records)])
    stored = await frontier.push_many([record for record, is_new in zip(records, are_new, strict=True) if is_new])
    return paths(stored.here)


def _on_a_frontier(body: Callable[[Any, Frontier], Awaitable[None]]) -> Callable[[FrontierContract], None]:
    """Return a test that runs on its own frontier."""

    def test(self: FrontierContract) -> None:
        self.on(partial(body, self))

    # functools.wraps() would make pytest look for a fixture named like the argument.
    test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
    return test


class FrontierContract:
    """The tests that every frontier must pass. Derive from the class in a test module, and override :meth:`store`.

    Attributes:
        is_durable: Whether stored records survive when the store is closed and opened again.
        examples: Number of random runs that are compared with a plain model.
        steps: Maximum number of steps in each run.
    """

    is_durable: bool = False
    examples: int = 25
    steps: int = 30

    def store(self) -> AbstractContextManager[Opener]:
        """Return a context manager. It creates an empty store, and its value opens a frontier on this store."""
        raise NotImplementedError("override store(): it makes an empty store, and its value opens a frontier on it")

    def on(self, *bodies: Body) -> None:
        """Run the bodies one after the other on the same store, each with a new frontier."""

        async def opened(opener: Opener, body: Body) -> None:
            async with opener() as frontier:
                await body(frontier)

        with self.store() as opener:
            for body in bodies:
                trio.run(partial(opened, opener, body), clock=MockClock())

    @_on_a_frontier
    async def test_the_best_priority_then_the_largest_share_then_the_oldest_is_leased_first(
        self, frontier: Frontier
    ) -> None:
        """A lane is ordered by priority, share and age."""
        await frontier.push_many([make_record("old"), make_record("urgent", priority=5), make_record("new")])
        await frontier.push_many([make_record("large", share=0.5), make_record("late", priority=-1, share=1.0)])
        assert paths(await frontier.lease_many(lane_of(), 2)) == ["urgent", "large"]
        assert paths(await frontier.lease_many(lane_of(), 9)) == ["old", "new", "late"]
        assert await frontier.lease_many(lane_of(), 1) == []

    @_on_a_frontier
    async def test_a_lane_is_told_in_numbers_without_looking(self, frontier: Frontier) -> None:
        """``lanes``, ``best``, ``pending_in`` and ``statistics`` follow each step."""
        assert (list(frontier.lanes()), frontier.best(lane_of()), frontier.pending_in(lane_of())) == ([], None, 0)
        first, second = make_record("1"), make_record("2", "b.example", priority=3)
        await frontier.claim_many([make_fingerprint("1"), make_fingerprint("2", "b.example")])
        await frontier.push_many([first, second])
        assert list(frontier.lanes()) == [lane_of(), lane_of("b.example")]
        assert frontier.best(lane_of("b.example")) == (-3, 0.0, second.order)
        assert first.order < second.order
        (lease,) = await frontier.lease_many(lane_of(), 1)
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased, numbers.seen, numbers.lanes) == (1, 1, 2, 1)
        assert (frontier.best(lane_of()), frontier.pending_in(lane_of())) == (None, 0)
        await frontier.acknowledge(lease)
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased, numbers.seen, numbers.lanes) == (1, 0, 2, 1)

    @_on_a_frontier
    async def test_a_lease_that_is_given_back_keeps_its_old_place(self, frontier: Frontier) -> None:
        """``release`` undoes a lease."""
        await frontier.push_many([make_record(path) for path in "123"])
        first, second = await frontier.lease_many(lane_of(), 2)
        await frontier.release([second])
        await frontier.release([first])
        assert paths(await frontier.lease_many(lane_of(), 3)) == ["1", "2", "3"]

    @_on_a_frontier
    async def test_an_acknowledged_lease_is_gone_and_its_outputs_are_there(self, frontier: Frontier) -> None:
        """``acknowledge`` ends a lease and stores the outputs."""
        await frontier.push_many([make_record("1")])
        (lease,) = await frontier.lease_many(lane_of(), 1)
        await frontier.acknowledge(lease, [make_record("2"), make_record("3", "b.example")])
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased) == (2, 0)
        assert paths(await frontier.lease_many(lane_of(), 9)) == ["2"]
        assert paths(await frontier.lease_many(lane_of("b.example"), 9)) == ["3"]

    @_on_a_frontier
    async def test_a_successor_is_leased_at_once_and_goes_behind_its_equals(self, frontier: Frontier) -> None:
        """``replace`` is one step. The successor has its own lane and a new position."""
        await frontier.push_many([make_record("1"), make_record("2", "b.example")])
        (lease,) = await frontier.lease_many(lane_of(), 1)
        successor = make_record("target", "b.example")
        is_here = await frontier.replace(lease, successor)
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased) == ((1, 1) if is_here else (2, 0))
        await frontier.release([successor] if is_here else [])
        assert paths(await frontier.lease_many(lane_of("b.example"), 9)) == ["2", "target"]
        assert await frontier.lease_many(lane_of(), 9) == []

    @_on_a_frontier
    async def test_a_fingerprint_is_new_once_and_again_when_its_claim_was_given_back(self, frontier: Frontier) -> None:
        """``claim_many`` marks fingerprints as seen, and ``disclaim`` removes the marks."""
        one, two = make_fingerprint("1"), make_fingerprint("2")
        assert await frontier.claim_many([one, two, one]) == [True, True, False]
        assert await frontier.claim_many([one]) == [False]
        await frontier.disclaim([one])
        assert await frontier.claim_many([two, one]) == [False, True]
        assert await frontier.claim_many([]) == []

    @_on_a_frontier
    async def test_a_claim_outlives_its_request(self, frontier: Frontier) -> None:
        """A fingerprint stays marked as seen after its request has ended."""
        assert await frontier.claim_many([make_fingerprint("1")]) == [True]
        await frontier.push_many([make_record("1")])
        (lease,) = await frontier.lease_many(lane_of(), 1)
        await frontier.acknowledge(lease)
        assert await frontier.claim_many([make_fingerprint("1")]) == [False]

    @_on_a_frontier
    async def test_two_tasks_that_claim_at_once_do_not_both_get_it(self, frontier: Frontier) -> None:
        """If two callbacks find the same link, only one of them stores it."""
        answers: list[bool] = []

        async def claim() -> None:
            answers.extend(await frontier.claim_many([make_fingerprint("1")]))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(claim)
        assert sorted(answers) == [False] * 4 + [True]

    @_on_a_frontier
    async def test_duplicates_that_are_wanted_are_all_stored(self, frontier: Frontier) -> None:
        """A record without a fingerprint is never a duplicate (``dont_filter``)."""
        again = [Record(Request("http://a.example/x"), (("a.example", None),), "http://a.example") for _ in "123"]
        await frontier.push_many(again)
        assert len(await frontier.lease_many(lane_of(), 9)) == 3

    @_on_a_frontier
    async def test_a_long_lane_comes_out_in_its_order_through_many_small_leases(self, frontier: Frontier) -> None:
        """The lane has more records than any store keeps in memory. Meanwhile, urgent records are pushed."""
        await frontier.push_many([make_record(str(i)) for i in range(300)])
        leased: list[str] = []
        for turn in range(150):
            if turn % 50 == 10:
                await frontier.push_many([make_record(f"urgent{turn}", priority=1)])
            leases = await frontier.lease_many(lane_of(), 3)
            leased += paths(leases)
            if turn % 7 == 0:
                await frontier.release(leases)
                leased = leased[: -len(leases)] if leases else leased
            else:
                for lease in leases:
                    await frontier.acknowledge(lease)
        assert [path for path in leased if path.startswith("urgent")] == ["urgent10", "urgent60", "urgent110"]
        assert [path for path in leased if path.isdecimal()] == [str(i) for i in range(300)]
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased) == (0, 0)

    @_on_a_frontier
    async def test_many_tasks_lease_and_acknowledge_and_each_record_is_theirs_once(self, frontier: Frontier) -> None:
        """A step of one task never loses or duplicates the record of another task."""
        await frontier.push_many([make_record(str(i)) for i in range(100)])
        done: list[str] = []

        async def work() -> None:
            while leases := await frontier.lease_many(lane_of(), 3):
                for lease in leases:
                    (path,) = paths([lease])
                    done.append(path)
                    child = [make_record(f"child{path}", "b.example")] if path.endswith("7") else []
                    await frontier.acknowledge(lease, child)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(work)
        assert sorted(done, key=int) == [str(i) for i in range(100)]
        assert len(await frontier.lease_many(lane_of("b.example"), 99)) == 10
        assert frontier.statistics().leased == 10

    @_on_a_frontier
    async def test_a_cancelled_step_was_done_or_was_not(self, frontier: Frontier) -> None:
        """Cancelling never leaves half of a step behind."""
        await frontier.push_many([make_record("1"), make_record("2")])
        first, second = await frontier.lease_many(lane_of(), 2)
        with trio.CancelScope() as scope:
            scope.cancel()
            await frontier.acknowledge(first, [make_record("child")])
        was_done = frontier.pending_in(lane_of()) == 1
        assert frontier.statistics().leased == (1 if was_done else 2)
        await frontier.release([second] if was_done else [first, second])
        assert paths(await frontier.lease_many(lane_of(), 9)) == (["2", "child"] if was_done else ["1", "2"])

    @_on_a_frontier
    async def test_a_record_with_a_time_of_its_own_is_in_no_lane_before_it_is_due(self, frontier: Frontier) -> None:
        """Until the record is due, it is held outside the lane. It is already stored and counts as pending."""
        now = trio.current_time()
        late, later, soon = make_record("late"), make_record("later"), make_record("soon")
        late.not_before, later.not_before = now + 1000.0, now + 2000.0
        await frontier.push_many([later, late, soon])
        assert frontier.pending_in(lane_of()) == 1
        assert frontier.statistics().pending == 3
        assert frontier.statistics().held == 2
        assert now + 999.9 < frontier.next_due() < now + 1000.1
        assert await frontier.wake(now) == []
        assert paths(await frontier.lease_many(lane_of(), 9)) == ["soon"]
        assert await frontier.wake(now + 1001.0) == [lane_of()]
        assert paths(await frontier.lease_many(lane_of(), 9)) == ["late"]
        assert now + 1999.9 < frontier.next_due() < now + 2000.1
        assert frontier.statistics().held == 1

    @_on_a_frontier
    async def test_a_lease_that_is_given_back_before_its_time_is_held(self, frontier: Frontier) -> None:
        """For example, a retry with a delay waits in this way."""
        await frontier.push_many([make_record("1")])
        (lease,) = await frontier.lease_many(lane_of(), 1)
        again = make_record("again")
        again.not_before = trio.current_time() + 1000.0
        await frontier.replace(lease, again)
        await frontier.release([again])
        assert frontier.best(lane_of()) is None
        assert frontier.statistics().leased == 0
        assert frontier.statistics().held == 1
        await frontier.wake(trio.current_time() + 1001.0)
        assert paths(await frontier.lease_many(lane_of(), 9)) == ["again"]
        assert frontier.next_due() == inf

    @_on_a_frontier
    async def test_the_pending_records_of_a_host_are_dropped_in_one_step(self, frontier: Frontier) -> None:
        """``drop`` leaves other hosts, other leases and seen fingerprints alone, and reports its number before."""
        records = [make_record(str(number), host) for number in range(100) for host in ("a.example", "b.example")]
        later = make_record("later")
        later.not_before = trio.current_time() + 60.0
        records += [later, make_record("low", priority=-1)]
        assert all(await frontier.claim_many([record.fingerprint or b"" for record in records]))
        await frontier.push_many(records)
        sent, *waiting = await frontier.lease_many(lane_of(), 3)
        starting: list[tuple[int, int]] = []
        assert await frontier.drop("a.example", waiting, lambda *numbers: starting.append(numbers)) == 101
        assert [count for count, _ in starting] == [101]
        assert all(abs(record.order) < starting[0][1] for record in records)
        numbers = frontier.statistics()
        assert (numbers.pending, numbers.leased, numbers.lanes, numbers.held) == (100, 1, 1, 0)
        assert (frontier.best(lane_of()), frontier.next_due()) == (None, inf)
        assert await frontier.lease_many(lane_of(), 9) == []
        await frontier.release([sent])
        assert await claim_and_push(frontier, [make_record("7"), make_record("new")]) == ["new"]
        assert paths(await frontier.lease_many(lane_of(), 9)) == ["0", "new"]
        assert len(await frontier.lease_many(lane_of("b.example"), 200)) == 100

    def test_dropped_records_stay_dropped(self) -> None:
        """A durable frontier that is closed after ``drop`` has the remaining records when it is opened again."""

        async def drop(frontier: Frontier) -> None:
            await claim_and_push(frontier, [make_record("1"), make_record("2"), make_record("3", "b.example")])
            leases = await frontier.lease_many(lane_of(), 1)
            assert await frontier.drop("a.example", leases, lambda *_: None) == 2

        async def look(frontier: Frontier) -> None:
            await trio.lowlevel.checkpoint()
            assert list(frontier.lanes()) == ([lane_of("b.example")] if self.is_durable else [])

        self.on(drop, look)

    @_on_a_frontier
    async def test_where_a_request_is_can_be_asked(self, frontier: Frontier) -> None:
        """``lane_of`` returns the lane of a request or None, but never a wrong lane."""
        record = make_record("1")
        await frontier.push_many([record, make_record("2", "b.example")])
        assert frontier.lane_of(record.request) in {None, lane_of()}
        assert frontier.lane_of(Request("http://a.example/none")) is None
        await frontier.lease_many(lane_of(), 1)
        assert frontier.lane_of(record.request) is None

    def test_c1_what_was_stored_is_there_when_it_is_opened_again(self) -> None:
        """Pending and leased records are pending again in their old positions. Seen fingerprints are still seen."""
        if not self.is_durable:
            return

        async def first(frontier: Frontier) -> None:
            await frontier.claim_many([make_fingerprint(path) for path in "1234"])
            await frontier.push_many([make_record("1"), make_record("2"), make_record("3", priority=1)])
            third, one = await frontier.lease_many(lane_of(), 2)
            await frontier.acknowledge(third, [make_record("5", "b.example")])
            assert one.order

        async def second(frontier: Frontier) -> None:
            assert sorted(frontier.lanes()) == [lane_of(), lane_of("b.example")]
            numbers = frontier.statistics()
            assert (numbers.pending, numbers.leased, numbers.lanes) == (3, 0, 2)
            assert await claim_and_push(frontier, [make_record(path) for path in "123"]) == []
            # The first run claimed the fingerprint of 4, but stored no record for it.
            assert await claim_and_push(frontier, [make_record("4")]) == ["4"]
            await frontier.push_many([make_record("6")])
            assert paths(await frontier.lease_many(lane_of(), 9)) == ["1", "2", "4", "6"]
            assert paths(await frontier.lease_many(lane_of("b.example"), 9)) == ["5"]

        self.on(first, second)

    def test_c1_a_successor_is_there_when_it_is_opened_again_and_its_predecessor_is_not(self) -> None:
        """A kill between a redirect and its target neither loses nor duplicates a request."""
        if not self.is_durable:
            return

        async def first(frontier: Frontier) -> None:
            await frontier.push_many([make_record("1")])
            (lease,) = await frontier.lease_many(lane_of(), 1)
            await frontier.replace(lease, make_record("target", "b.example"))

        async def second(frontier: Frontier) -> None:
            assert list(frontier.lanes()) == [lane_of("b.example")]
            assert paths(await frontier.lease_many(lane_of("b.example"), 9)) == ["target"]

        self.on(first, second)

    def test_random_steps_agree_with_a_plain_model(self) -> None:
        """A Hypothesis state machine applies random steps, and compares the frontier with dictionaries."""
        from trawl.testing.frontier_model import compare  # noqa: PLC0415 needs Hypothesis

        compare(self.store, is_durable=self.is_durable, examples=self.examples, steps=self.steps)
