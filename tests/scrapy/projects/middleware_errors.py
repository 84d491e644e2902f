import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.spidermiddlewares.httperror import HttpError


class Marks:
    def process_spider_input(self, response, spider):
        if response.url.endswith("/ok/2"):
            raise ValueError("refused by input")
        if response.url.endswith("/ok/4"):
            raise IgnoreRequest("not that one")

    async def process_spider_output(self, response, result, spider):
        async for output in result:
            if isinstance(output, dict):
                output["marked"] = response.url
            yield output

    def process_spider_exception(self, response, exception, spider):
        if isinstance(exception, KeyError):
            return [{"key_error": str(exception)}]


class Answers:
    def process_spider_exception(self, response, exception):
        if isinstance(exception, HttpError):
            return [{"status": exception.response.status}]
        if isinstance(exception, ValueError):
            yield_ = {"value_error": str(exception)}
            return iter([yield_])


class Counts:
    async def process_spider_output(self, response, result):
        count = 0
        async for output in result:
            count += isinstance(output, dict)
            yield output
        if count:
            yield {"counted": count, "at": response.url}


class ErrorsSpider(scrapy.Spider):
    name = "errors"
    custom_settings = {
        "SPIDER_MIDDLEWARES": {Marks: 100, Answers: 200, Counts: 300},
        "RETRY_ENABLED": False,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
    }

    def start_requests(self):
        site = "http://flaky.example"
        yield scrapy.Request(f"{site}/ok/1", self.parse_odd)
        yield scrapy.Request(f"{site}/ok/2", self.parse_odd, errback=self.missed)
        yield scrapy.Request(f"{site}/ok/3", self.parse_key)
        yield scrapy.Request(f"{site}/ok/4", self.parse_odd, errback=self.missed)
        yield scrapy.Request(f"{site}/ok/2?again", self.parse_value, errback=self.missed)
        yield scrapy.Request(f"{site}/always", self.parse_odd, errback=self.missed)
        yield scrapy.Request(f"{site}/missing", self.parse_odd)
        yield scrapy.Request("http://nowhere.invalid/", self.parse_odd, errback=self.missed)

    def parse_odd(self, response):
        yield {"h1": response.css("h1::text").get()}
        yield None
        yield {"last": True}

    async def parse_key(self, response):
        yield {"before": 1}
        raise KeyError("gone")

    def parse_value(self, response):
        yield {"before": 2}
        raise ValueError("no value")

    def missed(self, failure):
        yield {"missed": failure.request.url, "is_http": bool(failure.check(HttpError))}

    def close(self, reason):
        with open("closed.txt", "a") as file:
            file.write(f"{reason}\n")
