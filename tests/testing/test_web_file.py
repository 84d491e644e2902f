"""A simulated web described in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from trawl.errors import ConnectFailed, UsageError
from trawl.testing import Outage, RateLimit, SimulatedResponse, Uniform, load_web

WEB = r"""
latency = 0.1

[hosts."a.example"]
latency = [0.05, 0.4]
connect = 0.03
limit = { rate = 5, burst = 5, retry_after = 2, headers = "draft-07", changes = [[60, 2.5]] }
outages = [{ start = 60, end = 90, status = 502 }, { start = 100, end = 110, error = "ConnectFailed" }]
site = { pages = 12, links = 3 }

[hosts."b.example"]
robots = "User-agent: *\nCrawl-delay: 2"
status = 404
headers = { "X-A" = "b" }
[hosts."b.example".pages]
"/" = { links = ["/one", "/two"], title = "Start" }
"/two" = { redirect = "/one" }
"/big" = { file = "big.html", latency = 3, first_byte = 1 }
"""


@pytest.fixture
def web_file(tmp_path: Path) -> Path:
    (tmp_path / "big.html").write_text("<p>big</p>")
    path = tmp_path / "web.toml"
    path.write_text(WEB)
    return path


def test_hosts_and_pages_are_what_the_file_says(web_file: Path) -> None:
    web = load_web(web_file)
    a, b = web.host_of("http://a.example/"), web.host_of("http://b.example/")
    assert a is not None
    assert b is not None
    assert (a.latency, a.connect) == (Uniform(0.05, 0.4), 0.03)
    assert a.limit == (RateLimit(5, 5, retry_after=2, headers="draft-07", changes=[(60, 2.5)]),)
    assert a.outages == (Outage(60, 90, 502), Outage(100, 110, error=ConnectFailed))
    assert (b.latency, b.answer.status, b.answer.headers["X-A"]) == (0.1, 404, "b")
    assert b.robots.body.endswith(b"\nCrawl-delay: 2")
    assert web.page_at("http://a.example/11") is not None
    start, two, big = (web.page_at(f"http://b.example/{path}") for path in ("", "two", "big"))
    assert start is not None
    assert b'href="/two"' in start.body
    assert two is not None
    assert (two.status, two.headers["Location"]) == (302, "/one")
    assert big == SimulatedResponse(200, "<p>big</p>", {}, 3.0, first_byte=1.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[hosts.a]\nlatencey = 1", r"hosts\['a'\].* has an unknown key 'latencey'; did you mean 'latency'\?"),
        ("[host.a]", "unknown key 'host'; did you mean 'hosts'"),
        ("[hosts.a]\nlatency = -1", r"hosts\['a'\]\['latency'\] must be"),
        ("[hosts.a]\nlatency = [1]", r"hosts\['a'\]\['latency'\] must be"),
        ("[hosts.a]\nlatency = [2, 1]", "from the shorter to the longer"),
        ("[hosts.a]\nstatus = 99", r"hosts\['a'\]\['status'\] must be"),
        ("[hosts.a]\nlimit = { burst = 5 }", r"hosts\['a'\]\['limit'\] has no 'rate'"),
        ("[hosts.a]\nlimit = { rate = 5, headers = 'draft-1' }", "'draft-1' is not a dialect"),
        ("[hosts.a]\nconnect_error = 'ConectFailed'", "did you mean 'ConnectFailed'"),
        ("[hosts.a]\nconnect_error = 'Zzz'", "known are BodyTooLarge"),
        ("[hosts.a]\noutages = [{ start = 5, end = 5 }]", "ends after"),
        ("[hosts.a.pages]\n'/' = { body = '', redirect = '/x' }", "more than one of"),
        ("[hosts.a.pages]\n'/' = { file = 'none.html' }", "No such file"),
        ("[hosts.'a b']", "is not a host"),
        ("[hosts.a]\naddress = 'nowhere'", "'nowhere' does not appear to be an IPv4 or IPv6 address"),
        ("latency = 1", "the web has no 'hosts'"),
        ("hosts = ", "not TOML"),
    ],
)
def test_i03_what_is_wrong_is_one_line_that_names_the_file_and_the_entry(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "web.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=told) as caught:
        load_web(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_web(tmp_path / "none.toml")


async def test_hosts_of_a_file_may_share_an_address(tmp_path: Path) -> None:
    """I05."""
    path = tmp_path / "web.toml"
    path.write_text("[hosts.'a.example']\naddress = '192.0.2.7'\n[hosts.'b.example']\naddress = '192.0.2.7'\n")
    web = load_web(path)
    found = [(await web.resolve(f"{name}.example", 80))[0].sockaddr for name in "ab"]
    assert found == [("192.0.2.7", 80)] * 2
