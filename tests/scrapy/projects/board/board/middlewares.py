import logging

from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Request, TextResponse

from board.items import Trouble

logger = logging.getLogger(__name__)


class Tagging:
    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        crawler.signals.connect(made.spider_opened, signal=signals.spider_opened)
        return made

    def process_spider_input(self, response, spider):
        response.meta["seen"] = response.meta.get("seen", 0) + 1
        return None

    def process_spider_output(self, response, result, spider):
        for each in result:
            if isinstance(each, Request):
                each.meta["parent"] = response.url
                if "book-4" in each.url:
                    continue
            else:
                adapter = ItemAdapter(each)
                if "tags" in adapter.field_names():
                    adapter["tags"] = list(adapter.get("tags") or []) + [str(response.meta.get("depth"))]
            yield each

    async def process_spider_output_async(self, response, result, spider):
        async for each in result:
            for kept in self.process_spider_output(response, [each], spider):
                yield kept

    def process_spider_exception(self, response, exception, spider):
        return [Trouble(url=response.url, status=response.status, why=type(exception).__name__)]

    async def process_start(self, start):
        async for each in start:
            each.meta["first"] = True
            yield each

    def spider_opened(self, spider):
        spider.logger.info("Spider opened: %s" % spider.name)


class Headers:
    def __init__(self, agent):
        self.agent = agent

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.get("USER_AGENT"))

    def process_request(self, request, spider):
        request.headers.setdefault(b"User-Agent", self.agent + "/" + spider.name)
        request.headers["X-Depth"] = str(request.meta.get("depth", 0))
        if request.meta.get("canned"):
            return TextResponse(url=request.url, body="<h1>canned é</h1>", encoding="utf-8", request=request, headers={"Content-Type": "text/html"})
        if request.url.endswith("/ignored"):
            raise IgnoreRequest("ignored")


class Blocked:
    def process_response(self, request, response, spider):
        if response.status == 200 and b"Captcha" in response.body:
            spider.crawler.stats.inc_value("blocked")
            return request.replace(dont_filter=True)
        if response.status == 410:
            return HtmlResponse(response.url, status=200, body=b"<h1>replaced</h1>", encoding="utf-8", request=request)
        return response


class Fallback:
    def process_exception(self, request, exception, spider):
        logger.info("failed %s: %r", request.url, exception)
        if request.meta.get("fallback"):
            return Request(request.meta.pop("fallback"), callback=request.callback, dont_filter=True, meta=request.meta)
        return None
