from itemadapter import is_item
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse


class DeltaMiddleware:
    """Skips pages whose item is known, as scrapy-deltafetch does."""

    def __init__(self, stats):
        self.known = {"http://books.example/catalogue/book-2.html", "http://books.example/catalogue/book-3.html"}
        self.stats = stats

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.stats)

    def process_spider_output(self, response, result, spider):
        for each in result:
            if isinstance(each, Request):
                if each.url.split("?")[0] in self.known:
                    self.stats.inc_value("middleware/skipped", spider=spider)
                    continue
            elif is_item(each):
                self.stats.inc_value("middleware/stored", spider=spider)
            yield each

    async def process_spider_output_async(self, response, result, spider):
        async for each in result:
            for kept in self.process_spider_output(response, [each], spider):
                yield kept


class ExtendedSpiderMiddleware:
    @classmethod
    def from_crawler(cls, crawler):
        s = cls()
        crawler.signals.connect(s.spider_opened, signal=signals.spider_opened)
        return s

    def process_spider_input(self, response, spider):
        return None

    def process_spider_output(self, response, result, spider):
        for i in result:
            yield i

    async def process_spider_output_async(self, response, result, spider):
        async for i in result:
            yield i

    def process_spider_exception(self, response, exception, spider):
        if isinstance(exception, KeyError):
            return [{"failed": response.url, "key": exception.args[0]}]

    async def process_start(self, start):
        async for r in start:
            yield r.replace(cb_kwargs={"started": True})

    def spider_opened(self, spider):
        spider.logger.info("Spider opened: %s" % spider.name)


class RenderMiddleware:
    """Answers some requests itself, as a middleware around a browser does."""

    def process_request(self, request, spider):
        if request.meta.get("render"):
            body = "<html><h1>%s</h1><p id=n>rendered</p></html>" % request.url
            return HtmlResponse(url=request.url, body=body, encoding="utf-8", request=request)
        if "book-4" in request.url:
            raise IgnoreRequest("not this one")
        return None

    def process_response(self, request, response, spider):
        if "book-5" in request.url and response.status == 200:
            return response.replace(body=response.body.replace(b"<h1>", b"<h1>replaced "))
        return response
