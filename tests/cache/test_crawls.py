"""The cache in whole crawls: a hit comes before the throttle, takes no place and waits for nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.cache.crawls import HOST, Reader, crawl, settings, web_of
from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.cache.cache import key_of
from trawl.cache.store import READ_ALONG_BYTES, CacheEntry, DamagedError, NewEntry, Store
from trawl.engine.cache_lookup import MAX_AT_ONCE
from trawl.errors import SettingsError, UsageError
from trawl.frontier import MemoryFrontier
from trawl.http import Fetch, Outcome, Replace, Request, Response, fingerprint
from trawl.middleware import get_retry_request
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.testing.transport import WALL_START_UTC


def test_an_answer_is_for_every_fragment_and_has_none(tmp_path: Path) -> None:
    crawl(web_of(), settings(tmp_path), type("Top", (Reader,), {"fragment": "top"}))
    again = crawl(web_of(), settings(tmp_path))
    assert sorted(item["url"] for item in again.items) == [f"{HOST}/{n}" for n in (1, 2, 3)]
    assert again.sends == ()


def test_what_was_answered_once_is_answered_again_without_a_send_or_a_second_of_delay(tmp_path: Path) -> None:
    values = settings(tmp_path, DOWNLOAD_DELAY=5.0)
    first = crawl(web_of(), values)
    again = crawl(web_of(body="changed"), values)
    assert first.elapsed >= 10.0
    assert (again.sends, again.elapsed) == ((), 0.0)
    assert sorted(item["url"] for item in again.items) == [f"{HOST}/{n}" for n in (1, 2, 3)]
    assert {item["body"] for item in again.items} == {"page"}
    assert [item["flags"] for item in again.items] == [["cached"]] * 3
    assert (first.stats["httpcache/miss"], first.stats["httpcache/store"]) == (3, 3)
    assert (again.stats["httpcache/hit"], again.stats["response_count"]) == (3, 3)
    assert "request_count" not in again.stats


def test_a_hit_waits_neither_for_a_place_nor_for_robots_txt(tmp_path: Path) -> None:
    class Both(Reader):
        paths = ("/cached", "/slow", "/slower")

    web = SimulatedWeb()
    web.add_host("a.example", latency=10.0, robots="User-agent: *\nDisallow: /cached")
    crawl(web_of(), settings(tmp_path), type("Both", (Both,), {"paths": ("/cached",)}))
    sim = crawl(web, settings(tmp_path, ROBOTSTXT_OBEY=True, CONCURRENT_REQUESTS=1), Both)
    assert sim.items[0]["url"] == f"{HOST}/cached"
    assert f"{HOST}/cached" not in [send.url for send in sim.sends]
    assert len(sim.sends) == 3  # robots.txt and two pages


def test_a_miss_is_not_held_up_by_hits_before_it(tmp_path: Path) -> None:
    class Many(Reader):
        paths = tuple(f"/{n}" for n in range(300))

    class More(Many):
        paths = (*Many.paths, "/new")

    free = settings(tmp_path, DOWNLOAD_DELAY=0.0, DOWNLOAD_DELAY_PER_SLOT=0.0, CONCURRENT_REQUESTS_PER_DOMAIN=16)
    crawl(web_of(), free, Many)
    sim = crawl(web_of(), free, More)
    assert [send.url for send in sim.sends] == [f"{HOST}/new"]
    assert sim.elapsed == pytest.approx(0.1)
    assert len(sim.items) == 301


def test_a_cached_redirect_and_its_cached_target_need_no_send(tmp_path: Path) -> None:
    def answer(request: Any) -> SimulatedResponse:
        if request.url.endswith("/old"):
            return SimulatedResponse(status=301, headers={"Location": "/new"})
        return SimulatedResponse(body="new")

    class Old(Reader):
        paths = ("/old",)
        handle_httpstatus_all = False

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    first, again = crawl(web, settings(tmp_path), Old), crawl(web, settings(tmp_path), Old)
    assert len(first.sends) == 2
    assert again.sends == ()
    assert again.items == [{"url": f"{HOST}/new", "body": "new", "flags": ["cached"], "status": 200}]


def test_a_direct_fetch_is_answered_from_the_cache_at_any_depth(tmp_path: Path) -> None:
    class Asks(Reader):
        paths = tuple(f"/{n}" for n in range(40))

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            detail = await self.fetch(Request(response.url + "/detail"))
            return {"flags": detail.flags}

    free = settings(tmp_path, DOWNLOAD_DELAY=0.0, DOWNLOAD_DELAY_PER_SLOT=0.0, CONCURRENT_REQUESTS_PER_DOMAIN=8)
    crawl(web_of(), free, Asks)
    sim = crawl(web_of(), free, Asks)
    assert sim.sends == ()
    assert sim.items == [{"flags": ["cached"]}] * 40


def test_what_is_sent_again_is_not_kept(tmp_path: Path) -> None:
    sim = crawl(web_of(status=500), settings(tmp_path, RETRY_TIMES=1, HTTPCACHE_IGNORE_HTTP_CODES=[404]))
    assert sim.stats["httpcache/uncacheable"] == len(sim.sends) == 6
    again = crawl(web_of(), settings(tmp_path))
    assert len(again.sends) == 3


def test_statuses_of_the_setting_are_not_kept(tmp_path: Path) -> None:
    crawl(web_of(status=404), settings(tmp_path, HTTPCACHE_IGNORE_HTTP_CODES=[404]))
    assert len(crawl(web_of(), settings(tmp_path)).sends) == 3


def test_a_request_that_refuses_the_cache_is_sent(tmp_path: Path) -> None:
    class Fresh(Reader):
        async def start(self) -> AsyncGenerator[Request, None]:
            yield Request(f"{HOST}/1", meta={"dont_cache": True})

    crawl(web_of(), settings(tmp_path))
    assert len(crawl(web_of(), settings(tmp_path), Fresh).sends) == 1


def test_what_has_expired_is_asked_for_again(tmp_path: Path) -> None:
    class Polls(Reader):
        paths = ("/1",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"flags": response.flags}
            await trio.sleep(40)
            if self.crawl.elapsed < 200:
                yield Request(response.url, dont_filter=True)

    sim = crawl(web_of(), settings(tmp_path, HTTPCACHE_EXPIRATION_SECS=100.0), Polls)
    kept = ["cached"]
    assert [item["flags"] for item in sim.items] == [[], kept, kept, [], kept]
    assert len(sim.sends) == 2


def test_with_ignore_missing_nothing_is_sent(tmp_path: Path) -> None:
    one = type("One", (Reader,), {"paths": ("/1",)})
    crawl(web_of(), settings(tmp_path), one)
    sim = crawl(web_of(), settings(tmp_path, HTTPCACHE_IGNORE_MISSING=True))
    assert sim.sends == ()
    assert [item["url"] for item in sim.items] == [f"{HOST}/1"]
    assert sim.stats["httpcache/ignore"] == 2


def test_the_page_limit_is_exact_where_pages_come_from_the_cache(tmp_path: Path) -> None:  # C11
    many = type("Many", (Reader,), {"paths": tuple(f"/{n}" for n in range(20))})
    free = settings(tmp_path, DOWNLOAD_DELAY=0.0, DOWNLOAD_DELAY_PER_SLOT=0.0)
    crawl(web_of(), free, many)
    sim = crawl(web_of(), {**free, "CLOSESPIDER_PAGECOUNT": 7}, many)
    assert (len(sim.items), sim.reason) == (7, "closespider_pagecount")


def test_a_cache_that_breaks_is_told_and_the_crawl_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Store, "find", broken)
    monkeypatch.setattr(Store, "put_many", broken)
    sim = crawl(web_of(), settings(tmp_path))
    assert len(sim.items) == 3
    assert sim.stats["httpcache/error"] >= 4  # three were not stored
    said = [record.getMessage() for record in caplog.records if record.name == "trawl.cache"]
    assert said == [
        f"cache: {what} failed: disk I/O error (further failures are only counted, as httpcache/error)"
        for what in ("lookup", "storing a response")
    ]
    assert "Traceback" not in caplog.text


def test_a_file_that_is_no_cache_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "reader.sqlite3").write_text("not a database, but long enough to be looked at as one " * 10)
    with pytest.raises(UsageError, match=r"HTTPCACHE_DIR: the cache .*reader.sqlite3.* can't be opened"):
        crawl(web_of(), settings(tmp_path))


def test_a_file_with_a_trigger_is_refused(tmp_path: Path) -> None:
    store_of(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "cache.db")
    connection.execute("CREATE TRIGGER t AFTER INSERT ON body BEGIN DELETE FROM response; END")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError, match="it has a trigger or a view"):
        store_of(tmp_path)


def test_a_policy_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="HTTPCACHE_POLICY must be 'always' or 'rfc9111', not 'never'"):
        crawl(web_of(), settings(tmp_path, HTTPCACHE_POLICY="never"))


@pytest.mark.parametrize("compresses", [False, True])
def test_bodies_may_be_compressed_on_disk(tmp_path: Path, compresses: bool) -> None:
    values = settings(tmp_path, HTTPCACHE_GZIP=compresses)
    body = "a" * 100_000
    crawl(web_of(body=body), values)
    sim = crawl(web_of(), values)
    assert {item["body"] for item in sim.items} == {body}
    assert ((tmp_path / "reader.sqlite3").stat().st_size < 100_000) is compresses


def test_a_spider_has_a_file_of_its_own(tmp_path: Path) -> None:
    other = type("Other", (Reader,), {"name": "../other one"})
    crawl(web_of(), settings(tmp_path / "new" / "folder"), other)
    assert [path.name for path in (tmp_path / "new" / "folder").glob("*.sqlite3")] == ["_other_one.sqlite3"]


def test_soft_blocks_are_not_kept(tmp_path: Path) -> None:
    values = settings(tmp_path, SOFT_BLOCK_DETECTOR=lambda response: "captcha" in response.text, RETRY_TIMES=0)
    crawl(web_of(body="captcha"), values)
    assert "httpcache/store" not in simulate(Reader, web_of(body="captcha"), values).stats


async def test_what_was_not_answered_goes_back_to_the_frontier(tmp_path: Path, autojump_clock: MockClock) -> None:
    class Slow(Reader):
        async def start(self) -> AsyncGenerator[Request, None]:
            yield Request(f"{HOST}/links", meta={"dont_cache": True})

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/links"):
                for n in range(50):
                    yield Request(f"{HOST}/{n}")
            elif "cached" in response.flags:
                self.crawl.shutdown()
                await trio.sleep(1)

    values = load(Layer("test", settings(tmp_path, DOWNLOAD_DELAY=0.0, DOWNLOAD_DELAY_PER_SLOT=0.0)))
    run = partial(crawl_with, Slow, values, blocking=InlineBlocking(), now_utc=WALL_START_UTC)
    await run(transport=web_of().transport())
    frontier = MemoryFrontier()
    result = await run(transport=web_of().transport(), frontier=frontier)
    left = frontier.statistics()
    assert left.leased == 0
    assert result.stats["httpcache/hit"] <= MAX_AT_ONCE
    assert left.pending == 50 - result.stats["httpcache/hit"]


def store_of(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache.db")


def entry_of(number: int) -> tuple[bytes, CacheEntry]:
    url = f"{HOST}/{number}"
    entry = CacheEntry(url=url, method="GET", sent=(), status=200, fields=(), asked_at=0.0, came_at=1.0)
    return b"%d" % number, entry


def test_small_bodies_are_read_with_their_responses_and_large_ones_by_themselves(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    bodies = [b"a" * READ_ALONG_BYTES, b"b" * (READ_ALONG_BYTES + 1)]
    entries = [(*entry_of(number), body, lambda older: True) for number, body in enumerate(bodies)]
    store.put_many(entries)
    ((small,), (large,)), _ = store.find([b"0", b"1"])
    assert (small.body, large.body) == (bodies[0], None)
    assert store.body(large) == bodies[1]
    store.close()


EDITS = ["x''", "x'ff00'", "'nope'", "''", "0", "-1", "7", "1 << 62", "1e999", "0.5"]
COLUMNS = ["key", "url", "method", "status", "asked_at", "came_at", "sent", "fields", "digest"]


@pytest.mark.parametrize("compresses", [False, True])
@pytest.mark.parametrize("column", [*COLUMNS, "body.is_compressed", "body.content", "body.digest", "body.id"])
def test_a_row_of_which_anything_was_changed_is_a_miss(tmp_path: Path, column: str, compresses: bool) -> None:
    store = Store(tmp_path / "cache.db", compresses=compresses)
    key, entry = entry_of(0)
    store.put_many([(key, entry, b"a" * 5000, lambda older: True)])
    (((whole,),), none) = store.find([key])
    assert none == 0
    assert store.body(whole) == b"a" * 5000
    table, _, name = column.rpartition(".")
    connection = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
    for edit in [*EDITS, f"substr({name}, 2)", f"{name} || x'00'", f"x'01' || {name}"]:
        connection.execute("BEGIN")
        with suppress(sqlite3.Error):  # an id takes numbers alone
            connection.execute(f"UPDATE {table or 'response'} SET {name} = {edit}")
        connection.execute("COMMIT")
        ((found,), damaged) = store.find([key])
        assert found in ([], [whole], [attrs.evolve(whole, body=None)])  # as it was, or not there
        assert not found or damaged == 0
        for each in found:
            with suppress(DamagedError):
                assert store.body(each) in (None, b"a" * 5000)
    store.put_many([(key, entry, b"b", lambda older: True)])
    (((again,),), none) = store.find([key])
    assert none == 0
    assert store.body(again) == b"b"
    connection.close()
    store.close()


@pytest.mark.parametrize(
    "edit", ["response SET fields = x'ff00'", "response SET sent = 'nope'", "response SET status = 'abc'",
             "response SET url = x'ff'", "body SET content = 'text'", "body SET is_compressed = 1"]
)  # fmt: skip
def test_the_page_of_a_damaged_row_is_requested_and_stored_anew(tmp_path: Path, edit: str) -> None:
    values = settings(tmp_path)
    crawl(web_of(), values)
    (path,) = tmp_path.glob("*.sqlite3")
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {edit} WHERE id = 2")
    connection.commit()
    connection.close()
    sim = crawl(web_of(), values)
    assert (sim.reason, len(sim.items), len(sim.sends)) == ("finished", 3, 1)
    assert (sim.stats["httpcache/error"], sim.stats["httpcache/hit"]) == (1, 2)
    assert {item["body"] for item in sim.items} == {"page"}
    assert len(crawl(web_of(), values).sends) == 0


def test_a_stored_body_is_decompressed_up_to_a_limit(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache.db", compresses=True)
    key, entry = entry_of(0)
    store.put_many([(key, entry, b"a" * 1_000_000, lambda older: True)])
    (((stored,),), _) = store.find([key])
    assert store.body(stored, 1_000_000) == b"a" * 1_000_000
    with pytest.raises(DamagedError, match="larger than DOWNLOAD_MAXSIZE"):
        store.body(stored, 999_999)
    store.close()


def test_a_bomb_in_the_cache_costs_no_more_than_one_from_the_wire(tmp_path: Path) -> None:
    crawl(web_of(body="a" * 300_000), settings(tmp_path, HTTPCACHE_GZIP=True))
    sim = crawl(web_of(), settings(tmp_path, HTTPCACHE_GZIP=True, DOWNLOAD_MAXSIZE=200_000))
    assert {item["body"] for item in sim.items} == {"page"}
    assert sim.stats["httpcache/error"] == 3


def test_a_cache_of_an_earlier_version_begins_anew(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "cache.db")
    connection.executescript("CREATE TABLE response (id INTEGER PRIMARY KEY, key BLOB); PRAGMA user_version = 1;")
    connection.close()
    store = store_of(tmp_path)
    key, entry = entry_of(0)
    store.put_many([(key, entry, b"a", lambda older: True)])
    assert store.find([key])[0][0][0].body == b"a"
    store.close()


def answers(*bodies: str) -> tuple[SimulatedWeb, Counter[str]]:
    """A host whose pages are these, one after the other; and how often each was requested."""
    asked: Counter[str] = Counter()

    def handler(request: Request) -> SimulatedResponse:
        asked[request.url] += 1
        return SimulatedResponse(body=bodies[min(asked[request.url], len(bodies)) - 1])

    web = SimulatedWeb()
    web.add_host("a.example", handler=handler)
    return web, asked


def is_half(request: Request, response: Response | None, error: Exception | None) -> bool | None:
    return True if response is not None and response.text == "half" else None


@pytest.mark.parametrize("policy", ["always", "rfc9111"])
def test_a_retry_is_never_answered_from_the_cache(tmp_path: Path, policy: str) -> None:
    values = settings(tmp_path, RETRY_PREDICATE=is_half, HTTPCACHE_POLICY=policy, HTTPCACHE_ALWAYS_STORE=True)
    sim = crawl(answers("half", "good")[0], values)
    assert [item["body"] for item in sim.items] == ["good"] * 3
    assert len(sim.sends) == 6
    again = crawl(answers("half", "good")[0], values)
    assert [item["body"] for item in again.items] == ["good"] * 3


def test_a_page_that_a_retry_refuses_is_not_kept(tmp_path: Path) -> None:
    values = settings(tmp_path, RETRY_PREDICATE=is_half, RETRY_TIMES=1)
    web = SimulatedWeb()
    asked: Counter[str] = Counter()

    def handler(request: Request) -> SimulatedResponse:
        asked[request.url] += 1
        return SimulatedResponse(status=200 if asked[request.url] == 1 else 500, body="half")

    web.add_host("a.example", handler=handler)
    crawl(web, values)
    assert len(crawl(web_of(), {**values, "RETRY_PREDICATE": None}).sends) == 3


class Again(Reader):
    """Its callback asks again for what it can't use."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        if response.text == "half":
            yield get_retry_request(response.request, spider=self)  # type: ignore[arg-type]
        else:
            yield from super().parse(response)


def test_a_retry_of_a_callback_is_not_answered_from_the_cache(tmp_path: Path) -> None:
    sim = crawl(answers("half", "good")[0], settings(tmp_path), Again)
    assert [item["body"] for item in sim.items] == ["good"] * 3


@pytest.mark.parametrize("is_new_target", [False, True])
def test_what_a_middleware_asks_for_again_is_not_answered_from_the_cache(tmp_path: Path, is_new_target: bool) -> None:
    def refuse(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            if outcome.response is not None and outcome.response.text == "half":
                return Outcome(
                    request, then=Replace(request.replace(dont_filter=True), 1.0, is_new_target=is_new_target)
                )
            return outcome

        return send

    values = settings(tmp_path, DOWNLOADER_MIDDLEWARES={refuse: 300})
    crawl(answers("half")[0], {**values, "DOWNLOADER_MIDDLEWARES": {}})
    sim = crawl(answers("half", "good")[0], values)
    assert [item["body"] for item in sim.items] == ["good"] * 3
    assert len(sim.sends) == 6


def test_a_page_that_a_redirect_leads_back_to_is_not_answered_from_the_cache(tmp_path: Path) -> None:
    def handler(request: Request) -> SimulatedResponse:
        if "cookie" in request.headers:
            return SimulatedResponse(body="welcome")
        if request.url.endswith("/login"):
            return SimulatedResponse(status=302, headers={"Location": "/1", "Set-Cookie": "sid=1"})
        return SimulatedResponse(status=302, headers={"Location": "/login"})

    web = SimulatedWeb()
    web.add_host("a.example", handler=handler)
    one = type("One", (Reader,), {"paths": ("/1",), "handle_httpstatus_all": False})
    for sends in (3, 0):
        sim = crawl(web, settings(tmp_path), one)
        assert ([item["body"] for item in sim.items], len(sim.sends)) == (["welcome"], sends)


def test_offline_a_retry_is_refused_like_all_that_is_not_in_the_cache(tmp_path: Path) -> None:
    values = settings(tmp_path)
    crawl(answers("half")[0], values)
    sim = crawl(web_of(), {**values, "RETRY_PREDICATE": is_half, "HTTPCACHE_IGNORE_MISSING": True})
    assert (sim.items, len(sim.sends), sim.stats["httpcache/ignore"]) == ([], 0, 3)


@pytest.mark.parametrize("key", ["cookiejar", "session"])
def test_each_cookie_jar_has_pages_of_its_own(tmp_path: Path, key: str) -> None:
    class Accounts(trawl.Spider):
        name = "accounts"

        async def start(self) -> AsyncGenerator[Request, None]:
            for who in "12":
                yield Request(f"{HOST}/login{who}", meta={key: who})

        def parse(self, response: Response) -> Any:
            yield response.follow("/me", self.me, meta={key: response.meta[key]}, dont_filter=True)

        def me(self, response: Response) -> Any:
            yield {"jar": response.meta[key], "page": response.text}

    def handler(request: Request) -> SimulatedResponse:
        if "/login" in request.url:
            return SimulatedResponse(headers={"Set-Cookie": f"sid={request.url[-1]}; Path=/"})
        return SimulatedResponse(body=request.headers.get("cookie") or "nobody")

    web = SimulatedWeb()
    web.add_host("a.example", handler=handler)
    for sends in (4, 0):
        sim = simulate(Accounts, web, settings(tmp_path))
        assert sorted((item["jar"], item["page"]) for item in sim.items) == [("1", "sid=1"), ("2", "sid=2")]
        assert len(sim.sends) == sends


def test_the_key_has_the_jar() -> None:
    url = f"{HOST}/"
    metas: list[dict[str, Any]] = [
        {},
        {"cookiejar": 1},
        {"cookiejar": "1"},
        {"session": "1"},
        {"dont_merge_cookies": True},
    ]
    metas.append({"cookiejar": "1", "session": "1"})
    assert len({key_of(Request(url, meta=meta)) for meta in metas}) == len(metas)
    assert key_of(Request(url, meta={"cookiejar": None})) == key_of(Request(url)) == fingerprint(Request(url))


def test_responses_that_come_while_others_are_written_are_stored_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    put_many = Store.put_many

    def counted(self: Store, entries: Sequence[NewEntry]) -> None:
        together.append(len(entries))
        put_many(self, entries)

    monkeypatch.setattr(Store, "put_many", counted)
    many = type("Many", (Reader,), {"paths": tuple(f"/{n}" for n in range(20))})
    free = settings(tmp_path, CONCURRENT_REQUESTS_PER_DOMAIN=20, DOWNLOAD_DELAY=0.0, DOWNLOAD_DELAY_PER_SLOT=0.0)
    sim = crawl(web_of(), free, many)
    assert sim.stats["httpcache/store"] == sum(together)
    assert max(together) > 1
    again = crawl(web_of(), free, many)
    assert again.stats["httpcache/hit"] == sim.stats["httpcache/store"]


def test_no_response_of_a_transaction_that_failed_counts_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []

    def too_large(self: Store, entries: Sequence[NewEntry]) -> None:
        together.append(len(entries))
        raise OverflowError("BLOB longer than INT_MAX bytes")  # sqlite3 has no error of its own for it

    monkeypatch.setattr(Store, "put_many", too_large)
    many = type("Many", (Reader,), {"paths": tuple(f"/{n}" for n in range(20))})
    free = settings(tmp_path, CONCURRENT_REQUESTS_PER_DOMAIN=20, DOWNLOAD_DELAY=0.0, DOWNLOAD_DELAY_PER_SLOT=0.0)
    sim = crawl(web_of(), free, many)
    assert max(together) > 1
    assert len(sim.items) == 20
    assert "httpcache/store" not in sim.stats
    assert sim.stats["httpcache/error"] == sum(together)
