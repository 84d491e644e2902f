"""The description of a simulated host: frozen values that any number of runs share.

A latency is a number, a function of the request, or a distribution. Each run draws from a new generator that depends on
the seed and the host, so the same seed gives the same times in every run on a web.
"""

from __future__ import annotations

import html
import ipaddress
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import attrs
from attrs import validators

from trawl import errors
from trawl.errors import ConnectFailed, ConnectTimeout, DownloadError
from trawl.http import Headers, Request, host_scope, normalize_url
from trawl.settings.check import nearest
from trawl.testing.limits import RateLimit

__all__ = [
    "EMPTY_PAGE",
    "Failure",
    "Handler",
    "Host",
    "Latency",
    "LogNormal",
    "Outage",
    "Rendered",
    "SimulatedResponse",
    "Uniform",
    "as_outages",
    "check_failure",
    "check_latency",
    "draw_seconds",
    "failure_named",
    "make_failure",
    "make_page",
    "make_redirect",
    "scope_of_name",
]

Failure = DownloadError | type[DownloadError]
"""A download error from :mod:`trawl.exceptions`, or its class."""

HTML = "text/html; charset=utf-8"
EMPTY_PAGE = "<!DOCTYPE html><html><head><title></title></head><body></body></html>"
"""The default body of a page."""


def check_failure(instance: object, attribute: object, error: Any) -> None:
    """Check that ``error`` is a download error (a validator of attrs). Raises TypeError."""
    if isinstance(error, DownloadError) or (isinstance(error, type) and issubclass(error, DownloadError)):
        return
    raise TypeError(f"an error must be a download error of trawl.exceptions, not {error!r}")


def _as_bytes(body: str | bytes) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes):
        return body
    raise TypeError(f"the body of a simulated response must be str or bytes, not {type(body).__name__}")


def _as_headers(fields: Any) -> Headers:
    headers = Headers(fields)
    headers.setdefault("Content-Type", HTML)
    return headers


@attrs.frozen
class SimulatedResponse:
    """A response of a simulated server.

    Attributes:
        status: The status code.
        body: The body; text is encoded as UTF-8.
        headers: The headers; by default ``Content-Type: text/html; charset=utf-8``.
        latency: Seconds from the send to the last byte; 0.0 if the host's latency applies.
        first_byte: Seconds from the send to the headers, less than ``latency`` for a slow body. None if everything
            arrives at once.
        error: An error instead of the last byte, such as a broken connection.
        flags: Flags of the response, such as ``dataloss``.
        protocol: The protocol, as in ``response.protocol``.

    Raises:
        ValueError: If the status code is not within 200 to 999, or a time or header is not valid.
        TypeError: If the body is neither a string nor bytes.
    """

    status: int = attrs.field(default=200, validator=[validators.ge(200), validators.le(999)])
    body: bytes = attrs.field(default=b"", converter=_as_bytes)
    headers: Headers = attrs.field(default=None, converter=_as_headers)
    latency: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.lt(math.inf)])
    first_byte: float | None = attrs.field(default=None, kw_only=True, validator=validators.optional(validators.ge(0)))
    error: Failure | None = attrs.field(default=None, kw_only=True, validator=validators.optional(check_failure))
    flags: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    protocol: str = attrs.field(default="HTTP/1.1", kw_only=True)


_NOT_OF_THE_WIRE = (
    DownloadError,
    errors.AddressRefused,
    errors.BodyNotWritten,
    errors.BrowserEnded,
    errors.PageCrashed,
    errors.PageNotReady,
    errors.RenderError,
    errors.SoftBlocked,
    errors.TooManyRedirects,
)


def failure_named(name: str | None) -> type[DownloadError] | None:
    """Return the download error with this name in :mod:`trawl.exceptions`; None without a name. Raises ValueError."""
    if name is None:
        return None
    kinds = {
        kind.__name__: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, DownloadError) and kind not in _NOT_OF_THE_WIRE
    }
    if name not in kinds:
        close = nearest(name, kinds)
        hint = f"did you mean {close!r}?" if close else f"known are {', '.join(sorted(kinds))}"
        raise ValueError(f"{name!r} is not a download error: {hint}")
    return kinds[name]


def _as_stages(stages: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    if isinstance(stages, str):
        raise TypeError("asks must be a list of lists of URLs, not a string")
    return tuple([(stage,) if isinstance(stage, str) else tuple(stage) for stage in stages])


@attrs.frozen
class Rendered:
    """A simulated page after rendering in the browser, for requests with meta ``browser``.

    Attributes:
        html: The HTML when the scripts have finished; "" leaves it unchanged.
        asks: The requests of the page, in stages. The URLs of a stage are requested at once, and the next stage follows
            when all of them have ended. Relative URLs are joined to the URL of the page.
        seconds: Seconds that the scripts run after the last stage.
        on: The effect of actions: ``"click CSS"``, ``"fill CSS"``, ``"select CSS"``, ``"press KEY"``, ``"scroll"``, or
            ``"evaluate SCRIPT"``.
        url: The URL after the scripts or the action; "" leaves the URL unchanged.
        value: The value of ``evaluate``.
        frames: The frames of the page, by the CSS selector that ``page.frame()`` gets.

    Raises:
        TypeError: If ``asks`` is not a list of lists of URLs.
        ValueError: If ``seconds`` is negative.
    """

    html: str = ""
    asks: tuple[tuple[str, ...], ...] = attrs.field(default=(), converter=_as_stages)
    seconds: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.lt(math.inf)])
    on: Mapping[str, Rendered] = attrs.field(factory=dict)
    url: str = ""
    value: Any = None
    frames: Mapping[str, Rendered] = attrs.field(factory=dict)


def make_failure(failure: Failure, cause: str, url: str, method: str) -> DownloadError:
    """Return the error for a request: a copy of an instance, or a new instance of a class with ``cause``."""
    if isinstance(failure, DownloadError):
        error = failure.__class__.__new__(failure.__class__, *failure.args)
        error.__dict__.update(failure.__dict__)  # some errors have further attributes, such as is_of_proxy
        error.url, error.method = url, method
        return error
    return failure(cause, url=url, method=method)


def make_page(links: Iterable[str] = (), title: str = "") -> str:
    """Return an HTML page that contains the links unchanged."""
    anchors = "".join(f'<a href="{html.escape(link)}">{html.escape(link)}</a>\n' for link in links)
    return f"<!DOCTYPE html><html><head><title>{html.escape(title)}</title></head><body>{anchors}</body></html>"


def make_redirect(target: str, status: int = 302, headers: Mapping[str, str] | None = None) -> SimulatedResponse:
    """Return a redirect to ``target``, an absolute or relative URL (RFC 9110, section 15.4)."""
    location = target.encode().decode("latin-1")  # encodes the header value as UTF-8
    return SimulatedResponse(status, "", {"Location": location, **(headers or {})})


@attrs.frozen
class Outage:
    """A period in which a host fails. It includes ``start`` but not ``end``.

    Attributes:
        start: Seconds since the start of the crawl.
        end: Seconds since the start of the crawl; ``inf`` for an outage without end.
        status: The status code of the responses during the outage.
        error: An error instead of responses. A connection error happens before the send. Any other error replaces the
            response.
        retry_after: The ``Retry-After`` header of the responses; None if there is none.
        latency: Seconds until a response or an error. None uses the host's latency, or the host's ``connect`` for
            connection errors.

    Raises:
        ValueError: If the outage ends before it starts, or a number is out of range.
        TypeError: If the error is not a download error.
    """

    start: float = attrs.field(validator=validators.ge(0))
    end: float = attrs.field()
    status: int = attrs.field(default=503, validator=[validators.ge(200), validators.le(599)])
    error: Failure | None = attrs.field(default=None, kw_only=True, validator=validators.optional(check_failure))
    retry_after: float | str | None = attrs.field(default=None, kw_only=True)
    latency: float | None = attrs.field(default=None, kw_only=True, validator=validators.optional(validators.ge(0)))

    @end.validator
    def _after_start(self, attribute: object, end: float) -> None:
        if not end > self.start:
            raise ValueError(f"an outage ends after it starts, not at {end} when it starts at {self.start}")

    def holds(self, now: float) -> bool:
        """Return True if the host is down at ``now``."""
        return self.start <= now < self.end

    @property
    def is_connecting(self) -> bool:
        """Whether connections fail, so that requests are not sent."""
        kind = self.error if isinstance(self.error, type) else type(self.error)
        return issubclass(kind, ConnectFailed | ConnectTimeout)


def as_outages(outages: Iterable[Any]) -> tuple[Outage, ...]:
    """Return outages in order of time. A pair of numbers is the start and end of an outage with status code 503."""
    made = [outage if isinstance(outage, Outage) else _of_pair(outage) for outage in outages]
    return tuple(sorted(made, key=lambda outage: (outage.start, min(outage.end, math.inf))))


def _of_pair(pair: Any) -> Outage:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return Outage(float(pair[0]), float(pair[1]))
    raise TypeError(f"an outage must be an Outage or a pair (start, end), not {pair!r}")


@attrs.frozen
class Uniform:
    """A uniform distribution between two times.

    Attributes:
        low: The minimum, in seconds.
        high: The maximum, in seconds.

    Raises:
        ValueError: If ``low`` is negative or more than ``high``.
    """

    low: float = attrs.field(validator=validators.ge(0))
    high: float = attrs.field()

    @high.validator
    def _in_order(self, attribute: object, high: float) -> None:
        if not self.low <= high < math.inf:
            raise ValueError(f"Uniform goes from the shorter to the longer time, not from {self.low} to {high}")

    def draw(self, generator: random.Random) -> float:
        """Draw a time, in seconds."""
        return generator.uniform(self.low, self.high)


@attrs.frozen
class LogNormal:
    """A log-normal distribution, like the response times of servers.

    Most times are near the median, and some are much longer.

    Attributes:
        median: The median, in seconds.
        sigma: The spread. One in six times is longer than ``median * e**sigma``.

    Raises:
        ValueError: If a value is negative.
    """

    median: float = attrs.field(validator=validators.gt(0))
    sigma: float = attrs.field(default=0.5, validator=validators.ge(0))

    def draw(self, generator: random.Random) -> float:
        """Draw a time, in seconds."""
        return self.median * math.exp(generator.gauss(0.0, self.sigma))


Latency = float | Callable[[Request], float] | Uniform | LogNormal
"""Seconds, a function of the request that returns seconds, or a distribution to draw from."""


def draw_seconds(latency: Latency, request: Request, generator: random.Random) -> float:
    """Return the seconds of ``latency`` for ``request``. Raises ValueError if a function returns anything else."""
    if isinstance(latency, int | float):
        return latency
    if isinstance(latency, Uniform | LogNormal):
        return latency.draw(generator)
    drawn: object = latency(request)
    if not isinstance(drawn, int | float) or not 0.0 <= drawn < math.inf:
        name = getattr(latency, "__qualname__", repr(latency))
        raise ValueError(f"{name} returned {drawn!r} for {request!r}: it must return seconds, from 0 up")
    return drawn


def check_latency(instance: object, attribute: attrs.Attribute[Any], latency: object) -> None:
    """Check a latency when the value is created (a validator of attrs). Raises ValueError or TypeError."""
    if isinstance(latency, Uniform | LogNormal) or callable(latency):
        return
    if isinstance(latency, bool) or not isinstance(latency, int | float):
        raise TypeError(f"{attribute.name} must be seconds or a function of the request, not {latency!r}")
    if not 0.0 <= latency < math.inf:
        raise ValueError(f"{attribute.name} must be seconds, from 0 up, not {latency!r}")


Handler = Callable[[Request], SimulatedResponse | Awaitable[SimulatedResponse]]
"""A function called with each request when it is sent. It may be async and sleep on the virtual clock."""

NOT_FOUND = SimulatedResponse(404, "", {"Content-Type": "text/plain; charset=utf-8"})


def _checked_address(instance: object, attribute: object, address: str) -> None:
    if address:
        ipaddress.ip_address(address)  # raises ValueError if the address is wrong


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
    """A host of a simulated web."""

    name: str  # the name of the host, in the form of a throttling scope
    latency: Latency = attrs.field(default=0.0, validator=check_latency)  # seconds from the send to the last byte
    # Seconds that a new connection takes before the send
    connect: Latency = attrs.field(default=0.0, validator=check_latency)
    # Seconds that an idle connection stays open; 0 if every request opens a new connection
    keep_alive: float = attrs.field(default=75.0, validator=validators.ge(0))
    # The rate limits of the host. A request must pass all of them.
    limit: tuple[RateLimit, ...] = attrs.field(default=None, converter=_as_limits)
    # Returns the response to each request that is not for a page, a redirect or robots.txt; None without a handler
    handler: Handler | None = attrs.field(default=None, validator=validators.optional(validators.is_callable()))
    robots: SimulatedResponse = attrs.field(default=None, converter=_as_robots)  # the response for `/robots.txt`
    # The response for all other paths if there is no handler
    answer: SimulatedResponse = attrs.field(factory=lambda: SimulatedResponse(200, EMPTY_PAGE))
    # The error of new connections, or a function of the request that returns an error or None
    connect_error: Failure | Callable[[Request], Failure | None] | None = attrs.field(default=None)
    outages: tuple[Outage, ...] = attrs.field(default=(), converter=as_outages)
    is_implied: bool = False  # whether the host exists only because a page on it was added
    # The IP address of the host. Several hosts may have the same address. "" selects an unused address.
    address: str = attrs.field(default="", validator=_checked_address)

    @connect_error.validator
    def _is_failure(self, attribute: object, error: Any) -> None:
        if error is not None and (isinstance(error, type) or not callable(error)):
            check_failure(self, attribute, error)

    def outage(self, now: float) -> Outage | None:
        """Return the outage at ``now`` (seconds since the start of the crawl), or None."""
        return next((outage for outage in self.outages if outage.holds(now)), None)


def scope_of_name(name: str) -> str:
    """Return the scope of a host (with or without a port) or a URL: ``a.example`` for ``A.Example.``."""
    if "://" in name:
        return host_scope(normalize_url(name))
    scheme = "https" if name.endswith(":443") else "http"
    if not name or any(mark in name for mark in "/?#@ "):
        raise ValueError(f"{name!r} is not a host")
    return host_scope(normalize_url(f"{scheme}://{name}/"))
