"""Items held to a type while the crawl runs: a hook around callbacks, which knows the page that an item is from."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, get_args, get_origin

from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.items import InvalidItem, is_item, item_fields
from trawl.items.validating import Check, NotValid, check_of, type_name
from trawl.observe import Stats
from trawl.spiders.spider import Spider
from trawl.throttling.configuration import load_object

__all__ = ["ItemCheck", "item_check", "item_type_of"]

logger: logging.Logger = logging.getLogger("trawl.items")

OF_THE_SPIDER = "spider"
"""The value of ``ITEM_TYPE`` that means the type that the spider's class names."""


class ItemCheck:
    """The hook: what is not valid is counted and logged, and goes on as an :class:`InvalidItem` or not at all."""

    def __init__(self, kind: Any, stats: Stats, *, keeps: bool) -> None:
        """Hold items to ``kind``; those that are not valid go on if it ``keeps`` them.

        Raises:
            TypeError: ``kind`` is no type of items.
        """
        self._check: Check = check_of(kind)
        self._name = type_name(kind)
        self._stats = stats
        self._keeps = keeps

    async def __call__(self, response: Response | None, outputs: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The outputs of a callback, with items that are what they should be."""
        async for output in outputs:
            checked = output if isinstance(output, Request) else self._checked(output, response)
            if checked is not None:
                yield checked

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The same for what ``start()`` gives."""
        async for output in self(None, start):
            yield output

    def _checked(self, output: Any, response: Response | None) -> Any:
        if not is_item(output) or isinstance(output, InvalidItem):
            return output
        try:
            return self._check(output)
        except NotValid as error:
            url = "" if response is None else response.url
            self._stats.inc("item_invalid_count")
            logger.warning("an item of %s is no %s: %s", url or "start()", self._name, error)
            return InvalidItem(url, str(error), self._name, item_fields(output)) if self._keeps else None


def item_check(spider: Spider[Any], settings: Mapping[str, Any], stats: Stats) -> ItemCheck | None:
    """The hook that ``ITEM_TYPE`` asks for; None if it asks for none.

    Raises:
        SettingsError: It names no type of items, or the spider's class names none.
    """
    wanted = settings.get("ITEM_TYPE")
    if wanted is None or wanted == "":
        return None
    kind = item_type_of(type(spider)) if wanted == OF_THE_SPIDER else load_object(wanted, "ITEM_TYPE")
    if kind is None:
        name = type(spider).__name__
        raise SettingsError(f"ITEM_TYPE: {name} does not say its type of items: {name}(Spider[Quote])", "ITEM_TYPE")
    try:
        return ItemCheck(kind, stats, keeps=settings.get("INVALID_ITEMS") == "keep")
    except TypeError as error:
        raise SettingsError(f"ITEM_TYPE: {error}", "ITEM_TYPE") from error


def item_type_of(spider: type) -> Any:
    """The type that a spider's class, or one that it derives from, is generic in; None if it names none."""
    for kind in spider.__mro__:
        for base in vars(kind).get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Spider) and not hasattr(get_args(base)[0], "__bound__"):
                return get_args(base)[0]
    return None
