"""The rules of a robots.txt file: groups, ranks, and the lookup of a URL (RFC 9309, 2.2).

The rank of a rule, which decides between matching rules, is based on its length in the file. Rules and URLs are
compared in a canonical form (2.2.2). In this form, octets of unreserved characters and octets outside of US-ASCII are
decoded, and all other percent-encoded octets are kept.

Only the rules for the crawler's group are kept. A crawl keeps the rules of thousands of origins, so there are two
buffers instead of one object per rule. Rules with the same rank, kind and width are stored next to each other, so no
separators are needed, and plain rules are found by bisection.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Generator
from contextlib import suppress

import attrs

__all__ = ["MAX_STEPS", "STEP_BYTES", "Group", "RobotsParser", "Rules", "path_of", "spellings_of"]

MAX_STEPS = 10_000
"""Maximum number of steps of one lookup. A step takes about as long as a search for a short string in a URL."""

STEP_BYTES = 16_384
"""Number of bytes of a file that are parsed in one step."""

MAX_RULE_BYTES = 16_384  # maximum length; only the start of a longer rule is compared
STEP_RULES = 4_096  # number of rules that are sorted in one step and searched with one bisection

# -- the canonical form of paths and rules

# The unreserved characters (RFC 3986, 2.3) and the apostrophe. Browsers and trawl encode an apostrophe in a query, but
# many sites do not.
_DECODED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~'"
_KEPT = rb"A-Za-z0-9\-._~'/?&=:;@!()+,\[\]\x80-\xff"
_SPECIAL_IN_URL = re.compile(rb"%[0-9A-Fa-f]{2}|[^" + _KEPT + rb"]")
_SPECIAL_IN_RULE = re.compile(rb"%[0-9A-Fa-f]{2}|[^*" + _KEPT + rb"]")


def _canonical_octets() -> dict[bytes, bytes]:
    """Return the canonical form of each octet, encoded or not. "*" and "$" of a URL are encoded (2.2.3)."""
    octets: dict[bytes, bytes] = {}
    for value in range(256):
        octet, encoded = bytes((value,)), b"%%%02X" % value
        octets[octet] = octets[encoded] = octet if value >= 0x80 or octet in _DECODED else encoded
    return octets | {b"%": b"%"}


_CANONICAL = _canonical_octets()


def _canonical_octet(found: re.Match[bytes]) -> bytes:
    return _CANONICAL[found[0].upper()]


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
    """Return the spellings of one URL, with reserved characters in its query encoded or not (RFC 9309, table 1)."""
    before, mark, query = path.partition(b"?")
    encoded = _RESERVED_OCTET.sub(lambda found: _RESERVED[found[0]], query)
    decoded = _ENCODED_RESERVED.sub(lambda found: _DECODED_RESERVED[found[0]], query)
    return [path, *(before + mark + other for other in {encoded: 0, decoded: 0} if other != query)]


# -- parsing

# The known keys. Text between a key and the colon is ignored, as Google does. A line without a colon must have exactly
# one value.
_RECORD = re.compile(
    rb"(?:(user[ -]?agent)|(allow)|(d[ias]+l+[oa]w)|(crawl[ -]?delay)|site-?map)[^\s:]*(\s*:|\s)\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_NAME = re.compile(rb"[A-Za-z_-]+")  # RFC 9309, 2.2.1
_LINE_END = re.compile(rb"[\r\n]")
_HALF_OCTET = re.compile(rb"%[0-9A-Fa-f]?\Z")
_STARS = re.compile(rb"\*{2,}")


class RobotsParser:
    """Reads a file and keeps the groups that may apply to the crawler, whose product token is in lower case. Mutable.

    The list of a group's names ends at the first rule, not at other lines (RFC 9309, 2.2.4). A ``Crawl-delay``, which
    the RFC does not define, applies only to the names directly before it, because many files give each name its own
    delay.
    """

    def __init__(self, token: bytes) -> None:
        self.sitemaps: list[bytes] = []
        self._token = token
        self._ours, self._everyone = Group(), Group()
        self._current: list[Group] = []
        self._slowed: list[Group] = []
        self._has_rule = self._has_delay = False

    def read(self, body: bytes) -> Generator[None, None, None]:
        """Read a file, and yield between the steps."""
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
        if not separator.endswith(b":") and len(value.split()) != 1:  # the line is a sentence, not a record
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
        if value[:1] == b"*" and not value[1:2].strip():
            group = self._everyone
        elif name is not None and name[0].lower() == self._token:
            group = self._ours
        else:
            return
        group.is_named = True
        self._slowed.append(group)
        if group not in self._current:
            self._current.append(group)

    def group(self) -> Group:
        """Return the group to obey: the crawler's own group if the file has it, even without rules, or else "*"."""
        return self._ours if self._ours.is_named else self._everyone


# The kinds of rules: compared with the start of a path, with the whole path, or part by part.
_PREFIX, _EXACT, _PATTERN = 0, 1, 2


class Group:
    """The rules for one user agent, from all its groups (RFC 9309, 2.2.1). Mutable."""

    def __init__(self) -> None:
        self.is_named = False  # True if the file has a group for the user agent
        self.crawl_delay: float | None = None  # the longest, in seconds
        self._alike: dict[tuple[int, int, int], dict[bytes, None]] = {}  # rules by rank, kind and width

    def slow_down(self, value: bytes) -> None:
        """Read a ``Crawl-delay``. A value that is not a number of seconds has no effect."""
        with suppress(ValueError):
            if 0.0 <= (delay := float(value)) < math.inf:
                self.crawl_delay = max(delay, self.crawl_delay or 0.0)

    def add(self, written: bytes, *, is_allowed: bool) -> None:
        """Add a rule. A rule that can't match any path has no effect."""
        if not written.startswith((b"/", b"*")):
            return
        length = len(written)
        if length > MAX_RULE_BYTES:  # the start of a rule matches more paths, which is safe only for disallow
            if is_allowed:
                return
            written = _HALF_OCTET.sub(b"", written[:MAX_RULE_BYTES]) + b"*"
        path = _SPECIAL_IN_RULE.sub(_canonical_octet, written.removesuffix(b"$"))
        path = _STARS.sub(b"*", path)
        is_anchored = written.endswith(b"$") and not path.endswith(b"*")
        if not is_anchored:
            path = path.removesuffix(b"*") or b"/"
        kind = _PATTERN if b"*" in path else _EXACT if is_anchored else _PREFIX
        if kind == _PATTERN and is_anchored:
            path += b"$"
        # If an allow and a disallow rule are equal, allow takes precedence (2.2.2).
        rank = 2 * length + is_allowed
        self._alike.setdefault((rank, kind, len(path)), {})[path] = None

    def rules(self) -> Generator[None, None, Rules | None]:
        """Return the packed rules, best first, as the generator's value. Yields between the steps."""
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
        index: Three numbers for each run of rules with the same rank, kind and width, highest rank first. The numbers
            are the rank with the kind, the width of a rule in bytes, and the end of the run in ``text``. A rank is
            twice the rule's length in the file, plus 1 for an allow rule.
        text: The rules, without separators. Plain rules are sorted within their run.
    """

    index: array[int]
    text: bytes

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the rules, in bytes."""
        return len(self.text) + len(self.index) * self.index.itemsize

    def best_rank(self, path: bytes, steps: int) -> tuple[int, int]:
        """Return the rank of the best rule for a canonical path (0: none), and the steps so far.

        The search stops after more than :data:`MAX_STEPS` steps.
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
    """Return True if ``wanted`` is one of the sorted rules in ``text[start:end]``, each ``width`` bytes long."""
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
    """Return whether a pattern with "*" matches a path, and the number of steps so far.

    If a part matches at several positions, using the first position is always right, so no backtracking is needed.
    """
    is_anchored = pattern.endswith(b"$")  # a "$" that belongs to the path is encoded
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
    """Return the steps of a search, which compares the rest of ``part`` only where its last octet occurs."""
    if len(path) * len(part) < 2_048:
        return 1
    return 1 + len(path) // 512 + path.count(part[-1:]) * len(part) // 64
