import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class MovedSpider(CrawlSpider):
    """Pages that redirect, by status and by refresh; one sets a cookie and redirects to itself."""

    name = "moved"
    start_urls = ["http://flaky.example/moved"]
    rules = [Rule(LinkExtractor(), callback="parse_page", follow=True)]

    def parse_page(self, response):
        yield {
            "url": response.url,
            "heading": response.css("h1::text").get(),
            "hops": response.meta.get("redirect_urls", []),
            "why": response.meta.get("redirect_reasons", []),
            "referer": response.request.headers.get("Referer", b"").decode(),
        }
        if "of=redirect" in response.url:
            headers = {"Referer": "http://search.example/?q=x"}
            yield scrapy.Request("http://flaky.example/hop/1", headers=headers, callback=self.parse_page, dont_filter=True)
