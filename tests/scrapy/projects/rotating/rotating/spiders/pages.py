import scrapy


class PagesSpider(scrapy.Spider):
    name = "pages"
    allowed_domains = ["books.example", "api.example"]
    start_urls = ["http://books.example/catalogue/page-1.html"]

    def parse(self, response):
        for href in response.css("h3 a::attr(href)").getall():
            yield response.follow(href, self.parse_book, meta={"use_proxy": True})
        yield scrapy.Request("http://api.example/headers", self.parse_told, headers={"User-Agent": "own"})
        yield scrapy.Request("http://api.example/headers?2", self.parse_told)

    def parse_book(self, response):
        yield {
            "url": response.url,
            "agent": response.meta["agent"],
            "sent": response.request.headers["User-Agent"].decode(),
            "proxy": response.meta["proxy"].rpartition("@")[2].rpartition("/")[2],
        }

    def parse_told(self, response):
        yield {"told": response.json()["user-agent"]}
