"""One simulated host, as it was described: a frozen value that any number of runs share."""

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
"""Answers requests at the instant of their send; may be async and sleep on the virtual clock."""

NOT_FOUND = SimulatedResponse(404, "", {"Content-Type": "text/plain; charset=utf-8"})


def _checked_address(instance: object, attribute: object, address: str) -> None:
    if address:
        ipaddress.ip_address(address)  # its own error says what is wrong


def _as_limits(limit: RateLimit | Iterable[RateLimit] | None) -> tuple[RateLimit, ...]:
    if limit is None:
        return ()
    limits = (limit,) if isinstance(limit, RateLimit) else tuple(limit)
    if not all(isinstance(each, RateLimit) for each in limits):
        raise TypeError(f"a limit is a RateLimit or several, not {limit!r}")
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
        name: As its throttling scope is named.
        latency: Seconds from the send to the last byte.
        connect: Seconds that a new connection takes before the send.
        keep_alive: Seconds that an idle connection stays open; 0: every request makes a new one.
        limit: What it refuses; several limits have to allow a request together.
        handler: Answers what no page, redirect or robots.txt does.
        robots: The answer to ``/robots.txt``.
        answer: What any other path gives, where there is no handler.
        connect_error: What goes wrong with connecting, or a function of the request that gives it or None.
        outages: When it is down.
        is_implied: Nobody described it; a page was put on it.
        address: Where its name leads; several hosts may share it. "": an address of its own.
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
        """The outage that holds at ``now`` (seconds since the crawl began), if one does."""
        for outage in self.outages:
            if outage.holds(now):
                return outage
        return None


def scope_of_name(name: str) -> str:
    """The host that ``name`` means, written as scopes are: ``A.Example.`` is ``a.example`` (E19).

    Args:
        name: A host, with or without a port, or an address (URL) on it.

    Raises:
        ValueError: It can't be a host.
    """
    if "://" in name:
        return host_scope(normalize_url(name))
    scheme = "https" if name.endswith(":443") else "http"
    if not name or any(mark in name for mark in "/?#@ "):
        raise ValueError(f"{name!r} is not a host")
    return host_scope(normalize_url(f"{scheme}://{name}/"))
