import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Optional

import scrapy


def in_cents(value):
    return int(value * 100)


class Product(scrapy.Item):
    name = scrapy.Field(serializer=str.upper)
    price = scrapy.Field(serializer=in_cents)
    at = scrapy.Field()
    note = scrapy.Field()


@dataclass
class Row:
    id: int
    when: datetime.date
    amount: Decimal = Decimal("1.10")
    tags: list = field(default_factory=list)
    other: Optional[str] = None


class SerializersSpider(scrapy.Spider):
    name = "serializers"
    start_urls = ["http://books.example/catalogue/page-2.html"]
    custom_settings = {
        "FEEDS": {"out/%(name)s.json": {"format": "json", "encoding": "utf8", "indent": 2, "fields": ["name", "price"]}},
        "FEED_EXPORT_ENCODING": "utf-8",
    }

    def parse(self, response):
        for product in response.css("article.product")[:3]:
            item = Product()
            item["name"] = product.css("h3 a::attr(title)").get()
            item["price"] = float(product.css(".price::text").re_first(r"[\d.]+"))
            item["at"] = datetime.datetime(2024, 1, 2, 3, 4, 5)
            yield item
        yield Row(id=7, when=datetime.date(2024, 2, 3), tags=["a", "b"])
