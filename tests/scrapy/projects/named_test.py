import scrapy


class TestSpider(scrapy.Spider):
    """A first spider, never renamed."""

    name = "test"
    start_urls = ["http://books.example/catalogue/page-1.html", "http://books.example/catalogue/page-1.html"]

    def parse(self, response):
        with open("page.html", "wb") as f:
            f.write(response.body)
        for t in response.css("h3 a::attr(title)").extract():
            yield {"t": t}
        yield scrapy.Request("http://books.example/catalogue/page-1.html", callback=self.parse_again)
        yield scrapy.Request("http://ads.example/", callback=self.parse_again)

    def parse_again(self, response):
        yield {"again": response.url, "status": response.status}
