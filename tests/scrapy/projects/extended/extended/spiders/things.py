import scrapy


class ThingsSpider(scrapy.Spider):
    name = "things"
    start_urls = ["http://books.example/catalogue/page-1.html"]

    def parse(self, response, started=False):
        for href in response.css("h3 a::attr(href)").getall():
            yield response.follow(href.split("?")[0], callback=self.parse_thing, errback=self.failed)
        yield scrapy.Request("http://books.example/app", callback=self.parse_app, meta={"render": True})
        yield {"started": started}

    def parse_thing(self, response):
        if response.url.endswith("-1.html"):
            raise KeyError("sku")
        if response.url.endswith("-0.html"):
            raise ValueError("no handler takes this")
        yield {"h1": " ".join(response.css("h1::text").get().split())}

    def parse_app(self, response):
        yield {"app": response.css("h1::text").get(), "n": response.css("#n::text").get(), "class": type(response).__name__}

    def failed(self, failure):
        yield {"ignored": failure.request.url, "why": failure.type.__name__}
