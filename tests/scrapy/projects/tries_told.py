import scrapy


class TriesSpider(scrapy.Spider):
    """Tells how often a page was tried; a 503 is a refusal here, which is no retry."""

    name = "tries"
    start_urls = ["http://flaky.example/once/1", "http://flaky.example/ok/1"]
    custom_settings = {"RETRY_TIMES": 3}

    def parse(self, response):
        yield {"url": response.url, "tries": response.meta.get("retry_times", 0) + 1}
