import scrapy
from scrapy.exceptions import IgnoreRequest


class DeepHeaders:
    def process_request(self, request, spider):
        request.headers["X-Depth"] = str(request.meta.get("depth", "start"))
        if request.meta.get("depth", 0) > 2:
            raise IgnoreRequest("too deep")


class Branches:
    def process_spider_output(self, response, result, spider):
        for each in result:
            if isinstance(each, scrapy.Request):
                each.meta["trail"] = response.meta.get("trail", []) + [each.meta.get("depth")]
                if each.meta.get("depth", 0) == 2 and "book-1" in each.url:
                    each = each.replace(url=each.url + "?deep=1")
            yield each

    async def process_spider_output_async(self, response, result, spider):
        async for each in result:
            for kept in self.process_spider_output(response, [each], spider):
                yield kept


class DepthSpider(scrapy.Spider):
    name = "depth_seen"
    start_urls = ["http://books.example/catalogue/book-1.html"]
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "DOWNLOADER_MIDDLEWARES": {DeepHeaders: 100},
        "SPIDER_MIDDLEWARES": {Branches: 543},
    }

    def parse(self, response):
        yield {"url": response.url, "depth": response.meta["depth"], "trail": response.meta.get("trail")}
        yield from response.follow_all(css="a.also", callback=self.parse)
        for page in response.css(".breadcrumb li:nth-child(2) a::attr(href)").getall():
            yield response.follow(page, self.parse_page, meta=response.meta)

    def parse_page(self, response):
        yield {"page": response.url, "depth": response.meta["depth"], "trail": response.meta.get("trail")}
        yield response.follow("book-1.html", self.parse, meta={"depth": 0, "mine": 1})
        yield response.follow("book-19.html", self.parse)
