import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, IgnoreRequest


class TokenMiddleware:
    """A downloader middleware that gets a token once, and refuses some URLs."""

    def __init__(self, settings):
        self.agents = settings.getlist("RETRY_HTTP_CODES")
        self.n = 0

    @classmethod
    def from_crawler(cls, crawler):
        mw = cls(crawler.settings)
        crawler.signals.connect(mw.spider_opened, signal=signals.spider_opened)
        return mw

    def spider_opened(self, spider):
        spider.logger.info("opened %s", spider.name)

    def process_request(self, request, spider):
        if "book-3" in request.url:
            raise IgnoreRequest("not that one")
        request.headers["X-Number"] = str(len(self.agents) > 4)
        request.headers.setdefault(b"X-Agent", str(self.agents[0]))

    def process_response(self, request, response, spider):
        if response.status == 404 and "page" in request.url:
            return response.replace(status=200, body=b"<h1>made</h1>")
        return response


class LimitsSpider(scrapy.Spider):
    name = "limits"
    allowed_domains = ["books.example"]
    start_urls = [f"http://books.example/catalogue/page-{n}.html" for n in range(1, 7)]
    custom_settings = {
        "DEPTH_LIMIT": 1,
        "DOWNLOADER_MIDDLEWARES": {TokenMiddleware: 543},
        "CONCURRENT_REQUESTS": 1,
        "LOG_LEVEL": "DEBUG",
    }

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signal=signals.spider_idle)
        crawler.signals.connect(spider.item_seen, signal=signals.item_scraped)
        spider.level = crawler.settings.get("LOG_LEVEL")
        spider.items = 0
        spider.is_asked = False
        return spider

    def item_seen(self, item):
        self.items += 1

    def idle(self, spider):
        if not self.is_asked:
            self.is_asked = True
            request = scrapy.Request("http://books.example/catalogue/book-20.html", self.parse_late, dont_filter=True)
            self.crawler.engine.crawl(request)

    def parse(self, response):
        yield {"heading": response.css("h1::text").get(), "books": len(response.css("h3")), "level": self.level}
        for a in response.css("h3 a")[:4]:
            yield response.follow(a, self.parse_book, errback=self.refused, meta={"list": response.url})

    def parse_book(self, response):
        yield {"book": response.url, "list": response.meta["list"]}
        yield response.follow(response.css("a.also")[0], self.parse_deeper)

    def parse_deeper(self, response):
        yield {"deeper": response.url}

    def refused(self, failure):
        yield {"refused": failure.request.url, "why": failure.type.__name__}

    def parse_late(self, response):
        yield {"late": True, "items": self.items > 10}
        raise CloseSpider("enough")

    def closed(self, reason):
        with open("closed.txt", "w") as f:
            f.write(reason)
