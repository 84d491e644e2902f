"""The sends of a run as text, for reading and for comparing."""

from __future__ import annotations

from collections.abc import Sequence

from trawl.observe import printable
from trawl.testing.sends import Send

__all__ = ["timeline"]

MOST_ROWS = 10_000
LONGEST_URL = 100


def timeline(sends: Sequence[Send], most: int = MOST_ROWS) -> str:
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
