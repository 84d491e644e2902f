"""Records as bytes: what a job stores of a pending request, in MessagePack, and never pickle.

A record is stored as a flat array of plain values. Callbacks are stored by name. ``meta``, ``cb_kwargs`` and cookies
come back exactly as they were, or are refused when the request is scheduled, with the place that can't be stored.

*Times.* ``not_before`` is an instant of this process's clock, which means nothing to the next one: it is stored as wall
time, together with the wait that was left then. What is read back waits until that wall time, and never longer than
that wait, whatever was done to the machine's clock in between (P10).
"""

from __future__ import annotations

from typing import Any

import msgspec

from trawl.clock import WallClock
from trawl.frontier.base import Amounts, Record, Scopes
from trawl.frontier.exact import portable, restored
from trawl.frontier.naming import CallbackNames
from trawl.http import Request

__all__ = ["RecordCodec", "StoredRecord", "pack", "repacked", "unpack"]


class StoredRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record as it is stored. New fields go to the end, with a default: an older job is then read as it is.

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
        dont_filter: Whether duplicates are wanted.
        depth: Links from a start request.
        scopes: Its throttling scopes and amounts.
        origin: Its origin.
        fingerprint: What was claimed for it.
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
    headers: list[list[str]] | None
    cookies: Any
    meta: Any
    cb_kwargs: Any
    callback: str | None
    errback: str | None
    priority: int
    dont_filter: bool
    depth: int
    scopes: list[tuple[str, float | None]]
    origin: str
    fingerprint: bytes | None
    until: float | None
    wait: float
    share: float
    amounts: list[float | None]
    found: float | None = None
    is_diverted: bool = False


_LEAST = -(2**63) + 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredRecord, ext_hook=restored)


def pack(stored: StoredRecord) -> bytes:
    """The bytes of a stored record whose meta, cb_kwargs and cookies are portable."""
    return _encoder.encode(stored)


def repacked(stored: StoredRecord, **changes: Any) -> bytes:
    """The bytes of a stored record that was read, with some fields changed."""
    changed = msgspec.structs.replace(stored, **changes)
    return pack(
        msgspec.structs.replace(
            changed,
            meta=portable(changed.meta, "meta"),
            cb_kwargs=portable(changed.cb_kwargs, "cb_kwargs"),
            cookies=portable(changed.cookies, "cookies"),
        )
    )


def unpack(blob: bytes) -> StoredRecord:
    """The stored record of ``blob``, with meta, cb_kwargs and cookies as they were.

    Raises:
        ValueError: It is no stored record.
    """
    return _decoder.decode(blob)


class RecordCodec:
    """Turns the records of one spider's job into bytes and back.

    Args:
        spider: Whose methods the callbacks are.
        wall: Wall time, for ``not_before``.
    """

    __slots__ = ("_names", "_wall")

    def __init__(self, spider: object, wall: WallClock) -> None:
        self._names = CallbackNames(spider)
        self._wall = wall

    def encode(self, record: Record, now: float) -> bytes:
        """The bytes of ``record`` at the instant ``now`` of the run clock.

        Raises:
            ValueError: A part of it can't be stored; the sentence names it and says what to do.
        """
        request = record.request
        if type(request) is not Request:
            raise ValueError(f"a {type(request).__name__} can't be stored in a job: use trawl.Request itself")
        if not _LEAST <= request.priority <= -_LEAST:
            raise ValueError(f"priority {request.priority} can't be stored in a job: keep to what 64 bits hold")
        headers, cookies, meta, cb_kwargs = request.extras()
        until = None
        wait = 0.0
        if record.not_before > now:
            until = self._wall.to_epoch(record.not_before)
            wait = record.not_before - now
        return _encoder.encode(
            StoredRecord(
                request.url,
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
                [(scope, None if amount is None else float(amount)) for scope, amount in record.scopes],
                record.origin,
                record.fingerprint,
                until,
                wait,
                record.share,
                [None if amount is None else float(amount) for amount in record.amounts],
                self._wall.to_epoch(now if record.found_at is None else record.found_at),
                record.is_diverted,
            )
        )

    def decode(self, blob: bytes, now: float) -> Record:
        """The record of ``blob``, read at the instant ``now`` of the run clock.

        Raises:
            ValueError: It is no record, or its request can't be made.
            LookupError: The spider has no such callback any more.
        """
        stored = unpack(blob)
        request = Request(
            stored.url,
            self._names.callback(stored.callback),
            method=stored.method,
            headers=None if stored.headers is None else {field[0]: field[1:] for field in stored.headers},
            body=stored.body,
            cookies=stored.cookies,
            meta=stored.meta,
            cb_kwargs=stored.cb_kwargs,
            priority=stored.priority,
            dont_filter=stored.dont_filter,
            errback=self._names.callback(stored.errback),
        )
        request.depth = stored.depth
        scopes: Scopes = tuple(stored.scopes)
        amounts: Amounts = tuple(stored.amounts)
        not_before = 0.0
        if stored.until is not None:
            not_before = min(self._wall.from_epoch(stored.until), now + stored.wait)
        record = Record(
            request,
            scopes,
            stored.origin,
            stored.fingerprint,
            not_before,
            stored.share,
            amounts,
            is_diverted=stored.is_diverted,
        )
        if stored.found is not None:  # the time between two runs is nobody's
            record.found_at = min(now, max(self._wall.from_epoch(stored.found), self._wall.anchor_at))
        return record
