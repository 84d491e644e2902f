import scrapy


class CookieSpider(scrapy.Spider):
    name = "cookies"

    def start_requests(self):
        for i, currency in enumerate(["USD", "UYU"]):
            yield scrapy.Request(
                "http://cookies.example/set",
                cookies={"currency": currency},
                meta={"cookiejar": i},
                callback=self.parse_page,
                dont_filter=True,
            )

    def parse_page(self, response):
        # The jar is not sticky: it has to be passed along.
        return scrapy.Request(
            "http://cookies.example/show",
            meta={"cookiejar": response.meta["cookiejar"]},
            callback=self.parse_other_page,
            dont_filter=True,
        )

    def parse_other_page(self, response):
        yield {"jar": response.meta["cookiejar"], "sent": response.text}
