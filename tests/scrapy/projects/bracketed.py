import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class FiltersSpider(CrawlSpider):
    name = "filters"
    start_urls = ["http://books.example/filters"]
    rules = [Rule(LinkExtractor(allow=r"f%5B[ab]%5D=|f=a%20b|%C3%A9|example$"), callback="parse_filter", follow=False)]

    def parse_start_url(self, response):
        for link in LinkExtractor().extract_links(response):
            yield {"link": link.url}
        for query in ("?x[y]=1|2", "?x=^`{}"):
            yield response.follow(query, self.parse_filter)
            yield scrapy.Request("http://books.example/filters/" + query, self.parse_filter)

    def parse_filter(self, response):
        yield {
            "url": response.url.removesuffix("/"),
            "asked": response.request.url.removesuffix("/"),
            "shown": response.css("b::text").getall(),
            "next": response.urljoin("/x?page[number]=2"),
        }
