"""The filter of a feed. It selects items by their class and with a function."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trawl.errors import SettingsError
from trawl.feeds.job_item import JobItem, class_name
from trawl.items import InvalidItem
from trawl.tracebacks import contained

__all__ = ["Accepts", "ItemFilter", "load_accepts"]

Accepts = Callable[[Any], object]
"""Returns whether a feed takes an item."""

_INVALID = class_name(InvalidItem)


@attrs.frozen
class ItemFilter:
    """Decides which items go to one feed.

    Attributes:
        destination: The feed's destination. A job stores the results of the filter under this name.
        classes: Classes of the items to write; all if empty. Invalid items are written only if this contains their
            class.
        accepts: Function that selects items; None selects all items.
    """

    destination: str = ""
    classes: tuple[type, ...] = ()
    accepts: Accepts | None = None

    def takes(self, item: object) -> bool:
        """Return whether the feed takes an item.

        Raises:
            ValueError: If the filter raises an error for the item.
        """
        if self.classes:
            if not isinstance(item, self.classes):
                return False
        elif type(item) is InvalidItem:
            return False
        return self.accepts is None or self._accepted(item)

    def takes_stored(self, stored: JobItem) -> bool:
        """Return whether the feed takes an item of a job's outbox.

        Uses the result from the time when the item was stored.

        Raises:
            ValueError: If the filter raises an error for the item's fields. It is called only if there is no stored
                result, because the feed is new in the job.
        """
        if self.classes:
            if not stored.is_of(self.classes):
                return False
        elif _INVALID in stored.classes:
            return False
        if self.accepts is None:
            return True
        answer = stored.answer(self.destination)
        return self._accepted(stored.fields) if answer is None else answer

    def answer(self, item: object) -> bool | None:
        """Return the function's result, to be stored with the item; None if the item's class decides alone.

        Raises:
            ValueError: If the filter raises an error for the item.
        """
        if self.accepts is None or (self.classes and not isinstance(item, self.classes)):
            return None
        return self._accepted(item) if self.classes or type(item) is not InvalidItem else None

    def _accepted(self, item: object) -> bool:
        try:
            with contained:
                return bool(self.accepts and self.accepts(item))
        except Exception as error:
            raise ValueError(f"its item_filter failed: {error!r}") from error


def load_accepts(given: object, path: str, options: Mapping[str, Any]) -> Accepts | None:
    """Load ``item_filter``: a function of the item, or a class with ``accepts(item)`` as in Scrapy.

    Args:
        given: The filter or its import path; None if there is none.
        path: The feed's path, for messages.
        options: The feed's entry in ``FEEDS``, passed to a class.

    Raises:
        SettingsError: If the filter can't be imported, or is neither a function nor such a class.
    """
    if given is None:
        return None
    where = f"FEEDS[{path!r}]['item_filter']"
    try:
        found: Any = pkgutil.resolve_name(given) if isinstance(given, str) else given
        if inspect.isclass(found):
            make: Callable[..., Any] = found
            found = make(dict(options)) if inspect.signature(make).parameters else make()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise SettingsError(f"{where}: {given}: {error}", "FEEDS") from error
    accepts: Accepts = getattr(found, "accepts", found)
    if not callable(accepts):
        raise SettingsError(f"{where}: {given!r} is neither a function nor a class with accepts(item)", "FEEDS")
    return accepts
