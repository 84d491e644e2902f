"""Item loaders where Scrapy's users look for them: those of itemloaders, which the extra ``loaders`` brings."""

from __future__ import annotations

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


class ItemLoader(itemloaders.ItemLoader):
    """Fills an item from a page: ``ItemLoader(item=Quote(), response=response)``, with itemloaders' own methods.

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
        """A loader of one item.

        Args:
            item: What is filled; a new ``default_item_class`` if None.
            selector: Where ``add_css`` and ``add_xpath`` look; the whole ``response`` if None.
            response: The page; processors find it in their context as ``response``.
            parent: The loader that this is nested in.
            context: What else processors find there.
        """
        if selector is None and response is not None:
            selector = response.selector
        context.update(response=response)
        super().__init__(item=item, selector=selector, parent=parent, **context)

    def _get_cssvalues(self, *arguments: Any, **options: Any) -> list[Any]:
        try:
            return super()._get_cssvalues(*arguments, **options)
        except MixedQuery as error:
            raise error.named("add_css(...)", "add_xpath(...)") from None

    def _get_xpathvalues(self, *arguments: Any, **options: Any) -> list[Any]:
        try:
            return super()._get_xpathvalues(*arguments, **options)
        except MixedQuery as error:
            raise error.named("add_css(...)", "add_xpath(...)") from None

    def _get_item_field_attr(self, field_name: str, key: Any, default: Any = None) -> Any:
        """Get what an item's :class:`trawl.items.Field` declares: ``input_processor``, ``output_processor``."""
        if isinstance(self.item, Item):
            return type(self.item).fields.get(field_name, {}).get(key, default)
        return super()._get_item_field_attr(field_name, key, default)
