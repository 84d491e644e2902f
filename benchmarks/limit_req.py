"""Crawls a server with a rate limit: ``python -m benchmarks.limit_req [--svg FILE]``.

It starts an nginx with ``limit_req`` at 5 and at 50 requests per second (``nodelay``, burst 5, 429). It crawls this
server with rampup, and without rampup at full speed. All crawls run at the same time in one process, in about two
minutes. The table shows the served and refused requests. The picture for ``docs/explanation`` shows the rate over time
with every 429.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers.limited import CASES, HTTP, RAMPED, SERVER, Run, crawl_all, write_page
from tests.servers.nginx import running
from trawl.testing.rates import Panel, count_rates, draw_rates

WINDOW = 2.0
"""Number of seconds over which the rate is computed."""

FOUND = 20.0
"""Seconds after the start at which the reported rates begin."""

TITLE = "Requests a second under limit_req"
TITLES = {
    "five-rampup": "5 requests/s allowed, rampup, from a page a second",
    "fifty-rampup": "50 requests/s allowed, rampup, from a page a second",
    "five-plain": "5 requests/s allowed, no rampup, from delay 0 and concurrency 8",
}


def panel(run: Run) -> Panel:
    """Return the panel of one crawl, with the requests that nginx served and refused, and its limit."""
    times = [hit.at - run.hits[0].at for hit in run.hits]
    return Panel(
        title=TITLES[run.case.name],
        note=f"{run.case.pages:,} pages, {len(run.refused)} answers 429, {len(run.lost)} pages lost",
        rates=count_rates(times, run.refused, 0.0, run.took, WINDOW),
        refused_at=run.refused,
        limit=[(0.0, run.case.allowed)],
    )


def settled(run: Run) -> str:
    """Return the rate that the crawl reached after it had found the limit, as a share of the allowed rate."""
    share = run.rate(FOUND, run.took) / run.case.allowed
    refused = sum(at >= FOUND for at in run.refused)
    return f"{share:.0%} of what is allowed and {refused} of the answers 429 from {FOUND:.0f} s on"


def main() -> None:
    """Crawl, print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, help="write the picture there")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        root, own = Path(folder, "root"), Path(folder, "nginx")
        root.mkdir()
        own.mkdir()
        write_page(root)
        with running(own, root, extra=HTTP, server=SERVER) as nginx:
            runs = trio.run(crawl_all, nginx, CASES)
    for name, run in runs.items():
        told = f"{run.case.pages} pages in {run.took:.0f} s, {len(run.refused)} answers 429, {len(run.lost)} pages lost"
        print(f"{name}: {told}" + (f", {settled(run)}" if name in RAMPED else ""))
    if options.svg:
        shown = [runs[name] for name in TITLES]
        picture = draw_rates([panel(run) for run in shown], title=TITLE, start=0.0, end=max(run.took for run in shown))
        options.svg.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
