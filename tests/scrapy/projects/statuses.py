import scrapy


class StatusSpider(scrapy.Spider):
    name = "statuses"
    handle_httpstatus_list = [404, 410]
    custom_settings = {"RETRY_TIMES": 1, "RETRY_HTTP_CODES": [500], "HTTPERROR_ALLOWED_CODES": [301]}

    def start_requests(self):
        yield scrapy.Request("http://flaky.example/missing", self.parse)
        yield scrapy.Request("http://flaky.example/gone", self.parse)
        yield scrapy.Request("http://flaky.example/hop/2", self.parse)
        yield scrapy.Request("http://flaky.example/hop/1?x", self.parse, meta={"dont_redirect": True})
        yield scrapy.Request("http://flaky.example/always?1", self.parse, meta={"handle_httpstatus_all": True})
        yield scrapy.Request("http://flaky.example/always?2", self.parse, meta={"dont_retry": True})
        yield scrapy.Request(
            "http://flaky.example/always?3", self.parse, meta={"handle_httpstatus_list": [500], "dont_retry": True}
        )

    def parse(self, response):
        yield {
            "url": response.url,
            "status": response.status,
            "redirects": response.meta.get("redirect_times", 0),
            "redirect_urls": response.meta.get("redirect_urls"),
            "retries": response.meta.get("retry_times", 0),
            "location": response.headers.get("Location", b"").decode(),
        }
