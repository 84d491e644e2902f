"""The files that pages share, their freshness, and the timeout of a page."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trawl.browser import Answer
from trawl.browser.rendering import PageTimer, SharedFiles, file_bytes, freshness, from_devtools, to_devtools
from trawl.cookies import Cookie


def answer(*fields: tuple[str, str], status: int = 200, body: bytes = b"x") -> Answer:
    return Answer(status, fields, body)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ([("Cache-Control", "max-age=60")], 60.0),
        ([("cache-control", "public, MAX-AGE=60")], 60.0),
        ([("Cache-Control", "public"), ("Cache-Control", 'max-age="60"')], 60.0),
        ([("Cache-Control", "max-age=60"), ("Age", "20")], 40.0),
        ([("Cache-Control", "max-age=60"), ("Age", "90")], -30.0),
        ([("Cache-Control", "max-age=60, max-age=5")], 60.0),  # RFC 9111, 4.2.1: the first one, or stale
        ([("Cache-Control", "max-age=60"), ("Vary", "Accept-Encoding, Origin")], 60.0),
        ([("Cache-Control", "max-age=60"), ("Vary", "Cookie")], 0.0),
        ([("Cache-Control", "max-age=60"), ("Vary", "*")], 0.0),
        ([("Cache-Control", "max-age=60, private")], 0.0),
        ([("Cache-Control", "max-age=60, no-store")], 0.0),
        ([("Cache-Control", 'max-age=60, no-cache="x"')], 0.0),
        ([("Cache-Control", "max-age=60"), ("Set-Cookie", "a=b")], 0.0),
        ([("Cache-Control", "max-age=-1")], 0.0),
        ([("Cache-Control", "max-age=\u0661")], 0.0),
        ([("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")], 0.0),
        ([], 0.0),
    ],
)
def test_only_a_response_that_others_may_use_is_fresh(fields: list[tuple[str, str]], seconds: float) -> None:
    assert freshness(answer(*fields)) == seconds
    assert freshness(answer(*fields, status=404)) == 0.0


async def test_a_file_that_several_pages_want_at_once_is_fetched_once(autojump_clock: MockClock) -> None:
    files, fetches, found = SharedFiles(10_000), [], []

    async def fetch() -> Answer:
        fetches.append(trio.current_time())
        await trio.sleep(5)
        return answer(("Cache-Control", "max-age=60"))

    async def page() -> None:
        found.append(await files.get("a", fetch))

    start = trio.current_time()
    for wait in (0.0, 30.0, 70.0):
        await trio.sleep_until(start + wait)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(page)
    assert [at - start for at in fetches] == [0.0, 70.0]
    assert [is_shared for _, is_shared in found].count(False) == 2


async def test_a_page_that_is_cancelled_leaves_its_file_to_the_next(autojump_clock: MockClock) -> None:
    files, fetches = SharedFiles(10_000), []

    async def fetch() -> Answer:
        fetches.append(1)
        await trio.sleep(5)
        return answer(("Cache-Control", "max-age=60"))

    async def cancelled() -> None:
        with trio.move_on_after(1):
            await files.get("a", fetch)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancelled)
        await trio.sleep(0.5)
        nursery.start_soon(files.get, "a", fetch)
    assert len(fetches) == 2


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60)), max_size=30))
def test_the_files_never_need_more_memory_than_they_may(wanted: list[tuple[str, int]]) -> None:
    most = 3 * file_bytes("a", answer(("Cache-Control", "max-age=60")))
    files = SharedFiles(most)

    async def run() -> None:
        for url, size in wanted:

            async def fetch(size: int = size) -> Answer:
                await trio.lowlevel.checkpoint()
                return answer(("Cache-Control", "max-age=60"), body=b"x" * size)

            await files.get(url, fetch)
            assert files._bytes == sum(file_bytes(url, kept) for url, (_, kept) in files._files.items()) <= most

    trio.run(run)


async def test_files_without_a_body_need_memory_too() -> None:
    files = SharedFiles(100_000)

    async def fetch() -> Answer:
        await trio.lowlevel.checkpoint()
        return answer(("Cache-Control", "max-age=60"), ("X-Long", "x" * 1000), body=b"")

    for number in range(200):
        await files.get(f"http://a.example/{number}", fetch)
    assert len(files._files) == 100_000 // file_bytes("http://a.example/100", await fetch())


async def test_a_pages_time_stops_while_requests_are_pending(autojump_clock: MockClock) -> None:
    start = trio.current_time()
    timer = PageTimer(5.0)
    with timer.scope:
        await trio.sleep(2)
        with timer.paused():
            with timer.paused():
                await trio.sleep(100)
            await trio.sleep(100)
        await trio.sleep_forever()
    assert trio.current_time() - start == pytest.approx(205.0)


@pytest.mark.parametrize("is_host_only", [True, False])
@pytest.mark.parametrize("same_site", ["", "lax", "strict", "none"])
def test_a_cookie_survives_the_browser(is_host_only: bool, same_site: str) -> None:
    cookie = Cookie(
        "a", "b", "x.example", "/p", is_host_only=is_host_only, is_secure=True, is_http_only=True, same_site=same_site
    )
    assert from_devtools({"expires": -1, **to_devtools(cookie)}) == cookie
