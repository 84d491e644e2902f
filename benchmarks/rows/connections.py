"""Transports with a growing number of connections: trawl's, httpx with trawl's, stock httpx, and the bare loop."""

from __future__ import annotations

import trio

from benchmarks.bench import Bench
from benchmarks.figures import Figure, median_of, ratio_of
from benchmarks.transport import HEADERS, PAGE, Taken, bare, http11, serving, timed

__all__ = ["CONNECTIONS", "NAMES", "connections"]

CONNECTIONS = (1, 4, 16, 64, 256)
NAMES = ("the bare loop", "trawl's transport", "httpx with trawl's transport", "stock httpx")
REQUESTS = 3_000
SLOW_REQUESTS = {1: 1_000, 4: 1_000, 16: 800, 64: 500, 256: 300}
"""Fewer requests for stock httpx, because its pool is slower with more connections."""


async def through_httpx(url: str, requests: int, connections: int, *, ours: bool) -> Taken:
    """Measure httpx with its own transport or with trawl's."""
    import httpx  # noqa: PLC0415

    from trawl.transport import HTTP11Transport  # noqa: PLC0415

    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    transport = HTTP11Transport() if ours else httpx.AsyncHTTPTransport(limits=limits)
    async with httpx.AsyncClient(transport=transport, headers=dict(HEADERS.items()), timeout=60) as client:

        async def ask() -> None:
            response = await client.get(url)
            if len(response.content) != len(PAGE):
                raise RuntimeError("a page of another size")

        return await timed([ask] * connections, requests)


def rate(name: str, url: str, count: int, *, part: int) -> float:
    """Return requests per second over ``count`` connections."""
    requests = SLOW_REQUESTS[count] if name == "stock httpx" else REQUESTS
    requests = max(requests // part, count)
    if name == "the bare loop":
        taken = trio.run(bare, url, None, requests, count)
    elif name == "trawl's transport":
        taken = trio.run(http11, url, None, requests, count)
    else:
        ours = name != "stock httpx"

        async def ask_all() -> Taken:
            return await through_httpx(url, requests, count, ours=ours)

        taken = trio.run(ask_all)
    return requests / taken[0]


def connections(bench: Bench) -> list[Figure]:
    """Return requests per second for one page of 5.5 kB, without parsing."""
    rates: dict[tuple[str, int], list[float]] = {(name, count): [] for count in CONNECTIONS for name in NAMES}
    with serving(False) as (_, url, _):
        for _ in range(bench.rounds):
            for (name, count), each in rates.items():
                each.append(rate(name, url, count, part=10 if bench.is_quick else 1))
    told = [median_of(f"{name}, {count}", each, "requests/s") for (name, count), each in rates.items()]
    ratios = [
        ratio_of(f"trawl's transport against {name}, 64", rates["trawl's transport", 64], rates[name, 64])
        for name in ("the bare loop", "stock httpx")
    ]
    return [*told, *ratios]
