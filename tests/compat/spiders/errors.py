import scrapy


class ErrbackSpider(scrapy.Spider):
    name = "errors"
    start_urls = [
        "http://www.shop.example/",  # HTTP 200 expected
        "http://status.example/404",
        "http://status.example/500",
        "http://no-such-host.example/",
    ]
    custom_settings = {"RETRY_TIMES": 1}

    def start_requests(self):
        for u in self.start_urls:
            yield scrapy.Request(u, callback=self.parse_httpbin, errback=self.errback_httpbin, dont_filter=True)

    def parse_httpbin(self, response):
        self.logger.info("Got successful response from %s", response.url)
        yield {"url": response.url, "status": response.status}

    def errback_httpbin(self, failure):
        self.logger.error(repr(failure))
        response = getattr(failure.value, "response", None)
        if response is not None:
            yield {"url": response.url, "status": response.status, "retries": response.meta.get("retry_times", 0)}
        else:
            request = failure.request
            yield {"url": request.url, "status": None, "retries": request.meta.get("retry_times", 0)}
