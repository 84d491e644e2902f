"""Receipts: the figures of a crawl's sends, and the rules that they obeyed or broke."""

from __future__ import annotations

import ast
import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

import trawl
from tests.cli.simulated import crawl_on
from trawl.cli import main
from trawl.cli.crawl import crawl_command
from trawl.cli.crawl_entry import CrawlOptions
from trawl.cli.view import stderr_console
from trawl.errors import UsageError
from trawl.observe import rate_words
from trawl.scheduler import Attempt
from trawl.testing import RateLimit, SimulatedResponse, SimulatedWeb, simulate
from trawl.testing import receipt as receipts
from trawl.testing.receipt import MAX_BARS, Checker, check_files, check_receipt_name

SPIDER = """
import trawl


class Pages(trawl.Spider):
    name = "pages"
    start_urls = [f"http://a.example/{number}" for number in range(8)]
    custom_settings = {"DOWNLOAD_DELAY_PER_SLOT": 0, "RANDOMIZE_DOWNLOAD_DELAY": False}

    def parse(self, response):
        yield {"url": response.url}
"""


class Pages(trawl.Spider):
    name = "pages"
    start_urls = [f"http://a.example/{number}" for number in range(20)]
    custom_settings = {"RANDOMIZE_DOWNLOAD_DELAY": False}

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}


def recorded(tmp_path: Path, web: SimulatedWeb, spider: type[trawl.Spider] = Pages, **settings: Any) -> str:
    simulate(spider, web, {"WARC_FILE": str(tmp_path / "crawl.warc.gz"), **settings}, errors="collect")
    return str(tmp_path / "crawl.warc.gz")


def test_a_polite_crawl_breaks_no_rule(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        latency=0.2,
        robots="User-agent: *\nCrawl-delay: 3\nDisallow: /7",
        limit=RateLimit(0.2, 3, retry_after=True),
    )
    _, receipt = check_files([recorded(tmp_path, web)])
    (scope,) = receipt.scopes
    assert receipt.is_clean
    assert (scope.scope, scope.most_in_flight) == ("a.example", 1)
    assert scope.shortest_gap is not None
    assert scope.shortest_gap >= 3.0 - receipt.grace
    assert scope.refusals > 0
    assert all(receipt.checked[rule] > 5 for rule in ("Retry-After", "Crawl-delay", "robots.txt"))
    assert receipt.unread == 0
    assert receipt.started_utc == datetime(2025, 1, 1, tzinfo=UTC)


def test_the_figures_are_those_of_the_simulation(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=2.5)
    web.add_host("b.example", latency=0.1)

    class Both(Pages):
        start_urls = [f"http://{host}.example/{number}" for number in range(150) for host in "ab"]

    pace = {"a.example": {"delay": 0.5, "delay_per_slot": 0, "concurrency": 4}}
    path = str(tmp_path / "crawl.warc.gz")
    sim = simulate(Both, web, {"WARC_FILE": path, "THROTTLING_SCOPES": pace})
    _, receipt = check_files([path])
    assert receipt.sends == len(sim.sends)
    for scope in receipt.scopes:
        times = sim.times(scope.scope)
        assert scope.sends == len(times)
        assert scope.most_in_flight == sim.most_in_flight(scope.scope)
        assert scope.shortest_gap == pytest.approx(min(sim.gaps(scope.scope)), abs=2e-6)
        assert scope.most_in_window == max(sum(at - 59.999 <= each <= at for each in times) for at in times)


def test_a_rude_crawl_is_seen(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /7", limit=RateLimit(0.2, 3, retry_after=9))

    class Rude(Pages):
        custom_settings = {
            "ROBOTSTXT_OBEY": False,
            "BACKOFF_HTTP_CODES": [],
            "RETRY_ENABLED": False,
        }
        start_urls = ["http://a.example/robots.txt", *Pages.start_urls]

    _, receipt = check_files([recorded(tmp_path, web, Rude)])
    assert receipt.violations["robots.txt"] == 1
    assert not receipt.is_clean
    assert [each.url for each in receipt.examples if each.rule == "robots.txt"] == ["http://a.example/7"]


def sends(checker: Checker, *events: tuple[float, str]) -> None:
    for at, path in events:
        checker.sent(at, f"http://a.example{path}", ["a.example"])
        checker.ended(at + 0.1, f"http://a.example{path}", ["a.example"], 200)


def test_a_send_within_retry_after_is_a_violation() -> None:
    checker = Checker()
    checker.sent(0.0, "http://a.example/", ["a.example"])
    checker.sent(0.5, "http://a.example/in-flight", ["a.example"])
    checker.ended(1.0, "http://a.example/", ["a.example"], 429, 10.0)
    sends(checker, (5.0, "/early"), (11.0, "/in-time"))
    checker.sent(5.0, "http://b.example/", ["b.example"])
    receipt = checker.receipt("test")
    assert receipt.violations == {"Retry-After": 1, "Crawl-delay": 0, "robots.txt": 0}
    assert [(each.url, each.at, each.early) for each in receipt.examples] == [("http://a.example/early", 5.0, 6.0)]
    assert receipts.violation_words(receipt.examples[0]) == (
        "Retry-After at 5.000 s: http://a.example/early was 6.000 s early"
    )


def test_a_shorter_retry_after_does_not_shorten_a_longer_one() -> None:
    checker = Checker()
    checker.sent(0.0, "http://a.example/", [])
    checker.ended(1.0, "http://a.example/", [], 429, 10.0)
    checker.ended(1.5, "http://a.example/", [], 503, 2.0)
    checker.sent(8.0, "http://a.example/", [])
    assert checker.receipt("test").violations["Retry-After"] == 1
    assert checker.receipt("test").exempt == 2


def test_a_crawl_delay_and_rules_count_once_they_are_read() -> None:
    checker = Checker()
    sends(checker, (0.0, "/no"), (0.2, "/robots.txt"))
    body = b"User-agent: mine\nCrawl-delay: 2\nDisallow: /no\nUser-agent: *\nDisallow: /"
    checker.read_robots(
        "http://a.example/robots.txt", 200, body, trawl.http.Headers(), "mine/1.0 (+https://me.example)"
    )
    sends(checker, (2.2, "/1"), (4.2, "/2"), (5.0, "/no"))
    receipt = checker.receipt("test")
    assert receipt.unread == 1
    assert receipt.checked == {"Retry-After": 0, "Crawl-delay": 3, "robots.txt": 3}
    assert receipt.violations == {"Retry-After": 0, "Crawl-delay": 1, "robots.txt": 1}
    assert [(each.rule, each.early) for each in receipt.examples] == [("robots.txt", 0.0), ("Crawl-delay", 1.2)]
    assert receipts.rule_words(receipt) == [
        "Retry-After: nothing to check",
        "Crawl-delay: 1 violation in 3 sends",
        "robots.txt: 1 violation in 3 sends",
        "robots.txt was not read before 1 send",
    ]


@pytest.mark.parametrize(
    ("status", "is_allowed"),
    [(404, True), (503, False), (301, None)],
)
def test_a_missing_robots_txt_allows_all_and_a_broken_one_nothing(status: int, is_allowed: bool | None) -> None:
    checker = Checker()
    checker.read_robots("http://a.example/robots.txt", status, b"", trawl.http.Headers(), "x")
    sends(checker, (0.0, "/"))
    receipt = checker.receipt("test")
    assert (receipt.unread, receipt.checked["robots.txt"]) == ((1, 0) if is_allowed is None else (0, 1))
    assert receipt.is_clean is (is_allowed is not False)


def test_a_redirected_robots_txt_counts_for_both_origins(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("www.a.example", robots="User-agent: *\nDisallow: /7")
    web.add_host("a.example", robots=SimulatedResponse(301, "", {"Location": "http://www.a.example/robots.txt"}))
    _, receipt = check_files([recorded(tmp_path, web)])
    assert (receipt.unread, receipt.is_clean, receipt.checked["robots.txt"]) == (0, True, 19)


def test_a_robots_txt_that_was_not_modified_stays_valid() -> None:
    checker, headers, url = Checker(), trawl.http.Headers(), "http://a.example/robots.txt"
    checker.read_robots(url, 200, b"User-agent: *\nDisallow: /no", headers, "x")
    checker.read_robots(url, 304, b"", headers, "x")
    sends(checker, (0.0, "/"), (1.0, "/no"))
    receipt = checker.receipt("test")
    assert (receipt.checked["robots.txt"], receipt.violations["robots.txt"]) == (2, 1)
    assert not checker._robots._redirected


def test_a_robots_txt_in_use_outlives_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_ORIGINS", 2)
    checker, headers = Checker(), trawl.http.Headers()
    for host in "abc":
        checker.read_robots(f"http://{host}.example/robots.txt", 404, b"", headers, "x")
        sends(checker, (0.0, "/"))
    assert {*checker._robots._files} == {"http://a.example", "http://c.example"}
    assert checker.receipt("test").unread == 0


def test_only_the_figures_of_idle_scopes_are_kept() -> None:
    checker = Checker()
    for number in range(200):
        host = f"{number // 2}.example"
        checker.sent(number * 10.0, f"http://{host}/", [host])
    assert len(checker._recent) <= 4
    assert sum(len(scope.times) for scope in checker._scopes.values()) <= 8
    assert {(each.sends, each.most_in_window) for each in checker.receipt("test").scopes} == {(2, 2)}


def test_the_checker_has_the_crawls_name_in_robots_txt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.py").write_text(SPIDER)
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: mine\nDisallow: /7\nUser-agent: *\nDisallow: /")
    options = CrawlOptions(
        targets=["pages.py"],
        settings=["DOWNLOAD_DELAY=0.005", "ROBOTSTXT_USER_AGENT=mine"],
        receipt="receipt.json",
        is_quiet=True,
    )
    assert crawl_command(options, crawl_on(web), stderr_console()) == 0
    found = json.loads((tmp_path / "receipt.json").read_text())
    assert (found["checked"]["robots.txt"], found["violations"]["robots.txt"]) == (7, 0)


def test_the_origins_that_redirect_their_robots_txt_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_REDIRECTING", 3)
    checker, headers = Checker(), trawl.http.Headers({"Location": "http://z.example/robots.txt"})
    for host in "abcdaa":
        checker.read_robots(f"http://{host}.example/robots.txt", 301, b"", headers, "x")
    assert [*checker._robots._redirected] == ["http://z.example/robots.txt"]
    checker.read_robots("http://z.example/robots.txt", 404, b"", trawl.http.Headers(), "x")
    assert [*checker._robots._files] == [f"http://{host}.example" for host in "zcda"]


def test_a_redirect_of_robots_txt_to_nowhere_is_ignored() -> None:
    checker = Checker()
    headers = trawl.http.Headers({"Location": "http://[::1"})
    checker.read_robots("http://a.example/robots.txt", 302, b"", headers, "x")
    sends(checker, (0.0, "/"))
    assert checker.receipt("test").unread == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("", None),
        ("soon", None),
        ("\u00b2", None),
        ("\u0663", None),
        (format_datetime(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), usegmt=True), 60.0),
        ("Thu, 99 Jan 2026 00:00:00 GMT", None),
        ("9" * 50, 999_999_999.0),
    ],
)
@pytest.mark.parametrize("has_date", [True, False])
def test_a_wait_is_seconds_or_a_date(value: str, seconds: float | None, has_date: bool) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    headers = {"Retry-After": value}
    if has_date:  # the server's clock is an hour off
        headers["Date"] = format_datetime(now + timedelta(hours=1), usegmt=True)
        if seconds == 60.0:
            headers["Retry-After"] = format_datetime(now + timedelta(hours=1, minutes=1), usegmt=True)
    assert receipts._retry_after(trawl.http.Headers(headers), now) == seconds


def test_bars_get_longer_with_the_crawl() -> None:
    checker = Checker()
    for number in range(1000):
        checker.sent(float(number), "http://a.example/", ["a.example"])
    bars = checker._bars["a.example"].rates()
    assert len(bars) <= MAX_BARS
    assert bars[0].end == 8.0
    assert sum(bar.rate * (bar.end - bar.start) for bar in bars) == 1000
    assert checker.plot("rates").startswith("<svg")


LOG = """\
192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 2326 "-" "Bot/1.0"
192.0.2.1 - - [10/Oct/2026:13:55:39 +0000] "GET /b HTTP/1.1" 429 10 "-" "Bot/1.0"
www.example.com:80 192.0.2.1 - me [10/Oct/2026:13:55:37 +0000] "POST /c HTTP/1.1" 200 - "-" "Bot/1.0"
192.0.2.1 - - [10/Oct/2026:13:55:40 +0000] "GET http://b.example/d HTTP/1.1" 200 5
"""


def test_an_access_log_is_checked(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(LOG)
    (tmp_path / "access.log.gz").write_bytes(gzip.compress(LOG.encode()))
    _, packed = check_files([str(tmp_path / "access.log.gz")])
    _, receipt = check_files([str(tmp_path / "access.log")])
    assert (packed.sends, packed.seconds) == (receipt.sends, receipt.seconds)
    assert [(each.scope, each.sends, each.refusals) for each in receipt.scopes] == [
        ("access.log", 2, 1),
        ("b.example", 1, 0),
        ("www.example.com", 1, 0),
    ]
    assert receipt.scopes[0].shortest_gap == 3.0
    assert receipt.grace == 1.0
    assert receipt.is_clean
    assert receipt.started_utc == datetime(2026, 10, 10, 13, 55, 36, tzinfo=UTC)


def log_line(at: str, rest: str = '"GET /a HTTP/1.1" 200 5') -> str:
    return f"192.0.2.1 - - [{at}] {rest}\n"


@pytest.mark.parametrize(
    ("first", "second", "gap", "grace"),
    [
        ("10/Oct/2026:13:55:36 +0000", "10/Oct/2026:13:55:37 +0000", 1.0, 1.0),
        ("10/Oct/2026:13:55:36.000 +0000", "10/Oct/2026:13:55:36.250 +0000", 0.25, 0.001),
        ("10/Oct/2026:13:55:36,5 +0000", "10/Oct/2026:15:55:37 +0200", 0.5, 0.001),
        ("2026-10-10T13:55:36+00:00", "2026-10-10T15:55:38+02:00", 2.0, 1.0),
        ("1791000000.000", "1791000000.125", 0.125, 0.001),
        ("31/Dec/1999:23:59:59 +0000", "01/Jan/2026:00:00:00 +0000", 820540801.0, 1.0),
        ("10/Oct/2026:13:55:37 +0000", "10/Oct/2026:13:55:30 +0000", 7.0, 1.0),  # the clock went back
    ],
)
def test_times_of_a_log_have_several_forms(tmp_path: Path, first: str, second: str, gap: float, grace: float) -> None:
    (tmp_path / "access.log").write_text(log_line(first) + log_line(second))
    checker, receipt = check_files([str(tmp_path / "access.log")])
    assert receipt.scopes[0].shortest_gap == pytest.approx(gap, abs=1e-6)
    assert (receipt.grace, receipt.sends) == (grace, 2)
    assert checker.plot("rates").startswith("<svg")


@pytest.mark.parametrize(
    ("request_line", "path"),
    [
        ("GET /a", "/a"),
        (r"GET /a\"b\"c HTTP/1.1", "/a/%22b/%22c"),
        (r"GET /a\\ HTTP/1.1", "/a//"),
        (r"GET /a \"b\" HTTP/1.1", "/a"),
        (r"GET /\x22 HTTP/1.1", "//x22"),
        ("GET /" + "a" * 300_000 + " HTTP/1.1", "/" + "a" * 300_000),
    ],
    ids=["plain", "quotes", "backslashes", "quotes after a space", "hexadecimal", "long"],
)
def test_a_request_of_a_log_may_have_quotes_or_be_long(tmp_path: Path, request_line: str, path: str) -> None:
    line = log_line("10/Oct/2026:13:55:36 +0000", f'"{request_line}" 200 5')
    assert receipts._of_line(line, "access.log")[0].url == f"http://log.invalid{path}"
    with pytest.raises(ValueError, match=r"^not a request$"):  # found in time that is linear in the length of the line
        receipts._of_line(line.replace(" 200 5", " x"), "access.log")


def test_a_log_with_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(receipts, "MAX_LINE", 100)
    for content in (log_line("10/Oct/2026:13:55:36 +0000") + "x" * 101, "\n" + " " * 200 + "\n"):
        (tmp_path / "access.log").write_text(content)
        with pytest.raises(UsageError, match=r"access\.log, line 2: it has more than 100 characters"):
            check_files([str(tmp_path / "access.log")])
    (tmp_path / "access.log").write_text('{"time": 1, "url": "http://a.example/"}'.ljust(99) + "\n" + "\n" * 9)
    assert check_files([str(tmp_path / "access.log")])[1].sends == 1


def test_addresses_of_a_log_may_be_ipv6(tmp_path: Path) -> None:
    lines = log_line("10/Oct/2026:13:55:36 +0000").replace("192.0.2.1", "[2001:db8::1]:8080 2001:db8::2")
    (tmp_path / "access.log").write_text(lines + lines.replace("[2001:db8::1]:8080 ", ""))
    _, receipt = check_files([str(tmp_path / "access.log")])
    assert [scope.scope for scope in receipt.scopes] == ["[2001:db8::1]:8080", "access.log"]


def test_the_figures_of_the_longest_idle_scopes_are_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_SCOPES", 2)
    checker = Checker()
    for number in range(10):
        for at in (0.0, 2.0 - number / 10):
            checker.sent(number * 100.0 + at, f"http://{number}.example/", [f"{number}.example"])
            checker.ended(number * 100.0 + at, f"http://{number}.example/", [f"{number}.example"], 429)
    receipt = checker.receipt("test")
    assert [scope.scope for scope in receipt.scopes] == ["8.example", "9.example", "8 other scopes"]
    others = receipt.scopes[-1]
    assert (others.sends, others.refusals, others.shortest_gap, others.most_in_window) == (16, 16, 1.3, 2)
    assert (others.seconds, receipts.scope_cells(others)[2]) == (701.3, rate_words(15 / 701.3))
    assert len(checker._bars) == 2
    assert sum(scope.sends for scope in receipt.scopes) == receipt.sends == 20
    assert checker.plot("rates").startswith("<svg")


def test_lines_of_json_are_checked(tmp_path: Path) -> None:
    lines = [
        {"time": 1.25, "url": "http://A.example", "finished": 2.5, "status": 200},
        {"time": "1970-01-01T00:00:01.5Z", "url": "http://a.example/x"},
    ]
    (tmp_path / "sends.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    _, receipt = check_files([str(tmp_path / "sends.jsonl")])
    (scope,) = receipt.scopes
    assert (scope.shortest_gap, scope.most_in_flight, receipt.grace) == (0.25, 2, 0.001)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.log", "hello\n", "x.log, line 1: not a request; a line is a request in the combined log format"),
        ("x.log", LOG + "{}\n", "x.log, line 5: Object missing required field `time`"),
        ("x.log", '{"time": 1, "url": "nowhere"}', "x.log, line 1: "),
        (
            "x.log",
            '{"time": 1791000000000, "url": "http://a.example"}',
            "x.log, line 1: the time 1791000000000.0 is not",
        ),
        ("x.log", '{"time": 1, "url": "http://a.example", "finished": -1}', "x.log, line 1: the time -1.0 is not"),
        ("x.log", None, "x.log: can't be read: No such file or directory"),
        ("x.log", "", "x.log: no request was found in it"),
        ("x.warc", "", "x.warc: no request was found in it"),
        ("x.log.gz", "hello", "x.log.gz: can't be read: Not a gzipped file"),
        ("x.log.gz", gzip.compress(LOG.encode(), mtime=0)[:60], "x.log.gz: can't be read: Compressed file ended"),
        ("x.log", log_line("10/Oct/2026:13:55:36"), "x.log, line 1: Invalid isoformat string"),
        ("x.log", log_line("2026-10-10T13:55:36"), "x.log, line 1: the time 2026-10-10T13:55:36 has no offset"),
        ("x.log", log_line("10/Oct/2026:13:55:36 +0000", '"\\x16\\x03" 400 5'), "x.log, line 1: not a request"),
        ("x.log", log_line("1" * 65, '"GET / HTTP/1.1" 200 5'), "x.log, line 1: not a request"),
        ("x.warc", "hello", "is not a WARC file"),
        ("x.warc.gz", None, "x.warc.gz: can't be read: No such file or directory"),
    ],
)
def test_a_file_that_can_not_be_checked_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str | bytes | None,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["receipt", "--check", name]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_the_command_prints_and_writes_a_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "access.log").write_text(LOG)
    assert main(["receipt", "--check", "access.log", "-o", "out.json"]) == 0
    output = capsys.readouterr().out
    assert "access.log" in output
    assert "Retry-After: nothing to check" in output
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["version"], found["sends"], found["scopes"][0]["most_in_window"]) == (1, 4, 2)


def test_a_violation_gives_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /7")

    class Rude(Pages):
        custom_settings = {"ROBOTSTXT_OBEY": False}
        start_urls = ["http://a.example/robots.txt", *Pages.start_urls]

    assert main(["receipt", "--check", recorded(tmp_path, web, Rude)]) == 1
    assert re.search(r"robots.txt at \d\.\d+ s: http://a.example/7 was not allowed", capsys.readouterr().out)


def test_a_crawl_writes_its_receipt_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.py").write_text(SPIDER)
    web = SimulatedWeb()
    web.add_host("a.example")
    options = CrawlOptions(
        targets=["pages.py"], settings=["DOWNLOAD_DELAY=0.005"], receipt="<receipt>.html", is_quiet=True
    )
    assert crawl_command(options, crawl_on(web), stderr_console()) == 0
    page = (tmp_path / "<receipt>.html").read_text()
    assert "<h1>Receipt: spider pages</h1>" in page
    assert "<td>a.example</td><td>9</td>" in page
    assert "robots.txt: obeyed by 8 sends" in page
    assert "<svg" in page
    assert "<script" not in page


def test_a_cancelled_send_is_counted_once() -> None:
    checker, request = Checker(), trawl.Request("http://a.example/")
    attempt = Attempt(request, (("a.example", None),))
    checker.record(attempt, None, 1.0)
    checker.record(attempt, None, 2.0)
    checker.record(Attempt(request, (), is_exempt=True), None, 3.0)
    receipt = checker.receipt("test")
    assert (receipt.sends, receipt.exempt, receipt.seconds) == (2, 1, 2.0)
    assert [(each.sends, each.most_in_flight) for each in receipt.scopes] == [(1, 1)]


def test_an_error_in_the_checker_neither_ends_the_crawl_nor_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Checker, "ended", fail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.py").write_text(SPIDER)
    web = SimulatedWeb()
    web.add_host("a.example")
    options = CrawlOptions(
        targets=["pages.py"], settings=["DOWNLOAD_DELAY=0.005"], receipt="receipt.html", is_quiet=True
    )
    assert crawl_command(options, crawl_on(web), stderr_console()) == 0
    assert "9 events not checked, because of an error in trawl" in (tmp_path / "receipt.html").read_text()
    assert sum("not checked for the receipt" in each.getMessage() for each in caplog.records) == 1


def test_markup_in_a_receipt_stays_text() -> None:
    checker = Checker()
    checker.sent(0.0, "http://a.example/<script>", ["<b>scope</b>"])
    checker.ended(0.0, "http://a.example/<script>", ["<b>scope</b>"], 429, 9.0)
    checker.sent(1.0, "http://a.example/<script>", ["<b>scope</b>"])
    page = receipts._page(checker.receipt("<i>spider</i>"), checker.plot("x"))
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;scope" in page


@pytest.mark.parametrize(
    ("name", "words"), [("x.txt", "must end in .json or .html"), ("no/x.json", "there is no folder no; make it first")]
)
def test_a_name_that_can_not_be_written_is_refused_before_the_crawl(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_receipt_name(name)


def test_several_spiders_have_no_receipt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pages.py").write_text(SPIDER)
    (tmp_path / "others.py").write_text(SPIDER.replace('"pages"', '"others"').replace("class Pages", "class Others"))
    files = [str(tmp_path / "pages.py"), str(tmp_path / "others.py")]
    assert main(["crawl", *files, "--receipt", "x.json"]) == 2
    assert "--receipt is for one spider in one process" in capsys.readouterr().err


def test_the_checker_knows_nothing_of_the_throttle() -> None:
    tree = ast.parse(Path(receipts.__file__).read_text("utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not [name for name in modules if name and name.startswith("trawl.throttling")]
