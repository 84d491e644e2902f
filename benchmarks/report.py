"""Writes the pages that show the last figures: ``python -m benchmarks.report``.

It writes ``docs/explanation/speed.md`` with its pictures, the tables and plots of ``rate-limited-servers.md``, and the
speeds in the README and on the first page of the docs.
"""

from __future__ import annotations

import argparse
import json
import math
from datetime import datetime
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.chart import Series, chart
from benchmarks.figures import shown
from benchmarks.rows import ROWS
from benchmarks.rows.choosing import DOMAINS, SCRAPY_DOMAINS
from benchmarks.rows.connections import CONNECTIONS, NAMES
from benchmarks.rows.limits import CRAWLERS, GROUPS, Server, run
from trawl.testing.rates import Panel, count_rates, draw_rates

__all__ = ["controllers_plot", "page", "with_tables"]

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"
FOLDER = ROOT / "docs" / "explanation"

FIRST_PAGES = {ROOT / "README.md": "docs/explanation/", ROOT / "docs" / "index.md": "explanation/"}
"""The pages that show the speeds, and the path from each to the explanations."""

ELSEWHERE = ("limits",)
"""Rows that are shown on another page."""


def page(kept: dict[str, Any]) -> str:
    """Return the page on speed as Markdown."""
    names = [name for name in ROWS if name in kept["rows"] and name not in ELSEWHERE]
    machine, rows = kept["machine"], [kept["rows"][name] for name in names]
    goals = [
        f"| {row['title']} | {figure['name']} | {told(figure)} | {goal(figure)} | {reached(figure)} |"
        for row in rows
        for figure in row["figures"]
        if figure["is_reached"] is not None
    ]
    head = "| work | measured | figure | goal | |\n|--|--|--|--|--|"
    parts = [OPENING, peers(kept), USE, introduction(machine), head]
    text = "\n".join([*parts, *goals, ""]) + PICTURES
    for row in rows:
        lines = [f"| {figure['name']} | {told(figure)} | {spread(figure)} |" for figure in row["figures"]]
        head = f"### {row['title'][0].upper()}{row['title'][1:]}\n\n| | figure | rounds |\n|--|--|--|\n"
        text += f"\n{head}" + "\n".join(lines) + "\n"
    return text + MEASURED


def told(figure: dict[str, Any]) -> str:
    """Return a figure with its unit."""
    unit = {"us": "µs", "us/page": "µs/page"}.get(figure["unit"], figure["unit"])
    return f"{shown(figure['value'])} {unit}".strip()


def goal(figure: dict[str, Any]) -> str:
    """Return the goal of a figure."""
    return f"≥ {shown(figure['least'])}" if figure["least"] is not None else f"≤ {shown(figure['most'])}"


def reached(figure: dict[str, Any]) -> str:
    """Return whether a figure reached its goal, in words."""
    return "reached" if figure["is_reached"] else "**missed**"


def spread(figure: dict[str, Any]) -> str:
    """Return the smallest and the largest value of the rounds; an empty string if there was one round."""
    each = figure["each"]
    return f"{shown(min(each))} to {shown(max(each))}" if len(each) > 1 else ""


def sentence(machine: dict[str, Any]) -> str:
    """Return a description of the machine and the versions."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    processor, system, python = machine["processor"], machine["system"], machine["python"]
    return f"{machine['cores']} cores of {processor}, {system}, Python {python}; {versions}"


def peers(kept: dict[str, Any]) -> str:
    """Return the page's first table, which compares the crawlers."""
    names = {figure["name"]: figure for figure in kept["rows"].get("pages", {"figures": ()})["figures"]}
    lines = ["| | pages per second | trawl compared with it |", "|--|--|--|"]
    for name in ("trawl", "compiled", "Scrapy", "Crawlee", "the bare loop"):
        if name in names:
            against = names.get(f"against {name}")
            title = "trawl, compiled" if name == "compiled" else name
            lines.append(f"| {title} | {shown(names[name]['value'])} | {told(against) if against else ''} |")
    return "\n".join(lines) + "\n"


def introduction(machine: dict[str, Any]) -> str:
    """Return the introduction to the goals, wrapped."""
    return "\n\n".join(fill(part, 120) for part in INTRODUCTION.format(machine=sentence(machine)).split("\n\n")) + "\n"


OPENING = """# Speed

This benchmark crawls linked pages of 5.5 kB from a server on the same machine, without delays. For each page, the
spider extracts the title and the links and yields one item. The figures are the maximum that each crawler reaches in
one process. The bare loop is not a crawler. It only requests a list of URLs with Trio and httptools, and parses each
page with parsel.
"""

USE = """
## What limits a crawl

- **Delays.** They limit nearly every crawl. By default a host gets one request per second ({setting}`DOWNLOAD_DELAY`),
  so any crawler with this delay gets 50 pages per second from 50 hosts. Crawl more hosts at the same time, or shorten
  the delays if the sites allow it.
- **Response times.** At most {setting}`CONCURRENT_REQUESTS` requests (16 by default) are in flight at the same time. If
  each response takes half a second, the crawl gets at most 32 pages per second.
- **One core.** A crawl runs in one thread, so each page takes the crawler's own time plus the time of the callback. A
  callback of 2 ms limits the crawl to 500 pages per second, no matter how fast the crawler is.
- **Memory.** All pending requests and the marks of all seen URLs are in memory or, with a job, on disk. The table below
  shows the bytes for each request and each mark.

## How to make a spider fast

1. **First find out which phase takes the most time.** The statistics `throttled_seconds`, `queued_seconds`,
   `connecting_seconds`, `fetching_seconds` and `parsing_seconds` show the time of each phase. {doc}`/howto/why-slow`
   explains how to shorten each phase.
2. **Follow links with one query.** `response.follow_all(css="a")` takes the links directly from the page, without an
   object for each element.
3. **Query the page, not each element.** For ten links, one call of `response.css("a::attr(href)").getall()` takes a
   tenth of the time of ten calls of `a.css("::attr(href)").get()`. A query with variables or namespaces takes twice as
   long as a query without them. A query with the functions `re:` and `set:` takes six times as long.
4. **Do not block.** `time.sleep()`, a database or another client in a callback blocks the whole crawl. Await
   `trio.to_thread.run_sync(work)` instead.
5. **Use all cores.** If parsing limits a crawl, `trawl crawl --processes 4` divides the hosts among four processes. All
   limits apply as in a single process ({doc}`/howto/all-cores`).

## Goals
"""

INTRODUCTION = """The table shows the last run of each row of the benchmark, `python -m benchmarks`, compared with other
programs and with trawl's own goals. All programs ran on one machine: {machine}. nginx with one worker serves the pages
on loopback. Each figure is the median of several rounds. For a ratio, the figure is the median of the ratios of the
rounds. `benchmarks/README.md` explains how to run the benchmark. `python -m benchmarks.report` writes this page.

"""

PICTURES = """
## Transport

The picture shows requests per second for different numbers of connections. Each request fetches the same page of 5.5
kB. The page is not parsed. The bare loop consists only of Trio's streams and httptools, so it shows the minimum cost of
a client on Trio.

```{image} speed-connections.svg
:alt: Requests per second at 1, 4, 16, 64 and 256 connections
```

## Scheduler

The picture shows the time to find the next request for a growing number of domains with pending requests. trawl is
compared with Scrapy's scheduler that knows which domains are busy. For each request, Scrapy's scheduler goes through
all domains. trawl's scheduler checks only the domains that may send.

```{image} speed-domains.svg
:alt: Microseconds for the next request against the number of domains
```

## All figures
"""

MEASURED = """
## How it is measured

In each round, the crawlers run one after the other. Each crawler has its own process and must write all 5,000 items to
its feed. trawl and Scrapy run the same spider, which yields the page's title and follows every link. Crawlee keeps its
items in memory and writes them at the end. The bare loop gets its list of URLs in advance. It parses the title and
links of each page, but follows no links. With `trawl crawl`, Python's garbage collector runs less often than by
default. The other crawlers use Python's default. A Trio instrument counts task steps and I/O waits in a separate round.
Memory is measured with Python's `tracemalloc`. Instructions are counted with valgrind. valgrind slows down the crawl.
In these runs, the crawl's clock is therefore slowed down by the same factor, because otherwise every callback would
count as slow.
"""


def value_of(kept: dict[str, Any], row: str, name: str) -> float:
    """Return one figure of a row."""
    return next(float(figure["value"]) for figure in kept["rows"][row]["figures"] if figure["name"] == name)


def connections_chart(kept: dict[str, Any]) -> str:
    """Return the chart of requests per second by number of connections."""
    names = ("trawl's transport", *(name for name in NAMES if name != "trawl's transport"))
    series = [
        Series(name, [(count, value_of(kept, "connections", f"{name}, {count}")) for count in CONNECTIONS])
        for name in names
    ]
    return chart("Requests per second, one page of 5.5 kB", "connections", "requests/s", series)


def domains_chart(kept: dict[str, Any]) -> str:
    """Return the chart of the time for a pop by number of domains."""
    ours = [(count, value_of(kept, "next", f"pop, {count:,} domains")) for count in DOMAINS]
    theirs = [(count, value_of(kept, "next", f"Scrapy: pop, {count:,} domains")) for count in SCRAPY_DOMAINS]
    title = "Time to find the next request"
    return chart(title, "domains with pending requests", "µs", [Series("trawl", ours), Series("Scrapy", theirs)])


PLOTTED = CRAWLERS[:5]
"""The crawlers in the plot. The others send a hundred requests per second, or almost none."""

MOVING = Server(rate=10.0, moved=(60.0, 5.0))
UNTIL, WINDOW = 120.0, 2.0


def controllers_plot() -> str:
    """Crawl a simulated server whose limit falls to half, and return the plot of each crawler's rate."""
    panels = []
    for name in PLOTTED:
        trace = run(name, MOVING, seconds=UNTIL)
        note = f"{len(trace.good):,} pages, {len(trace.refused):,} refused, {trace.lost:,} lost"
        rates = count_rates(sorted([*trace.good, *trace.refused]), trace.refused, 0.0, UNTIL, WINDOW)
        limit = [(0.0, MOVING.rate_at(0.0)), (60.0, MOVING.rate_at(60.0))]
        panels.append(Panel(title=name, note=note, rates=rates, refused_at=trace.refused, limit=limit))
    return draw_rates(panels, title="A limit of 10 requests a second that falls to 5", start=0.0, end=UNTIL)


def between(text: str, what: str, made: str) -> str:
    """Replace the text between the two marker comments of a page with ``made``. Returns the page."""
    begin, end = f"<!-- {what}: python -m benchmarks.report -->\n", f"<!-- end of the {what} -->\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{made}{end}{after}"


def with_tables(text: str, kept: dict[str, Any]) -> str:
    """Return a page with the tables of the row ``limits``."""
    return between(text, "tables", tables(kept))


def with_figures(text: str, kept: dict[str, Any], folder: str) -> str:
    """Return a first page with the measured speeds; ``folder`` is the path from the page to the explanations."""
    return between(text, "figures", speeds(kept, folder))


def tables(kept: dict[str, Any]) -> str:
    """Return a table for each group of cases: the figure of each crawler, with its refusals in brackets."""
    figures = {figure["name"]: figure for figure in kept["rows"]["limits"]["figures"]}
    text = ""
    for heading, cases in GROUPS.items():
        text += f"\n### {heading}\n\n| | {' | '.join(CRAWLERS)} |\n|--|{'--|' * len(CRAWLERS)}\n"
        for case in cases:
            cells = [cell(figures[f"{case.name}: {crawler}"]) for crawler in CRAWLERS]
            text += f"| {case.name} | {' | '.join(cells)} |\n"
    return text + "\n"


def cell(figure: dict[str, Any]) -> str:
    """Return a figure with its refusals, and the number of lost pages in bold: "97 % (1.4) **-3**"."""
    refused, lost = refused_and_lost(figure)
    lost = "" if lost == "0" else f" **-{lost}**"
    value = "never" if figure["value"] == math.inf else f"{figure['value']:,.0f} {figure['unit']}"
    return f"{value} ({refused}){lost}"


def speeds(kept: dict[str, Any], folder: str) -> str:
    """Return the first page's line about speed, measured with the real programs.

    Args:
        kept: The results of the benchmarks.
        folder: The path from the page to the explanations.
    """
    ours, scrapy, crawlee = (f"{shown(value_of(kept, 'pages', name))}" for name in ("trawl", "Scrapy", "Crawlee"))
    text = (
        f"- **Fast.** {ours} pages per second in one process without delays. Scrapy {version(kept, 'Scrapy')} reaches"
        f" {scrapy} and Crawlee {version(kept, 'Crawlee')} reaches {crawlee} on the same"
        f" [benchmark]({folder}speed.md) ({day(kept, 'pages')})."
    )
    return fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def version(kept: dict[str, Any], name: str) -> str:
    """Return the measured version of a crawler, without the last part."""
    return str(kept["machine"]["versions"][name.lower()]).rpartition(".")[0]


def day(kept: dict[str, Any], row: str) -> str:
    """Return the day on which a row was measured."""
    at = datetime.fromisoformat(kept["rows"][row]["at_utc"])
    return f"{at.day} {at:%B %Y}"


def refused_and_lost(figure: dict[str, Any]) -> tuple[str, str]:
    """Return the refusals per hundred pages and the number of lost pages, for a figure of the row ``limits``."""
    refused, _, rest = figure["note"].partition(" refused")
    return refused, rest.rpartition(", ")[2].removesuffix(" lost") if rest.endswith(" lost") else "0"


def main() -> None:
    """Write the pages and their pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    kept = json.loads(given.results.read_text(encoding="utf-8"))
    (given.folder / "speed.md").write_text(page(kept), encoding="utf-8")
    limited = given.folder / "rate-limited-servers.md"
    limited.write_text(with_tables(limited.read_text(encoding="utf-8"), kept), encoding="utf-8")
    for first, leads_to in FIRST_PAGES.items() if given.folder == FOLDER else ():
        first.write_text(with_figures(first.read_text(encoding="utf-8"), kept, leads_to), encoding="utf-8")
    (given.folder / "rate-limited-servers-others.svg").write_text(controllers_plot(), encoding="utf-8")
    (given.folder / "speed-connections.svg").write_text(connections_chart(kept), encoding="utf-8")
    (given.folder / "speed-domains.svg").write_text(domains_chart(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
