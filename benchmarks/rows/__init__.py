"""The rows, in the order of execution."""

from benchmarks import free_host
from benchmarks.bench import Row
from benchmarks.rows import (
    browser,
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
    views,
)

__all__ = ["ROWS"]

ROWS = {
    row.name: row
    for row in (
        Row("pages", "5,000 linked pages of 5.5 kB, 10 links each, unthrottled, 64 connections", pages.against_peers),
        Row("tls", "the linked pages over TLS", pages.over_tls),
        Row("instructions", "instructions per page for the linked pages, counted by valgrind", pages.instructions),
        Row("kept", "a page with a job, and when filling and using the HTTP cache, counted by valgrind", pages.kept),
        Row("engine", "the engine's own share, with a transport without cost and an empty callback", share.engine),
        Row("calls", "a request in memory: Python calls inside trawl, and modules involved", calls.a_request),
        Row("next", "next request with 10, 1,000 and 50,000 domains pending", choosing.next_request),
        Row("looks", "lanes checked per grant, with 50,000 lanes on one full or delayed scope", choosing.looks),
        Row("pending", "a pending request in memory, including its fingerprint", memory.per_pending),
        Row("seen", "a seen fingerprint in memory", memory.per_seen),
        Row("pauses", "the longest garbage collection, with a million pending requests", memory.pauses),
        Row("imports", "import trawl, trawl --help", imports.imports),
        Row("simulate", "a simulated crawl in virtual time", share.simulated),
        Row("hosts", "1,000 hosts with a delay of 1 s, on the real clock", throttled.thousand_hosts),
        Row("delays", "several delays, each with one host, on the real clock", throttled.delays),
        Row("rates", "one host with a rate, on the real clock", throttled.rates),
        Row("free-host", "a host without limits next to throttled hosts", free_host.beside_throttled),
        Row("connections", "the transport by itself, with 1 to 256 connections", connections.connections),
        Row("limits", "crawlers against a server's limit, in virtual time: trawl and models of others", limits.limits),
        Row(
            "store",
            "a job in a server: processor time of the linked pages, memory of a pending link and a seen mark",
            shared_jobs.store,
        ),
        Row(
            "processes",
            "20 ms of parsing per page: two processes on two cores, and a model for more",
            shared_jobs.processes,
        ),
        Row("views", "the panel, the metrics and the terminal, with 10,000 hosts", views.views),
        Row("browser", "pages that a browser renders, 4 at a time, each with four requests", browser.rendered),
        Row("stream", "a crawl of 200,000 pages with a million links", stream.streamed),
    )
}
