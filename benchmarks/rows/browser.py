"""Pages that a browser renders, with trawl and with scrapy-playwright. Both use the same Chromium and the same site."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.figures import Figure, median_of, ratio_of
from benchmarks.peers import ROOT, environment_of, peer_python, version_of
from benchmarks.rendered_site import Running, serving
from benchmarks.tree import Measured, measured
from trawl.browser.devtools import find_chromium

__all__ = ["rendered"]

PAGES, MANY, KILLED, KILLS, DELAYED, DELAY = 200, 1_000, 500, 10, 30, 0.25
"""Numbers of pages: to compare; for the memory; with so many kills of the browser; with a delay in seconds."""

PEER = "scrapy-playwright"
MAX_ROUNDS = 3
EARLY = 1e-3
"""Maximum difference in milliseconds that rounding may cause between two times."""


def crawl(peer: str, site: Running, pages: int, *more: object) -> Measured:
    """Render pages with a crawler, and measure it with its browser."""
    script = f"rendering_with_{peer.rpartition('-')[2]}.py"
    url = f"http://127.0.0.1:{site.port}"
    words = [peer_python(peer), str(ROOT / "benchmarks" / "crawlers" / script), url, str(pages), find_chromium()]
    found = measured([*words, *map(str, more)], environment_of(peer))
    if found.told["pages"] != pages and not more:
        raise RuntimeError(f"{peer}: {found.told['pages']} pages in place of {pages}")
    return found


def rendered(bench: Bench) -> list[Figure]:
    """Return the figures: processor time and memory, kills of the browser, and the delay."""
    share = 20 if bench.is_quick else 1
    pages, many, killed, kills = PAGES // share, MANY // share, KILLED // share, KILLS // (5 if share > 1 else 1)
    ours: list[Measured] = []
    theirs: list[Measured] = []
    with serving() as site:
        for _ in range(min(bench.rounds, MAX_ROUNDS)):
            for peer, found in (("trawl", ours), (PEER, theirs)):
                bench.say(f"browser: {pages} pages with {peer}")
                found.append(crawl(peer, site, pages))
        bench.say(f"browser: {many} pages, then {killed} with {kills} kills, then with a delay")
        long = crawl("trawl", site, many)
        broken = crawl("trawl", site, killed, 0.0, kills)
        delayed = crawl("trawl", site, DELAYED // share or 1, DELAY)
    memory = long.told["memory"]
    grown = sum(memory[-3:]) / sum(memory[1:4])
    cpu = [[each.cpu / pages * 1_000 for each in found] for found in (ours, theirs)]
    how = f"{ours[0].how}; {PEER} {version_of(PEER)}"
    return [
        ratio_of(f"processor time against {PEER}", cpu[0], cpu[1], most=0.65, note=how),
        median_of("processor time", cpu[0], "ms/page"),
        median_of(f"processor time of {PEER}", cpu[1], "ms/page"),
        median_of("rate", [pages / each.told["seconds"] for each in ours], "pages/s"),
        median_of(f"rate of {PEER}", [pages / each.told["seconds"] for each in theirs], "pages/s"),
        median_of("largest memory with 4 tabs", [each.peak / 1e6 for each in ours], "MB", most=220.0),
        median_of(f"largest memory of {PEER}", [each.peak / 1e6 for each in theirs], "MB"),
        Figure(name=f"memory at the end of {many:,} pages", value=grown, unit="x", most=1.1, note="against its start"),
        Figure(name=f"lost of {killed} pages", value=float(killed - broken.told["pages"]), most=0.0),
        Figure(name=f"rendered twice of {killed} pages", value=float(broken.told["twice"]), most=0.0),
        Figure(name="kills of the browser meanwhile", value=float(broken.told["killed"]), least=float(kills)),
        Figure(
            name="shortest interval, above the delay",
            value=(delayed.told["gap"] - DELAY) * 1_000 if share == 1 else 0.0,
            unit="ms",
            least=-EARLY,
            note=f"{delayed.told['sends']} sends to two hosts, {DELAY} s",
        ),
    ]
