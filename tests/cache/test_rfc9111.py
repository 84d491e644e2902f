"""RFC 9111: what is kept, how long it is fresh, how it is asked about again."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.cache.crawls import HOST, Reader, crawl, settings
from trawl.cache.policy import MAX_HEURISTIC, Rfc9111Policy, age_of, directives_of, is_fresh, is_variant, lifetime_of
from trawl.cache.store import CacheEntry
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb

NOW = datetime(2025, 1, 1, tzinfo=UTC).timestamp()


def date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


def stored(*, status: int = 200, sent: dict[str, str] | None = None, came: float = 0.0, **fields: str) -> CacheEntry:
    pairs = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    return CacheEntry(
        url=f"{HOST}/",
        method="GET",
        sent=tuple((sent or {}).items()),
        status=status,
        fields=pairs,
        asked_at=NOW + came,
        came_at=NOW + came,
    )


def fresh(kept: CacheEntry, after: float, **wishes: str) -> bool:
    directives = directives_of(kept.headers.getlist("Cache-Control"))
    return is_fresh(kept, directives, {name.replace("_", "-"): value for name, value in wishes.items()}, NOW + after)


@pytest.mark.parametrize(
    ("fields", "lifetime"),
    [
        ({"Cache-Control": "max-age=60"}, 60.0),
        ({"Cache-Control": "max-age=60", "Expires": date(5)}, 60.0),
        ({"Cache-Control": "s-maxage=600, max-age=60"}, 60.0),  # a private cache
        ({"Date": date(0), "Expires": date(30)}, 30.0),
        ({"Expires": "0"}, 0.0),
        ({"Date": date(0), "Last-Modified": date(-1000)}, 100.0),
        ({"Date": date(0), "Last-Modified": date(-1e9)}, MAX_HEURISTIC),
        ({"Date": date(0), "Last-Modified": date(50)}, 0.0),
        ({"Cache-Control": "max-age=sixty"}, 0.0),
        ({}, 0.0),
    ],
)
def test_how_long_a_response_is_fresh(fields: dict[str, str], lifetime: float) -> None:
    kept = attrs.evolve(stored(), fields=tuple(fields.items()))
    directives = directives_of(kept.headers.getlist("Cache-Control"))
    assert lifetime_of(kept, directives) == pytest.approx(lifetime)


def test_a_status_that_is_not_to_be_guessed_about_is_not() -> None:
    assert lifetime_of(stored(status=302, Date=date(0), Last_Modified=date(-1000)), {}) == 0.0
    assert lifetime_of(stored(status=302, Date=date(0), Last_Modified=date(-1000)), {"public": ""}) == 100.0


def test_a_response_is_as_old_as_it_says_and_has_been_kept() -> None:
    assert age_of(stored(Age="20"), NOW + 5) == 25.0
    assert age_of(stored(Date=date(-30)), NOW + 5) == 35.0
    assert age_of(stored(Date=date(-30), Age="90"), NOW) == 90.0


VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40)


@given(VALUES, VALUES, st.floats(0, 1e9))
def test_whatever_a_server_says_a_response_is_as_old_as_it_has_been_kept(age: str, made: str, after: float) -> None:
    assert age_of(stored(Age=age, Date=made), NOW + after) >= after - 1e-6


@pytest.mark.parametrize(
    ("directives", "after", "wishes", "is_so"),
    [
        ("max-age=60", 59, {}, True),
        ("max-age=60", 60, {}, False),
        ("max-age=60, no-cache", 1, {}, False),
        ("max-age=60", 1, {"no_cache": ""}, False),
        ("max-age=60", 30, {"max_age": "20"}, False),
        ("max-age=60", 30, {"min_fresh": "40"}, False),
        ("max-age=60", 70, {"max_stale": "20"}, True),
        ("max-age=60", 70, {"max_stale": ""}, True),
        ("max-age=60", 90, {"max_stale": "20"}, False),
        ("max-age=60, must-revalidate", 70, {"max_stale": "20"}, False),
    ],
)
def test_what_may_be_given_without_asking(directives: str, after: float, wishes: dict[str, str], is_so: bool) -> None:
    assert fresh(stored(Cache_Control=directives), after, **wishes) is is_so


@pytest.mark.parametrize(
    ("method", "fields", "status", "is_kept"),
    [
        ("GET", {"Cache-Control": "max-age=60"}, 200, True),
        ("GET", {"Cache-Control": "private, max-age=60"}, 200, True),
        ("GET", {"Cache-Control": "no-store"}, 200, False),
        ("GET", {"ETag": '"a"'}, 200, True),
        ("GET", {}, 302, False),
        ("GET", {"Cache-Control": "max-age=60"}, 302, True),
        ("GET", {"Cache-Control": "max-age=60"}, 206, False),
        ("POST", {"Cache-Control": "max-age=60"}, 200, False),
    ],
)
def test_what_is_kept(method: str, fields: dict[str, str], status: int, is_kept: bool) -> None:
    response = Response(f"{HOST}/", status, fields)
    assert Rfc9111Policy().may_store(Request(f"{HOST}/", method=method), response) is is_kept


def test_directives_that_the_user_does_not_obey_are_not_there() -> None:
    policy = Rfc9111Policy(ignored=["no-store", "no-cache"])
    response = Response(f"{HOST}/", 200, {"Cache-Control": "no-store, no-cache, max-age=60"})
    assert policy.may_store(Request(f"{HOST}/"), response)
    kept = stored(Cache_Control="no-store, no-cache, max-age=60")
    assert policy.choose(Request(f"{HOST}/"), [kept], NOW + 1).conditions is None


def test_always_store_keeps_what_says_nothing_of_its_age() -> None:
    nothing_said = Response(f"{HOST}/", 302)
    assert not Rfc9111Policy().may_store(Request(f"{HOST}/"), nothing_said)
    assert Rfc9111Policy(always_store=True).may_store(Request(f"{HOST}/"), nothing_said)
    told = Response(f"{HOST}/", 200, {"Cache-Control": "no-store"})
    assert not Rfc9111Policy(always_store=True).may_store(Request(f"{HOST}/"), told)


def test_a_variant_is_for_requests_with_the_same_fields() -> None:
    kept = stored(sent={"Accept-Language": "de"}, Vary="Accept-Language, Cookie")
    assert is_variant(Request(f"{HOST}/", headers={"accept-language": "de"}), kept)
    assert not is_variant(Request(f"{HOST}/", headers={"Accept-Language": "en"}), kept)
    assert not is_variant(Request(f"{HOST}/", headers={"Accept-Language": "de", "Cookie": "a=1"}), kept)
    assert not is_variant(Request(f"{HOST}/"), stored(Vary="*"))


@pytest.mark.parametrize("name", ["Range", "If-None-Match", "If-Modified-Since"])
def test_a_request_with_conditions_of_its_own_is_not_answered(name: str) -> None:
    assert not Rfc9111Policy().may_answer(Request(f"{HOST}/", headers={name: "x"}))


class Again(Reader):
    """Asks for one page again and again, every forty seconds."""

    paths = ("/1",)

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"flags": response.flags, "body": response.text, "said": response.headers.get("X-Said")}
        await trio.sleep(40)
        if self.crawl.elapsed < 130:
            yield Request(response.url, dont_filter=True)


def conditional(max_age: int) -> tuple[SimulatedWeb, list[str | None]]:
    """A page that says 304 where it is asked with its tag."""
    asked: list[str | None] = []

    def answer(request: Any) -> SimulatedResponse:
        asked.append(request.headers.get("If-None-Match"))
        fields = {"ETag": '"a"', "Cache-Control": f"max-age={max_age}", "X-Said": str(len(asked))}
        is_same = asked[-1] == '"a"'
        return SimulatedResponse(status=304 if is_same else 200, body="" if is_same else "page", headers=fields)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    return web, asked


def test_a_stale_response_is_asked_about_and_given_again(tmp_path: Path) -> None:
    web, asked = conditional(max_age=60)
    sim = crawl(web, settings(tmp_path, HTTPCACHE_POLICY="rfc9111"), Again)
    assert asked == [None, '"a"']
    assert [item["body"] for item in sim.items] == ["page"] * 4
    assert [item["said"] for item in sim.items] == ["1", "1", "2", "2"]
    assert [item["flags"] for item in sim.items] == [[], ["cached"], ["cached"], ["cached"]]
    assert sim.stats["httpcache/revalidate"] == 1
    assert sim.stats["httpcache/hit"] == 2
    assert sim.stats["request_count"] == 2


@pytest.mark.parametrize("edit", ["UPDATE body SET content = x'00'", "DELETE FROM body"])
def test_a_stale_response_that_can_not_be_read_costs_no_page(tmp_path: Path, edit: str) -> None:
    web, asked = conditional(max_age=60)

    class Damaged(Again):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            async for each in super().parse(response):
                yield each
            connection = sqlite3.connect(tmp_path / "reader.sqlite3", isolation_level=None)
            connection.execute(edit)
            connection.close()

    sim = crawl(web, settings(tmp_path, HTTPCACHE_POLICY="rfc9111"), Damaged)
    assert [item["body"] for item in sim.items] == ["page"] * len(sim.items)
    assert len(sim.items) == 4
    assert None in asked[1:]


def test_a_304_about_another_response_is_followed_by_a_request_without_conditions(tmp_path: Path) -> None:
    asked: list[str | None] = []

    def answer(request: Any) -> SimulatedResponse:
        asked.append(request.headers.get("If-None-Match"))
        fields = {"ETag": f'"{len(asked)}"', "Cache-Control": "max-age=60"}
        return SimulatedResponse(status=304 if asked[-1] else 200, body="" if asked[-1] else "page", headers=fields)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    sim = crawl(web, settings(tmp_path, HTTPCACHE_POLICY="rfc9111"), Again)
    assert [item["body"] for item in sim.items] == ["page"] * 4
    assert asked == [None, '"1"', None]


def test_a_new_page_takes_the_place_of_the_stale_one(tmp_path: Path) -> None:
    versions = iter(range(10))

    def answer(request: Any) -> SimulatedResponse:
        number = next(versions)
        fields = {"ETag": f'"{number}"', "Cache-Control": "max-age=1"}
        return SimulatedResponse(body=f"page {number}", headers=fields)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    sim = crawl(web, settings(tmp_path, HTTPCACHE_POLICY="rfc9111"), Again)
    assert [item["body"] for item in sim.items] == [f"page {n}" for n in range(4)]


def test_a_change_by_post_makes_what_was_kept_invalid(tmp_path: Path) -> None:
    class Changes(Reader):
        paths = ("/1",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            again = await self.fetch(Request(response.url))
            await self.fetch(Request(response.url, method="POST"))
            after = await self.fetch(Request(response.url))
            return {"before": again.flags, "after": after.flags}

    web = SimulatedWeb()
    fields = {"Cache-Control": "max-age=3600"}
    web.add_host("a.example", handler=lambda request: SimulatedResponse(headers=fields))
    sim = crawl(web, settings(tmp_path, HTTPCACHE_POLICY="rfc9111"), Changes)
    assert sim.items == [{"before": ["cached"], "after": []}]
    assert sim.stats["httpcache/invalidate"] == 1


def test_variants_are_kept_side_by_side_and_chosen_by_the_fields_that_will_be_sent(tmp_path: Path) -> None:
    class Two(Reader):
        async def start(self) -> Any:
            for language in ("de", "en"):
                yield Request(f"{HOST}/", headers={"Accept-Language": language}, dont_filter=True)
            yield Request(f"{HOST}/default", dont_filter=True)

    def answer(request: Any) -> SimulatedResponse:
        fields = {"Cache-Control": "max-age=3600", "Vary": "Accept-Language, User-Agent"}
        return SimulatedResponse(body=request.headers["Accept-Language"], headers=fields)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    values = settings(tmp_path, HTTPCACHE_POLICY="rfc9111")
    first, again = crawl(web, values, Two), crawl(web, values, Two)
    assert len(first.sends) == 3
    assert again.sends == ()
    assert sorted(item["body"] for item in again.items) == ["de", "en", "en"]


@pytest.mark.parametrize("path", ["scrapy.extensions.httpcache.RFC2616Policy", "rfc2616", "RFC9111"])
def test_scrapys_name_of_the_policy_means_it_too(tmp_path: Path, path: str) -> None:
    web, asked = conditional(max_age=60)
    crawl(web, settings(tmp_path, HTTPCACHE_POLICY=path), Again)
    assert asked == [None, '"a"']
