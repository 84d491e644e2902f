"""The sends of a simulated run, as values and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from trawl.addresses import is_address
from trawl.http import host_scope
from trawl.observe import printable

__all__ = ["Send", "SendLog", "SendRecord", "rounded", "timeline"]

DIGITS = 12  # times are rounded to the picosecond: 0.1 + 0.2 must not fail a test for 0.3


def rounded(at: float) -> float:
    """Return a time in seconds without the error of binary fractions."""
    return round(at, DIGITS) + 0.0


class Send(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request on the wire.

    Attributes:
        time: The time of the send, in seconds since the crawl began.
        finished: The time of the last byte or of the error, in seconds since the crawl began.
        url: The URL.
        method: The method.
        host: The host, as the name of its scope.
        slot: Its slot in the scope of its host (or address), from 1; 0: none (``dont_throttle``, or other scopes).
        scopes: The amount charged to each scope.
        slots: Its slot in each of these scopes.
        status: The status of the answer; None without a complete answer.
        error: The name of the error's class; None if there was none.
    """

    time: float
    finished: float
    url: str
    host: str
    slot: int = 1
    scopes: Mapping[str, float] = MappingProxyType({})
    status: int | None = 200
    method: str = "GET"
    slots: Mapping[str, int] = MappingProxyType({})
    error: str | None = None


class SendRecord(msgspec.Struct, gc=False):
    """A send in progress; instants are those of the run's clock."""

    url: str
    method: str
    sent_at: float
    ended_at: float | None = None
    status: int | None = None
    error: str | None = None
    scopes: tuple[tuple[str, float | None], ...] = ()
    slots: tuple[int, ...] = ()


class SendLog:
    """All sends of one run, in order.

    Attributes:
        rows: A row for each send.
        sending: The row of the send whose ``on_sent`` is being called.
    """

    __slots__ = ("rows", "sending")

    def __init__(self) -> None:
        self.rows: list[SendRecord] = []
        self.sending: SendRecord | None = None

    def sends(self, begun_at: float, now: float) -> tuple[Send, ...]:
        """Return every send, with times since ``begun_at``; those still on the wire end at ``now``."""
        amounts: dict[_Charges, Mapping[str, float]] = {}
        slots: dict[tuple[_Charges, tuple[int, ...]], Mapping[str, int]] = {}
        made: list[Send] = []
        for row in self.rows:
            charged = amounts.get(row.scopes)
            if charged is None:
                charged = amounts[row.scopes] = _amounts(row.scopes)
            taken = slots.get((row.scopes, row.slots))
            if taken is None:
                taken = slots[row.scopes, row.slots] = _slots(row.scopes, row.slots)
            host = host_scope(row.url)
            made.append(
                Send(
                    time=rounded(row.sent_at - begun_at),
                    finished=rounded((now if row.ended_at is None else row.ended_at) - begun_at),
                    url=row.url,
                    host=host,
                    slot=taken.get(host, 0) or _slot_of_address(taken),
                    scopes=charged,
                    status=row.status,
                    method=row.method,
                    slots=taken,
                    error=row.error,
                )
            )
        return tuple(made)


_Charges = tuple[tuple[str, float | None], ...]


def _amounts(scopes: _Charges) -> Mapping[str, float]:
    return MappingProxyType({scope: 1.0 if amount is None else amount for scope, amount in scopes})


def _slots(scopes: _Charges, slots: tuple[int, ...]) -> Mapping[str, int]:
    return MappingProxyType({scope: slot for (scope, _), slot in zip(scopes, slots, strict=False)})


def _slot_of_address(slots: Mapping[str, int]) -> int:
    """Return the slot of the only scope if that is an IP address."""
    if len(slots) != 1:
        return 0
    (scope, slot), *_ = slots.items()
    return slot if is_address(scope.strip("[]")) else 0


MAX_ROWS = 10_000
LONGEST_URL = 100


def timeline(sends: Sequence[Send], most: int = MAX_ROWS) -> str:
    """Return the sends as text, a line for each.

    ::

            time  finished  slot  status  scopes     url
           0.000     0.100     1     200  a.example  http://a.example/

    Args:
        sends: The sends, in order.
        most: Maximum of lines; the number of further sends follows.
    """
    if not sends:
        return "no sends"
    shown = sends[:most]
    rows = [("time", "finished", "slot", "status", "scopes", "url")]
    rows += [_row(send) for send in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [_line(row, widths) for row in rows]
    if len(sends) > len(shown):
        lines.append(f"... and {len(sends) - len(shown)} more")
    return "\n".join(lines)


def _row(send: Send) -> tuple[str, str, str, str, str, str]:
    status = str(send.status) if send.status is not None else (send.error or "cut off")
    scopes = " ".join(f"{scope}={amount:g}" if amount != 1.0 else scope for scope, amount in send.scopes.items())
    address = send.url if send.method == "GET" else f"{send.method} {send.url}"
    if len(address) > LONGEST_URL:
        address = f"{address[: LONGEST_URL - 1]}…"
    slot = str(send.slot) if send.slot else ",".join(str(number) for number in send.slots.values()) or "-"
    return f"{send.time:.3f}", f"{send.finished:.3f}", slot, status, printable(scopes) or "-", printable(address)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [text.rjust(width) for text, width in zip(row[:4], widths[:4], strict=True)]
    return "  ".join([*numbers, row[4].ljust(widths[4]), row[5]]).rstrip()
