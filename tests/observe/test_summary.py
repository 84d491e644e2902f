from __future__ import annotations

import pytest

from trawl.observe import came_to_nothing, failings, summary_rows


def test_an_empty_crawl_has_a_summary_without_details() -> None:
    assert summary_rows("finished", 0.0, {}) == [
        ("ended", "finished"),
        ("elapsed", "0.0 s"),
        ("pages", "0"),
        ("items", "0"),
        ("rate", "0.0/s"),
    ]


def test_the_summary_tells_what_occurred() -> None:
    stats = {
        "response_count": 101,
        "item_scraped_count": 80,
        "response_status_count/200": 91,
        "response_status_count/404": 10,
        "dupefilter_filtered": 1200,
        "robots_forbidden": 3,
        "spider_exceptions": 2,
        "retry_count": 4,
        "finish_reason": "finished",
    }
    rows = dict(summary_rows("finished", 10.0, stats))
    assert rows["rate"] == "10.0/s"
    assert rows["statuses"] == "200: 91, 404: 10"
    assert rows["filtered"] == "seen before: 1,200, refused by robots.txt: 3"
    assert rows["errors"] == "callbacks: 2"
    assert rows["retries"] == "4"


def test_c12_the_summary_tells_where_the_time_of_a_request_went() -> None:
    stats = {
        "request_count": 10,
        "queued_seconds": 1230.0,
        "throttled_seconds": 10.0,
        "connecting_seconds": 0.04,
        "fetching_seconds": 0.001,
        "parsing_seconds": 0.9,
    }
    words = dict(summary_rows("finished", 10.0, stats))["each request"]
    assert words == "queued 2 min 3 s, throttled 1.0 s, connecting 4 ms, parsing 90 ms"


def test_many_kinds_are_cut_to_the_most_frequent() -> None:
    stats = {f"response_status_count/{500 + n}": n for n in range(1, 8)}
    assert dict(summary_rows("finished", 1.0, stats))["statuses"] == "507: 7, 506: 6, 505: 5, 504: 4, 3 other kinds"


def test_one_kind_is_not_called_kinds() -> None:
    stats = {f"response_status_count/{500 + n}": n for n in range(1, 6)}
    assert dict(summary_rows("finished", 1.0, stats))["statuses"].endswith("502: 2, 1 other kind")


def test_the_rate_of_a_job_is_that_of_all_its_runs() -> None:
    stats = {"response_count": 91, "job_run_count": 2, "elapsed_seconds": 30.0}
    rows = dict(summary_rows("finished", 0.5, stats))
    assert (rows["elapsed"], rows["rate"]) == ("0.5 s, 30 s in 2 runs", "3.0/s")
    assert dict(summary_rows("finished", 30.0, {**stats, "job_run_count": 1}))["elapsed"] == "30 s"


@pytest.mark.parametrize(
    ("key", "row", "words"),
    [
        ("unstorable_requests", "filtered", "not storable in the job: 7"),
        ("pages_filtered", "filtered", "over a page limit: 7"),
        ("item_invalid_count", "dropped items", "of the wrong type: 7"),
        ("file_error_count", "errors", "files: 7"),
        ("feed_item_errors", "errors", "items that a feed could not write: 7"),
        ("httpcache/hit", "from the cache", "7"),
        ("file_count", "files", "7"),
    ],
)
def test_what_is_left_out_or_spared_is_told(key: str, row: str, words: str) -> None:
    assert dict(summary_rows("finished", 1.0, {key: 7}))[row] == words


def test_a_reason_from_a_page_cannot_write_to_the_terminal() -> None:
    assert summary_rows("\x1b[2Jgone", 1.0, {})[0] == ("ended", r"\x1b[2Jgone")


@pytest.mark.parametrize(
    ("stats", "why"),
    [
        ({"download_error_count": 3}, "errors in downloads: 3"),
        ({"download_error_count": 3, "download_error_count/Reset": 3}, "errors in downloads: 3 (Reset: 3)"),
        ({"download_error_count": 1, "offsite_filtered": 2}, "errors in downloads: 1, offsite: 2"),
        ({}, "start() gave no request"),
    ],
)
def test_what_kept_a_crawl_from_sending_is_told_by_what_it_is(stats: dict[str, object], why: str) -> None:
    assert came_to_nothing("finished", {"finish_reason": "finished", **stats}) == f"nothing was sent: {why}"


def test_a_process_that_joined_others_may_find_nothing_left_to_do() -> None:
    assert came_to_nothing("finished", {"finish_reason": "finished", "shared/joined": True}) == ""


DONE = {"finish_reason": "finished", "request_count": 3}


@pytest.mark.parametrize(
    ("stats", "words"),
    [
        ({"download_error_count": 3, "download_error_count/Reset": 3}, "no server could be reached (Reset: 3)"),
        ({"response_count": 2, "spider_exceptions": 2}, "no item came: errors in callbacks: 2"),
        ({"response_count": 2, "item_lost_count": 5}, "no item came: errors in lost items: 5"),
        ({"response_count": 2, "item_error_count": 5}, "no item came: errors in pipelines: 5"),
        ({"response_count": 2, "download_error_count": 1}, ""),
        ({"response_count": 2, "spider_exceptions": 1, "item_scraped_count": 1}, ""),
        ({"response_count": 2}, ""),
    ],
)
def test_a_crawl_without_any_result_is_told(stats: dict[str, object], words: str) -> None:
    assert came_to_nothing("finished", {**DONE, **stats}) == words
    assert not came_to_nothing("shutdown", {**DONE, **stats})
    at_limit = words if words.startswith("no server") else ""
    assert came_to_nothing("closespider_timeout", {**DONE, **stats}) == at_limit


@pytest.mark.parametrize(
    ("stats", "found"),
    [
        ({}, {"no-items"}),
        ({"item_scraped_count": 1, "download_error_count": 2, "response_count": 9}, set()),
        ({"item_scraped_count": 1, "spider_exceptions": 1, "response_count": 9}, {"errors"}),
        ({"item_scraped_count": 1, "watcher_exceptions": 1}, {"errors"}),
        ({"download_error_count": 2}, {"no-items", "unreachable"}),
        ({"download_error_count": 2, "httpcache/hit": 1}, {"no-items"}),
    ],
)
def test_in_what_a_crawl_failed_is_told_by_its_statistics(stats: dict[str, object], found: set[str]) -> None:
    assert set(failings(stats)) == found
