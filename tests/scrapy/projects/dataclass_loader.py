import dataclasses
from typing import Optional

import scrapy
from itemloaders.processors import Compose, Identity, MapCompose, SelectJmes, TakeFirst
from scrapy.loader import ItemLoader


@dataclasses.dataclass
class Book:
    title: Optional[str] = None
    price: Optional[float] = None
    images: list = dataclasses.field(default_factory=list)
    rating: Optional[int] = None
    url: Optional[str] = None


class BookLoader(ItemLoader):
    default_item_class = Book
    default_output_processor = TakeFirst()
    title_in = MapCompose(str.strip, str.title)
    price_in = MapCompose(lambda v: v.replace("£", "").strip(), lambda v: float(v) if v[:1].isdigit() else None)
    images_out = Identity()
    images_in = MapCompose(lambda src, loader_context: loader_context["response"].urljoin(src))
    rating_out = Compose(TakeFirst(), lambda v: {"One": 1, "Two": 2, "Three": 3}.get(v))


class LoaderSpider(scrapy.Spider):
    name = "loader"
    start_urls = [f"http://books.example/catalogue/book-{n}.html" for n in range(8)]

    def parse(self, response):
        loader = BookLoader(item=Book(), response=response)
        loader.add_xpath("title", "//h1/text()")
        loader.add_css("price", ".price_color::text")
        loader.add_css("images", "img::attr(src)")
        nested = loader.nested_css("p.star-rating")
        nested.add_xpath("rating", "./@class", re=r"star-rating (\w+)")
        loader.add_value("url", response.url)
        assert SelectJmes("a.b")({"a": {"b": 1}}) == 1
        yield loader.load_item()
