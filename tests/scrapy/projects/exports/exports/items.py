from dataclasses import dataclass, field
from datetime import datetime

import scrapy


def serialize_price(value):
    return f"£ {value}"


class Product(scrapy.Item):
    name = scrapy.Field()
    price = scrapy.Field(serializer=serialize_price)
    stock = scrapy.Field()
    tags = scrapy.Field()
    details = scrapy.Field()
    seen = scrapy.Field()
    category = scrapy.Field()


@dataclass
class Seen:
    name: str
    at: datetime = datetime(2024, 5, 6, 7, 8)
    code: str = field(default="x", metadata={"serializer": str.upper})
    sizes: tuple = (1, 2.5)


class Never(scrapy.Item):
    pass
