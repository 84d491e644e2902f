"""The description of a simulated host: a frozen value that any number of runs share."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import attrs
from attrs import validators

from trawl.http import Request, host_scope, normalize_url
from trawl.testing.latency import Latency, Outage, as_outages, check_latency
from trawl.testing.limits import RateLimit
from trawl.testing.responses import EMPTY_PAGE, Failure, SimulatedResponse, checked_failure

__all__ = ["Handler", "Host", "scope_of_name"]

Handler = Callable[[Request], SimulatedResponse | Awaitable[SimulatedResponse]]
"""Called with a request at the instant of its send; may be async and sleep on the virtual clock."""

NOT_FOUND = SimulatedResponse(404, "", {"Content-Type": "text/plain; charset=utf-8"})


def _checked_address(instance: object, attribute: object, address: str) -> None:
    if address:
        ipaddress.ip_address(address)  # its own error says what is wrong


def _as_limits(limit: RateLimit | Iterable[RateLimit] | None) -> tuple[RateLimit, ...]:
    if limit is None:
        return ()
    limits = (limit,) if isinstance(limit, RateLimit) else tuple(limit)
    if not all(isinstance(each, RateLimit) for each in limits):
        raise TypeError(f"a limit must be a RateLimit or several, not {limit!r}")
    return limits


def _as_robots(robots: str | bytes | SimulatedResponse | None) -> SimulatedResponse:
    if robots is None:
        return NOT_FOUND
    if isinstance(robots, SimulatedResponse):
        return robots
    return SimulatedResponse(200, robots, {"Content-Type": "text/plain; charset=utf-8"})


@attrs.frozen(kw_only=True)
class Host:
    """A host of a simulated web.

    Attributes:
        name: Its name, as of its throttling scope.
        latency: Seconds from the send to the last byte.
        connect: Seconds that a new connection takes before the send.
        keep_alive: Seconds that an idle connection stays open; 0: every request makes a new one.
        limit: Its rate limits; a request must pass all of them.
        handler: Answers all requests without a page, redirect or robots.txt.
        robots: The answer to ``/robots.txt``.
        answer: The answer to all other paths if there is no handler.
        connect_error: The error of new connections, or a function of the request that returns one or None.
        outages: Its outages.
        is_implied: It was only added implicitly, by a page.
        address: The IP address of its name, which hosts may share. "": one of its own.
    """

    name: str
    latency: Latency = attrs.field(default=0.0, validator=check_latency)
    connect: Latency = attrs.field(default=0.0, validator=check_latency)
    keep_alive: float = attrs.field(default=75.0, validator=validators.ge(0))
    limit: tuple[RateLimit, ...] = attrs.field(default=None, converter=_as_limits)
    handler: Handler | None = attrs.field(default=None, validator=validators.optional(validators.is_callable()))
    robots: SimulatedResponse = attrs.field(default=None, converter=_as_robots)
    answer: SimulatedResponse = attrs.field(factory=lambda: SimulatedResponse(200, EMPTY_PAGE))
    connect_error: Failure | Callable[[Request], Failure | None] | None = attrs.field(default=None)
    outages: tuple[Outage, ...] = attrs.field(default=(), converter=as_outages)
    is_implied: bool = False
    address: str = attrs.field(default="", validator=_checked_address)

    @connect_error.validator
    def _is_failure(self, attribute: object, error: Any) -> None:
        if error is not None and (isinstance(error, type) or not callable(error)):
            checked_failure(error)

    def outage(self, now: float) -> Outage | None:
        """Return the outage at ``now`` (seconds since the crawl began), if any."""
        return next((outage for outage in self.outages if outage.holds(now)), None)


def scope_of_name(name: str) -> str:
    """Return the scope of a host: ``a.example`` for ``A.Example.``.

    Args:
        name: A host, with or without a port, or a URL on it.

    Raises:
        ValueError: It is not a host.
    """
    if "://" in name:
        return host_scope(normalize_url(name))
    scheme = "https" if name.endswith(":443") else "http"
    if not name or any(mark in name for mark in "/?#@ "):
        raise ValueError(f"{name!r} is not a host")
    return host_scope(normalize_url(f"{scheme}://{name}/"))
