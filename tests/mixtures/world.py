"""The mixture of a seed: sites, limits, requests of every kind, changes while the crawl runs, and kills.

Everything is drawn before the crawl runs. So the checker knows the scopes of each URL, the limits at each time and the
expected result, without help of the crawler.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trawl.testing import RateLimit, SimulatedResponse, SimulatedWeb

__all__ = ["BODY", "Change", "Mixture", "Site", "Step"]

BODY = "<p>here</p>"

PATIENT = {"BACKOFF_WINDOW": 10.0, "BACKOFF_MAX_DELAY": 30.0, "RETRY_DELAY": 0.3, "SHUTDOWN_TIMEOUT": 1.0}
NAMED = ("api", "cost", "users")


@attrs.frozen(kw_only=True)
class Site:
    """One host and its server.

    Attributes:
        name: Its name.
        latency: Seconds from a send to the last byte.
        connect: Seconds that a new connection takes.
        crawl_delay: The ``Crawl-delay`` in its robots.txt, in seconds; None if there is none.
        limit: The server's limit as requests per second and burst; None if there is none.
        config: Its entry in ``THROTTLING_SCOPES``.
    """

    name: str
    latency: float
    connect: float
    crawl_delay: float | None
    limit: tuple[float, float, int | None] | None
    config: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Step:
    """One request of the spider.

    Attributes:
        number: Its number, in its URL.
        host: Its host.
        parent: The step whose callback yields it; None if ``start()`` does.
        kind: What happens to it: ``page``, ``redirect``, ``replace``, ``rewrite``, ``flaky``, ``busy``, ``direct`` or
            ``no``.
        to: The target host of a redirect, a middleware or a direct fetch.
        end: The kind of path there: ``end``, or ``no``, which robots.txt disallows.
        scopes: ``throttling_scopes`` of its meta; None if the manager decides.
        session: Its session; "" if it has none.
        priority: Its priority.
        delay: ``delay`` of its meta, in seconds.
        times: Number of 429 responses before a good response.
        retry_after: ``Retry-After`` of these responses, in seconds; None if there is none.
    """

    number: int
    host: str
    parent: int | None
    kind: str
    to: str
    end: str
    scopes: Mapping[str, float | None] | None
    session: str
    priority: int
    delay: float
    times: int
    retry_after: int | None

    @property
    def url(self) -> str:
        """The URL that the spider requests."""
        return f"http://{self.host}/{self.kind}/{self.number}"

    @property
    def target(self) -> str:
        """The target URL of a redirect, a middleware or a direct fetch."""
        return f"http://{self.to}/{self.end}/{self.number}"


@attrs.frozen
class Change:
    """New limits for a scope while the crawl runs.

    Attributes:
        at: Time of the change, in seconds since the start of the first run.
        scope: The scope's id.
        limits: The arguments of ``crawl.throttling.set``.
    """

    at: float
    scope: str
    limits: Mapping[str, Any]


class Mixture:
    """The mixture of one seed.

    Args:
        seed: The seed.
        has_middleware: False for the same mixture without middleware and with pages for the requests that it changes.

    Attributes:
        seed: The seed.
        has_middleware: Whether requests pass a middleware.
        sites: The hosts by name.
        named: The other scopes: id to their entry in ``THROTTLING_SCOPES``.
        settings: The settings that do not name a scope.
        steps: The requests.
        changes: Changes of limits, in order.
        kills: The steps of Trio's tasks at which a run is killed, one per run. If empty, there is no kill and no job.
        down: Seconds between a kill and the next run.
        awaits: Minimum and maximum seconds that a middleware awaits before it sends a request; None if it does not
            await.
    """

    def __init__(self, seed: int, *, has_middleware: bool = True) -> None:
        self.seed = seed
        self.has_middleware = has_middleware
        draw = random.Random(f"mixture:{seed}")
        names = [f"h{number}.example" for number in range(draw.choice([1, 2, 2, 3, 4]))]
        self.sites: dict[str, Site] = {name: _site(name, draw) for name in names}
        self.named: dict[str, Mapping[str, Any]] = {name: _named(name, draw) for name in NAMED}
        self.settings: dict[str, Any] = {
            **PATIENT,
            "CONCURRENT_REQUESTS": draw.choice([1, 2, 4, 16, 16, 0]),
            "CONCURRENT_REQUESTS_PER_DOMAIN": draw.choice([1, 1, 2, 4]),
            "DOWNLOAD_DELAY": draw.choice([0.0, 0.5, 1.0]),
            "DOWNLOAD_DELAY_PER_SLOT": draw.choice([0.0, 1.0, 1.5]),
            "RANDOMIZE_DOWNLOAD_DELAY": draw.choice([True, True, True, False]),
            "AUTOTHROTTLE_ENABLED": draw.random() < 0.1,
            "AUTOTHROTTLE_START_DELAY": 2.0,
            "DEPTH_FIRST": draw.random() < 0.2,
        }
        self.steps: list[Step] = [_step(number, names, draw) for number in range(draw.randrange(8, 36))]
        is_plain = draw.random() < 0.25
        if is_plain:  # each request has only the scope of its host, so its earliest send time is known
            self.steps = [attrs.evolve(step, scopes=None, session="") for step in self.steps]
            self.sites = {name: attrs.evolve(site, limit=None) for name, site in self.sites.items()}
        ids = [*names, *NAMED]
        self.changes: list[Change] = sorted(
            [_change(draw, ids) for _ in range(draw.choice([0, 0, 1, 2, 4]) * (not is_plain))],
            key=lambda change: change.at,
        )
        kills = draw.choice([0, 0, 0, 1, 2]) * (not is_plain)
        self.kills: list[int] = [draw.randrange(20, 2_000) for _ in range(kills)]
        self.down: float = draw.choice([0.0, 0.5, 5.0, 40.0])
        self.looks: list[float] = sorted(draw.uniform(0.0, 60.0) for _ in range(40))
        self.awaits: tuple[float, float] | None = draw.choice([None, None, (0.1, 0.1), (0.0, 1.0), (0.1, 8.0)])
        if is_plain:
            self.awaits = None
        # If middleware awaits before sends, requests enter it early, and requests that it handles itself would be
        # early.
        may = has_middleware and self.awaits is None and not is_plain
        self.has_user_code: bool = may and random.Random(f"user code:{seed}").random() < 0.8
        if not has_middleware:
            self.awaits = None
            kinds = {"replace": "page", "rewrite": "page"}
            self.steps = [attrs.evolve(step, kind=kinds.get(step.kind, step.kind)) for step in self.steps]
        self._add_bandwidths(random.Random(f"bandwidth:{seed}"), ids, may_change=not is_plain)

    def _add_bandwidths(self, draw: random.Random, ids: list[str], *, may_change: bool) -> None:
        """Give some scopes a bandwidth, and change one while the crawl runs."""
        limits = {id: {"bandwidth": draw.choice([3, 10, 40, 500])} for id in ids if draw.random() < 0.2}
        for id, limit in limits.items():
            if id in self.sites:
                self.sites[id] = attrs.evolve(self.sites[id], config={**self.sites[id].config, **limit})
            else:
                self.named[id] = {**self.named[id], **limit}
        if limits and may_change and draw.random() < 0.4:
            change = Change(draw.uniform(0.5, 20.0), draw.choice([*limits]), {"bandwidth": draw.choice([5, 100])})
            self.changes = sorted([*self.changes, change], key=lambda each: each.at)

    def user_code(self, url: str) -> str:
        """Return the action of a middleware: ``responds``, ``fails`` once, ``ignores``; "" if it sends the request."""
        kind = url.split("/")[3]
        if not self.has_user_code or kind not in ("page", "end"):
            return ""
        draw = random.Random(f"user code:{self.seed}:{url}")
        return draw.choice(["", "", "responds", "fails", "ignores" if kind == "page" else "responds"])

    def size(self, url: str) -> int:
        """Return the bytes of a good response to a request for ``url``."""
        host, path = url.split("/", 3)[2:]
        return len(self.robots(self.sites[host]) if path == "robots.txt" else BODY)

    def robots(self, site: Site) -> str:
        """Return the robots.txt of a site."""
        wish = "" if site.crawl_delay is None else f"Crawl-delay: {site.crawl_delay}\n"
        return f"User-agent: *\n{wish}Disallow: /no/\n"

    def awaited(self, url: str) -> float:
        """Return the seconds that a middleware awaits before it sends the request for ``url``."""
        return 0.0 if self.awaits is None else random.Random(f"awaits:{self.seed}:{url}").uniform(*self.awaits)

    def user_code_takes(self, url: str) -> float:
        """Return the seconds that a middleware takes to handle the request itself."""
        draw = random.Random(f"user code takes:{self.seed}:{url}")
        return draw.choice([0.0, 0.0, draw.uniform(0.0, 3.0)])

    @property
    def scope_settings(self) -> dict[str, Mapping[str, Any]]:
        """``THROTTLING_SCOPES``."""
        return {**{site.name: site.config for site in self.sites.values()}, **self.named}

    def config_at(self, scope: str, now: float) -> Iterator[Mapping[str, Any]]:
        """Yield the scope's own keys at ``now``.

        If a change happens at that time, yield the keys before and after it.
        """
        config: dict[str, Any] = dict(self.scope_settings.get(scope, {}))
        for change in self.changes:
            if change.scope != scope or change.at > now + 1e-9:
                continue
            if abs(change.at - now) < 1e-9:
                yield dict(config)
            if "rate" in change.limits:
                config.pop("delay", None)
            if "delay" in change.limits:
                config.pop("rate", None)
            config.update(change.limits)
        yield config

    def web(self) -> SimulatedWeb:
        """Return the web of the sites. A server remembers its requests, even from one run to the next."""
        web = SimulatedWeb()
        asked: Counter[str] = Counter()

        def answer(request: Any) -> SimulatedResponse:
            _, _, kind, number = request.url.split("/")[1:]
            step = self.steps[int(number)]
            asked[request.url] += 1
            if kind == "redirect":
                return SimulatedResponse(302, headers={"Location": step.target})
            if kind == "flaky" and asked[request.url] == 1:
                return SimulatedResponse(500)
            if kind == "busy" and asked[request.url] <= step.times:
                fields = {} if step.retry_after is None else {"Retry-After": str(step.retry_after)}
                return SimulatedResponse(429, headers=fields)
            return SimulatedResponse(body=BODY, headers={"Content-Type": "text/html"})

        for site in self.sites.values():
            web.add_host(
                site.name,
                latency=site.latency,
                connect=site.connect,
                handler=answer,
                robots=self.robots(site),
                limit=None if site.limit is None else RateLimit(site.limit[0], site.limit[1], 429, site.limit[2]),
            )
        return web


def _site(name: str, draw: random.Random) -> Site:
    config: Mapping[str, Any] = draw.choice(
        [
            {},
            {},
            {},
            {"concurrency": 2, "delay": 0.5},
            {"delay": 1.5, "jitter": 0.2},
            {"delay": 1.0, "jitter": [-0.1, 0.3]},
            {"rate": 2},
            {"quota": 3, "window": 20.0},
            {"quota": 4, "window": 15.0, "sliding": True, "delay": 0.1},
            {"concurrency": 3, "delay": 0.2, "delay_per_slot": 1.5},
            {"concurrency": 4, "delay": 0.0, "delay_per_slot": 0.0},
            {"delay": 1.0, "rampup": True},
        ]
    )
    return Site(
        name=name,
        latency=draw.choice([0.05, 0.1, 0.4, 2.0]),
        connect=draw.choice([0.0, 0.0, 0.1, 0.3]),
        crawl_delay=draw.choice([None, None, None, 0.7, 3.0]),
        limit=draw.choice([None, None, None, (1.0, 3.0, None), (2.0, 2.0, 3)]),
        config=config,
    )


def _named(name: str, draw: random.Random) -> Mapping[str, Any]:
    if name == "cost":
        return draw.choice(
            [{"quota": 5.0, "window": 12.0}, {"quota": 4.0, "window": 10.0, "sliding": True}, {"quota": 20.0}]
        )
    return draw.choice(
        [{}, {"concurrency": 1}, {"concurrency": 2, "delay": 0.3}, {"delay": 0.8}, {"delay_per_slot": 0.7}]
    )


def _step(number: int, names: list[str], draw: random.Random) -> Step:
    host, to = draw.choice(names), draw.choice(names)
    scopes: Mapping[str, float | None] | None = draw.choice(
        [
            None,
            None,
            None,
            None,
            {"api": None},
            {"api": None, "users": None},
            {host: None, "cost": draw.choice([None, 0.5, 2.0, 3.0, 9.0])},
            {host: None, "users": None},
            {"cost": draw.choice([0.1, 1.0, 2.5])},
        ]
    )
    return Step(
        number=number,
        host=host,
        parent=None if number == 0 or draw.random() < 0.4 else draw.randrange(number),
        kind=draw.choice(
            ["page"] * 6 + ["redirect", "redirect", "replace", "rewrite", "flaky", "busy", "direct", "no"]
        ),
        to=to,
        end=draw.choice(["end", "end", "end", "no"]),
        scopes=scopes,
        session=draw.choice(["", "", "", "", "anna"]),
        priority=draw.choice([0, 0, 0, 0, 5, -5]),
        delay=draw.choice([0.0] * 8 + [2.0]),
        times=draw.choice([1, 2]),
        retry_after=draw.choice([None, None, 2, 5]),
    )


def _change(draw: random.Random, ids: list[str]) -> Change:
    limits: Mapping[str, Any] = draw.choice(
        [
            {"delay": 0.2},
            {"delay": 2.0},
            {"concurrency": 1},
            {"concurrency": 3},
            {"rate": 1},
            {"quota": 3, "window": 8.0},
            {"quota": 2.0, "window": 6.0, "sliding": True},
            {"concurrency": 2, "delay": 0.0, "delay_per_slot": 1.0},
        ]
    )
    return Change(round(draw.uniform(0.5, 20.0), 3), draw.choice(ids), limits)
