"""What went over the simulated wire, send by send.

The sends of a run as text, for reading and for comparing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType

import msgspec

from trawl.http import host_scope
from trawl.observe import printable

__all__ = ["Send", "SendLog", "SendRecord", "rounded", "timeline"]

DIGITS = 12
"""Times are rounded to the picosecond: what 0.1 + 0.2 adds to 0.3 must not fail a test that says ``== 0.3``."""


def rounded(at: float) -> float:
    """A time in seconds, without what binary fractions add to it."""
    return round(at, DIGITS) + 0.0


class Send(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request on the wire.

    Attributes:
        time: Seconds since the crawl began, at the moment of the send.
        finished: Seconds since the crawl began, when the last byte had been read, or the error came.
        url: What was asked for.
        method: How.
        host: The host, written as its scope is.
        slot: Which slot of its host's scope (or its address's, where that counts) carried it, from 1; 0: it took none
            (``dont_throttle``, or other scopes).
        scopes: What it was charged to: scope to amount.
        slots: Which slot of each of these scopes carried it.
        status: The status of the answer; None without a whole answer.
        error: What went wrong, by the name of its class; None if nothing did.
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
    """A send while it is on the wire; instants are those of the run's clock."""

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
        rows: One a send.
        sending: The row of the send that is being reported right now: whoever hears of a send while its ``on_sent`` is
            called finds it here.
    """

    __slots__ = ("rows", "sending")

    def __init__(self) -> None:
        self.rows: list[SendRecord] = []
        self.sending: SendRecord | None = None

    def sends(self, begun_at: float, now: float) -> tuple[Send, ...]:
        """Every send as a value, times counted from ``begun_at``; what is still on the wire is cut off at ``now``."""
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
    """The slot of the only scope, where that is an address."""
    if len(slots) != 1:
        return 0
    (scope, slot), *_ = slots.items()
    try:
        ip_address(scope.strip("[]"))
    except ValueError:
        return 0
    return slot


MAX_ROWS = 10_000

LONGEST_URL = 100


def timeline(sends: Sequence[Send], most: int = MAX_ROWS) -> str:
    """One line a send: when, how long, through which slot of which scopes, what came back.

    ::

            time  finished  slot  status  scopes     url
           0.000     0.100     1     200  a.example  http://a.example/

    Args:
        sends: In order.
        most: How many lines at most; the rest is told as a number.
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
