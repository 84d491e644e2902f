"""The decision for one origin: robots.txt was read, is missing, or is unreachable (RFC 9309, 2.3.1).

::

    2xx                      rules        the group of the crawler's name, or else the group of "*"
    4xx, too many redirects  allow all    there is no robots.txt (RFC 9309, 2.3.1.3)
    5xx, no response         disallow all for a while, then fetch it again (RFC 9309, 2.3.1.4)

A 429 counts as a 4xx here. In addition, it makes the throttle slow down the host.

A site controls both the rules and the URLs, so the time for parsing and lookups must be limited. This time is counted
in steps instead of seconds. The parser yields after each step, so that the caller can let other tasks run. If a lookup
needs more than :data:`~trawl.robots.MAX_STEPS` steps, the URL is disallowed.

A job stores responses instead of parsed rules, because the rules depend on the release and the settings. The size of
:class:`RobotsCache` is limited. Long files are not stored, and the oldest files are dropped. A file that is not in the
cache is fetched again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Annotated, NamedTuple, Self, TypeVar

import attrs
import msgspec
from msgspec import Meta, Struct

from trawl.http.content import decode_body, parse_content_type
from trawl.robots.rules import MAX_STEPS, RobotsParser, Rules, path_of, spellings_of

__all__ = [
    "MAX_PARSED_BYTES",
    "RobotsCache",
    "RobotsEntry",
    "RobotsFile",
    "RobotsSettings",
    "RobotsVerdict",
    "as_utf8",
    "at_once",
    "product_token",
]

T = TypeVar("T")

_TOKEN = re.compile(r"([A-Za-z_-]+)")  # RFC 9309, 2.2.1
_COMPATIBLE = re.compile(r"\(compatible;\s*([A-Za-z_-]+)", re.IGNORECASE)


def product_token(user_agent: str) -> str:
    """Return a crawler's name in robots.txt, in lower case: ``trawl`` for ``trawl/1.0 (+https://...)``.

    The name is the first product of the ``User-Agent`` (RFC 9309, 2.2.1), or the product after ``compatible;``, as in
    ``Mozilla/5.0 (compatible; Foobot/2.1)``. It is empty if there is no product.
    """
    found = _COMPATIBLE.search(user_agent) or _TOKEN.match(user_agent.strip())
    return "" if found is None else found[1].lower()


class RobotsSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of robots.txt.

    Attributes:
        robotstxt_obey: Fetch each origin's robots.txt first, and drop requests that it disallows.
        robotstxt_user_agent: The crawler's name in robots.txt. null means the product name in USER_AGENT.
        robotstxt_max_age: Age at which a robots.txt is fetched again.
        robotstxt_retry_times: Maximum number of retries of an unreadable robots.txt, before the origin's requests end
            with an error. null means 2 retries if no connection can be made, and retries until
            ``BACKOFF_GIVE_UP_AFTER`` after a 5xx, a timeout or a broken response.
        robotstxt_retry_delay: Delay before an unreachable robots.txt is fetched again. It doubles each time. Until
            then, the origin is disallowed.
    """

    robotstxt_obey: bool = True
    robotstxt_user_agent: str | None = None
    robotstxt_max_age: Annotated[float, Meta(gt=0, le=86400, title="s")] = 86_400.0
    robotstxt_retry_times: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(title="times")] = None
    robotstxt_retry_delay: Annotated[float, Meta(gt=0, title="s")] = 10.0


MAX_PARSED_BYTES = 512_000
"""Maximum number of bytes of a file that are parsed (RFC 9309, 2.5: at least 500 KiB). The rest is ignored."""

OVERHEAD_BYTES = 600  # approximate memory of an origin in addition to its rules

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def as_utf8(body: bytes, content_type: str | None) -> bytes:
    """Return a robots.txt in UTF-8.

    A file must be UTF-8 (RFC 9309, 2.3), so valid UTF-8 is never decoded as another encoding. If the file is not valid
    UTF-8, its byte order mark or the charset of ``content_type`` decides, as for pages
    (:func:`trawl.http.content.decode_body`). If it has neither, the bytes are kept, because the URLs of such a site
    have the same bytes.
    """
    body = _whole_lines(body)
    if not body.startswith(_UTF16_MARKS):
        if body.isascii() or parse_content_type(content_type or "").codec is None:
            return body
        with suppress(UnicodeDecodeError):
            body.decode("utf-8")
            return body
    return decode_body(body, content_type).text.encode("utf-8", "replace")


def _whole_lines(body: bytes) -> bytes:
    """Return the complete lines within the size limit, because a part of a rule is another rule."""
    if len(body) < MAX_PARSED_BYTES:
        return body
    return body[: max(body.rfind(end, 0, MAX_PARSED_BYTES) for end in (b"\n", b"\r")) + 1]


def at_once(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


class RobotsVerdict(NamedTuple):
    """The verdict on one URL.

    Attributes:
        is_allowed: True if the URL may be fetched.
        steps: Number of steps of the lookup.
        is_cut: True if the URL is disallowed because the lookup needs more than :data:`MAX_STEPS`.
    """

    is_allowed: bool
    steps: int = 0
    is_cut: bool = False


@attrs.frozen
class RobotsFile:
    """The decision for one origin.

    Attributes:
        crawl_delay: Longest ``Crawl-delay`` of the crawler's group, in seconds; None if the group has none.
        expires_after: Seconds after which the file is fetched again.
        is_unreachable: True if the file could not be fetched, so that everything is disallowed.
    """

    crawl_delay: float | None = None
    expires_after: float = 86_400.0
    is_unreachable: bool = False
    _sitemaps: bytes = attrs.field(default=b"", repr=False)
    _rules: Rules | None = attrs.field(default=None, repr=False, eq=False)

    @classmethod
    def parse(
        cls, status: int, body: bytes, user_agent: str, *, failures: int = 0, settings: RobotsSettings | None = None
    ) -> Self:
        """Return the decision for a response to a request for robots.txt.

        Args:
            status: The status code after redirects; a 3xx means that there were too many redirects.
            body: The file, decompressed, in UTF-8 (:func:`as_utf8`). It is used only if the status code is 2xx.
            user_agent: The crawler's ``User-Agent``, or only the crawler's name in robots.txt.
            failures: Number of failures in a row before this response.
            settings: Times and limits; None for the defaults.
        """
        return at_once(cls.parse_in_steps(status, body, user_agent, failures=failures, settings=settings))

    @classmethod
    def parse_in_steps(
        cls, status: int, body: bytes, user_agent: str, *, failures: int = 0, settings: RobotsSettings | None = None
    ) -> Generator[None, None, Self]:
        """Decide like :meth:`parse`, and yield after each step of a few milliseconds. The value is the decision."""
        settings = settings or RobotsSettings()
        if not 200 <= status < 500:
            return cls.unreachable(failures + 1, settings)
        if status >= 300:
            return cls(expires_after=settings.robotstxt_max_age)
        token = product_token(settings.robotstxt_user_agent or user_agent)
        parser = RobotsParser(token.encode())
        yield from parser.read(_whole_lines(body))
        group = parser.group()
        rules = yield from group.rules()
        return cls(
            crawl_delay=group.crawl_delay,
            expires_after=settings.robotstxt_max_age,
            sitemaps=b"\n".join(parser.sitemaps),
            rules=rules,
        )

    @classmethod
    def unreachable(cls, failures: int = 1, settings: RobotsSettings | None = None) -> Self:
        """Return a decision that disallows everything for some time, which increases with ``failures`` in a row."""
        settings = settings or RobotsSettings()
        delay = settings.robotstxt_retry_delay * 2.0 ** min(failures - 1, 30)
        return cls(is_unreachable=True, expires_after=min(delay, settings.robotstxt_max_age))

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The URLs of the ``Sitemap`` lines, as written."""
        return tuple(url.decode("utf-8", "replace") for url in self._sitemaps.split(b"\n") if url)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the decision, in bytes."""
        return OVERHEAD_BYTES + len(self._sitemaps) + (0 if self._rules is None else self._rules.size_bytes)

    def allows(self, url: str) -> bool:
        """Return True if a URL (absolute, in normal form) may be fetched. robots.txt itself is always allowed."""
        return self.judge(url).is_allowed

    def judge(self, url: str) -> RobotsVerdict:
        """Return whether a URL (absolute, in normal form) may be fetched, and the number of steps of the lookup."""
        if self.is_unreachable or self._rules is None:
            return RobotsVerdict(is_allowed=not self.is_unreachable)
        path = path_of(url)
        if path.partition(b"?")[0] == b"/robots.txt":
            return RobotsVerdict(is_allowed=True)
        best = steps = 0
        for spelling in spellings_of(path):
            rank, steps = self._rules.best_rank(spelling, steps)
            if steps > MAX_STEPS:
                return RobotsVerdict(is_allowed=False, steps=steps, is_cut=True)
            best = max(best, rank)
        return RobotsVerdict(is_allowed=best == 0 or best & 1 == 1, steps=steps)


MAX_BODY_BYTES = 100_000  # maximum size of a stored file
MAX_BYTES = 8_000_000  # maximum size of all stored files
_OVERHEAD = 200  # bytes that an entry takes in addition to its body


class RobotsEntry(msgspec.Struct, frozen=True, array_like=True):
    """One stored response.

    Attributes:
        status: Status code after redirects.
        body: The file; empty unless the status code is 2xx.
        expires_at: Time at which the file is fetched again, in seconds: event loop time in memory, time since the epoch
            in a job.
    """

    status: int
    body: bytes
    expires_at: float


class RobotsCache:
    """The responses of one crawl's origins. Mutable."""

    __slots__ = ("_by_origin", "_bytes")

    def __init__(self) -> None:
        self._by_origin: dict[str, RobotsEntry] = {}
        self._bytes = 0

    def store(self, origin: str, status: int, body: bytes, expires_at: float) -> None:
        """Store an origin's response, which replaces an earlier response of the origin."""
        self._drop(origin)
        body = body if 200 <= status < 300 else b""
        if len(body) > MAX_BODY_BYTES:
            return
        self._by_origin[origin] = RobotsEntry(status, body, expires_at)
        self._bytes += len(body) + _OVERHEAD
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._by_origin)))

    def get(self, origin: str, now: float) -> RobotsEntry | None:
        """Return an origin's response; None if there is none or it has expired."""
        answer = self._by_origin.get(origin)
        return answer if answer is not None and answer.expires_at > now else None

    def to_state(self, now: float, ahead: float) -> dict[str, RobotsEntry]:
        """Return the unexpired responses, for a job. ``ahead`` is added to event loop times to get epoch seconds."""
        return {
            origin: RobotsEntry(answer.status, answer.body, answer.expires_at + ahead)
            for origin, answer in self._by_origin.items()
            if answer.expires_at > now
        }

    def restore(self, state: dict[str, RobotsEntry], ahead: float, latest: float) -> None:
        """Load the responses of a job. None expires after ``latest``, even if the clock was set back."""
        for origin, answer in state.items():
            self.store(origin, answer.status, answer.body, min(answer.expires_at - ahead, latest))

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Drop the responses of origins for which ``is_gone`` returns true. Another process owns these origins now."""
        for origin in [origin for origin in self._by_origin if is_gone(origin)]:
            self._drop(origin)

    def _drop(self, origin: str) -> None:
        answer = self._by_origin.pop(origin, None)
        if answer is not None:
            self._bytes -= len(answer.body) + _OVERHEAD
