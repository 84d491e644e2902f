"""What a robots.txt says to us, decided without I/O (RFC 9309).

Theory of operation: whoever fetches the file hands over what came of it, and gets one of three answers.

::

    2xx                      rules        the group of our own name, else the group of "*"
    4xx, too many redirects  allow all    there is no robots.txt (RFC 9309, 2.3.1.3)
    5xx, no answer           disallow all for a while, then it is asked for again (RFC 9309, 2.3.1.4)

A 429 is a 4xx like others here: its plea to slow down is heard by the throttle, which holds the host's pages back.

The group is chosen here and the rules are matched by protego. Protego takes a group whose name is part of our name, and
knows no product versions; RFC 9309, 2.2.1 compares whole product tokens. So the names in the file are reduced to
"ours", "*" and "not ours" before protego reads it.

protego holds every rule with a ``*`` against each URL, and all rules where one without a ``*`` matches. So the rules of
a group are bounded, in a way that never allows what the whole file forbids: of a group with more, no ``Allow`` counts,
because it might win over a rule that is left out.
"""

from __future__ import annotations

import re
from typing import Self

import attrs
from protego import Protego

from trawl.robots.agent import product_token
from trawl.robots.settings import RobotsSettings

__all__ = ["RobotsFile"]

MAX_PARSED_BYTES = 512_000
"""What is asked for and read of a file: RFC 9309, 2.5 wants at least 500 KiB. The rest is ignored."""

MOST_RULES = 10_000
"""Rules of one group; what has more disallows everything."""

MOST_PATTERNS = 500
"""Rules of one group with ``*`` or ``$``, each of which is held against every URL.

Of those after them, ``Disallow`` counts as far as its first ``*`` or ``$``, which is more. No ``Allow`` does.
"""

_RULE = re.compile(r"\s*(allow|d[ias]+l+[oa]w)\s*[:\s](.*)", re.IGNORECASE)  # as protego reads them
_NO_RULE = "disallow:"  # says nothing but that the names above it are a group's
_GROUP_LINE = re.compile(r"^\s*user[ -]?agent\s*[:\s]\s*([^#\s]*)", re.IGNORECASE)
_PRODUCT = re.compile(r"[A-Za-z_-]+")
_OURS = "ours"
_NOT_OURS = "another"


@attrs.frozen
class RobotsFile:
    """What one origin's robots.txt lets us do.

    Attributes:
        crawl_delay: Seconds between requests that our group asks for, fractions kept; None if it asks for none.
        expires_after: Seconds after which this is to be asked for again.
        is_unreachable: It could not be had: everything is disallowed until it is.
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
        """Judge a whole answer to the request for robots.txt.

        Args:
            status: The status after redirects; a 3xx means that there were too many.
            body: The file, decompressed; looked at for 2xx only.
            user_agent: Our ``User-Agent``, or the bare name of our group.
            failures: How often in a row it could not be had before.
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
        """Disallow everything for a while, because robots.txt could not be had ``failures`` times in a row."""
        settings = settings or RobotsSettings()
        doublings = min(failures - 1, 30)
        return cls(
            is_unreachable=True,
            expires_after=min(settings.robotstxt_retry_delay * 2.0**doublings, settings.robotstxt_max_age),
        )

    def allows(self, url: str) -> bool:
        """Whether a URL (absolute, in normal form) may be fetched; robots.txt itself always may (RFC 9309, 2.2.2)."""
        if self.is_unreachable:
            return False
        return self._rules is None or self._rules.can_fetch(url.partition("#")[0], _OURS)


def _for_one_name(body: bytes, token: str) -> str:
    """The file as text, with its group names reduced to ours, ``*`` and not ours, and its rules bounded."""
    if len(body) >= MAX_PARSED_BYTES:  # half of a rule is another rule: "Disallow: /" for "Disallow: /private"
        body = body[: max(body.rfind(end, 0, MAX_PARSED_BYTES) for end in (b"\n", b"\r")) + 1]
    text = body.decode("utf-8-sig", "replace").replace("\x00", "")
    groups = {_OURS: _Rules(), "*": _Rules()}
    lines: list[str] = []
    allowing: list[tuple[int, set[str]]] = []
    names: set[str] = set()  # at least those that protego gives the next rule to: it may know of more ends of a group
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
    product = _PRODUCT.match(written)
    is_ours = product is not None and bool(token) and product[0].lower() == token
    return _OURS if is_ours else _NOT_OURS


class _Rules:
    """The rules of one group, each once, as many as can be matched with every URL. Mutable.

    Attributes:
        is_cut: There are more, so that no ``Allow`` counts.
    """

    def __init__(self) -> None:
        self.is_cut: bool = False
        self._seen: set[str] = set()
        self._patterns = 0
        self._is_closed = False

    def bounded(self, line: str, rule: re.Match[str]) -> str:
        """``line``, or what stands for it where there are too many; "" where that says nothing new."""
        if self._is_closed:
            return ""
        path, allows = rule[2].partition("#")[0].strip(), rule[1].lower() == "allow"
        if len(self._seen) >= MOST_RULES:
            self._is_closed = self.is_cut = True
            return "disallow: /"
        if "*" in path or "$" in path:
            self._patterns += 1
            if self._patterns > MOST_PATTERNS:
                self.is_cut = True
                path = "" if allows else re.split(r"[*$]", path, maxsplit=1)[0] or "/"
                line = f"disallow: {path}" if path else ""
        key = f"{allows} {path}"
        if not line or key in self._seen:
            return ""
        self._seen.add(key)
        return line
