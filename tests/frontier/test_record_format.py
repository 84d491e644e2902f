"""A record comes back from its bytes as it was, or is refused when it is scheduled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.clock import WallClock
from trawl.frontier import Record, ScopeAmounts
from trawl.frontier.record_format import JobRecord, RecordFormat, repack, unpack
from trawl.http import FormRequest, JsonRequest, Request
from trawl.http.notes import NO_NOTES, RequestNotes, notes_of, set_notes, with_meta_or_notes

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class MySpider:
    def parse(self, response: object) -> None: ...

    def failed(self, error: object) -> None: ...


SPIDER = MySpider()


def record_format(at: float = 0.0, now_utc: datetime = NOON) -> RecordFormat:
    return RecordFormat(SPIDER, WallClock.started(at, now_utc))


def record(not_before: float = 0.0, **options: Any) -> Record:
    request = Request("http://a.example/x?q=1", **options)
    return Record(request, (("a.example", None), ("b", 2.5)), "http://a.example", b"f" * 16, not_before)


def there_and_back(given: Record) -> Record:
    return record_format().decode(record_format().encode(given, 0.0), 0.0)


def test_what_was_diverted_comes_back_as_such_and_takes_places_though_it_is_exempt() -> None:
    given = Record(Request("http://a.example/", meta={"dont_throttle": True}), (("b", None),), "http://b.example")
    assert (given.is_diverted, given.is_exempt, there_and_back(given).is_exempt) == (False, True, True)
    diverted = Record(given.request, given.scopes, given.origin, is_diverted=True)
    again = there_and_back(diverted)
    assert (again.is_diverted, again.is_exempt) == (True, False)
    assert again.lane == (("b",), "http://b.example")


@pytest.mark.parametrize("url", ["http://a.example/", "http://a.example?b//c", "HTTP://A.example:80/x", "data:,a"])
@pytest.mark.parametrize("origin", ["//a.example", "//a.example:80", "http://a.example", ""])
@pytest.mark.parametrize("scopes", [(), (("a.example", None),), (("a.example", 1.0),), (("", None), ("b", None))])
def test_scopes_and_origin_come_back_whatever_the_url_has_of_them(url: str, origin: str, scopes: ScopeAmounts) -> None:
    again = there_and_back(Record(Request(url), scopes, origin))
    assert (again.scopes, again.origin) == (scopes, origin)


def test_what_is_stored_of_a_plain_link_names_its_host_once() -> None:
    plain = Record(Request("http://www.a.example/b"), (("www.a.example", None),), "//www.a.example")
    assert record_format().encode(plain, 0.0).count(b"a.example") == 1


def test_a_url_that_was_written_without_a_path_comes_back_as_such() -> None:
    again = there_and_back(Record(Request("http://a.example"), (), "http://a.example")).request
    assert (again.url, again.written_url) == ("http://a.example/", "http://a.example")


def test_every_part_of_a_request_comes_back() -> None:
    original = record(
        callback=SPIDER.parse,
        errback=SPIDER.failed,
        method="POST",
        headers=[("X-Two", "a"), ("X-Two", "b"), ("Accept", None)],
        body=b"\x00\xff",
        cookies=[{"name": "n", "value": 1, "domain": "a.example"}],
        meta={"cookiejar": 1, "chain": ("x", 2), 3: None},
        cb_kwargs={"page": {"n": 1}},
        priority=-7,
        dont_filter=True,
    )
    original.request.depth = 4
    original = Record(original.request, original.scopes, original.origin, b"f" * 16, 0.0, 0.5, (None, 2.5))
    again = there_and_back(original)
    for name in ("url", "method", "body", "cookies", "meta", "cb_kwargs", "priority", "dont_filter", "depth"):
        assert getattr(again.request, name) == getattr(original.request, name), name
    assert again.request.callback == SPIDER.parse
    assert again.request.errback == SPIDER.failed
    assert again.request.headers.items_list() == original.request.headers.items_list()
    assert again.request.headers.setdefault("Accept", "*/*") is None  # a default that is refused stays refused
    assert (again.scopes, again.origin, again.fingerprint) == (original.scopes, original.origin, original.fingerprint)
    assert (again.share, again.amounts, again.lane) == (0.5, (None, 2.5), original.lane)


def test_amounts_of_a_managers_own_kind_of_number_come_back_as_numbers() -> None:
    amounts: Any = (Decimal("2.5"), 3)
    scopes: Any = (("a", Decimal("2.5")), ("b", 3))
    odd = Record(Request("http://a.example/"), scopes, "http://a.example", amounts=amounts)
    assert there_and_back(odd).scopes == (("a", 2.5), ("b", 3.0))
    assert there_and_back(odd).lane == odd.lane


def test_the_notes_of_a_request_come_back_and_are_not_in_its_meta() -> None:
    notes = RequestNotes(
        refused_at=7.5, refusals=2, is_bad_page=True, is_uncounted=True, admitted_at=8.5, proxy="http://p.example:1",
        keeps_proxy=True, session="anna", told_slot="a.example", needs_new_connection=True,
        bypasses_cache=True, vouched="host",
    )  # fmt: skip
    # Each send sets `through` again, and a job does not store sub-requests, nor who has a tab.
    stored = set(notes.__struct_fields__) - {"through", "is_sub_request", "has_tab"}
    assert all(getattr(notes, name) != getattr(NO_NOTES, name) for name in stored)
    meta = {"proxy": "http://p.example:1", "mine": 1}
    original = record(meta=meta)
    set_notes(original.request, notes)
    again = there_and_back(original).request
    assert (again.meta, notes_of(again)) == (meta, notes)
    bare = record()
    set_notes(bare.request, RequestNotes(refused_at=7.5))
    again = there_and_back(bare).request
    assert (again.has_meta, notes_of(again)) == (False, RequestNotes(refused_at=7.5))


def test_the_notes_that_an_earlier_release_stored_are_read() -> None:
    stored = unpack(record_format().encode(record(), 0.0))
    kept: dict[str, Any] = {"throttling_refused_at": 7.5, "throttling_refusals": 2, "throttling_bad_page": True}
    kept |= {"throttling_uncounted": True, "throttling_admitted_at": 8.5, "_dressed_by_session": "anna"}
    kept |= {"_proxy_is_chosen": "unsent", "proxy": "http://p.example:1", "mine": 1}
    again = record_format().decode(repack(stored, meta=kept), 0.0).request
    assert again.meta == {"proxy": "http://p.example:1", "mine": 1}
    assert notes_of(again) == RequestNotes(
        refused_at=7.5, refusals=2, is_bad_page=True, is_uncounted=True, admitted_at=8.5, proxy="http://p.example:1",
        keeps_proxy=True, session="anna",
    )  # fmt: skip


def test_a_bare_request_comes_back_bare() -> None:
    again = there_and_back(record())
    assert again.request.extras() == (None, None, None, None)
    assert again.request.callback is None
    assert again.not_before == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"meta": {"item": object()}}, r"^meta\['item'\] is of type object, which a job can't store: put plain"),
        ({"cb_kwargs": {"a": [print]}}, r"^cb_kwargs\['a'\]\[0\] is of type builtin_function"),
        ({"cookies": {"n": object()}}, r"^cookies\['n'\] is of type object"),
        ({"callback": lambda response: None}, "^the callback .*<lambda> is not a method of the spider"),
        ({"errback": print}, "^the errback print is not a method of the spider"),
        ({"priority": 2**64}, "^priority 18446744073709551616 can't be stored"),
    ],
    ids=["meta", "cb_kwargs", "cookies", "callback", "errback", "priority"],
)
def test_what_can_not_be_stored_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record_format().encode(record(**options), 0.0)


def test_a_request_of_a_users_own_class_is_refused() -> None:
    class Mine(Request):
        pass

    with pytest.raises(ValueError, match=r"^a Mine can't be stored in a job"):
        record_format().encode(Record(Mine("http://a.example/"), (), "http://a.example"), 0.0)


@pytest.mark.parametrize(
    "request_", [FormRequest("http://a.example/", formdata={"a": "b"}), JsonRequest("http://a.example/", data={"a": 1})]
)
def test_a_form_and_json_are_stored_as_the_plain_request_that_they_send(request_: Request) -> None:
    again = there_and_back(Record(request_, (), "http://a.example")).request
    assert type(again) is Request
    assert (again.method, again.body) == (request_.method, request_.body)
    assert again.headers == request_.headers


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.floats(-1e6, 1e6))
def test_p10_a_time_to_wait_for_is_kept_in_wall_time_and_never_grows(wait: float, away: float, step: float) -> None:
    blob = record_format(at=50.0).encode(record(not_before=50.0 + wait), 50.0)
    later = record_format(
        at=7.0, now_utc=NOON + timedelta(seconds=away + step)
    )  # another process, the clock set meanwhile
    left = later.decode(blob, 7.0).not_before - 7.0
    if step == 0.0:
        assert max(left, 0.0) == pytest.approx(max(wait - away, 0.0), abs=1e-3)
    assert left <= wait + 1e-6


def test_a_time_that_has_passed_is_not_stored() -> None:
    assert record_format().decode(record_format().encode(record(not_before=5.0), 9.0), 0.0).not_before == 0.0


def test_a_callback_that_the_spider_has_no_more_is_an_error_with_its_name() -> None:
    class Newer:
        pass

    blob = record_format().encode(record(callback=SPIDER.parse), 0.0)
    with pytest.raises(LookupError, match="the spider Newer has no method 'parse'"):
        RecordFormat(Newer(), WallClock.started(0.0)).decode(blob, 0.0)


@pytest.mark.parametrize("blob", [b"", b"\xc1", b"\x90", b"\x93\x01\x02\x03", b"cos\nsystem\n(S'id'\ntR."])
def test_bytes_that_are_no_record_are_an_error_and_nothing_more(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        record_format().decode(blob, 0.0)


def test_what_is_stored_is_read_through_the_checks_of_a_request() -> None:
    stored = unpack(record_format().encode(record(headers={"A": "b"}), 0.0))
    evil = {**{name: getattr(stored, name) for name in JobRecord.__struct_fields__}, "headers": [["A", "b\r\nC: d"]]}
    with pytest.raises(ValueError, match="control character"):
        record_format().decode(msgspec.msgpack.encode(JobRecord(**evil)), 0.0)


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("sink", object(), None),
        ("is_start_url", True, False),
        ("lacks_path", True, False),
        ("cookies", {"a": "1"}, None),
        ("notes", RequestNotes(refusals=2), NO_NOTES),
    ],
)
def test_a_value_that_was_cleared_is_like_one_that_was_never_set(name: str, value: Any, neutral: Any) -> None:
    request, untouched = Request("http://a.example/"), Request("http://a.example/")
    for each in (value, neutral):
        if name == "notes":
            set_notes(request, each)
        else:
            setattr(request, name, each)
        assert (request.plain_values() is None) == (each is value)
        assert with_meta_or_notes([request]) == ([request] if each is value else [])
    assert request.plain_values() == request.replace().plain_values() == untouched.plain_values() is not None
    assert request.extras() == untouched.extras()
    stored, expected = (record_format().encode(Record(each, (), ""), 0.0) for each in (request, untouched))
    assert stored == expected
