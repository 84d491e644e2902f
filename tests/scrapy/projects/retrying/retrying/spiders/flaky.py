import scrapy


class FlakySpider(scrapy.Spider):
    name = "flaky"
    allowed_domains = ["flaky.example"]
    start_urls = ["http://flaky.example/ban/1", "http://flaky.example/once/1", "http://flaky.example/once/2"]
    handle_httpstatus_list = [500]

    def parse(self, response):
        yield {
            "url": response.url,
            "h1": response.css("h1::text").get(),
            "retries": response.meta.get("retry_times", 0),
            "status": response.status,
        }
        yield scrapy.Request("http://flaky.example/ok/3", callback=self.parse)
        yield scrapy.Request("http://flaky.example/always", callback=self.parse)
