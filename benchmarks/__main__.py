"""Runs the rows, prints them with their goals, and stores them as JSON: ``python -m benchmarks [--row NAME]``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figures import table
from benchmarks.results import Results
from benchmarks.rows import ROWS

FIRST = "stream"
"""The row that runs first. It measures the memory of this process, which other rows increase."""

RESULTS = Path(__file__).parent / "results" / "latest.json"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", action="append", choices=sorted(ROWS), help="only this one; may be given again")
    parser.add_argument("--rounds", type=int, default=5, help="the median of so many counts (5)")
    parser.add_argument("--quick", action="store_true", help="to see that it runs, not to measure; keeps nothing")
    parser.add_argument("--resume", action="store_true", help="only the rows that --output has not yet")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the figures are kept")
    return parser.parse_args(words)


def main() -> None:
    """Measure and print the rows. The exit status is 1 if a goal is missed."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # run the cleanup that stops nginx
    results = Results.read(given.output) if given.row or given.resume else Results()
    with Bench(1 if given.quick else given.rounds, is_quick=given.quick) as bench:
        for name in given.row or sorted(ROWS, key=lambda name: name != FIRST):
            if given.resume and name in results.rows:
                continue
            row = ROWS[name]
            figures = row.measure(bench)
            print(table(f"{name}: {row.title}", figures), flush=True)
            results.add(row, figures, rounds=bench.rounds)
            if not given.quick:
                results.write(given.output)
    if missed := results.missed():
        raise SystemExit("missed: " + ", ".join(missed))


if __name__ == "__main__":
    main()
