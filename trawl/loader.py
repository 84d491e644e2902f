"""Item loaders at Scrapy's import path. They come from the package itemloaders (extra ``loaders``)."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import parsel

from trawl.errors import UsageError
from trawl.http import Response
from trawl.items import Item
from trawl.selectors import MixedQuery, Selector

try:
    import itemloaders
except ImportError as _missing:
    raise UsageError("trawl.loader needs the extra loaders: pip install 'trawl-crawler[loaders]'") from _missing

__all__ = ["ItemLoader"]


def _named(error: MixedQuery, method: str) -> MixedQuery:
    """Return the error with names of loader methods. ``method`` is the called method, such as ``add_css``."""
    act = method.partition("_")[0]
    return error.named(f"{act}_css(...)", f"{act}_xpath(...)")


class ItemLoader(itemloaders.ItemLoader):
    """Fills an item from a page: ``ItemLoader(item=Quote(), response=response)``. Has the methods of itemloaders.

    >>> loader = ItemLoader({}, response=HtmlResponse("http://a.example/", body="<h1> Emma </h1>"))
    >>> _ = loader.add_css("title", "h1::text", MapCompose(str.strip))
    >>> loader.load_item()
    {'title': ['Emma']}
    """

    default_item_class: type = Item
    default_selector_class: type[parsel.Selector] = Selector

    def __init__(
        self,
        item: Any = None,
        selector: parsel.Selector | None = None,
        response: Response | None = None,
        parent: itemloaders.ItemLoader | None = None,
        **context: Any,
    ) -> None:
        """Create a loader for one item.

        Args:
            item: The item to fill; None for a new ``default_item_class``.
            selector: The part of the page for ``add_css`` and ``add_xpath``; None for the whole ``response``.
            response: The page. Processors get it in their context as ``response``.
            parent: The outer loader, if this loader is nested.
            context: Other values in the context of processors.
        """
        if selector is None and response is not None:
            with suppress(AttributeError):  # in a moved spider, a binary response has no selector
                selector = response.selector
        context.update(response=response)
        super().__init__(item=item, selector=selector, parent=parent, **context)

    def _get_cssvalues(self, *arguments: Any, **options: Any) -> list[Any]:
        try:
            return super()._get_cssvalues(*arguments, **options)
        except MixedQuery as error:
            raise _named(error, sys._getframe(1).f_code.co_name) from None

    def _get_xpathvalues(self, *arguments: Any, **options: Any) -> list[Any]:
        try:
            return super()._get_xpathvalues(*arguments, **options)
        except MixedQuery as error:
            raise _named(error, sys._getframe(1).f_code.co_name) from None

    def nested_css(self, css: str, **context: Any) -> Any:
        """Return a loader of the same item for the part of the page that ``css`` selects.

        Raises:
            MixedQuery: If ``css`` is XPath.
        """
        try:
            return super().nested_css(css, **context)
        except MixedQuery as error:
            raise _named(error, "nested_css") from None

    def nested_xpath(self, xpath: str, **context: Any) -> Any:
        """Return a loader of the same item for the part of the page that ``xpath`` selects.

        Raises:
            MixedQuery: If ``xpath`` is CSS.
        """
        try:
            return super().nested_xpath(xpath, **context)
        except MixedQuery as error:
            raise _named(error, "nested_css") from None

    def _get_item_field_attr(self, field_name: str, key: Any, default: Any = None) -> Any:
        """Return the value of ``key``, such as ``input_processor``, in an item's :class:`trawl.items.Field`.

        Raises:
            KeyError: If the item has no such field.
        """
        if isinstance(self.item, Item):
            return type(self.item).fields[field_name].get(key, default)
        return super()._get_item_field_attr(field_name, key, default)
