from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trawl.http import Times
from trawl.observe import Stats


def test_a_counter_begins_at_nothing_and_adds_up() -> None:
    stats = Stats()
    stats.inc("pages")
    stats.inc("pages", 4)
    stats.inc("seconds", 0.5)
    assert stats.as_dict() == {"pages": 5, "seconds": 0.5}


def test_reading_a_key_does_not_make_it() -> None:
    stats = Stats()
    assert stats.get("pages") is None
    assert stats.get("pages", 7) == 7
    assert stats.count("pages") == 0
    assert stats.as_dict() == {}


def test_statuses_are_counted_under_their_code() -> None:
    stats = Stats()
    for status in (404, 200, 200):
        stats.inc_status(status)
    assert stats.as_dict() == {"response_status_count/200": 2, "response_status_count/404": 1}
    assert stats.starting("response_status_count/") == {"200": 2, "404": 1}


@given(st.lists(st.integers(), min_size=1))
def test_max_and_min_keep_the_extremes(values: list[int]) -> None:
    stats = Stats()
    for value in values:
        stats.max("most", value)
        stats.min("least", value)
    assert (stats.get("most"), stats.get("least")) == (max(values), min(values))


def test_the_snapshot_is_sorted_and_does_not_move_with_the_crawl() -> None:
    stats = Stats()
    stats.set("b", "text")
    stats.set("a", None)
    snapshot = stats.as_dict()
    stats.set("a", 3)
    assert list(snapshot.items()) == [("a", None), ("b", "text")]


def test_a_scrapy_spider_finds_its_own_words() -> None:
    stats = Stats()
    stats.inc_value("mine", start=10)
    stats.set_value("set", 2)
    stats.max_value("set", 5)
    stats.min_value("set", 3)
    assert (stats.get_value("mine"), stats.get_value("set"), stats.get_value("none", 1)) == (11, 3, 1)
    assert stats.get_stats() == stats.as_dict()


def test_c12_the_times_of_requests_are_statistics_and_go_on_from_an_earlier_run() -> None:
    stats = Stats()
    stats.times.add(Times(queued=3.0, fetching=0.5))
    stats.times.add(Times(queued=1.0, connecting=0.25))
    stats.times.parsing += 2.0
    told = {"connecting_seconds": 0.25, "fetching_seconds": 0.5, "parsing_seconds": 2.0, "queued_seconds": 4.0}
    assert stats.as_dict() == told
    assert stats.get("queued_seconds") == 4.0
    assert stats.times.mean() == Times(2.0, 0.0, 0.125, 0.25, 1.0)
    later = Stats()
    later.restore(told)
    later.times.add(Times(queued=1.0))
    assert later.as_dict() == {**told, "queued_seconds": 5.0}


def test_what_scrapy_counts_under_another_name_is_found_by_that() -> None:
    stats = Stats()
    stats.inc_status(200)
    stats.inc("dupefilter_filtered", 3)
    stats.inc("mine/a/b")
    assert stats.get_value("downloader/response_status_count/200") == 1
    assert stats.get_value("dupefilter/filtered") == 3
    assert stats.get_value("downloader/request_count", 0) == 0
    assert stats.get_value("mine/a/b") == 1
    stats.inc("spider_exceptions", 2)
    assert stats.get_value("spider_exceptions/count") == 2
    assert stats.get_value("mine/a/c", 7) == 7
    stats.set_value("dupefilter/filtered", 1)
    assert stats.get_value("dupefilter/filtered") == 1
