import json

import scrapy
from scrapy.exceptions import CloseSpider


class EnoughSpider(scrapy.Spider):
    name = "enough"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    max_pages = 3
    pages = 0

    def __init__(self, max_pages=None, *a, **kw):
        super(EnoughSpider, self).__init__(*a, **kw)
        if max_pages:
            self.max_pages = int(max_pages)

    def parse(self, response):
        self.pages += 1
        for row in response.css("article"):
            yield {"id": row.attrib["data-id"], "page": self.pages}
        if self.pages >= self.max_pages:
            raise CloseSpider("page limit reached")
        yield response.follow(response.css("li.next a")[0], self.parse)

    def closed(self, reason):
        stats = self.crawler.stats.get_stats()
        with open("closed.json", "w") as f:
            json.dump({"reason": reason, "pages": self.pages, "items": stats.get("item_scraped_count")}, f)
