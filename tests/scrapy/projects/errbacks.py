import scrapy
from scrapy.exceptions import CannotResolveHostError, DownloadTimeoutError, IgnoreRequest
from scrapy.spidermiddlewares.httperror import HttpError


class ErrbackSpider(scrapy.Spider):
    name = "errbacks"
    custom_settings = {"RETRY_ENABLED": False, "DOWNLOAD_TIMEOUT": 15}
    urls = [
        "http://flaky.example/ok/1",
        "http://flaky.example/missing",
        "http://flaky.example/always",
        "http://no-such-host.invalid/",
        "http://flaky.example/loop",
    ]

    def start_requests(self):
        for n, u in enumerate(self.urls):
            yield scrapy.Request(u, callback=self.parse_page, errback=self.errback, dont_filter=True, meta={"n": n})

    def parse_page(self, response):
        yield {"n": response.meta["n"], "h1": response.css("h1::text").get()}

    def errback(self, failure):
        self.logger.error(repr(failure))
        n = failure.request.meta["n"]
        if failure.check(HttpError):
            response = failure.value.response
            yield {"n": n, "error": "http", "status": response.status, "url": response.url}
        elif failure.check(CannotResolveHostError):
            yield {"n": n, "error": "dns", "url": failure.request.url}
        elif failure.check(DownloadTimeoutError, TimeoutError):
            yield {"n": n, "error": "timeout"}
        elif failure.check(IgnoreRequest):
            yield {"n": n, "error": "ignored"}
        else:
            yield {"n": n, "error": "other"}
