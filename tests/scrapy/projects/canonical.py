import scrapy


class CanonicalSpider(scrapy.Spider):
    """The same pages under many addresses: each is wanted once."""

    name = "canonical"
    paths = [
        "/search?q=caf%C3%A9&z=1",
        "/search?z=1&q=caf%c3%a9",
        "/search?q=café&z=1",
        "/search?q=night%20day",
        "/search?q=night+day",
        "/search?q=ubik",
        "/search?q=ubik#top",
        "/search?q=ubik&",
        "/search?&q=ubik",
        "/search?q=%75bik",
        "/catalogue/book-1.html",
        "/catalogue/book-1.html?",
        "/catalogue/../catalogue/book-1.html",
        "/catalogue/book-1.html?a=&b=2",
        "/catalogue/book-1.html?b=2&a=",
        "/catalogue/book-1.html?b=2",
    ]

    def start_requests(self):
        yield scrapy.Request("http://books.example/", callback=self.parse_home)

    def parse_home(self, response):
        for path in self.paths:
            yield scrapy.Request("http://books.example" + path, callback=self.parse)
            yield scrapy.Request(response.urljoin(path), callback=self.parse)

    def parse(self, response):
        yield {"title": response.css("title::text").get(), "count": response.css("p.count::text").get()}
