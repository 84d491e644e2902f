from dataclasses import dataclass

import scrapy
from scrapy.exceptions import CloseSpider


@dataclass
class Quote:
    text: str


class EnoughSpider(scrapy.Spider):
    name = "enough"
    start_urls = ["https://quotes.toscrape.com/"]
    scraped = 0

    def parse(self, response):
        for quote in response.css("div.quote"):
            if self.scraped >= 3:
                raise CloseSpider("bandwidth_exceeded")
            self.scraped += 1
            yield Quote(text=quote.css("span.text::text").get())
        yield from response.follow_all(css="li.next a")
