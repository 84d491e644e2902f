"""Item loaders, as Scrapy's users write them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from itemloaders.processors import Join, MapCompose, TakeFirst

import trawl
from trawl.compat.messages import ScrapyResponse
from trawl.http import Response
from trawl.loader import ItemLoader
from trawl.testing import SimulatedWeb, simulate


class Product(trawl.Item):
    name = trawl.Field(input_processor=MapCompose(str.strip), output_processor=TakeFirst())
    tags = trawl.Field(output_processor=Join())
    url = trawl.Field(output_processor=TakeFirst())


@dataclasses.dataclass
class Plain:
    name: str | None = None


class PlainLoader(ItemLoader):
    default_item_class = Plain
    default_output_processor = TakeFirst()


PAGE = "<title> Chair </title><div id=tags><b>red</b><b>low</b></div>"


@pytest.mark.parametrize("nested", [False, True])
def test_an_item_is_filled_from_a_page(nested: bool) -> None:
    class Shop(trawl.Spider):
        name = "shop"
        start_urls = ["http://a.example/"]

        def parse(self, response: Any) -> Any:
            loader = ItemLoader(item=Product(), response=response)
            loader.add_css("name", "title::text")
            inner = loader.nested_css("#tags") if nested else loader
            inner.add_xpath("tags", ".//b/text()")
            loader.add_value("url", loader.context["response"].url)
            yield loader.load_item()
            plain = PlainLoader(selector=response.selector)
            plain.add_css("name", "title::text", re=r"\w+")
            yield plain.load_item()

    web = SimulatedWeb()
    web.add_page("http://a.example/", body=PAGE)
    items = simulate(Shop, web).items
    assert items == [{"name": "Chair", "tags": "red low", "url": "http://a.example/"}, Plain("Chair")]
    assert isinstance(items[0], Product)


def test_a_loader_refuses_a_field_that_its_item_does_not_have_and_takes_a_page_without_text() -> None:
    loader = ItemLoader(item=Product())
    with pytest.raises(KeyError, match="price"):
        loader.add_value("price", 3)
    image = Response("http://a.example/a.png", headers={"Content-Type": "image/png"}, body=b"\x89PNG\x01")
    assert ItemLoader(item=Product(), response=image.replace(cls=ScrapyResponse)).selector is None
