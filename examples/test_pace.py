"""Tests of the pace of examples/quotes.py on a virtual clock. The tests take milliseconds and need no network.

::

    pip install pytest
    pytest examples/test_pace.py

``simulated_web`` is a fixture of trawl. If a test fails, its report shows every send.
"""

from __future__ import annotations

from examples.quotes import Quotes
from trawl.testing import Outage, RateLimit, SimulatedWeb, simulate

SITE = "127.0.0.1:8765"
PAGES = 8
ALL = 2 * PAGES
EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0.0}


def add_pages(web: SimulatedWeb) -> None:
    """Add pages to the site, each with a link to an author and a link to the next page."""
    for number in range(1, PAGES + 1):
        author = f'<small class="author">No. {number}</small> <a href="/author/{number}">(about)</a>'
        more = f'<li class="next"><a href="/page/{number + 1}/">Next</a></li>' if number < PAGES else ""
        web.add_page(f"http://{SITE}/{f'page/{number}/' if number > 1 else ''}", body=author + more)
        web.add_page(f"http://{SITE}/author/{number}", body="")


def test_two_requests_a_second_and_never_more_than_two_at_once(simulated_web: SimulatedWeb) -> None:
    """The spider's ``THROTTLING_SCOPES`` sets these limits."""
    simulated_web.add_host(SITE, latency=1.5)  # a response takes longer than the delay
    add_pages(simulated_web)
    sim = simulate(Quotes, simulated_web, EXACT)
    assert len(sim.sends) == 1 + ALL  # one send is for robots.txt
    assert min(sim.gaps(SITE)) == 0.5
    assert sim.most_in_flight(SITE) == 2


def test_what_robots_txt_forbids_is_not_asked_for(simulated_web: SimulatedWeb) -> None:
    """The site may disallow the pages of authors later."""
    simulated_web.add_host(SITE, robots="User-agent: *\nDisallow: /author/\n")
    add_pages(simulated_web)
    sim = simulate(Quotes, simulated_web, EXACT)
    assert [send.url for send in sim.sends if "/author/" in send.url] == []
    assert sim.stats["robots_forbidden"] == PAGES


def test_a_429_is_obeyed_and_no_page_is_lost(simulated_web: SimulatedWeb) -> None:
    """The server accepts five requests, and then refuses requests with a ``Retry-After``."""
    simulated_web.add_host(SITE, limit=RateLimit(rate=0.1, burst=5, retry_after=30))
    add_pages(simulated_web)
    sim = simulate(Quotes, simulated_web, EXACT)
    statuses = [send.status for send in sim.of(SITE)]
    pauses = [gap for gap, status in zip(sim.gaps(SITE), statuses, strict=False) if status == 429]
    assert pauses
    assert min(pauses) >= 30.0
    assert statuses.count(200) == ALL


def test_an_outage_of_five_minutes_is_outlasted_and_not_hammered(simulated_web: SimulatedWeb) -> None:
    """Failed requests are sent again, with growing delays."""
    simulated_web.add_host(SITE, outages=[Outage(2.0, 302.0, status=503)])
    add_pages(simulated_web)
    sim = simulate(Quotes, simulated_web, EXACT)
    statuses = [send.status for send in sim.of(SITE)]
    assert statuses.count(200) == ALL
    assert statuses.count(503) < 12
