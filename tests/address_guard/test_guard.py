from __future__ import annotations

import pytest

from trawl import address_guard as guarding
from trawl.address_guard import METADATA, AddressGuard
from trawl.http import normalize_url

PRIVATE = ["127.0.0.1", "10.0.0.7", "[::1]", "169.254.1.1", "[fd00::1]", "[::ffff:10.0.0.1]", "0.0.0.0"]


def starting_at(*urls: str, allows: bool | None = None) -> AddressGuard:
    guard = AddressGuard(allows)
    for url in urls:
        guard.note_start(normalize_url(url))
    return guard


def refuses(guard: AddressGuard, host: str) -> bool:
    """Whether a URL of a host that is an address is refused when it is found."""
    return guard.refuses_url(normalize_url(f"http://{host}/page"))


@pytest.mark.parametrize("host", PRIVATE)
def test_a_crawl_of_the_public_web_reaches_no_private_address(host: str) -> None:
    guard = starting_at("https://shop.example/")
    assert refuses(guard, host)
    assert refuses(guard, f"me:secret@{host}:8080")
    assert guard.refused("other.example", [host.strip("[]")])
    assert not guard.is_open


@pytest.mark.parametrize("written", ["0x7f.1", "2130706433", "017700000001", "127.1", "127.0.0.1."])
def test_an_address_is_known_however_it_is_written(written: str) -> None:
    assert refuses(AddressGuard(), written)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/",
        "http://[::1]/",
        "http://10.0.0.7/",
        "http://localhost:3000/",
        "http://app.localhost/",
        "http://LOCALHOST./",
        "http://printer.local/",
        "http://nas.home.arpa/",
        "http://wiki.internal/",
        "http://intranet/",
    ],
)
def test_a_start_url_that_says_so_opens_the_own_network(url: str) -> None:
    guard = starting_at("https://shop.example/", url)
    assert guard.is_open
    assert not any(refuses(guard, host) for host in PRIVATE)
    assert guard.refused("any.example", ["10.0.0.1", "127.0.0.1"]) == {}


@pytest.mark.parametrize("url", ["https://shop.example/", "http://8.8.8.8/", "https://[2606:4700::1111]/"])
def test_a_public_start_url_opens_nothing(url: str) -> None:
    guard = starting_at(url)
    assert not guard.is_open
    assert refuses(guard, "127.0.0.1")
    assert not refuses(guard, "8.8.8.8")
    assert guard.refused("shop.example", ["8.8.8.8"]) == {}


def test_the_name_of_a_start_url_vouches_for_itself_and_for_nothing_else() -> None:
    guard = starting_at("https://wiki.corp.example/")
    assert guard.refused("wiki.corp.example", ["10.0.0.5"]) == {}
    assert guard.refused("jira.corp.example", ["10.0.0.6"]) == {"10.0.0.6": "private"}
    assert refuses(guard, "10.0.0.5")


def test_a_name_that_was_public_once_never_vouches_for_a_private_address_again() -> None:
    guard = starting_at("http://rebinds.example/")
    assert guard.refused("rebinds.example", ["10.0.0.5"]) == {}
    assert guard.refused("rebinds.example", ["8.8.8.8"]) == {}
    assert guard.refused("rebinds.example", ["10.0.0.5"]) == {"10.0.0.5": "private"}


def test_of_a_name_with_both_kinds_of_addresses_the_private_ones_are_refused() -> None:
    guard = starting_at("http://both.example/")
    assert guard.refused("both.example", ["10.0.0.5", "8.8.8.8", "127.0.0.1"]) == {
        "10.0.0.5": "private",
        "127.0.0.1": "loopback",
    }


@pytest.mark.parametrize("start", ["http://127.0.0.1/", "http://attacker.example/", "http://10.0.0.1/"])
def test_a_metadata_service_is_reached_by_its_own_name_only(start: str) -> None:
    guard = starting_at(start)
    for host in ("169.254.169.254", "attacker.example", "localhost"):
        assert guard.refused(host, ["169.254.169.254"]) == {"169.254.169.254": METADATA}


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.google.internal"])
def test_a_start_url_may_name_a_metadata_service(host: str) -> None:
    assert starting_at(f"http://{host}/").refused(host, ["169.254.169.254"]) == {}


@pytest.mark.parametrize("host", PRIVATE)
def test_the_setting_goes_before_start_urls(host: str) -> None:
    assert refuses(starting_at(f"http://{host}/", allows=False), host)
    allowed = starting_at("https://shop.example/", allows=True)
    assert not refuses(allowed, host)
    assert allowed.refused("any.example", [host.strip("[]"), "169.254.169.254"]) == {}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "MAX_NAMES", 3)
    monkeypatch.setattr(guarding, "MAX_REMEMBERED", 3)
    guard = starting_at(*[f"http://{number}.example/" for number in range(5)])
    assert [bool(guard.refused(f"{number}.example", ["10.0.0.1"])) for number in range(5)] == [False] * 3 + [True] * 2
    assert [refuses(guard, f"10.0.0.{number}") for number in range(9)] == [True] * 9


def test_a_guard_is_opened_for_a_crawl_that_goes_on_unless_the_setting_forbids_it() -> None:
    guard = AddressGuard()
    assert not guard.note_start("http://shop.example/")
    guard.open()
    assert guard.note_start("http://shop.example/")
    assert not refuses(guard, "10.0.0.1")
    closed = AddressGuard(False)
    closed.open()
    assert refuses(closed, "10.0.0.1")


@pytest.mark.parametrize("start", ["http://127.0.0.1/", "http://intranet/", "http://wiki.example/"])
@pytest.mark.parametrize("url", ["http://wiki.example/a", "http://10.0.0.1/", "http://shop.example/"])
def test_what_start_urls_vouch_for_holds_where_it_is_taken_over(start: str, url: str) -> None:
    guard, other, forbidden = starting_at(start), AddressGuard(), AddressGuard(False)
    for each in (other, forbidden):
        if vouched := guard.vouched(url):
            each.take_over(url, vouched)
    for host in ("wiki.example", "shop.example", "10.0.0.1"):
        assert bool(other.refused(host, ["10.0.0.1"])) == (not vouched or bool(guard.refused(host, ["10.0.0.1"])))
        assert forbidden.refused(host, ["10.0.0.1"])


def test_a_name_that_has_shown_a_public_address_is_not_vouched_for() -> None:
    guard = starting_at("http://shop.example/")
    assert guard.vouched("http://shop.example/") == "host"
    guard.refused("shop.example", ["93.184.215.14"])
    assert not guard.vouched("http://shop.example/")
