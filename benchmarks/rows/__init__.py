"""The rows, in the order of execution."""

from benchmarks import free_host
from benchmarks.bench import Row
from benchmarks.rows import (
    calls,
    choosing,
    connections,
    imports,
    limits,
    memory,
    pages,
    share,
    shared_jobs,
    stream,
    throttled,
)

__all__ = ["ROWS"]

ROWS = {
    row.name: row
    for row in (
        Row("pages", "5,000 linked pages of 5.5 kB, 10 links each, unthrottled, 64 connections", pages.against_peers),
        Row("tls", "the same over TLS", pages.over_tls),
        Row("instructions", "instructions a page of the linked ones, counted by valgrind", pages.instructions),
        Row("kept", "a page with a job, and into and out of the HTTP cache, counted by valgrind", pages.kept),
        Row("engine", "the engine's own share: a wire that costs nothing, a null callback", share.engine),
        Row("calls", "a request in memory: Python calls inside trawl, and modules that it passes", calls.a_request),
        Row("next", "next request with 10, 1,000 and 50,000 domains pending", choosing.next_request),
        Row("looks", "50,000 lanes on one shared full or delayed scope", choosing.looks),
        Row("pending", "a pending request in memory, fingerprint included", memory.per_pending),
        Row("seen", "a seen fingerprint in memory", memory.per_seen),
        Row("pauses", "the longest pass of the garbage collector, with a million pending", memory.pauses),
        Row("imports", "import trawl, trawl --help", imports.imports),
        Row("simulate", "a simulated crawl in virtual time", share.simulated),
        Row("hosts", "1,000 hosts at a delay of 1 s, on the real clock", throttled.thousand_hosts),
        Row("delays", "one host each at several delays, on the real clock", throttled.delays),
        Row("rates", "one host at a rate, on the real clock", throttled.rates),
        Row("free-host", "a free host beside throttled ones", free_host.beside_throttled),
        Row("connections", "the wire by itself, at 1 to 256 connections", connections.connections),
        Row("limits", "crawlers before a server's limit, in virtual time: trawl and models of others", limits.limits),
        Row("store", "a job in a server: the linked pages, memory of a pending link and of a mark", shared_jobs.store),
        Row(
            "processes",
            "20 ms of parsing a page: two processes on two cores, and more by a model",
            shared_jobs.processes,
        ),
        Row("stream", "200,000 pages streamed through with a million links", stream.streamed),
    )
}
