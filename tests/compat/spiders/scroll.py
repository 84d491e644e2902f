import json

import scrapy


class ScrollSpider(scrapy.Spider):
    name = "scroll"
    api_url = "http://api.example/quotes?page={}"
    start_urls = [api_url.format(1)]

    def parse(self, response):
        data = json.loads(response.text)
        for quote in data["quotes"]:
            yield {"author": quote["author"]["name"], "text": quote["text"]}
        if data["has_next"]:
            yield scrapy.Request(url=self.api_url.format(data["page"] + 1), callback=self.parse)
