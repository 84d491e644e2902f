import datetime

import scrapy


class CsvSpider(scrapy.Spider):
    name = "csv_feed"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {
        "FEED_EXPORT_FIELDS": ["id", "title", "tags", "price", "seen", "extra", "flag", "missing"],
    }

    def parse(self, response):
        for n, product in enumerate(response.css("article.product")):
            yield {
                "title": product.css("h3 a::attr(title)").get() + (' "quoted", with\nnewline' if n == 1 else ""),
                "id": n,
                "tags": ["a", "b;c", "d,e"][:n],
                "price": 1.0 * n / 3,
                "seen": datetime.datetime(2024, 1, n + 1, 12),
                "extra": {"x": n} if n == 2 else None,
                "flag": n % 2 == 0,
                "not_exported": "x",
            }
