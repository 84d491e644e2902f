import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, TextResponse


class Canned:
    def process_request(self, request, spider):
        if "canned" in request.url:
            return HtmlResponse(request.url, body="<h1>Canned</h1>", encoding="utf-8", request=request)
        if "ignore" in request.url:
            raise IgnoreRequest("not that one")
        if "boom" in request.url:
            raise ValueError("no token")
        return None

    def process_exception(self, request, exception, spider):
        if isinstance(exception, ValueError):
            return TextResponse(request.url, body=b"saved", encoding="utf-8", request=request)
        return None


class Traces:
    def process_request(self, request, spider):
        request.meta.setdefault("trace", []).append("request")

    def process_response(self, request, response, spider):
        request.meta.setdefault("trace", []).append(f"response {response.status}")
        return response

    def process_exception(self, request, exception, spider):
        request.meta.setdefault("trace", []).append(type(exception).__name__)


class CannedAnswersSpider(scrapy.Spider):
    name = "canned_answers"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Canned: 543, Traces: 700}, "ROBOTSTXT_OBEY": False}

    def start_requests(self):
        for path in ("canned", "ignore", "boom", "catalogue/book-1.html"):
            yield scrapy.Request(f"http://books.example/{path}", callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "text": response.text[:20], "trace": response.meta["trace"]}

    def failed(self, failure):
        yield {"failed": failure.request.url, "type": failure.type.__name__, "trace": failure.request.meta["trace"]}
