"""From when on a spider wants what says when it was changed: ``sitemap_modified_since``, ``feed_since``."""

from __future__ import annotations

from datetime import UTC, date, datetime

from trawl.errors import UsageError

__all__ = ["since_utc"]


def since_utc(spider: str, attribute: str, value: str | date | None) -> datetime | None:
    """The instant that an attribute of a spider names, in UTC unless it says otherwise; None where it names none.

    Args:
        spider: The spider's name, for messages.
        attribute: The attribute's.
        value: A datetime, a date, or a text that is one (ISO 8601).

    Raises:
        UsageError: The text is neither.
    """
    if not value:
        return None
    try:
        begun = datetime.fromisoformat(value.isoformat() if isinstance(value, date) else value)
    except ValueError as error:
        raise UsageError(f"{spider}: {attribute}: {value!r} is no date or time as ISO 8601 has them") from error
    return begun if begun.tzinfo is not None else begun.replace(tzinfo=UTC)
