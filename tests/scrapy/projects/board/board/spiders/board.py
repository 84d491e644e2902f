import scrapy

from board.items import Book, Trouble


class BoardSpider(scrapy.Spider):
    name = "board"
    allowed_domains = ["books.example", "flaky.example", "nowhere.test", "api.example"]
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"MIN_PRICE": 12.0}

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.limit = crawler.settings.getfloat("MIN_PRICE")
        return spider

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.links = kwargs.get("links", "h3 a")

    def parse(self, response):
        yield from response.follow_all(css=self.links, callback=self.parse_book, errback=self.failed)
        for path in ("/ban", "/gone", "/canned", "/ignored", "/missing", "/boom"):
            yield scrapy.Request("http://flaky.example" + path, self.parse_flaky, errback=self.failed, meta={"canned": path == "/canned"})
        yield scrapy.Request("http://nowhere.test/dead", self.parse_flaky, errback=self.failed, meta={"fallback": "http://flaky.example/ok/7", "dont_obey_robotstxt": True})
        yield scrapy.Request("http://elsewhere.example/", self.parse_flaky)
        yield scrapy.Request("http://flaky.example/ok/5", self.parse_boom)

    def parse_book(self, response):
        yield Book(
            title=response.css("h1::text").get().strip(),
            price=response.css(".price_color::text").get("").strip(),
            tags=response.css("li.tag::text").getall(),
            url=response.url,
            by=response.meta["parent"],
        )

    def parse_flaky(self, response):
        yield Trouble(response.url, response.status, response.css("h1::text").get(), [str(response.meta.get("first")), str(response.meta["seen"])])

    def parse_boom(self, response):
        yield Trouble(response.url, 0, f"before {self.limit}")
        1 / 0

    def failed(self, failure):
        yield Trouble(failure.request.url, -1, failure.type.__name__)
