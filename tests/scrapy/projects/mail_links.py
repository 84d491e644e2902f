import scrapy


class MailLinksSpider(scrapy.Spider):
    """Follows each link of a page without a thought: one with ``mailto:`` ends the page's callback."""

    name = "mail_links"
    start_urls = ["http://books.example/", "http://files.example/"]
    custom_settings = {"ROBOTSTXT_OBEY": False}

    def parse(self, response):
        yield {"title": response.css("title::text").get()}
        for link in response.css("a"):
            yield response.follow(link, callback=self.parse_link)
        yield {"end": response.url}

    def parse_link(self, response):
        yield {"link": response.url}
        yield from response.follow_all(response.css("a.also"), self.parse_other)
        for href in ("tel:1", "/ok"):
            try:
                yield response.follow(href, self.parse_other)
            except ValueError as error:
                yield {"refused": href}

    def parse_other(self, response):
        yield {"other": response.url}
        yield from response.follow_all(["/ok", "javascript:void(0)", "/never"], self.parse_other)
