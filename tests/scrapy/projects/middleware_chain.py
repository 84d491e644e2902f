import scrapy
from scrapy.exceptions import IgnoreRequest


class Base:
    def process_request(self, request, spider):
        self.note(request, "request")
        if request.meta.get("way") == f"request in {type(self).__name__}":
            raise KeyError("request")

    def process_response(self, request, response, spider):
        self.note(request, f"response {response.status}")
        way, who = request.meta.get("way"), type(self).__name__
        if way == f"ignore in {who}":
            raise IgnoreRequest(who)
        if way == f"raise in {who}":
            raise KeyError(who)
        return response

    def process_exception(self, request, exception, spider):
        self.note(request, f"exception {type(exception).__name__}")

    def note(self, request, what):
        request.meta.setdefault("notes", []).append(f"{type(self).__name__} {what}")


class Outer(Base):
    pass


class Middle(Base):
    pass


class Inner(Base):
    pass


class ChainSpider(scrapy.Spider):
    name = "middleware_chain"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "DOWNLOADER_MIDDLEWARES": {Outer: 100, Middle: 543, Inner: 950},
        "RETRY_ENABLED": False,
    }
    ways = ("none", "ignore in Inner", "raise in Inner", "raise in Middle", "ignore in Outer", "raise in Outer", "ignore in Middle", "request in Middle", "request in Inner", "request in Outer")

    def start_requests(self):
        for n, way in enumerate(self.ways):
            yield scrapy.Request(f"http://books.example/catalogue/book-{n}.html", self.parse, meta={"way": way}, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "notes": response.meta["notes"]}

    def failed(self, failure):
        yield {
            "failed": failure.request.url,
            "is": [bool(failure.check(each)) for each in (IgnoreRequest, KeyError)],
            "value": isinstance(failure.value, KeyError),
            "text": str(failure.value),
            "notes": failure.request.meta["notes"],
        }
