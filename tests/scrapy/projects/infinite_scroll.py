import json

import scrapy
from scrapy import Selector


class ScrollSpider(scrapy.Spider):
    name = "scroll"
    api_url = "http://api.example/scroll?page=%d"
    start_urls = [api_url % 1]
    headers = {"X-Requested-With": "XMLHttpRequest"}

    def parse(self, response):
        data = json.loads(response.text)
        selector = Selector(text=data["html"])
        for quote in selector.css("div.quote"):
            yield {"text": quote.css("span::text").get(), "page": data["page"]}
        if data["has_next"]:
            yield scrapy.Request(self.api_url % (data["page"] + 1), headers=self.headers, callback=self.parse)
        else:
            yield scrapy.Request("http://api.example/headers", headers=self.headers, callback=self.parse_headers)

    def parse_headers(self, response):
        told = response.json()
        yield {"ajax": told["x-requested-with"], "referer": told["referer"]}
