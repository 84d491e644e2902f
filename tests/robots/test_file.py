from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.robots import MAX_PARSED_BYTES, MAX_STEPS, STEP_BYTES, RobotsFile, RobotsSettings, as_utf8

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


def long_url(number: int) -> str:
    return f"{BASE}/{number}" + "a" * 2_000


@pytest.mark.parametrize("rule", ["Disallow:/%d", "Disallow:/*%d", "Allow:/*a*%d$", "Allow:/%d$", "Disallow:/%%61%d"])
def test_a_hostile_file_is_parsed_in_steps(rule: str) -> None:
    body = hostile(rule)
    steps = list(RobotsFile.parse_in_steps(200, body, AGENT))
    assert len(steps) >= len(body) // (STEP_BYTES + len(rule) + 4)
    assert RobotsFile.parse(200, body, AGENT).size_bytes < 2 * MAX_PARSED_BYTES


@pytest.mark.parametrize("rule", ["Disallow:/%d", "Allow:/%d$", "User-agent: %d"])
def test_plain_rules_cost_few_steps_a_url_however_many_they_are(rule: str) -> None:
    robots = RobotsFile.parse(200, hostile(rule), AGENT)
    assert max(robots.judge(long_url(number)).steps for number in range(20)) < 200


@pytest.mark.parametrize(
    "rule",
    [
        "Disallow:/*%d",
        "Allow:/*a*%d$",
        "Allow:/*b" + "a" * 30 + "%d",
        "Allow:/*" + "a" * 25 + "b" + "a" * 25 + "%d*c",
        "Allow:/" + "*a" * 2_000 + "%d",
    ],
)
def test_a_lookup_that_needs_too_many_steps_forbids_the_url_and_stops(rule: str) -> None:
    verdict = RobotsFile.parse(200, hostile(rule), AGENT).judge(long_url(7))
    assert verdict.is_cut
    assert not verdict.is_allowed
    assert verdict.steps < MAX_STEPS + 2_000


def test_thousands_of_patterns_are_compared_with_a_url() -> None:
    some = "".join(f"Disallow: /*thank{number}\n" for number in range(4_000))
    robots = read(f"User-agent: *\n{some}")
    assert robots.allows(f"{BASE}/about")
    assert robots.allows(f"{BASE}/about?{'x' * 150}")
    assert not robots.allows(f"{BASE}/x/thank3999")


def test_a_rule_longer_than_any_url_forbids_what_starts_like_it_and_allows_nothing() -> None:
    start = "/" + "%41" * 8_000
    robots = read(f"User-agent: *\nDisallow: {start}x$\nAllow: {start}y\n")
    assert not robots.allows(f"{BASE}/{'A' * 8_000}x")
    assert not robots.allows(f"{BASE}/{'A' * 8_000}y")
    assert robots.allows(f"{BASE}/{'A' * 5_000}")


def test_as_many_patterns_as_a_real_site_has_are_compared_with_a_long_url() -> None:
    robots = read("User-agent: *\n" + "".join(f"Disallow: /*thank{number}\n" for number in range(575)))
    assert robots.allows(f"{BASE}/about?next=" + "a%2Fb" * 400)


def test_a_rule_that_is_written_ten_thousand_times_is_kept_once() -> None:
    robots = read("User-agent: *\n" + "Disallow: /x\n" * 10_000 + "Allow: /x/y\n")
    assert robots.allows(f"{BASE}/other")
    assert robots.allows(f"{BASE}/x/y")
    assert not robots.allows(f"{BASE}/x")
    assert robots.size_bytes < 1_000


@pytest.mark.parametrize(
    "between",
    [
        "Sitemap: /s.xml",
        "# words",
        "",
        "words without a colon",
        "Host: a.example",
        "Noindex: /y",
        "Content-Signal: search=yes",
        "Crawl-delay: 3",
        "Clean-param: ref /x/",
        "Request-rate: 1/5",
        ": nothing",
    ],
)
def test_only_a_rule_ends_the_names_of_a_group_rfc_9309_2_2_4(between: str) -> None:
    robots = read(f"User-agent: trawl\n{between}\nUser-agent: other\nDisallow: /x\n")
    assert not robots.allows(f"{BASE}/x")


MISSPELT = ["Disallow", "dissallow", "DISALOW", "dissalow", "diasllow", "disallaw"]  # codespell:ignore


@pytest.mark.parametrize("word", MISSPELT)
@pytest.mark.parametrize("colon", [":", " :", " ", "\t"])
def test_misspelt_rules_count_as_google_has_them(word: str, colon: str) -> None:
    assert not read(f"User-agent: *\n{word}{colon}/x\n").allows(f"{BASE}/x")


@pytest.mark.parametrize(
    "line", ["Disallow /x /y", "Disallow this page", "Disallow", ": /x", "Disallowed", "dis allow: /x"]
)
def test_words_that_are_no_record_are_not_read_as_one(line: str) -> None:
    assert read(f"User-agent: *\n{line}\n").allows(f"{BASE}/x")


@pytest.mark.parametrize("line", ["Disallow /x:y", "Disallow:/x:y # why", "  disallow\t:\t/x:y  "])
def test_a_colon_may_stand_in_a_rule(line: str) -> None:
    robots = read(f"User agent *\n{line}\n")
    assert not robots.allows(f"{BASE}/x:y")
    assert robots.allows(f"{BASE}/x")


def test_groups_of_one_name_are_combined_rfc_9309_2_2_1() -> None:
    first, second = "User-agent: trawl\nDisallow: /a\n", "User-agent: TRAWL\nDisallow: /b\nCrawl-delay: 2\n"
    robots = read(f"{first}\nUser-agent: *\nDisallow: /\n\n{second}")
    assert [robots.allows(f"{BASE}/{path}") for path in ("a", "b", "c")] == [False, False, True]
    assert robots.crawl_delay == 2.0


def test_a_group_of_ours_without_rules_allows_all() -> None:
    assert read("User-agent: *\nDisallow: /\n\nUser-agent: trawl\n").allows(f"{BASE}/x")
    assert read("User-agent: trawl\nDisallow:\n\nUser-agent: *\nDisallow: /\n").allows(f"{BASE}/x")


def test_a_group_without_a_name_binds_nobody() -> None:
    assert read("User-agent:\nDisallow: /\n").allows(f"{BASE}/x")
    assert read("Disallow: /\n").allows(f"{BASE}/x")


def test_the_longest_crawl_delay_of_our_group_holds() -> None:
    robots = read(
        "User-agent: trawl\nCrawl-delay: 9\nCrawl-delay: 4\nUser-agent: other\nCrawl-delay: 30\nDisallow: /x\n"
    )
    assert robots.crawl_delay == 9.0
    assert not robots.allows(f"{BASE}/x")


def test_nul_octets_and_mixed_line_ends_hide_no_rule() -> None:
    robots = RobotsFile.parse(200, b"User-agent: *\r\rDis\x00allow: /x\n\rDisallow: /y\r\nDisallow: /z", AGENT)
    assert [robots.allows(f"{BASE}/{path}") for path in "xyzw"] == [False, False, False, True]


RULES_IN_CYRILLIC = "User-agent: *\nDisallow: /\u043f\u043e\u0438\u0441\u043a\n"
IN_CYRILLIC = f"{BASE}/%D0%BF%D0%BE%D0%B8%D1%81%D0%BA"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (RULES_IN_CYRILLIC.encode(), None),
        (RULES_IN_CYRILLIC.encode("utf-8-sig"), "text/plain"),
        (RULES_IN_CYRILLIC.encode(), "text/plain; charset=iso-8859-1"),
        (RULES_IN_CYRILLIC.encode("utf-16"), "text/plain"),
        (b"\xfe\xff" + RULES_IN_CYRILLIC.encode("utf-16-be"), "text/plain; charset=utf-8"),
        (RULES_IN_CYRILLIC.encode("cp1251"), "text/plain; charset=windows-1251"),
        (RULES_IN_CYRILLIC.encode("koi8-r"), "text/plain; charset=KOI8-R"),
    ],
)
def test_a_file_is_read_in_the_encoding_that_it_has(body: bytes, content_type: str | None) -> None:
    robots = RobotsFile.parse(200, as_utf8(body, content_type), AGENT)
    assert not robots.allows(IN_CYRILLIC)
    assert robots.allows(f"{BASE}/x")


def test_octets_without_a_known_encoding_are_compared_as_they_are() -> None:
    robots = RobotsFile.parse(200, as_utf8(b"User-agent: *\nDisallow: /caf\xe9\n", "text/plain"), AGENT)
    assert not robots.allows(f"{BASE}/caf%E9")
    assert robots.allows(f"{BASE}/caf%C3%A9")
