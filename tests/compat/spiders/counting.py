import scrapy


class CountingSpider(scrapy.Spider):
    name = "counting"
    start_urls = ["https://quotes.toscrape.com/"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.limit = crawler.settings.getint("DEPTH_LIMIT") or 100
        spider.is_polite = crawler.settings.getbool("ROBOTSTXT_OBEY")
        return spider

    @classmethod
    def update_settings(cls, settings):
        super().update_settings(settings)
        settings.set("DEPTH_LIMIT", 1, priority="spider")

    def parse(self, response):
        self.crawler.stats.inc_value("quotes/pages")
        self.crawler.stats.inc_value("quotes/quotes", count=len(response.css("div.quote")))
        yield from response.follow_all(css="li.next a", callback=self.parse)

    def closed(self, reason):
        stats = self.crawler.stats
        stats.set_value("quotes/mean", stats.get_value("quotes/quotes") / stats.get_value("quotes/pages"))
        stats.set_value("quotes/why", f"{reason} {self.limit} {self.is_polite} {self.settings.get('DEPTH_LIMIT')}")
