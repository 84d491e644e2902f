"""The stored form of a pending request in a job. It is MessagePack, never pickle.

A record is a flat array of plain values. ``meta``, ``cb_kwargs`` and cookies are restored exactly. If a value can't be
restored exactly, the request is refused when it is scheduled, and the error names the value. Otherwise the callback
could fail days later, because it would receive a changed object. MessagePack lacks tuples, sets, dates and a few other
types, so these are stored as extension types.

Callbacks are stored by name. A name is looked up only on the spider, and must be the name of a method, so that stored
data can't call any other function. Reading a record never imports a module.

``not_before`` is a time on this process's clock, which has no meaning in another process. So it is stored as wall time,
together with the remaining wait. When a record is read again, it waits until that wall time, but never longer than the
stored wait, even if the machine's clock was changed in the meantime.
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
    """The names of one spider's callbacks."""

    __slots__ = ("_callbacks", "_names", "_spider")

    def __init__(self, spider: object) -> None:
        self._spider = spider
        self._names: dict[object, str] = {}
        self._callbacks: dict[str, Callable[..., Any]] = {}

    def name_of(self, callback: Callable[..., Any] | None, role: str) -> str | None:
        """Return the name of the spider's method ``callback``; None for None.

        ``role`` is ``the callback`` or ``the errback``, for the ValueError that another callable raises.
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
        """Return the spider's method with this name; None for None. Raises LookupError if it has no such method."""
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
            f"{role} {shown} is not a method of the spider, and a job stores callbacks by name: make it a method"
            f" of {type(self._spider).__name__}, and pass its other arguments as cb_kwargs"
        )

    def _candidates(self, callback: Callable[..., Any]) -> Iterator[str]:
        """Yield a callback's own name, that name as mangled in each class, and the class attributes that have it."""
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
"""Maximum depth of nested containers. A deeper value is refused, because it may contain itself."""

_PLAIN = frozenset({type(None), bool, float, bytes})

_INT64 = range(-(2**63), 2**63)

_TUPLE, _SET, _FROZENSET, _INT, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID, _DICT = range(1, 12)


def portable(value: object, path: str, depth: int = 0) -> Any:
    """Return ``value`` in a form that MessagePack can store and :func:`ext_hook` restores exactly.

    The ValueError for an unsuitable type contains ``path``, such as ``meta['page']``, and the fix.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        return _text(value, path)
    if depth >= MAX_NESTED:
        raise ValueError(
            f"{path[:60]}... is nested more than {MAX_NESTED} deep, or contains itself: a job can't store it"
        )
    pack = _PACKERS.get(kind)
    if pack is None and isinstance(value, str):  # a subclass of str, restored as a plain str
        return _text(str.__str__(value), path)
    if pack is None:
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise ValueError(
            f"{path} is of type {name}, which a job can't store: put plain values there (text,"
            f" numbers, bytes, dates, and lists, tuples, sets and dicts of them), or a key to find it again"
        )
    return pack(value, path, depth)


def ext_hook(code: int, payload: memoryview) -> Any:
    """Decode one of trawl's extension types, or raise ValueError. For use by a MessagePack decoder."""
    build = _BUILDERS.get(code)
    if build is None:
        raise ValueError(f"a value of the unknown type {code}")
    return build(_decoder.decode(payload))


_decoder = msgspec.msgpack.Decoder(ext_hook=ext_hook)

_encode = msgspec.msgpack.Encoder().encode


def _ext(code: int, inner: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(inner))


def _text(value: Any, path: str) -> object:
    # Check for ASCII first, because that is fast and ASCII contains no surrogates.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{path} contains an unpaired surrogate, which a job can't store: replace it") from None
    return value


def _int(value: Any, path: str, depth: int) -> object:
    # Use hexadecimal, because by default Python parses at most 4,300 digits of a decimal number.
    return value if value in _INT64 else _ext(_INT, hex(value))


def _list(value: Any, path: str, depth: int) -> list[object]:
    return [portable(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]


def _dict(value: Any, path: str, depth: int) -> object:
    pairs = [
        (portable(key, f"the key {key!r} of {path}", depth + 1), portable(each, f"{path}[{key!r}]", depth + 1))
        for key, each in value.items()
    ]
    if any(type(key) is msgspec.msgpack.Ext for key, _ in pairs):  # an extension type can't be a key of a map
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
    # The offset is stored separately from the time, because Python's ISO format loses offsets below a second.
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
    """A record as a job stores it. Add new fields at the end with a default, so that older jobs can be read.

    Attributes:
        headers: The name and values of each header; None if none was set.
        cookies: Its cookies, as returned by :func:`portable`, like ``meta`` and ``cb_kwargs``.
        meta: Its meta and notes.
        scopes: Its throttling scopes and amounts; None if its only scope is the host in its origin
            (:attr:`its_origin`).
        origin: Its origin; None if it can be read from the URL.
        until: Wall time before which the request must not be sent, in seconds since the epoch; None if there is none.
        wait: Seconds from the time of storing until the time in ``until``.
        found: Wall time at which the request was found, in seconds since the epoch; None if unknown.
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
        """Its origin, stored or read from the URL."""
        return _place_in(self.url) if self.origin is None else self.origin

    @property
    def its_scopes(self) -> ScopeAmounts:
        """Its throttling scopes and amounts, stored or derived from the origin."""
        return _host_alone(self.its_origin) if self.scopes is None else self.scopes


def _place_in(url: str) -> str:
    """Return the part ``//host:port`` of a URL, which is also the origin of most requests."""
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
"""Keys under which the stored meta contains a request's notes, and the name of the note for each key."""

_PROXY_NOTE = "_proxy_is_chosen"
"""Key that the stored meta has if the crawl chose its ``proxy``."""

_UNSENT = "unsent"  # the key's value if the request was not sent through this proxy yet

_NOTE_KEYS = frozenset({*_STORED_NOTES, _PROXY_NOTE})


def stored_meta(meta: Mapping[Any, Any] | None, notes: RequestNotes) -> Mapping[Any, Any] | None:
    """Return a request's meta and notes as a stored meta."""
    if notes is NO_NOTES:
        return meta
    stored = {**(meta or {}), **_entries_of(notes)}
    if notes.proxy is not None and stored.get("proxy") == notes.proxy:
        stored[_PROXY_NOTE] = _UNSENT if notes.keeps_proxy else True
    return stored


@lru_cache(maxsize=256)
def _entries_of(notes: RequestNotes) -> Mapping[str, Any]:
    """Return the entries of a stored meta for notes. Cached, because the links of one page have equal notes."""
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

_record_decoder = msgspec.msgpack.Decoder(JobRecord, ext_hook=ext_hook)


def repack(stored: JobRecord, **changes: Any) -> bytes:
    """Encode a stored record with some fields changed."""
    changed = msgspec.structs.replace(stored, **changes)
    values = {name: portable(getattr(changed, name), name) for name in ("meta", "cb_kwargs", "cookies")}
    return _encode(msgspec.structs.replace(changed, **values))


def unpack(blob: bytes) -> JobRecord:
    """Decode a stored record, and restore meta, cb_kwargs and cookies. Raises ValueError if it is damaged."""
    return _record_decoder.decode(blob)


_HISTORY = ("retry_times", "proxy_retry_times", "redirect_times", "redirect_urls", "redirect_reasons")
"""Keys in the meta of a failed request that describe its earlier attempts."""


def requeued_row(order: int, lane: int, stored: JobRecord, now: float) -> tuple[int, int, int, float, bytes]:
    """Return the row for a failed request that is queued again, as if it had never been sent."""
    meta, notes = meta_and_notes(stored.meta)
    kept = {key: value for key, value in (meta or {}).items() if key not in _HISTORY}
    fresh = RequestNotes(admitted_at=now, proxy=notes.proxy, session=notes.session)
    again = repack(stored, meta=stored_meta(kept, fresh), until=None, wait=0.0)
    return order, lane, -stored.priority, -stored.share, again


@lru_cache(maxsize=256)
def _headers_of(fields: tuple[tuple[str, ...], ...]) -> SharedHeaders:
    """Return the checked headers of a request. They are cached, because the links of one page have equal headers."""
    return SharedHeaders({name: values for name, *values in fields})


def _portion(amount: float | None) -> float | None:
    return None if amount is None else float(amount)


class RecordFormat:
    """Encodes and decodes the records in the job of one spider."""

    __slots__ = ("_names", "_wall")

    def __init__(self, spider: object, wall: WallClock) -> None:
        self._names = CallbackNames(spider)
        self._wall = wall

    def encode(self, record: Record, now: float) -> bytes:
        """Encode ``record`` at the event loop time ``now``, or raise ValueError with the wrong part and the fix."""
        request = record.request
        # A FormRequest or JsonRequest is stored as its URL, headers and body. Attributes of another class would be
        # lost, so refuse a request of such a class.
        if type(request) is not Request and not type(request).__module__.startswith("trawl.http."):
            raise ValueError(f"a {type(request).__name__} can't be stored in a job: use one of trawl's request classes")
        if not _LEAST <= request.priority <= -_LEAST:
            raise ValueError(f"priority {request.priority} can't be stored in a job: use a number of at most 64 bits")
        headers, cookies, own_meta, cb_kwargs = request.extras()
        url, origin, scopes = request.written_url, record.origin, record.scopes
        meta = stored_meta(own_meta, notes_of(request))
        is_held = record.not_before > now
        return _encode(
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
                self._wall.to_epoch(record.not_before) if is_held else None,
                record.not_before - now if is_held else 0,  # the integer 0 takes one byte, and a float nine
                record.share or 0,
                tuple([_portion(amount) for amount in record.amounts]),
                self._wall.to_epoch(now if record.found_at is None else record.found_at),
                record.is_diverted,
            )
        )

    def decode(self, blob: bytes, now: float) -> Record:
        """Decode a record at the event loop time ``now``.

        Raises ValueError if it is damaged, or LookupError if the spider no longer has its callback.
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
            # The clock may have been set back since the record was stored, so limit the wait to the stored wait.
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
        if stored.found is not None:  # a request does not age between two runs
            record.found_at = min(now, max(self._wall.from_epoch(stored.found), self._wall.anchor_at))
        return record
