import scrapy


class ExactSpider(scrapy.Spider):
    """Ends at a count of items; here exactly, in Scrapy with what is in flight."""

    name = "exact"
    start_urls = ["http://books.example/catalogue/page-1.html", "http://books.example/catalogue/page-2.html"]
    custom_settings = {
        "CONCURRENT_REQUESTS": 8,
        "CLOSESPIDER_ITEMCOUNT": 4,
    }

    def parse(self, response):
        for a in response.css("h3 a"):
            yield {"title": a.attrib["title"]}
