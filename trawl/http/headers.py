"""HTTP headers, with lookup by case-insensitive name (RFC 9110, 5)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, MutableMapping, Set
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self, TypeVar, overload

__all__ = ["Headers", "HeadersInput", "SharedHeaders", "check_cookie", "class_of_crawl", "field_bytes", "parse_date"]

HeadersInput = Mapping[str, Any] | Iterable[tuple[str | bytes, Any]]
"""Input for headers. A value is a string, bytes, a number, a list of these, or None."""

_T = TypeVar("_T")

_COMMON = """
Accept-Ranges Access-Control-Allow-Origin Age Alt-Svc Cache-Control CF-Cache-Status CF-RAY Connection Content-Encoding
Content-Language Content-Length Content-Security-Policy Content-Type Date ETag Expires Keep-Alive Last-Modified Link
Location P3P Pragma Referrer-Policy Retry-After Server Set-Cookie Strict-Transport-Security Transfer-Encoding Vary Via
X-Cache X-Content-Type-Options X-Frame-Options X-Powered-By X-Request-ID X-XSS-Protection
"""
"""Names in most responses."""

_KNOWN: dict[bytes, tuple[str, str]] = {
    written.encode(): (written, name.lower()) for name in _COMMON.split() for written in (name, name.lower())
}
"""Common names by their bytes, as written and in lower case. Saves half of the time for reading headers."""

MAX_DATE_LENGTH = 100
"""Maximum length of a date, because a date may contain a long number, for which Python takes quadratic time."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_FORBIDDEN = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")  # RFC 9110, 5.5, and surrogates


class Headers(MutableMapping[str, str]):
    """The headers of a request or response: a mapping from a case-insensitive name to a string.

    If a header is repeated, its value in the mapping is all its values joined by ``", "`` (RFC 9110, 5.3).
    :meth:`getlist` returns the values as a list, which ``Set-Cookie`` needs. Names keep their first spelling. A header
    set to None counts as missing, and :meth:`setdefault` does not change it, so that a request can disable a default
    header.

    Received values are decoded as Latin-1, one character per byte. A value with characters outside of Latin-1 is sent
    as UTF-8. A name may be given as bytes, but values are always returned as strings.

    Raises:
        ValueError: On creation or assignment, if a name is not a token or a value contains a control character (RFC
            9110, 5.5).
    """

    __slots__ = ("_fields",)

    # lower-case name -> [name as written, value, value, ...]
    _fields: dict[str, list[str]]  # copies share the lists, so a list is never changed, only replaced

    def __init__(self, fields: HeadersInput | None = None) -> None:
        self._fields = {}
        if fields is None:
            return
        if isinstance(fields, Headers):
            self._fields = fields._fields.copy()
        elif isinstance(fields, Mapping):
            for name, value in fields.items():
                self[name] = value
        else:
            for name, value in fields:
                self._put(name, value, is_added=True)

    @classmethod
    def from_wire(cls, fields: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Create headers from the fields of a parser, without checks."""
        headers = cls.__new__(cls)
        kept: dict[str, list[str]] = {}
        for raw_name, raw_value in fields:
            name, key = _KNOWN.get(raw_name) or _names_of(raw_name)
            if key in kept:
                kept[key].append(raw_value.decode("latin-1"))
            else:
                kept[key] = [name, raw_value.decode("latin-1")]
        headers._fields = kept
        return headers

    def to_wire(self) -> list[tuple[bytes, bytes]]:
        """Return all headers in order, as the bytes to send."""
        return [(name.encode("latin-1"), field_bytes(value)) for name, value in self.items_list()]

    def __getitem__(self, name: str) -> str:
        field = self._fields.get(name.lower())
        if field is None or len(field) == 1:
            if (text := _text_of(name)) is not name:
                return self[text]
            raise KeyError(name)
        return field[1] if len(field) == 2 else ", ".join(field[1:])

    @overload
    def get(self, name: str, default: None = None) -> str | None: ...
    @overload
    def get(self, name: str, default: str) -> str: ...
    @overload
    def get(self, name: str, default: _T) -> str | _T: ...
    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of ``name``, or ``default``."""
        field = self._fields.get(name.lower())
        if field is None or len(field) == 1:
            return default if (text := _text_of(name)) is name else self.get(text, default)
        return field[1] if len(field) == 2 else ", ".join(field[1:])

    def getlist(self, name: str, default: Any = None) -> list[str]:
        """Return all values of ``name`` in order, or else ``default`` (one value or a list) as a list."""
        field = self._fields.get(name.lower())
        if field is None:
            if (text := _text_of(name)) is not name:
                return self.getlist(text, default)
            return [] if default is None else Headers({"default": default}).getlist("default")
        return field[1:]

    def __setitem__(self, name: str, value: Any) -> None:
        """Set ``name`` to one value, to several values (a list or tuple), or to None, so that it is never sent."""
        self._put(name, value, is_added=False)

    def add(self, name: str, value: Any) -> None:
        """Add a value to ``name``."""
        self._put(name, value, is_added=True)

    appendlist = add

    def setlist(self, name: str, values: Iterable[Any]) -> None:
        """Set ``name`` to several values."""
        self[name] = list(values)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Set ``name`` to ``default`` unless it has a value or is set to None. Return its value, or None."""
        if _text_of(name).lower() not in self._fields:
            self[name] = default
        return self.get(name)

    def setlistdefault(self, name: str, values: Iterable[Any] = ()) -> Any:
        """Set ``name`` to several values unless it has a value or is set to None."""
        return self.setdefault(name, list(values))

    @classmethod
    def fromkeys(cls, names: Iterable[str | bytes], value: Any = None) -> Self:
        """Create headers in which each of ``names`` has the same value."""
        return cls([(name, value) for name in names])

    def to_unicode_dict(self) -> Headers:
        """Return the headers with capitalized names, each as one string. Several values are joined by ``","``."""
        return Headers({field[0].title(): ",".join(field[1:]) for field in self._fields.values() if len(field) > 1})

    def to_string(self) -> bytes:
        """Return the headers as lines, without a line break after the last line."""
        return b"\r\n".join(name.title() + b": " + value for name, value in self.to_wire())

    def fill(self, defaults: Headers) -> None:
        """Set each header of ``defaults`` like :meth:`setdefault`, but without checking names and values again."""
        fields = self._fields
        for key, field in defaults._fields.items():
            if key not in fields:
                fields[key] = field

    def lines(self, defaults: Headers | None = None, *, without: Container[str] = ()) -> str:
        """Return the headers as lines to send (RFC 9112, 5), without those whose lower-case name is in ``without``.

        A header of ``defaults`` is added unless it has a value here or is set to None.
        """
        fields = self._fields
        if defaults is not None:
            fields = {**fields, **defaults._fields, **fields}  # a repeated key keeps its first position in the dict
        text = ""
        for key, field in fields.items():
            if key not in without:
                name = field[0]
                for value in field[1:]:
                    text += f"{name}: {value}\r\n"
        return text

    def has_any(self, names: Set[str]) -> bool:
        """Return whether one of the lower-case ``names`` is set, even if to None."""
        return not names.isdisjoint(self._fields)

    def __delitem__(self, name: str) -> None:
        del self._fields[_text_of(name).lower()]

    def __contains__(self, name: object) -> bool:
        written = _text_of(name)
        return isinstance(written, str) and len(self._fields.get(written.lower(), ())) > 1

    def __iter__(self) -> Iterator[str]:
        return iter([field[0] for field in self._fields.values() if len(field) > 1])

    def __len__(self) -> int:
        return sum(len(field) > 1 for field in self._fields.values())

    def items_list(self) -> list[tuple[str, str]]:
        """Return one pair of name and value for each value, in the order in which the names were first added."""
        return [(field[0], value) for field in self._fields.values() for value in field[1:]]

    def as_set(self) -> tuple[tuple[str, ...], ...]:
        """Return each header as it was set: its name, then its values. A header set to None has no values."""
        return tuple(map(tuple, self._fields.values()))

    def copy(self) -> Headers:
        """Return a copy that can be changed without changing these headers."""
        return Headers(self)

    __copy__ = copy

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._values() == other._values()
        if isinstance(other, Mapping):
            try:
                return self._values() == Headers(other)._values()
            except (TypeError, ValueError, AttributeError):
                return False
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({self.items_list()!r})"

    def _values(self) -> dict[str, list[str]]:
        return {key: field[1:] for key, field in self._fields.items() if len(field) > 1}

    def _put(self, name: str | bytes, value: Any, *, is_added: bool) -> None:
        written: str = _text_of(name)
        if not _TOKEN.fullmatch(written):
            raise ValueError(f"{written!r} is not a header name")
        values = value if isinstance(value, list | tuple) else (value,)
        texts = [_to_text(written, each) for each in values if each is not None]
        key = written.lower()
        field = self._fields.get(key) if is_added else None
        self._fields[key] = [written, *texts] if field is None else [*field, *texts]


class_of_crawl: ContextVar[type[Headers]] = ContextVar("class_of_crawl", default=Headers)
"""The class of the headers of new requests and responses. A moved crawl sets another class."""


class SharedHeaders(Headers):
    """Headers that many requests share. A request makes its own copy before other code reads them."""

    __slots__ = ()

    @classmethod
    def of_fields(cls, fields: Iterable[list[str]]) -> SharedHeaders:
        """Create headers from lists, each with a name and its values. The names and values must be valid."""
        headers = cls.__new__(cls)
        headers._fields = {field[0].lower(): field for field in fields}
        return headers


def _names_of(raw_name: bytes) -> tuple[str, str]:
    """Return a name as written and in lower case."""
    name = raw_name.decode("latin-1")
    return name, name.lower()


def _text_of(name: Any) -> Any:
    return name.decode("latin-1") if isinstance(name, bytes) else name


def _to_text(name: str, value: object) -> str:
    """Return one value as a string without surrounding white space, or raise an error."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes):
        text = value.decode("latin-1")
    elif isinstance(value, int | float):
        text = str(value)
    else:
        raise TypeError(f"the header {name!r} must be a str, bytes or a number, not {type(value).__name__}: {value!r}")
    text = str.strip(text, " \t")
    if _FORBIDDEN.search(text):
        raise ValueError(f"the header {name!r} contains a control character: {text!r}")
    return text


def field_bytes(value: str) -> bytes:
    """Return a value as the bytes to send, in Latin-1, or in UTF-8 if it has other characters."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()


_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f;\ud800-\udfff]")


def check_cookie(name: str, value: str) -> None:
    """Check that a cookie can be sent unchanged (RFC 6265, 4.1.1). As in browsers, other characters are allowed.

    Raises:
        ValueError: If the name or the value contains a control character, a line break or ``;``, or the name contains a
            ``=``.
    """
    for part, text in (("name", name), ("value", value)):
        if (found := _UNSENDABLE.search(text)) or (part == "name" and "=" in text):
            # The message must not contain the cookie's value, which may be as secret as a password.
            wrong = found.group() if found else "="
            advice = (
                "; give path, domain and so on as keys of a mapping, one mapping per cookie" if wrong == ";" else ""
            )
            raise ValueError(f"the cookie {name!r:.100} can't be sent: {wrong!r} in its {part}{advice}")


def parse_date(text: str) -> datetime | None:
    """Parse a date in the form of headers and web feeds (RFC 9110, 5.6.7; RFC 5322, 3.3). Never raises.

    Returns:
        The time in UTC; None if ``text`` is not a date. A date without a time zone counts as UTC.
    """
    if len(text) > MAX_DATE_LENGTH:
        return None
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError, AttributeError):  # invalid dates raise any of these
        return None
