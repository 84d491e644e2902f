"""The rules of a robots.txt: their groups, their ranks, and the lookup of a URL (RFC 9309, 2.2).

A rule is ranked by its length as it was written. It is compared in a canonical form, which URLs get as well (2.2.2):
octets of unreserved characters and outside of US-ASCII are decoded, all other percent-encoded octets stay.

Only the rules that hold for us are kept, in two buffers instead of one object for each rule, because a crawl keeps the
rules of thousands of origins. Rules of the same rank, kind and width are neighbors, so no separator is needed, and
plain rules are found by bisection.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Generator

import attrs

__all__ = ["MAX_STEPS", "STEP_BYTES", "Group", "RobotsParser", "Rules", "path_of", "spellings_of"]

MAX_STEPS = 10_000
"""Steps of one lookup, each about as long as a search for a short string in a URL."""

STEP_BYTES = 16_384
"""Bytes of a file that are parsed in one step."""

MAX_RULE_BYTES = 16_384  # of a longer rule the start is compared: few servers take URLs of that length
STEP_RULES = 4_096  # that are sorted in one step, and looked up by one bisection

# -- the canonical form of paths and rules

# RFC 3986, 2.3; and the apostrophe, which browsers and trawl encode in a query, and many sites do not.
_DECODED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~'"
_KEPT = rb"A-Za-z0-9\-._~'/?&=:;@!()+,\[\]\x80-\xff"
_SPECIAL_IN_URL = re.compile(rb"%[0-9A-Fa-f]{2}|[^" + _KEPT + rb"]")
_SPECIAL_IN_RULE = re.compile(rb"%[0-9A-Fa-f]{2}|[^*" + _KEPT + rb"]")


def _canonical_octets() -> dict[bytes, bytes]:
    """Return what octets, encoded in any case or not, become: "*" and "$" of a URL are those of 2.2.3, for example."""
    octets: dict[bytes, bytes] = {}
    for value in range(256):
        octet = bytes((value,))
        encoded = b"%%%02X" % value
        canonical = octet if value >= 0x80 or octet in _DECODED else encoded
        for digits in {encoded, encoded.lower(), encoded[:2] + encoded[2:].lower(), encoded[:2].lower() + encoded[2:]}:
            octets[digits] = canonical
        octets[octet] = canonical
    octets[b"%"] = b"%"
    return octets


_CANONICAL = _canonical_octets()


def _canonical_octet(found: re.Match[bytes]) -> bytes:
    return _CANONICAL[found[0]]


def path_of(url: str) -> bytes:
    """Return the path and query of an absolute URL, in canonical form."""
    rest = url.partition("#")[0].partition("://")[2]
    start = re.search(r"[/?]", rest)
    path = rest[start.start() :] if start is not None else "/"
    written = (path if path.startswith("/") else f"/{path}").encode("utf-8", "surrogatepass")
    return _SPECIAL_IN_URL.sub(_canonical_octet, written)


_RESERVED = {octet: _CANONICAL[octet] for octet in (b":", b"/", b"?", b"@", b"[", b"]")}
_RESERVED_OCTET = re.compile(rb"[:/?@\[\]]")
_ENCODED_RESERVED = re.compile(rb"%(?:3A|2F|3F|40|5B|5D)")
_DECODED_RESERVED = {encoded: octet for octet, encoded in _RESERVED.items()}


def spellings_of(path: bytes) -> list[bytes]:
    """Return the spellings of one URL: reserved characters in its query may be encoded or not (RFC 9309, table 1)."""
    before, mark, query = path.partition(b"?")
    encoded = _RESERVED_OCTET.sub(lambda found: _RESERVED[found[0]], query)
    decoded = _ENCODED_RESERVED.sub(lambda found: _DECODED_RESERVED[found[0]], query)
    return [path, *(before + mark + other for other in {encoded: 0, decoded: 0} if other != query)]


# -- parsing

# The keys that count; what follows them up to the colon is ignored, as Google does. Without a colon there is one value.
_RECORD = re.compile(
    rb"(?:(user[ -]?agent)|(allow)|(d[ias]+l+[oa]w)|(crawl[ -]?delay)|site-?map)[^\s:]*(\s*:|\s)\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_NAME = re.compile(rb"[A-Za-z_-]*")  # RFC 9309, 2.2.1
_LINE_END = re.compile(rb"[\r\n]")
_HALF_OCTET = re.compile(rb"%[0-9A-Fa-f]?\Z")
_STARS = re.compile(rb"\*{2,}")


class RobotsParser:
    """Reads a file and keeps the groups that may be ours. Mutable.

    Only a rule ends the list of a group's names, other records do not (RFC 9309, 2.2.4). A ``Crawl-delay``, which the
    RFC does not define, holds for the names directly before it, because people give each name its own.

    Args:
        token: Our product token, in lower case.

    Attributes:
        sitemaps: The values of ``Sitemap`` lines.
    """

    def __init__(self, token: bytes) -> None:
        self.sitemaps: list[bytes] = []
        self._token = token
        self._ours, self._everyone = Group(), Group()
        self._current: list[Group] = []
        self._slowed: list[Group] = []
        self._has_rule = self._has_delay = False

    def read(self, body: bytes) -> Generator[None, None, None]:
        """Read a file, and yield between its steps."""
        body = body.removeprefix(b"\xef\xbb\xbf")
        start = 0
        while start < len(body):
            found = _LINE_END.search(body, start + STEP_BYTES)
            end = len(body) if found is None else found.end()
            self._read_lines(body[start:end])
            start = end
            if start < len(body):
                yield

    def _read_lines(self, text: bytes) -> None:
        for line in text.replace(b"\x00", b"").replace(b"\r", b"\n").split(b"\n"):
            if line and (found := _RECORD.match(line.partition(b"#")[0].strip())) is not None:
                self._read(found)

    def _read(self, found: re.Match[bytes]) -> None:
        agent, allow, disallow, delay, separator, value = found.groups()
        if not separator.endswith(b":") and len(value.split()) != 1:  # a sentence
            return
        if agent:
            if self._has_rule or self._has_delay:
                self._slowed, self._has_delay = [], False
            if self._has_rule:
                self._current, self._has_rule = [], False
            self._name(value)
        elif allow or disallow:
            self._has_rule = True
            for group in self._current:
                group.add(value, is_allowed=bool(allow))
        elif delay:
            self._has_delay = True
            for group in self._slowed:
                group.slow_down(value)
        else:
            self.sitemaps.append(value)

    def _name(self, value: bytes) -> None:
        name = _NAME.match(value)
        assert name is not None
        group = None
        if value[:1] == b"*" and not value[1:2].strip():
            group = self._everyone
        elif name[0] and name[0].lower() == self._token:
            group = self._ours
        if group is None:
            return
        group.is_named = True
        self._slowed.append(group)
        if group not in self._current:
            self._current.append(group)

    def group(self) -> Group:
        """Return the group that we obey: our own if the file names us, whatever it holds."""
        return self._ours if self._ours.is_named else self._everyone


_PREFIX, _EXACT, _PATTERN = 0, 1, 2  # how a rule is compared: with the start of a path, with all of it, part by part


class Group:
    """The rules of all groups of one name, combined (RFC 9309, 2.2.1). Mutable.

    Attributes:
        is_named: The file has such a group.
        crawl_delay: The longest ``Crawl-delay``, in seconds; None without a valid one.
    """

    def __init__(self) -> None:
        self.is_named = False
        self.crawl_delay: float | None = None
        self._alike: dict[tuple[int, int, int], dict[bytes, None]] = {}  # by rank, kind and width

    def slow_down(self, value: bytes) -> None:
        """Read a ``Crawl-delay``; anything that is not a number of seconds has no effect."""
        try:
            delay = float(value)
        except ValueError:
            return
        if 0.0 <= delay < math.inf:
            self.crawl_delay = max(delay, self.crawl_delay or 0.0)

    def add(self, written: bytes, *, is_allowed: bool) -> None:
        """Add a rule; one that can match no path has no effect."""
        if not written.startswith((b"/", b"*")):
            return
        length = len(written)
        if length > MAX_RULE_BYTES:  # its start forbids more, never less
            if is_allowed:
                return
            written = _HALF_OCTET.sub(b"", written[:MAX_RULE_BYTES]) + b"*"
        path = _SPECIAL_IN_RULE.sub(_canonical_octet, written.removesuffix(b"$"))
        if b"**" in path:
            path = _STARS.sub(b"*", path)
        is_anchored = written.endswith(b"$") and not path.endswith(b"*")
        if not is_anchored:
            path = path.removesuffix(b"*") or b"/"
        kind = _PATTERN if b"*" in path else _EXACT if is_anchored else _PREFIX
        if kind == _PATTERN and is_anchored:
            path += b"$"
        # Of equal rules the one that allows is better (2.2.2).
        rank = 2 * length + is_allowed
        self._alike.setdefault((rank, kind, len(path)), {})[path] = None

    def rules(self) -> Generator[None, None, Rules | None]:
        """Pack the rules, the best first; yield between the steps."""
        index = array("I")
        parts: list[bytes] = []
        end = in_step = 0
        for rank, kind, width in sorted(self._alike, reverse=True):
            alike = list(self._alike[rank, kind, width])
            for start in range(0, len(alike), STEP_RULES):
                paths = alike[start : start + STEP_RULES]
                parts.append(b"".join(sorted(paths)))
                end += width * len(paths)
                index.extend((4 * rank + kind, width, end))
                in_step += len(paths)
                if in_step >= STEP_RULES:
                    in_step = 0
                    yield
        return Rules(index, b"".join(parts)) if index else None


# -- matching


@attrs.frozen
class Rules:
    """The rules of one group, packed.

    Attributes:
        index: Of each run of rules that are alike, from the best to the worst: its rank and kind, their width in bytes,
            and where it ends in ``text``. A rank is twice the length as written, plus 1 for a rule that allows.
        text: The rules, without separators; plain ones are sorted in their run.
    """

    index: array[int]
    text: bytes

    @property
    def size_bytes(self) -> int:
        """About the memory that they take, in bytes."""
        return len(self.text) + len(self.index) * self.index.itemsize

    def best_rank(self, path: bytes, steps: int) -> tuple[int, int]:
        """Return the rank of the best rule for a canonical path, and the steps so far; the rank is 0 if none matches.

        It gives up when there are more than :data:`MAX_STEPS`.
        """
        start, length, index, text = 0, len(path), self.index, self.text
        for at in range(0, len(index), 3):
            key, width, end = index[at], index[at + 1], index[at + 2]
            rank, kind = key >> 2, key & 3
            steps += 1
            if kind == _PATTERN:
                for begin in range(start, end, width):
                    is_match, steps = _matches(text[begin : begin + width], path, steps)
                    if steps > MAX_STEPS:
                        return 0, steps
                    if is_match:
                        return rank, steps
            elif width == length or (width < length and kind == _PREFIX):
                steps += ((end - start) // width).bit_length()
                if _has(text, start, end, width, path[:width]):
                    return rank, steps
            if steps > MAX_STEPS:
                return 0, steps
            start = end
        return 0, steps


def _has(text: bytes, start: int, end: int, width: int, wanted: bytes) -> bool:
    """Return True if one of the sorted rules of a width in ``text[start:end]`` is ``wanted``."""
    low, high = 0, (end - start) // width
    while low < high:
        middle = (low + high) // 2
        begin = start + middle * width
        found = text[begin : begin + width]
        if found == wanted:
            return True
        if found < wanted:
            low = middle + 1
        else:
            high = middle
    return False


def _matches(pattern: bytes, path: bytes, steps: int) -> tuple[bool, int]:
    """Return whether a pattern with "*" matches a path, and the steps so far.

    The first place for each part is as good as any later one, so nothing is tried twice.
    """
    is_anchored = pattern.endswith(b"$")  # another "$" is encoded
    first, *parts = (pattern[:-1] if is_anchored else pattern).split(b"*")
    steps += 1
    if not path.startswith(first):
        return False, steps
    at = len(first)
    last = parts.pop() if is_anchored else b""
    for part in parts:
        steps += _search_steps(path, part)
        at = path.find(part, at)
        if at < 0 or steps > MAX_STEPS:
            return False, steps
        at += len(part)
    return at + len(last) <= len(path) and path.endswith(last), steps


def _search_steps(path: bytes, part: bytes) -> int:
    """Return the steps of a search: the last octet is compared first, so at most its copies are compared further."""
    if len(path) * len(part) < 2_048:
        return 1
    return 1 + len(path) // 512 + path.count(part[-1:]) * len(part) // 64
