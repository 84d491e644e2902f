from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class DepthSpider(CrawlSpider):
    name = "depth"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"DEPTH_LIMIT": 2, "DEPTH_PRIORITY": 1, "CLOSESPIDER_TIMEOUT": 60}
    rules = [
        Rule(LinkExtractor(restrict_xpaths="//li[@class='next']"), callback="parse_list", follow=True),
        Rule(LinkExtractor(allow=[r"book-\d+"], restrict_css=["h3", ".again"]), callback="parse_book", follow=False),
    ]

    def parse_start_url(self, response, **kwargs):
        return self.parse_list(response)

    def parse_list(self, response):
        yield {"list": response.css("title::text").get(), "depth": response.meta.get("depth", 0)}

    def parse_book(self, response):
        yield {"book": response.css("h1::text").get().strip(), "depth": response.meta["depth"], "url": response.url}
