from datetime import date, datetime
from decimal import Decimal

import scrapy

from exports.items import Product, Seen


class ProductsSpider(scrapy.Spider):
    name = "products"
    start_urls = ["http://books.example/catalogue/page-1.html"]

    def parse(self, response):
        titles = response.css("h3 a::text").getall()
        yield Product(tags=["new", "é, ü"], name=titles[0], price=Decimal("51.77"), stock=True, category="a")
        yield Product(
            name=titles[1],
            details={"pages": 10, "rates": [1, 2.5, float("inf")], "by": {"name": "A & <b>", "born": None}},
            seen=datetime(2024, 5, 6, 7, 8, 9),
            stock=None,
            category="b",
        )
        yield {"name": 'Say "hi",\nline', "price": 3, "tags": ("a", 1), "seen": date(2024, 5, 6), "extra": "no column"}
        yield Product(name=titles[0], tags=[], price=None, category="a")
        yield Seen("seen")
