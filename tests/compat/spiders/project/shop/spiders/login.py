import scrapy
from scrapy.http import FormRequest, HtmlResponse
from scrapy.exceptions import CloseSpider
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.response import open_in_browser
from scrapy.shell import inspect_response
from twisted.internet.error import DNSLookupError, TCPTimedOutError, TimeoutError


class LoginSpider(scrapy.Spider):
    name = "login"
    custom_settings = {"ITEM_PIPELINES": {}, "DOWNLOAD_DELAY": 0.05}

    def start_requests(self):
        yield scrapy.Request(f"{self.base}/login", self.parse, meta={"cookiejar": 1}, errback=self.failed)

    def parse(self, response):
        return FormRequest.from_response(
            response,
            formdata={"username": "anna", "password": "secret"},
            callback=self.after_login,
            meta={"cookiejar": response.meta["cookiejar"]},
        )

    def after_login(self, response):
        if "authentication failed" in response.text:
            self.logger.error("Login failed")
            return
        assert isinstance(response, HtmlResponse)
        yield {"user": response.css("b::text").get(), "agent": str(response.request.headers.get("User-Agent"))}
        raise CloseSpider("done")

    def failed(self, failure):
        self.logger.error(repr(failure))
        if failure.check(HttpError):
            self.logger.error("HttpError on %s", failure.value.response.url)
        elif failure.check(DNSLookupError):
            self.logger.error("DNS %s", failure.request.url)
