"""examples/throttling/per_address.py: scopes by resolved address (G10)."""

from __future__ import annotations

from examples.throttling.per_address import HostAndAddress, PerAddress, Shops
from trawl.testing import SimulatedWeb, simulate

SHOPS = [f"shop{number}.example" for number in range(6)]
EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


def one_machine() -> SimulatedWeb:
    web = SimulatedWeb()
    for shop in SHOPS:
        web.add_host(shop, latency=2.0, address="192.0.2.7")
    web.add_host("elsewhere.example", latency=0.1)
    return web


class Many(Shops):
    """Three pages of every shop, and of one elsewhere."""

    start_urls = [f"http://{shop}/{page}" for page in range(3) for shop in (*SHOPS, "elsewhere.example")]


class ManyPerAddress(Many, PerAddress):
    """By the setting."""


class ManyHostAndAddress(Many, HostAndAddress):
    """By the manager."""


def test_g10_the_address_takes_the_place_of_its_names() -> None:
    sim = simulate(ManyPerAddress, one_machine(), EXACT)
    assert {scope for send in sim.sends for scope in send.scopes} == {"192.0.2.7", "198.18.0.7"}
    assert len(sim.of("192.0.2.7")) == 18
    assert min(sim.gaps("192.0.2.7")) == 0.5
    assert sim.most_in_flight("192.0.2.7") == 2
    assert sim.times("198.18.0.7") == [0.0, 0.5, 1.0]


def test_g10_a_manager_charges_host_and_address_both() -> None:
    sim = simulate(ManyHostAndAddress, one_machine(), EXACT)
    assert len(sim.of("server:192.0.2.7")) == 18
    assert min(sim.gaps("server:192.0.2.7")) == 0.25  # four a second for the machine
    for shop in SHOPS:
        assert min(sim.gaps(shop)) >= 2.0  # one at a time for each shop, whose pages take 2 s
    assert sim.most_in_flight("server:192.0.2.7") > 2
    assert [sorted(send.scopes) for send in sim.of("elsewhere.example")] == [
        ["elsewhere.example", "server:198.18.0.7"]
    ] * 3


def test_g10_a_name_that_does_not_resolve_keeps_its_host() -> None:
    class Gone(PerAddress):
        start_urls = ["http://gone.example/", "http://shop0.example/"]

    for manager in (Gone, type("GoneToo", (HostAndAddress,), {"start_urls": Gone.start_urls})):
        sim = simulate(manager, one_machine(), EXACT, errors="collect")
        assert [send.host for send in sim.sends] == ["shop0.example"]
        assert sim.stats["download_error_count/NameNotResolved"] == 3
