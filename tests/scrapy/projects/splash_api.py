from urllib.parse import urljoin

import scrapy
from scrapy.http import JsonRequest


class RenderedSpider(scrapy.Spider):
    """Pages that a Splash server renders, by its HTTP API."""

    name = "rendered"
    splash_url = "http://splash.example:8050"

    def start_requests(self):
        yield self.rendered("http://shop.example/quotes")
        yield scrapy.Request(f"{self.splash_url}/render.html?url=http://shop.example/get&wait=0.5", self.parse_get)

    def rendered(self, url, **kwargs):
        return JsonRequest(
            f"{self.splash_url}/render.html", data={"url": url, "wait": 1}, cb_kwargs={"url": url}, callback=self.parse, **kwargs
        )

    def parse(self, response, url):
        yield {"url": url, "heading": response.css("h1::text").get(), "status": response.status}
        for href in response.css("a.next::attr(href)").getall():
            yield self.rendered(urljoin(url, href))
            yield JsonRequest(
                f"{self.splash_url}/render.json",
                data={"url": urljoin(url, href), "html": 1, "iframes": 0},
                callback=self.parse_json,
            )

    def parse_get(self, response):
        yield {"get": response.css("h1::text").get()}

    def parse_json(self, response):
        data = response.json()
        yield {"json": data["url"], "heading": scrapy.Selector(text=data["html"]).css("h1::text").get()}
