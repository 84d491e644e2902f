import json
import re

import scrapy
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter


class ByPathFilter(BaseDupeFilter):
    """One page a path, whatever stands in the query; keeps a list of what was left out."""

    def __init__(self):
        self.paths = set()
        self.skipped = []

    @classmethod
    def from_crawler(cls, crawler):
        filter_ = cls()
        filter_.site = crawler.settings.get("SITE_NAME", "books")
        return filter_

    def open(self):
        self.paths.add("http://books.example/catalogue/book-1.html")

    def request_seen(self, request):
        path = re.sub(r"[?#].*", "", request.url)
        if path in self.paths:
            return True
        self.paths.add(path)
        return False

    def log(self, request, spider):
        self.skipped.append(request.url)

    def close(self, reason):
        with open("skipped.json", "w") as f:
            json.dump({"reason": reason, "skipped": sorted(self.skipped)}, f)


class ByPathSpider(scrapy.Spider):
    name = "by_path"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"DUPEFILTER_CLASS": ByPathFilter}

    def parse(self, response):
        for link in response.css("h3 a"):
            for shelf in ("a", "b"):
                yield response.follow(link.attrib["href"].split("?")[0] + f"?shelf={shelf}", self.parse_book)
        yield scrapy.Request("http://flaky.example/hop/2", self.parse_hop)
        yield scrapy.Request("http://flaky.example/hop/1", self.parse_hop)
        yield response.follow("book-2.html?again=1", self.parse_book, dont_filter=True)

    def parse_book(self, response):
        yield {"url": response.url, "title": response.css("h1::text").get().strip()}

    def parse_hop(self, response):
        yield {"url": response.url, "hops": response.meta.get("redirect_urls")}
