"""Detects from the first pages that JavaScript may create the content of a crawl's pages.

A beginner who selects content that a script adds to the page gets no items, or items without content, and no error.
While no callback has yielded content, this module therefore counts the HTML pages that have scripts and whose selectors
were used. Counting stops at the first request or item with content, or after :data:`MAX_PAGES` pages.
"""

from __future__ import annotations

import logging

from trawl.engine.callbacks import CallbackOutputs
from trawl.http import Response
from trawl.items import is_item, item_fields

__all__ = ["MAX_PAGES", "ScriptPages"]

logger: logging.Logger = logging.getLogger("trawl.engine")

MAX_PAGES = 50
"""Maximum number of pages that are inspected."""


class ScriptPages:
    """The pages of one crawl that have scripts and yielded nothing. Mutable.

    Attributes:
        is_open: True while no page has yielded content and fewer than :data:`MAX_PAGES` pages were inspected.
    """

    def __init__(self) -> None:
        self.is_open: bool = True
        self._count = 0
        self._first = ""
        self._looks = 0
        self._has_content = False

    def look(self, response: Response, outputs: CallbackOutputs) -> None:
        """Inspect a page whose callback has ended."""
        self._looks += 1
        self.is_open = self._looks < MAX_PAGES
        if outputs.items and not _is_empty(outputs.latest):
            self._has_content, self.is_open = True, False
        elif outputs.requests or outputs.has_query_error or not response.is_selected:
            return
        elif b"<script" in response.body[:_MOST].lower():
            self._count += 1
            self._first = self._first or response.url

    def tell(self) -> None:
        """Log a warning at the end of the crawl if there is a suspicion."""
        if self._count and not self._has_content:
            logger.warning(
                "%d HTML %s with scripts gave nothing that the selectors look for, %s for one: the content may be made "
                "by JavaScript; `trawl fetch URL` shows what the server sends (guide: Pages made by JavaScript)",
                self._count, "page" if self._count == 1 else "pages", self._first,
            )  # fmt: skip


_MOST = 2_000_000
"""Number of bytes of a page that are searched."""


def _is_empty(item: object) -> bool:
    """Return True if all values of an item are None, empty strings or empty collections."""
    try:
        values = item_fields(item).values() if is_item(item) else ()
    except Exception:
        return False
    return all(value is None or (isinstance(value, str | list | tuple | dict) and not value) for value in values)
