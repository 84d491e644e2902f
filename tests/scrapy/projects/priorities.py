import scrapy


class PrioritySpider(scrapy.Spider):
    name = "priorities"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    visited = 0

    def parse(self, response):
        for n, link in enumerate(response.css("h3 a::attr(href)").getall()):
            yield response.follow(link, self.parse_book, priority=(n * 7) % 6, cb_kwargs=dict(n=n))
        yield response.follow("page-2.html", self.parse_book, priority=-10, cb_kwargs=dict(n="last"))
        yield response.follow("page-3.html", self.parse_book, priority=100, cb_kwargs=dict(n="first"))

    def parse_book(self, response, n):
        self.visited += 1
        yield {"n": n, "visited": self.visited, "priority": response.request.priority}
        if n == "first":
            yield scrapy.Request(response.url, self.parse_book, dont_filter=True, cb_kwargs={"n": "again"}, priority=-99)
