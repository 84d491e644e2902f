"""The linked pages, crawled by each crawler in a separate process. The crawlers take turns in each round."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Figure, median_of, ratio_of
from benchmarks.peers import ROOT, environment_of, peer_python, run_script
from benchmarks.site import PAGES, SMALL_SITES

__all__ = ["against_peers", "instructions", "kept", "over_tls"]

SLOWED = 200
"""Factor that slows down the clock of a crawl under valgrind, which takes at least 15 times as long."""

Told = dict[str, Any]
GOALS = {"scrapy": 14.0, "crawlee": 6.0, "bare": 0.48}
COMPILED_GOALS = {"scrapy": 18.0, "bare": 0.6}
NAMES = {"scrapy": "Scrapy", "crawlee": "Crawlee", "bare": "the bare loop"}


def crawled(bench: Bench, peer: str, url: str, *options: str, environment: dict[str, str] | None = None) -> Told:
    """Run one crawl. Raises an error if it did not find every page."""
    feed = Path(bench.folder, f"{peer}.jsonl")
    script = {"bare": "crawlers/bare.py", "compiled": "crawlers/with_trawl.py"}.get(peer, f"crawlers/with_{peer}.py")
    told = run_script(peer, script, url, str(feed), *options, environment=environment)
    items = sum(1 for _ in feed.open(encoding="utf-8"))
    if told["pages"] != PAGES or items != PAGES:
        raise RuntimeError(f"{peer} took {told['pages']} pages and wrote {items} items; there are {PAGES}")
    bench.say(f"  {peer}: {PAGES / told['seconds']:,.0f} pages/s, {told['own'] / PAGES * 1e6:,.0f} us of its own")
    return told


def rates(told: list[Told]) -> list[float]:
    """Return the pages per second of each round."""
    return [PAGES / one["seconds"] for one in told]


def against_peers(bench: Bench) -> list[Figure]:
    """Return the speeds of trawl (pure and compiled), Scrapy, Crawlee and the bare loop, and Trio's steps per page."""
    url = bench.site.url()
    told: dict[str, list[Told]] = {peer: [] for peer in ("trawl", "compiled", *GOALS)}
    for _ in range(bench.rounds):
        for peer, rounds in told.items():
            rounds.append(crawled(bench, peer, url))
    ours, compiled = rates(told["trawl"]), rates(told["compiled"])
    own = {peer: [one["own"] / PAGES * 1e6 for one in told[peer]] for peer in ("trawl", "compiled")}
    return [
        median_of("trawl", ours, "pages/s"),
        median_of("compiled", compiled, "pages/s"),
        *(median_of(NAMES[peer], rates(told[peer]), "pages/s") for peer in GOALS),
        *(ratio_of(f"against {NAMES[peer]}", ours, rates(told[peer]), least=goal) for peer, goal in GOALS.items()),
        *(
            ratio_of(f"compiled against {NAMES[peer]}", compiled, rates(told[peer]), least=goal)
            for peer, goal in COMPILED_GOALS.items()
        ),
        median_of("processor time", own["trawl"], "us/page"),
        median_of("compiled: processor time", own["compiled"], "us/page"),
        *counted(bench, url),
    ]


def counted(bench: Bench, url: str) -> list[Figure]:
    """Return Trio's steps per page. They are counted in a separate round, because counting takes time."""
    told = crawled(bench, "trawl", url, "--count")
    return [
        Figure(name="I/O waits", value=told["waits"] / PAGES, unit="per page"),
        Figure(name="task steps", value=told["steps"] / PAGES, unit="per page"),
    ]


def over_tls(bench: Bench) -> list[Figure]:
    """Return the speed over TLS, compared with plain HTTP and with the bare loop over TLS."""
    site = bench.site
    trust = {"SSL_CERT_FILE": str(site.authority)}
    plain, secure, bare = [], [], []
    for _ in range(bench.rounds):
        plain.append(crawled(bench, "trawl", site.url()))
        secure.append(crawled(bench, "trawl", site.url(secure=True), environment=trust))
        bare.append(crawled(bench, "bare", site.url(secure=True), "--authority", str(site.authority)))
    return [
        median_of("plain", rates(plain), "pages/s"),
        median_of("TLS", rates(secure), "pages/s"),
        median_of("the bare loop over TLS", rates(bare), "pages/s"),
        ratio_of("TLS against plain", rates(secure), rates(plain), least=0.6),
        ratio_of("TLS against the bare loop over TLS", rates(secure), rates(bare)),
    ]


def instructions(bench: Bench) -> list[Figure]:
    """Return the instructions per page of trawl and of the bare loop. If nginx is fast, they are equal on all machines.

    valgrind's cachegrind counts them. The cost of a page is computed from two crawls of different length.
    """
    counts = {peer: a_page(bench, peer, peer) for peer in ("trawl", "compiled", "bare")}
    return [
        Figure(name="trawl", value=counts["trawl"], unit="k instructions", most=1_400),
        Figure(name="compiled", value=counts["compiled"], unit="k instructions", most=1_150),
        Figure(name="the bare loop", value=counts["bare"], unit="k instructions"),
        Figure(name="the bare loop against trawl", value=counts["bare"] / counts["trawl"], unit="x"),
    ]


def kept(bench: Bench) -> list[Figure]:
    """Return the instructions per page with a job, and for filling and using the HTTP cache, against a plain page."""
    plain = a_page(bench, "trawl", "plain")
    each = {what: a_page(bench, "trawl", what) / plain for what in ("job", "filling", "cached")}
    return [
        Figure(name="a plain page", value=plain, unit="k instructions"),
        Figure(name="with a job in a directory, against plain", value=each["job"], unit="x", most=1.3),
        Figure(name="filling the HTTP cache, against plain", value=each["filling"], unit="x", most=1.5),
        Figure(name="using the HTTP cache, against plain", value=each["cached"], unit="x", most=1.0),
    ]


def a_page(bench: Bench, peer: str, what: str) -> float:
    """Return thousands of instructions per page of one kind of crawl. A slow nginx increases the number."""
    fewer, more = SMALL_SITES
    peer_python(peer)  # create the environment before two threads use it
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(partial(instructions_of, bench, peer, what), SMALL_SITES)
    a_page = (second - first) / (more - fewer) / 1_000
    bench.say(f"  {what}: {a_page:,.0f} k a page")
    return a_page


def options_of(bench: Bench, what: str, pages: int) -> list[str]:
    """Return the script's options for one kind of crawl. A crawl that fills the cache precedes the cached one."""
    if what == "bare":
        return ["--pages", str(pages)]
    options = ["--slowed", str(SLOWED)]
    if what == "job":
        return [*options, "--job", str(Path(bench.folder, f"job-{pages}"))]
    return (
        [*options, "--cache", str(Path(bench.folder, f"cache-{pages}"))] if what in {"filling", "cached"} else options
    )


def instructions_of(bench: Bench, peer: str, what: str, pages: int) -> int:
    """Return the instructions of a whole process that crawls ``pages`` pages."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: apt-get install valgrind")
    feed = Path(bench.folder, f"{what}-{pages}.jsonl")
    script = ROOT / "benchmarks" / "crawlers" / ("bare.py" if peer == "bare" else "with_trawl.py")
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    options = options_of(bench, what, pages)
    child = subprocess.run(
        [*command, peer_python(peer), str(script), bench.site.url(f"/{pages}/0.html"), str(feed), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment_of(peer), "PYTHONHASHSEED": "0"},
    )
    counted = re.search(r"I +refs: +([\d,]+)", child.stderr)
    items = sum(1 for _ in feed.open(encoding="utf-8"))
    if child.returncode or counted is None or items != pages:
        raise RuntimeError(f"{what} wrote {items} items of {pages}:\n{child.stderr[-2000:]}")
    return int(counted[1].replace(",", ""))
