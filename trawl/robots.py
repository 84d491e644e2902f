"""robots.txt: its settings, parsing and cache (RFC 9309). Pure: the engine fetches the file, this module decides.

Theory of operation: the answer to the request for the file leads to one of three decisions.

::

    2xx                      rules        the group of our own name, else the group of "*"
    4xx, too many redirects  allow all    there is no robots.txt (RFC 9309, 2.3.1.3)
    5xx, no answer           disallow all for a while, then fetch it again (RFC 9309, 2.3.1.4)

A 429 counts as a 4xx here; the throttle slows the host down for it.

The group is chosen here, and its rules are matched by protego. Protego takes a group whose name is part of our name,
while RFC 9309, 2.2.1 compares whole product tokens. So the names in the file are reduced to "ours", "*"
and "another" before protego reads it.

Protego matches every rule with a ``*`` against each URL, and all rules if one without a ``*`` matches. So the number of
rules in a group is bounded, in a way that never allows what the whole file forbids: in a longer group no ``Allow``
counts, because it might override a rule that was dropped.

A job stores answers, not parsed rules, which depend on release and settings. The cache is bounded: long files are not
stored, and the oldest are dropped. These are fetched again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Self

import attrs
import msgspec
from msgspec import Meta, Struct
from protego import Protego

__all__ = ["MAX_PARSED_BYTES", "RobotsCache", "RobotsEntry", "RobotsFile", "RobotsSettings", "product_token"]

_TOKEN = re.compile(r"[A-Za-z_-]+")  # RFC 9309, 2.2.1
_COMPATIBLE = re.compile(r"\(compatible;\s*([A-Za-z_-]+)", re.IGNORECASE)


def product_token(user_agent: str) -> str:
    """Return a crawler's name in robots.txt, in lower case: ``trawl`` for ``trawl/1.0 (+https://...)``.

    It is the first product of the ``User-Agent`` (RFC 9309, 2.2.1), or the one after ``compatible;``, as in
    ``Mozilla/5.0 (compatible; Foobot/2.1)``. Empty if there is none.
    """
    found = _COMPATIBLE.search(user_agent)
    if found is not None:
        return found[1].lower()
    token = _TOKEN.match(user_agent.strip())
    return token[0].lower() if token is not None else ""


MAX_BODY_BYTES = 100_000  # the longest file that is stored
MAX_BYTES = 8_000_000  # the maximum of all stored files
_OVERHEAD = 200  # bytes that an answer takes besides its body


class RobotsEntry(msgspec.Struct, frozen=True, array_like=True):
    """One stored answer.

    Attributes:
        status: The status after redirects.
        body: The file; empty unless the status is 2xx.
        expires_at: The instant at which to fetch it again: on the run clock in memory, in epoch seconds in a job.
    """

    status: int
    body: bytes
    expires_at: float


class RobotsCache:
    """The answers of one crawl's origins. Mutable."""

    __slots__ = ("_by_origin", "_bytes")

    def __init__(self) -> None:
        self._by_origin: dict[str, RobotsEntry] = {}
        self._bytes = 0

    def store(self, origin: str, status: int, body: bytes, expires_at: float) -> None:
        """Store an origin's answer instead of an earlier one."""
        self._drop(origin)
        body = body if 200 <= status < 300 else b""
        if len(body) > MAX_BODY_BYTES:
            return
        self._by_origin[origin] = RobotsEntry(status, body, expires_at)
        self._bytes += len(body) + _OVERHEAD
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._by_origin)))

    def get(self, origin: str, now: float) -> RobotsEntry | None:
        """Return an origin's answer; None if there is none or it has expired."""
        answer = self._by_origin.get(origin)
        return answer if answer is not None and answer.expires_at > now else None

    def to_state(self, now: float, ahead: float) -> dict[str, RobotsEntry]:
        """Return the fresh answers for a job, with ``ahead`` seconds added to the run clock for epoch seconds."""
        return {
            origin: RobotsEntry(answer.status, answer.body, answer.expires_at + ahead)
            for origin, answer in self._by_origin.items()
            if answer.expires_at > now
        }

    def restore(self, state: dict[str, RobotsEntry], ahead: float, latest: float) -> None:
        """Load the answers of a job; a later expiry than ``latest`` (the clock was set back) is reduced to it."""
        for origin, answer in state.items():
            self.store(origin, answer.status, answer.body, min(answer.expires_at - ahead, latest))

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the answers of origins that are told: another process goes on with them."""
        for origin in [origin for origin in self._by_origin if is_gone(origin)]:
            self._drop(origin)

    def _drop(self, origin: str) -> None:
        answer = self._by_origin.pop(origin, None)
        if answer is not None:
            self._bytes -= len(answer.body) + _OVERHEAD


class RobotsSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of robots.txt."""

    robotstxt_obey: Annotated[
        bool, Meta(description="Fetch each origin's robots.txt first, and drop requests that it disallows.")
    ] = True
    robotstxt_user_agent: Annotated[
        str | None,
        Meta(description="The name to look for in robots.txt; null: the product name in USER_AGENT."),
    ] = None
    robotstxt_max_age: Annotated[
        float,
        Meta(gt=0, le=86_400, title="s", description="Age at which a robots.txt is fetched again."),
    ] = 86_400.0
    robotstxt_retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="times",
            description="Retries of robots.txt while no connection can be made, before the origin's requests fail as"
            " unreachable. After a 5xx or a broken answer, it is retried until `BACKOFF_GIVE_UP_AFTER`. 0: no retries"
            " at all.",
        ),
    ] = 2
    robotstxt_retry_delay: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="Delay before an unreachable robots.txt is fetched again, doubled each time. The origin is"
            " disallowed meanwhile.",
        ),
    ] = 10.0


MAX_PARSED_BYTES = 512_000
"""Bytes of a file that are fetched and parsed (RFC 9309, 2.5: at least 500 KiB); the rest is ignored."""

MAX_RULES = 10_000  # rules of one group; a group with more disallows everything

# Rules of one group with "*" or "$", each of which is matched against every URL. Of further ones, Disallow counts up to
# its first "*" or "$", which disallows more, and Allow is ignored.
MAX_PATTERNS = 500

_RULE = re.compile(r"\s*(allow|d[ias]+l+[oa]w)\s*[:\s](.*)", re.IGNORECASE)  # as protego reads them
_NO_RULE = "disallow:"  # has no effect but to end the list of a group's names
_GROUP_LINE = re.compile(r"^\s*user[ -]?agent\s*[:\s]\s*([^#\s]*)", re.IGNORECASE)
_OURS = "ours"
_NOT_OURS = "another"


@attrs.frozen
class RobotsFile:
    """The decision for one origin.

    Attributes:
        crawl_delay: The ``Crawl-delay`` of our group, in seconds; None if it has none.
        expires_after: Seconds after which to fetch the file again.
        is_unreachable: It could not be fetched: everything is disallowed.
        sitemaps: The URLs of the ``Sitemap`` lines.
    """

    crawl_delay: float | None = None
    expires_after: float = 86_400.0
    is_unreachable: bool = False
    sitemaps: tuple[str, ...] = ()
    _rules: Protego | None = attrs.field(default=None, repr=False, eq=False)

    @classmethod
    def parse(
        cls, status: int, body: bytes, user_agent: str, *, failures: int = 0, settings: RobotsSettings | None = None
    ) -> Self:
        """Decide on the answer to the request for robots.txt.

        Args:
            status: The status after redirects; a 3xx means that there were too many.
            body: The file, decompressed; used for 2xx only.
            user_agent: Our ``User-Agent``, or the bare name of our group.
            failures: Failures to fetch it in a row before this answer.
            settings: Times and limits; None: the defaults.
        """
        settings = settings or RobotsSettings()
        if not 200 <= status < 500:
            return cls.unreachable(failures + 1, settings)
        if status >= 300:
            return cls(expires_after=settings.robotstxt_max_age)
        rules = Protego.parse(_for_one_name(body, product_token(settings.robotstxt_user_agent or user_agent)))
        return cls(
            crawl_delay=rules.crawl_delay(_OURS),
            expires_after=settings.robotstxt_max_age,
            sitemaps=tuple(rules.sitemaps),
            rules=rules,
        )

    @classmethod
    def unreachable(cls, failures: int = 1, settings: RobotsSettings | None = None) -> Self:
        """Disallow everything for a while, after ``failures`` failures in a row."""
        settings = settings or RobotsSettings()
        doublings = min(failures - 1, 30)
        return cls(
            is_unreachable=True,
            expires_after=min(settings.robotstxt_retry_delay * 2.0**doublings, settings.robotstxt_max_age),
        )

    def allows(self, url: str) -> bool:
        """Return True if a URL (absolute, in normal form) may be fetched; robots.txt always may (RFC 9309, 2.2.2)."""
        if self.is_unreachable:
            return False
        return self._rules is None or self._rules.can_fetch(url.partition("#")[0], _OURS)


def _for_one_name(body: bytes, token: str) -> str:
    """Return the file as text, with group names reduced to "ours", ``*`` and "another", and bounded rules."""
    if len(body) >= MAX_PARSED_BYTES:  # half of a rule is another rule: "Disallow: /" for "Disallow: /private"
        body = body[: max(body.rfind(end, 0, MAX_PARSED_BYTES) for end in (b"\n", b"\r")) + 1]
    text = body.decode("utf-8-sig", "replace").replace("\x00", "")
    groups = {_OURS: _Rules(), "*": _Rules()}
    lines: list[str] = []
    allowing: list[tuple[int, set[str]]] = []
    names: set[str] = set()  # at least those that protego applies the next rule to
    is_name_last = False
    for line in text.splitlines():
        if found := _GROUP_LINE.match(line):
            name = _name(found[1], token)
            names = {*names, name} if is_name_last else {name}
            is_name_last = True
            lines.append(f"user-agent: {name}")
        elif rule := _RULE.match(line):
            is_name_last = False
            said = (groups[name].bounded(line, rule) for name in names if name in groups)
            bounded = max(said, key=len, default="") or _NO_RULE
            if bounded != _NO_RULE and rule[1].lower() == "allow":
                allowing.append((len(lines), names))
            if bounded != _NO_RULE or lines[-1:] != [_NO_RULE]:
                lines.append(bounded)
        elif line:
            lines.append(line)
    for at, names in allowing:
        if any(groups[name].is_cut for name in names if name in groups):
            lines[at] = _NO_RULE
    return "\n".join(lines)


def _name(written: str, token: str) -> str:
    if written == "*":
        return written
    product = _TOKEN.match(written)
    is_ours = product is not None and bool(token) and product[0].lower() == token
    return _OURS if is_ours else _NOT_OURS


class _Rules:
    """The rules of one group, without duplicates, up to the maximum. Mutable.

    Attributes:
        is_cut: The group has more rules, so no ``Allow`` counts.
    """

    def __init__(self) -> None:
        self.is_cut: bool = False
        self._seen: set[str] = set()
        self._patterns = 0
        self._is_closed = False

    def bounded(self, line: str, rule: re.Match[str]) -> str:
        """Return ``line``, or its replacement if there are too many; "" if it adds nothing."""
        if self._is_closed:
            return ""
        path, allows = rule[2].partition("#")[0].strip(), rule[1].lower() == "allow"
        if len(self._seen) >= MAX_RULES:
            self._is_closed = self.is_cut = True
            return "disallow: /"
        if "*" in path or "$" in path:
            self._patterns += 1
            if self._patterns > MAX_PATTERNS:
                self.is_cut = True
                path = "" if allows else re.split(r"[*$]", path, maxsplit=1)[0] or "/"
                line = f"disallow: {path}" if path else ""
        key = f"{allows} {path}"
        if not line or key in self._seen:
            return ""
        self._seen.add(key)
        return line
