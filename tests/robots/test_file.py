from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.steps import TRIES, is_short
from trawl.robots import MAX_PARSED_BYTES, MAX_PATTERNS, MAX_RULES, RobotsFile, RobotsSettings

AGENT = "trawl/1.0 (+https://your.site/crawler)"
BASE = "https://a.example"


def read(text: str, agent: str = AGENT) -> RobotsFile:
    return RobotsFile.parse(200, text.encode(), agent)


def test_the_group_of_our_own_name_is_obeyed_and_not_that_of_everybody_r8() -> None:
    robots = read("User-agent: *\nDisallow: /\nCrawl-delay: 30\n\nUser-agent: Trawl\nDisallow: /private\n")
    assert robots.allows(f"{BASE}/open")
    assert not robots.allows(f"{BASE}/private/x")
    assert robots.crawl_delay is None


def test_the_group_of_everybody_holds_where_we_have_none_r8() -> None:
    robots = read("User-agent: *\nCrawl-delay: 4\nDisallow: /x\n\nUser-agent: other\nDisallow: /\n")
    assert robots.crawl_delay == 4.0
    assert robots.allows(f"{BASE}/")
    assert not robots.allows(f"{BASE}/x")


@pytest.mark.parametrize(("written", "seconds"), [("0.5", 0.5), ("3", 3.0), ("1.25 # slow", 1.25)])
def test_fractions_of_a_crawl_delay_are_kept_r8_d09(written: str, seconds: float) -> None:
    assert read(f"User-agent: trawl\nCrawl-delay: {written}\n").crawl_delay == seconds


@pytest.mark.parametrize("written", ["-1", "soon", "inf", "nan", ""])
def test_a_crawl_delay_that_is_none_has_no_effect_d11(written: str) -> None:
    assert read(f"User-agent: trawl\nCrawl-delay: {written}\n").crawl_delay is None


@pytest.mark.parametrize("name", ["trawl", "TRAWL", "trawl/1.0", "trawl*", "Trawl # us", " trawl "])
def test_our_name_is_found_in_any_case_and_with_a_version(name: str) -> None:
    assert not read(f"User-agent: {name}\nDisallow: /\n").allows(f"{BASE}/")


@pytest.mark.parametrize("name", ["tra", "trawlbot", "awl", "https", "pypi", "project", "trawl-crawler", "bot"])
def test_a_group_with_another_name_is_not_ours(name: str) -> None:
    assert read(f"User-agent: {name}\nDisallow: /\n").allows(f"{BASE}/")


def test_several_names_share_a_group() -> None:
    robots = read("User-agent: a\nUser-agent: trawl\nDisallow: /x\n")
    assert not robots.allows(f"{BASE}/x")


def test_the_longest_rule_wins_with_wildcards_and_anchors() -> None:
    robots = read("User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /*.pdf$\n")
    assert not robots.allows(f"{BASE}/a/c")
    assert robots.allows(f"{BASE}/a/b/c")
    assert not robots.allows(f"{BASE}/z.pdf")
    assert robots.allows(f"{BASE}/z.pdf?x=1")


def test_a_query_takes_part_and_a_fragment_does_not() -> None:
    robots = read("User-agent: *\nDisallow: /s?q=1\nDisallow: /*x$\n")
    assert not robots.allows(f"{BASE}/s?q=1")
    assert robots.allows(f"{BASE}/s?q=2")
    assert not robots.allows(f"{BASE}/x#y")


def test_robots_txt_itself_may_always_be_read() -> None:
    assert read("User-agent: *\nDisallow: /\n").allows(f"{BASE}/robots.txt")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 451, 301, 302])
def test_no_robots_txt_allows_everything_whatever_the_page_says_r17(status: int) -> None:
    robots = RobotsFile.parse(status, b"User-agent: *\nDisallow: /\nCrawl-delay: 9\n", AGENT)
    assert robots.allows(f"{BASE}/anything")
    assert robots.crawl_delay is None
    assert not robots.is_unreachable


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 999, 100])
def test_an_outage_disallows_everything_for_a_while_r17(status: int) -> None:
    robots = RobotsFile.parse(status, b"User-agent: *\nAllow: /\n", AGENT)
    assert not robots.allows(f"{BASE}/")
    assert robots.is_unreachable
    assert robots.expires_after == 10.0


def test_an_outage_is_asked_about_less_and_less_often_r17() -> None:
    settings = RobotsSettings(robotstxt_retry_delay=5.0)
    tries = [RobotsFile.parse(503, b"", AGENT, failures=n, settings=settings) for n in range(4)]
    assert [robots.expires_after for robots in tries] == [5.0, 10.0, 20.0, 40.0]
    assert RobotsFile.unreachable(5000, settings).expires_after == 86_400.0


def test_a_file_is_believed_for_a_day_rfc_9309_2_4() -> None:
    assert read("").expires_after == 86_400.0
    settings = RobotsSettings(robotstxt_max_age=60.0)
    assert RobotsFile.parse(404, b"", AGENT, settings=settings).expires_after == 60.0
    assert RobotsFile.parse(200, b"", AGENT, settings=settings).expires_after == 60.0


def test_the_name_of_our_group_can_be_set() -> None:
    settings = RobotsSettings(robotstxt_user_agent="newsbot")
    robots = RobotsFile.parse(200, b"User-agent: newsbot\nDisallow: /\n", AGENT, settings=settings)
    assert not robots.allows(f"{BASE}/")


def test_a_page_of_html_with_status_200_allows_everything_r17() -> None:
    robots = read("<!DOCTYPE html><html><body><h1>Not found</h1></body></html>")
    assert robots.allows(f"{BASE}/x")


def test_a_byte_order_mark_hides_no_rule() -> None:
    robots = RobotsFile.parse(200, b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /\r\n", AGENT)
    assert not robots.allows(f"{BASE}/")


def test_what_comes_after_half_a_megabyte_is_not_read() -> None:
    body = b"User-agent: *\n" + b"# padding\n" * 60_000 + b"Disallow: /\n"
    assert len(body) > 512_000
    assert RobotsFile.parse(200, body, AGENT).allows(f"{BASE}/")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_rule_that_is_cut_in_the_middle_is_no_rule_rfc_9309_2_5(end: str) -> None:
    start = f"User-agent: *{end}Disallow: /first{end}"
    cut = "Disallow: /private"
    padding = f"#{'x' * (MAX_PARSED_BYTES - len(start) - len(end) - len('Disallow: /') - 1)}{end}"
    body = f"{start}{padding}{cut}{end}".encode()
    assert body[:MAX_PARSED_BYTES].endswith(b"Disallow: /")
    for came in (body, body[:MAX_PARSED_BYTES]):
        robots = RobotsFile.parse(200, came, AGENT)
        assert not robots.allows(f"{BASE}/first")
        assert robots.allows(f"{BASE}/other")


def test_sitemaps_are_told() -> None:
    assert read("Sitemap: https://a.example/s.xml\nUser-agent: *\n").sitemaps == ("https://a.example/s.xml",)


@given(st.binary(max_size=300), st.integers(100, 599))
def test_no_answer_is_too_strange_to_judge(body: bytes, status: int) -> None:
    robots = RobotsFile.parse(status, body, AGENT)
    assert robots.expires_after > 0
    assert robots.allows(f"{BASE}/robots.txt") is not robots.is_unreachable


@given(st.lists(st.sampled_from(["Disallow: /", "Allow: /a", "Crawl-delay: 0.5", "", "# nothing", "Disallow"])))
def test_rules_of_a_foreign_group_never_bind_us(lines: list[str]) -> None:
    robots = read("\n".join(["User-agent: other", *lines]))
    assert robots.allows(f"{BASE}/b")
    assert robots.crawl_delay is None


def hostile(rule: str) -> bytes:
    """A file of half a megabyte, of rules that all have to be looked at."""
    rules = (rule % number for number in range(MAX_PARSED_BYTES // len(rule % 10_000)))
    return "\n".join(["User-agent: *", *rules]).encode()


@pytest.mark.parametrize("rule", ["Disallow:/%d", "Disallow:/*%d", "Allow:/*a*%d$", "Allow:/%d$", "User-agent: %d"])
def test_a_hostile_file_costs_little_to_read_and_little_a_url(rule: str) -> None:
    body = hostile(rule) + b"\nAllow:/\n"
    urls = [f"{BASE}/{number}" + "a" * 1_000 for number in range(50)]

    def parsed() -> RobotsFile:
        robots = RobotsFile.parse(200, body, AGENT)
        robots.allows(urls[0])
        return robots

    robots = parsed()
    assert any(is_short(seconds(parsed)) for _ in range(TRIES))
    assert any(is_short(seconds(lambda: [robots.allows(url) for url in urls])) for _ in range(TRIES))


def seconds(work: Callable[[], object]) -> float:
    """The CPU time of this thread that ``work`` takes."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def test_a_file_of_more_rules_than_are_matched_never_allows_what_the_whole_forbids() -> None:
    some = "".join(f"Allow: /open/{number}\n" for number in range(MAX_RULES))
    robots = read(f"User-agent: *\n{some}Disallow: /open/7/private\nAllow: /late\n")
    assert not robots.allows(f"{BASE}/open/7/private")
    assert not robots.allows(f"{BASE}/late")


def test_of_more_patterns_than_are_matched_the_rest_forbids_more_and_allows_nothing() -> None:
    some = "".join(f"Disallow: /a{number}*z\n" for number in range(MAX_PATTERNS))
    robots = read(f"User-agent: *\n{some}Disallow: /late/*.pdf$\nDisallow: /plain\nAllow: /late/*.txt\n")
    assert not robots.allows(f"{BASE}/a7/z")
    assert robots.allows(f"{BASE}/a7/y")
    assert not robots.allows(f"{BASE}/late/x.txt")
    assert not robots.allows(f"{BASE}/plain")
    assert robots.allows(f"{BASE}/other")


@pytest.mark.parametrize(
    ("early", "late", "path"),
    [
        ("", "Disallow: *.pdf", "/x.pdf"),
        ("Allow: /a/b", "Disallow: /a/b*secret", "/a/b/secret"),
        ("Allow: /a/bc", "Disallow: /a/b*secret", "/a/bc/secret"),
        ("Allow: /*/b", "Disallow: /a/*secret", "/a/b/secret"),
    ],
)
@pytest.mark.parametrize("patterns", [0, MAX_PATTERNS])
def test_what_a_late_pattern_forbids_is_forbidden_by_what_stands_for_it(
    early: str, late: str, path: str, patterns: int
) -> None:
    some = "".join(f"Disallow: /q{number}*z\n" for number in range(patterns))
    assert not read(f"User-agent: *\n{early}\n{some}{late}\n").allows(BASE + path)


def test_a_rule_said_ten_thousand_times_is_one_rule() -> None:
    robots = read("User-agent: *\n" + "Disallow: /x\n" * (MAX_RULES + 1) + "Allow: /x/y\n")
    assert robots.allows(f"{BASE}/other")
    assert robots.allows(f"{BASE}/x/y")
    assert not robots.allows(f"{BASE}/x")


@pytest.mark.parametrize("between", ["Sitemap: /s.xml", "# words", "", "words without a colon", "Host: a.example"])
def test_what_ends_no_group_stands_between_its_names(between: str) -> None:
    robots = read(f"User-agent: trawl\n{between}\nUser-agent: other\nDisallow: /x\n")
    assert not robots.allows(f"{BASE}/x")


MISSPELT = ["Disallow", "dissallow", "DISALOW", "dissalow", "diasllow", "disallaw"]  # codespell:ignore


@pytest.mark.parametrize("word", MISSPELT)
@pytest.mark.parametrize("colon", [":", " :", " ", "\t"])
def test_misspelt_rules_count_as_protego_has_them(word: str, colon: str) -> None:
    assert not read(f"User-agent: *\n{word}{colon}/x\n").allows(f"{BASE}/x")
