import scrapy


class NoCharsetSpider(scrapy.Spider):
    name = "no_charset"
    custom_settings = {"ROBOTSTXT_OBEY": False}

    def start_requests(self):
        for n in range(4):
            yield scrapy.Request(f"http://news.example/old/{n}", callback=self.parse_old)

    def parse_old(self, response):
        yield {"url": response.url, "title": response.css("h1::text").get(), "encoding": response.encoding}
        yield response.follow(response.css("a::attr(href)").get(), callback=self.parse_found)

    def parse_found(self, response):
        yield {"found": response.url}
