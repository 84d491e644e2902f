from dataclasses import dataclass, field
from typing import Optional

import scrapy


class Book(scrapy.Item):
    title = scrapy.Field()
    price = scrapy.Field(serializer=lambda v: f"{v:.2f} EUR" if v is not None else "")
    tags = scrapy.Field()
    url = scrapy.Field()
    by = scrapy.Field()
    stock = scrapy.Field()


@dataclass
class Trouble:
    url: str
    status: int = 0
    why: Optional[str] = None
    tags: list = field(default_factory=list)
