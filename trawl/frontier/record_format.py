"""Records as bytes: what a job stores of a pending request, in MessagePack and never pickle.

A record is a flat array of plain values. ``meta``, ``cb_kwargs`` and cookies come back exactly as they were, or are
refused when the request is scheduled, with the place that can't be stored: an object that came back as something else
would fail a callback days later. MessagePack lacks tuples, sets, dates and a few more: they are extension types.

Callbacks are stored by name. A name is looked up on the spider and nowhere else, and must be a method there, so that a
job's directory can call nothing but the spider's own callbacks. Nothing that is read imports or calls anything else.

``not_before`` is an instant of this process's clock, which means nothing to the next one. It is stored as wall time,
with the wait that was left: a record read back waits until that wall time, and never longer than that wait, whatever
was done to the machine's clock in between (P10).

Length: values that may be stored, and the record that they are parts of, are one form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from trawl.clock import WallClock
from trawl.frontier.base import Amounts, Record, ScopeAmounts
from trawl.http import Request, SharedHeaders
from trawl.http.notes import NO_NOTES, RequestNotes, notes_of, set_notes

__all__ = [
    "MAX_NESTED",
    "CallbackNames",
    "JobRecord",
    "RecordFormat",
    "ext_hook",
    "portable",
    "repack",
    "unpack",
]


class CallbackNames:
    """The names of one spider's callbacks.

    Args:
        spider: Whose methods the callbacks are.
    """

    __slots__ = ("_callbacks", "_names", "_spider")

    def __init__(self, spider: object) -> None:
        self._spider = spider
        self._names: dict[object, str] = {}
        self._callbacks: dict[str, Callable[..., Any]] = {}

    def name_of(self, callback: Callable[..., Any] | None, role: str) -> str | None:
        """Return the name under which the spider has ``callback``; None for None.

        Args:
            callback: A request's callback or errback.
            role: Which of the two, for the error.

        Raises:
            ValueError: The spider has it under no name; the sentence says what to do.
        """
        if callback is None:
            return None
        function = getattr(callback, "__func__", None)
        if function is None or getattr(callback, "__self__", None) is not self._spider:
            return self._found(callback, role)
        name = self._names.get(function)
        if name is None:
            name = self._names[function] = self._found(callback, role)
        return name

    def callback(self, name: str | None) -> Callable[..., Any] | None:
        """Return the spider's method of that name; None for None.

        Raises:
            LookupError: The spider has no such method: it was changed since, or the name is not that of a callback.
        """
        if name is None:
            return None
        callback = self._callbacks.get(name)
        if callback is None:
            callback = None if _is_special(name) else getattr(self._spider, name, None)
            if callback is None or not (inspect.ismethod(callback) or inspect.isfunction(callback)):
                raise LookupError(f"the spider {type(self._spider).__name__} has no method {name!r}")
            self._callbacks[name] = callback
        return callback

    def _found(self, callback: Callable[..., Any], role: str) -> str:
        for name in self._candidates(callback):
            if not _is_special(name) and getattr(self._spider, name, None) == callback:
                return name
        shown = getattr(callback, "__qualname__", None) or repr(callback)
        raise ValueError(
            f"{role} {shown} is not a method of the spider, and a job stores callbacks by their name: make it a method"
            f" of {type(self._spider).__name__}, and give what it needs besides as cb_kwargs"
        )

    def _candidates(self, callback: Callable[..., Any]) -> Iterator[str]:
        """Names that it may have: its own, that name made private to a class, and any it was given by assignment."""
        name = getattr(callback, "__name__", None)
        classes = type(self._spider).__mro__
        if isinstance(name, str):
            yield name
            yield from (f"_{kind.__name__.lstrip('_')}{name}" for kind in classes if name.startswith("__"))
        function = getattr(callback, "__func__", callback)
        for kind in classes:
            yield from (key for key, value in vars(kind).items() if value is function)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


MAX_NESTED = 100
"""Containers inside each other; more is taken for a value that contains itself."""

SHOWN = 60
"""Letters that an error shows of a path without end."""

_PLAIN = frozenset({type(None), bool, float, bytes})

_INT64 = range(-(2**63), 2**63)

_TUPLE, _SET, _FROZENSET, _INT, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID, _DICT = range(1, 12)


def portable(value: object, path: str, depth: int = 0) -> Any:
    """Return ``value`` in a form that MessagePack holds and :func:`ext_hook` turns back into the same.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime (naive or with a fixed
            offset), date, time, timedelta, Decimal or UUID; containers of these.
        path: Where it stands, as an error names it: ``meta['page']``.
        depth: Containers around it.

    Raises:
        ValueError: It is, or contains, something else; the sentence names the place and says what to do.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        return _text(value, path)
    if depth >= MAX_NESTED:
        raise ValueError(
            f"{path[:SHOWN]}... is nested more than {MAX_NESTED} deep, or contains itself: a job can't store it"
        )
    pack = _PACKERS.get(kind)
    if pack is None and isinstance(value, str):  # text of a class of its own comes back as plain text
        return _text(str.__str__(value), path)
    if pack is None:
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise ValueError(
            f"{path} is of type {name}, which a job can't store: put plain values there (text,"
            f" numbers, bytes, dates, and lists, tuples, sets and dicts of them), or what finds it again"
        )
    return pack(value, path, depth)


def ext_hook(code: int, payload: memoryview) -> Any:
    """Decode one of our extension types: the ``ext_hook`` of a MessagePack decoder.

    Raises:
        ValueError: It is not one of our types, or damaged.
    """
    build = _BUILDERS.get(code)
    if build is None:
        raise ValueError(f"a value of the unknown type {code}")
    return build(_decoder.decode(payload))


_decoder = msgspec.msgpack.Decoder(ext_hook=ext_hook)

_encode = msgspec.msgpack.Encoder().encode


def _ext(code: int, inner: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(inner))


def _text(value: Any, path: str) -> object:
    # ASCII is known at once, and has no surrogates.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{path} holds half of a surrogate pair, which a job can't store: replace it") from None
    return value


def _int(value: Any, path: str, depth: int) -> object:
    # Hexadecimal: of a decimal number, Python reads no more than 4,300 digits unless it is told to.
    return value if value in _INT64 else _ext(_INT, hex(value))


def _list(value: Any, path: str, depth: int) -> list[object]:
    return [portable(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]


def _dict(value: Any, path: str, depth: int) -> object:
    pairs = [
        (portable(key, f"the key {key!r} of {path}", depth + 1), portable(each, f"{path}[{key!r}]", depth + 1))
        for key, each in value.items()
    ]
    if any(type(key) is msgspec.msgpack.Ext for key, _ in pairs):  # which can't be a key of a map
        return _ext(_DICT, pairs)
    return dict(pairs)


def _group(code: int) -> Callable[[Any, str, int], object]:
    return lambda value, path, depth: _ext(code, _list(value, path, depth))


def _moment(code: int) -> Callable[[Any, str, int], object]:
    def pack(value: Any, path: str, depth: int) -> object:
        if value.tzinfo is not None and type(value.tzinfo) is not timezone:
            raise ValueError(f"{path} is a time in a named time zone, which a job can't store: give it in UTC")
        offset = None if value.tzinfo is None else value.tzinfo.utcoffset(None)
        apart = None if offset is None else [offset.days, offset.seconds, offset.microseconds]
        return _ext(code, [value.replace(tzinfo=None).isoformat(), value.fold, apart])

    return pack


def _placed(value: Any, fold: int, apart: list[int] | None) -> Any:
    """A moment in its zone: Python's ISO format loses an offset of less than a second."""
    return value.replace(fold=fold, tzinfo=None if apart is None else timezone(timedelta(*apart)))


_PACKERS: Mapping[type, Callable[[Any, str, int], object]] = {
    int: _int,
    list: _list,
    dict: _dict,
    tuple: _group(_TUPLE),
    set: _group(_SET),
    frozenset: _group(_FROZENSET),
    datetime: _moment(_DATETIME),
    date: lambda value, path, depth: _ext(_DATE, value.isoformat()),
    time: _moment(_TIME),
    timedelta: lambda value, path, depth: _ext(_TIMEDELTA, [value.days, value.seconds, value.microseconds]),
    Decimal: lambda value, path, depth: _ext(_DECIMAL, str(value)),
    UUID: lambda value, path, depth: _ext(_UUID, value.bytes),
}

_BUILDERS: Mapping[int, Callable[[Any], object]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _INT: lambda inner: int(inner, 16),
    _DATETIME: lambda inner: _placed(datetime.fromisoformat(inner[0]), *inner[1:]),
    _DATE: date.fromisoformat,
    _TIME: lambda inner: _placed(time.fromisoformat(inner[0]), *inner[1:]),
    _TIMEDELTA: lambda inner: timedelta(*inner),
    _DECIMAL: Decimal,
    _UUID: lambda inner: UUID(bytes=inner),
    _DICT: dict,
}


class JobRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record as a job stores it. New fields go to the end, with a default: an older job is then read as it is.

    Attributes:
        url: The request's URL.
        method: Its method.
        body: Its body; None for none.
        headers: Each field's name and values; None where none was set.
        cookies: Its cookies, portable.
        meta: Its meta, portable.
        cb_kwargs: Its cb_kwargs, portable.
        callback: Its callback's name.
        errback: Its errback's name.
        priority: Its priority.
        dont_filter: True if duplicates are wanted.
        depth: Links from a start request.
        scopes: Its throttling scopes and amounts; None: its host alone, as :attr:`its_origin` names it.
        origin: Its origin; None: it is in the URL.
        fingerprint: Its claimed fingerprint.
        until: The wall time before which it may not be sent, in seconds since 1970; None for none.
        wait: Seconds that were left until then when it was stored.
        share: The largest part of a quota that it names.
        amounts: The amounts that count for its lane.
        found: The wall time at which it was stored first, in seconds since 1970; None where that is not known.
        is_diverted: Its scopes and origin are not its own.
    """

    url: str
    method: str
    body: bytes | None
    headers: tuple[tuple[str, ...], ...] | None
    cookies: Any
    meta: Any
    cb_kwargs: Any
    callback: str | None
    errback: str | None
    priority: int
    dont_filter: bool
    depth: int
    scopes: ScopeAmounts | None
    origin: str | None
    fingerprint: bytes | None
    until: float | None
    wait: float
    share: float
    amounts: Amounts
    found: float | None = None
    is_diverted: bool = False

    @property
    def its_origin(self) -> str:
        """Its origin, wherever it is stored."""
        return _place_in(self.url) if self.origin is None else self.origin

    @property
    def its_scopes(self) -> ScopeAmounts:
        """Its throttling scopes and amounts, wherever they are stored."""
        return _host_alone(self.its_origin) if self.scopes is None else self.scopes


def _place_in(url: str) -> str:
    """Return the part of a URL that most origins are: ``//host:port``."""
    return f"//{url.split('/', 3)[2]}" if url.count("/") >= 2 else ""


def _host_alone(origin: str) -> ScopeAmounts:
    return ((origin[2:], None),)


_STORED_NOTES: Mapping[str, str] = {
    "throttling_refused_at": "refused_at",
    "throttling_refusals": "refusals",
    "throttling_bad_page": "is_bad_page",
    "throttling_uncounted": "is_uncounted",
    "throttling_admitted_at": "admitted_at",
    "_dressed_by_session": "session",
    "_told_slot": "told_slot",
    "_needs_new_connection": "needs_new_connection",
    "_bypasses_cache": "bypasses_cache",
    "_vouched": "vouched",
}
"""Keys of a stored meta under which a job has the notes of a request, and the names of those."""

_PROXY_NOTE = "_proxy_is_chosen"
"""Key of a stored meta: ``proxy`` in it was chosen by the crawl; ``_UNSENT``: and nothing was sent through it."""

_UNSENT = "unsent"

_NOTE_KEYS = frozenset({*_STORED_NOTES, _PROXY_NOTE})


_NOTES = 256
"""Sets of notes that are remembered."""


def stored_meta(meta: Mapping[Any, Any] | None, notes: RequestNotes) -> Mapping[Any, Any] | None:
    """Return a request's meta as it is stored, with its notes."""
    if notes is NO_NOTES:
        return meta
    stored = {**(meta or {}), **_entries_of(notes)}
    if notes.proxy is not None and stored.get("proxy") == notes.proxy:
        stored[_PROXY_NOTE] = _UNSENT if notes.keeps_proxy else True
    return stored


@lru_cache(maxsize=_NOTES)
def _entries_of(notes: RequestNotes) -> Mapping[str, Any]:
    """Return the entries of a stored meta for notes; the links of one page have the same."""
    told = {key: getattr(notes, name) for key, name in _STORED_NOTES.items()}
    return {key: value for key, value in told.items() if value != getattr(NO_NOTES, _STORED_NOTES[key])}


def meta_and_notes(stored: Any) -> tuple[dict[Any, Any] | None, RequestNotes]:
    """Split a stored meta into a request's meta and its notes."""
    if not stored or _NOTE_KEYS.isdisjoint(stored):
        return stored, NO_NOTES
    meta = {key: value for key, value in stored.items() if key not in _NOTE_KEYS}
    notes = {name: stored[key] for key, name in _STORED_NOTES.items() if key in stored}
    if _PROXY_NOTE in stored:
        notes |= {"proxy": meta.get("proxy"), "keeps_proxy": stored[_PROXY_NOTE] == _UNSENT}
    return meta or None, RequestNotes(**notes)


_LEAST = -(2**63) + 1

_FIELDS = 256
"""Sets of headers that are remembered."""

_encoder = msgspec.msgpack.Encoder()

_record_decoder = msgspec.msgpack.Decoder(JobRecord, ext_hook=ext_hook)


def repack(stored: JobRecord, **changes: Any) -> bytes:
    """Encode a stored record that was read, with some fields changed."""
    changed = msgspec.structs.replace(stored, **changes)
    return _encoder.encode(
        msgspec.structs.replace(
            changed,
            meta=portable(changed.meta, "meta"),
            cb_kwargs=portable(changed.cb_kwargs, "cb_kwargs"),
            cookies=portable(changed.cookies, "cookies"),
        )
    )


def unpack(blob: bytes) -> JobRecord:
    """Decode a stored record, with meta, cb_kwargs and cookies as they were.

    Raises:
        ValueError: It is not a stored record.
    """
    return _record_decoder.decode(blob)


_HISTORY = ("retry_times", "proxy_retry_times", "redirect_times", "redirect_urls", "redirect_reasons")
"""Keys of the meta of a failed request that hold its earlier tries."""


def requeued_row(order: int, lane: int, stored: JobRecord, now: float) -> tuple[int, int, int, float, bytes]:
    """Return the row of a failed request that is queued again, as if it had never been tried."""
    meta, notes = meta_and_notes(stored.meta)
    kept = {key: value for key, value in (meta or {}).items() if key not in _HISTORY}
    fresh = RequestNotes(admitted_at=now, proxy=notes.proxy, session=notes.session)
    again = repack(stored, meta=stored_meta(kept, fresh), until=None, wait=0.0)
    return order, lane, -stored.priority, -stored.share, again


@lru_cache(maxsize=_FIELDS)
def _headers_of(fields: tuple[tuple[str, ...], ...]) -> SharedHeaders:
    """Return the headers of a request, checked. The links of one page have the same."""
    return SharedHeaders({name: values for name, *values in fields})


def _portion(amount: float | None) -> float | None:
    return None if amount is None else float(amount)


class RecordFormat:
    """The format of the records of one spider's job: turns them into bytes and back.

    Args:
        spider: Whose methods the callbacks are.
        wall: Wall time, for ``not_before``.
    """

    __slots__ = ("_names", "_wall")

    def __init__(self, spider: object, wall: WallClock) -> None:
        self._names = CallbackNames(spider)
        self._wall = wall

    def encode(self, record: Record, now: float) -> bytes:
        """Encode ``record`` at the instant ``now`` of the run clock.

        Raises:
            ValueError: A part of it can't be stored; the sentence names it and says what to do.
        """
        request = record.request
        # FormRequest and JsonRequest are made into URL, headers and body; another class may hold what would be lost.
        if type(request) is not Request and not type(request).__module__.startswith("trawl.http."):
            raise ValueError(f"a {type(request).__name__} can't be stored in a job: use a request class of trawl's own")
        if not _LEAST <= request.priority <= -_LEAST:
            raise ValueError(f"priority {request.priority} can't be stored in a job: keep to what 64 bits hold")
        headers, cookies, own_meta, cb_kwargs = request.extras()
        url, origin, scopes = request.written_url, record.origin, record.scopes
        meta = stored_meta(own_meta, notes_of(request))
        until = None
        wait = 0.0
        if record.not_before > now:
            until = self._wall.to_epoch(record.not_before)
            wait = record.not_before - now
        return _encoder.encode(
            JobRecord(
                url,
                request.method,
                request.body or None,
                None if headers is None else headers.as_set(),
                portable(cookies, "cookies") if cookies else None,
                portable(meta, "meta") if meta else None,
                portable(cb_kwargs, "cb_kwargs") if cb_kwargs else None,
                self._names.name_of(request.callback, "the callback"),
                self._names.name_of(request.errback, "the errback"),
                request.priority,
                request.dont_filter,
                request.depth,
                None if scopes == _host_alone(origin) else tuple([(id, _portion(amount)) for id, amount in scopes]),
                None if origin == _place_in(url) else origin,
                record.fingerprint,
                until,
                wait or 0,  # a whole number is a byte, a float nine
                record.share or 0,
                tuple([_portion(amount) for amount in record.amounts]),
                self._wall.to_epoch(now if record.found_at is None else record.found_at),
                record.is_diverted,
            )
        )

    def decode(self, blob: bytes, now: float) -> Record:
        """Decode a record at the instant ``now`` of the run clock.

        Raises:
            ValueError: It is not a record, or its request can't be made.
            LookupError: The spider has no such callback any more.
        """
        stored = unpack(blob)
        meta, notes = meta_and_notes(stored.meta)
        request = Request(
            stored.url,
            self._names.callback(stored.callback),
            method=stored.method,
            headers=None if stored.headers is None else _headers_of(stored.headers),
            body=stored.body,
            cookies=stored.cookies,
            meta=meta,
            cb_kwargs=stored.cb_kwargs,
            priority=stored.priority,
            dont_filter=stored.dont_filter,
            errback=self._names.callback(stored.errback),
        )
        request.depth = stored.depth
        set_notes(request, notes)
        not_before = 0.0
        if stored.until is not None:
            # The clock may have been set back since: nothing waits longer than it had to when it was stored.
            not_before = min(self._wall.from_epoch(stored.until), now + stored.wait)
        record = Record(
            request,
            stored.its_scopes,
            stored.its_origin,
            stored.fingerprint,
            not_before,
            stored.share,
            stored.amounts,
            is_diverted=stored.is_diverted,
        )
        if stored.found is not None:  # the time between two runs does not count
            record.found_at = min(now, max(self._wall.from_epoch(stored.found), self._wall.anchor_at))
        return record
