"""What a job says of itself, and the statistics that it keeps: read by its next run, and by who looks at it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from trawl.frontier.sections import Section

__all__ = ["FACTS", "START_ITEMS", "STATISTICS", "Facts"]


LATEST = 250_000_000_000
"""In epoch seconds the year 9892: what is later is damage."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says of itself.

    Attributes:
        spider: The spider's name.
        cls: The qualified name of its class. The module is left out: it depends on how the spider is started.
        begun_at: When the job began, in epoch seconds.
        runs: How often it was run.
        is_started: Whether ``start()`` has come to its end.
        reason: Why the last run ended; "" while one runs, and after a kill.
    """

    spider: str
    cls: str
    begun_at: Annotated[float, msgspec.Meta(ge=0, lt=LATEST)]
    runs: Annotated[int, msgspec.Meta(ge=0, lt=LATEST)] = 0
    is_started: bool = False
    reason: str = ""

    def is_finished(self, pending: int) -> bool:
        """Whether nothing is left to do, where so many requests are pending."""
        return self.is_started and not pending


FACTS: Section[Facts] = Section("job", Facts)
"""Who the job belongs to, and how far it has come."""

START_ITEMS: Section[int] = Section("start", int)
"""How many items of ``start()`` are stored, while it has not come to its end; its next reading leaves out as many."""

STATISTICS: Section[dict[str, int | float | str | bool | None]] = Section(
    "statistics", dict[str, int | float | str | bool | None]
)
"""All statistics by their keys, as of the last transaction."""
