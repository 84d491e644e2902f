from __future__ import annotations

from trawl.observe import Progress, Speed, Stats, progress_line, speed_between


def stats_of(**counts: int) -> Stats:
    stats = Stats()
    for key, n in counts.items():
        stats.inc(key, n)
    return stats


def test_progress_reads_the_statistics() -> None:
    stats = stats_of(response_count=7, item_scraped_count=3, spider_exceptions=1, download_error_count=2)
    now = Progress.of(stats, at=2.0, queued=5, in_flight=4)
    assert now == Progress(at=2.0, pages=7, items=3, queued=5, in_flight=4, errors=3)


def test_pace_is_counted_between_two_instants() -> None:
    assert speed_between(Progress(at=1, pages=10, items=0), Progress(at=3, pages=50, items=1)) == Speed(20.0, 0.5)


def test_without_time_there_is_no_pace() -> None:
    assert speed_between(Progress(at=1), Progress(at=1, pages=5)) == Speed(0.0, 0.0)


def test_a_line_says_everything_that_counts() -> None:
    now = Progress(at=60, pages=1203, items=950, queued=37, in_flight=4, errors=2)
    assert progress_line(now, Speed(20.05, 15.8)) == (
        "1,203 pages (20.1/s), 950 items (15.8/s), 37 queued, 4 in flight, 2 errors"
    )


def test_a_line_says_what_is_waited_for() -> None:
    """I11."""
    now = Progress(held=37, queued=37, waiting=("a.example delay 0.4 s", "b.example Retry-After 12 s"))
    assert progress_line(now, Speed()).endswith("37 waiting: a.example delay 0.4 s; b.example Retry-After 12 s")
