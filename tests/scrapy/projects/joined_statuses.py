import scrapy


class JoinedSpider(scrapy.Spider):
    name = "joined"
    handle_httpstatus_list = [301]
    start_urls = ["http://flaky.example/hop/1"]

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        if response.meta.get("again"):
            return
        for number, codes in enumerate(([301], [404], [302])):
            meta = {"handle_httpstatus_list": codes, "again": True}
            yield scrapy.Request(f"http://flaky.example/hop/2?{number}", meta=meta, errback=self.failed)
            yield scrapy.Request(f"http://flaky.example/missing?{number}", meta=meta, errback=self.failed)

    def failed(self, failure):
        response = failure.value.response
        yield {"failed": response.url, "status": response.status}
