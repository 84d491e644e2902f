"""The rows, in the order in which they run."""

from benchmarks.bench import Row
from benchmarks.rows import pages

__all__ = ["ROWS"]

ROWS = {
    row.name: row
    for row in (
        Row("pages", "5,000 linked pages of 5.5 kB, 10 links each, unthrottled, 64 connections", pages.against_peers),
        Row("tls", "the same over TLS", pages.over_tls),
    )
}
