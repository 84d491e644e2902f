"""Writes the pages that show the last figures: ``python -m benchmarks.report``.

``docs/explanation/speed.md`` with its pictures, tables and plots of ``rate-limited-servers.md``, and the speeds on the
first page and in the README.
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
"""Rows that another page tells."""


def page(kept: dict[str, Any]) -> str:
    """The page as Markdown."""
    names = [name for name in ROWS if name in kept["rows"] and name not in ELSEWHERE]
    machine, rows = kept["machine"], [kept["rows"][name] for name in names]
    goals = [
        f"| {row['title']} | {figure['name']} | {told(figure)} | {goal(figure)} | {reached(figure)} |"
        for row in rows
        for figure in row["figures"]
        if figure["is_reached"] is not None
    ]
    parts = [OPENING, peers(kept), USE, introduction(machine), "| work | what | figure | goal | |\n|--|--|--|--|--|"]
    text = "\n".join([*parts, *goals, ""]) + PICTURES
    for row in rows:
        lines = [f"| {figure['name']} | {told(figure)} | {spread(figure)} |" for figure in row["figures"]]
        head = f"### {row['title'][0].upper()}{row['title'][1:]}\n\n| | figure | rounds |\n|--|--|--|\n"
        text += f"\n{head}" + "\n".join(lines) + "\n"
    return text + MEASURED


def told(figure: dict[str, Any]) -> str:
    """A figure with its unit."""
    unit = {"us": "µs", "us/page": "µs/page"}.get(figure["unit"], figure["unit"])
    return f"{shown(figure['value'])} {unit}".strip()


def goal(figure: dict[str, Any]) -> str:
    """What it is to be."""
    return f"≥ {shown(figure['least'])}" if figure["least"] is not None else f"≤ {shown(figure['most'])}"


def reached(figure: dict[str, Any]) -> str:
    """Whether it is."""
    return "reached" if figure["is_reached"] else "**missed**"


def spread(figure: dict[str, Any]) -> str:
    """The smallest and the largest of its rounds."""
    each = figure["each"]
    return f"{shown(min(each))} to {shown(max(each))}" if len(each) > 1 else ""


def sentence(machine: dict[str, Any]) -> str:
    """The machine in words."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    processor, system, python = machine["processor"], machine["system"], machine["python"]
    return f"{machine['cores']} cores of {processor}, {system}, Python {python}; {versions}"


def peers(kept: dict[str, Any]) -> str:
    """The crawlers beside each other, as the page's first table."""
    names = {figure["name"]: figure for figure in kept["rows"].get("pages", {"figures": ()})["figures"]}
    lines = ["| | pages a second | trawl against it |", "|--|--|--|"]
    for name in ("trawl", "compiled", "Scrapy", "Crawlee", "the bare loop"):
        if name in names:
            against = names.get(f"against {name}")
            title = "trawl, compiled" if name == "compiled" else name
            lines.append(f"| {title} | {shown(names[name]['value'])} | {told(against) if against else ''} |")
    return "\n".join(lines) + "\n"


def introduction(machine: dict[str, Any]) -> str:
    """What the page begins with, in lines of a fair width."""
    return "\n\n".join(fill(part, 120) for part in INTRODUCTION.format(machine=sentence(machine)).split("\n\n")) + "\n"


OPENING = """# Speed

Pages of 5.5 kB that link to each other, from a server beside the crawler, without any delay, title and links taken, an
item each: the most that each crawler can do in one process. The bare loop is no crawler: it asks for a list of URLs
with Trio and httptools, parses each page with parsel, and does nothing else.
"""

USE = """
## What limits a crawl

- **Delays, nearly always.** By default a host gets one request a second ({setting}`DOWNLOAD_DELAY`), so 50 hosts give
  50 pages a second, with any crawler that keeps to it. More hosts side by side help, and shorter delays where you may.
- **Answers.** {setting}`CONCURRENT_REQUESTS` (16 by default) are in flight at once. When an answer takes half a
  second, that is 32 pages a second.
- **One core.** A crawl runs in one thread. What a callback does comes on top of the crawler's own time: a callback of
  2 ms lets at most 500 pages a second through, however fast the crawler is.
- **Memory.** All pending requests and the marks of all seen URLs are kept, in memory or, with a job, on disk: the
  table below has the bytes.

## How to make a spider fast

1. **See where the time goes first.** The statistics `throttled_seconds`, `queued_seconds`, `connecting_seconds`,
   `fetching_seconds` and `parsing_seconds` tell it; {doc}`/howto/why-slow` tells what to change for each.
2. **Follow links by a query.** `response.follow_all(css="a")` takes the links as they stand in the page, without an
   object for each element.
3. **Ask the page, not each element.** `response.css("a::attr(href)").getall()` takes a tenth of the time of
   `a.css("::attr(href)").get()` for each of ten elements. A query with variables or namespaces takes twice as long as
   one without, and one with the functions `re:` and `set:` six times.
4. **Do not block.** `time.sleep()`, a database or another client in a callback holds up the whole crawl. Await
   `trio.to_thread.run_sync(work)` instead.
5. **Use all cores.** `trawl crawl --processes 4` shares the hosts of a crawl among four processes, each limit kept as
   by one, where parsing is what it waits for ({doc}`/howto/all-cores`).

## Goals
"""

INTRODUCTION = """The last run of each row of the benchmark, `python -m benchmarks`, against its peers and its own
goals. Everything ran on one machine: {machine}. nginx with one worker serves the pages on loopback. Each figure is
the median of the rounds; a ratio is the median over the rounds of the ratio within one round.
`benchmarks/README.md` tells how to run it; this page is made by `python -m benchmarks.report`.

"""

PICTURES = """
## Transport

One page of 5.5 kB again and again, without parsing: requests a second against connections. The bare loop is Trio's
streams and httptools and nothing else, the least that a client on Trio can do.

```{image} speed-connections.svg
:alt: Requests a second at 1, 4, 16, 64 and 256 connections
```

## Scheduler

What it takes to find the next request, with more and more domains pending. Scrapy's scheduler, which knows which
domains are busy, goes through all domains for each request; trawl's looks at those that may go.

```{image} speed-domains.svg
:alt: Microseconds for the next request against the number of domains
```

## All figures
"""

MEASURED = """
## How it is measured

Crawlers take turns, round by round, each in a process of its own, and each has to write all 5,000 items into its feed.
The spider is the same for trawl and Scrapy: it yields the page's title and follows every link. Crawlee keeps its items
in memory and writes them at the end. The bare loop has its list of URLs beforehand: it parses each page for title and
links, and follows none. Each crawler's garbage collector is as its command sets it: `trawl crawl` has it look less
often, the others leave it as Python has it. Task steps and I/O waits are counted by a Trio instrument in a round of its
own. Memory is what Python's `tracemalloc` counts. Instructions are counted by valgrind, by a clock that is as slow as
valgrind makes the crawl: by the true one each callback would take long.
"""


def value_of(kept: dict[str, Any], row: str, name: str) -> float:
    """One figure."""
    return next(float(figure["value"]) for figure in kept["rows"][row]["figures"] if figure["name"] == name)


def connections_chart(kept: dict[str, Any]) -> str:
    """Rate against connections."""
    names = ("trawl's transport", *(name for name in NAMES if name != "trawl's transport"))
    series = [
        Series(name, [(count, value_of(kept, "connections", f"{name}, {count}")) for count in CONNECTIONS])
        for name in names
    ]
    return chart("Requests a second, one page of 5.5 kB", "connections", "requests/s", series)


def domains_chart(kept: dict[str, Any]) -> str:
    """Pop cost against domains."""
    ours = [(count, value_of(kept, "next", f"pop, {count:,} domains")) for count in DOMAINS]
    theirs = [(count, value_of(kept, "next", f"Scrapy: pop, {count:,} domains")) for count in SCRAPY_DOMAINS]
    title = "What the next request takes to be found"
    return chart(title, "domains with pending requests", "µs", [Series("trawl", ours), Series("Scrapy", theirs)])


PLOTTED = CRAWLERS[:5]
"""Those that are drawn: the others ask a hundred times a second, or hardly at all."""

MOVING = Server(rate=10.0, moved=(60.0, 5.0))
UNTIL, WINDOW = 120.0, 2.0


def controllers_plot() -> str:
    """Rates over time of each crawler at a server whose limit falls to a half on the way. It is crawled anew."""
    panels = []
    for name in PLOTTED:
        trace = run(name, MOVING, seconds=UNTIL)
        note = f"{len(trace.good):,} pages, {len(trace.refused):,} refused, {trace.lost:,} lost"
        rates = count_rates(sorted([*trace.good, *trace.refused]), trace.refused, 0.0, UNTIL, WINDOW)
        limit = [(0.0, MOVING.rate_at(0.0)), (60.0, MOVING.rate_at(60.0))]
        panels.append(Panel(title=name, note=note, rates=rates, refused_at=trace.refused, limit=limit))
    return draw_rates(panels, title="A limit of 10 requests a second that falls to 5", start=0.0, end=UNTIL)


def between(text: str, what: str, made: str) -> str:
    """A page with something made between its two marks, the comments that tell of it."""
    begin, end = f"<!-- {what}: python -m benchmarks.report -->\n", f"<!-- end of the {what} -->\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{made}{end}{after}"


def with_tables(text: str, kept: dict[str, Any]) -> str:
    """A page with the tables of the row ``limits``."""
    return between(text, "tables", tables(kept))


def with_figures(text: str, kept: dict[str, Any], folder: str) -> str:
    """Return a first page with the measured speeds; ``folder`` is the path from the page to the explanations."""
    return between(text, "figures", speeds(kept, folder))


def tables(kept: dict[str, Any]) -> str:
    """A table for each group of cases: the figure of each crawler, with its refusals in brackets."""
    figures = {figure["name"]: figure for figure in kept["rows"]["limits"]["figures"]}
    text = ""
    for heading, cases in GROUPS.items():
        text += f"\n### {heading}\n\n| | {' | '.join(CRAWLERS)} |\n|--|{'--|' * len(CRAWLERS)}\n"
        for case in cases:
            cells = [cell(figures[f"{case.name}: {crawler}"]) for crawler in CRAWLERS]
            text += f"| {case.name} | {' | '.join(cells)} |\n"
    return text + "\n"


def cell(figure: dict[str, Any]) -> str:
    """A figure with its refusals, and in bold the pages that it lost: "97 % (1.4) **-3**"."""
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
    """The version of a crawler that was measured, without the last part."""
    return str(kept["machine"]["versions"][name.lower()]).rpartition(".")[0]


def day(kept: dict[str, Any], row: str) -> str:
    """The day on which a row was measured."""
    at = datetime.fromisoformat(kept["rows"][row]["at_utc"])
    return f"{at.day} {at:%B %Y}"


def refused_and_lost(figure: dict[str, Any]) -> tuple[str, str]:
    """The refusals for each hundred pages, and the pages lost, of a figure of the row ``limits``."""
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
