import scrapy

from ..items import BookItem


class DatabaseSpider(scrapy.Spider):
    name = "database"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/catalogue/page-4.html", "http://books.example/catalogue/page-2.html"]

    def parse(self, response):
        self.crawler.stats.inc_value("pages")
        for url in response.xpath("//h3/a/@href").extract():
            yield scrapy.Request(url=response.urljoin(url), callback=self.parse_book, meta={"page": response.url})

    def parse_book(self, response):
        item = BookItem(page=response.meta["page"])
        item["upc"] = response.xpath("//td/text()").extract_first()
        item["title"] = response.xpath("//h1/text()").extract_first()
        item["price"] = response.xpath("//p[@class='price_color']/text()").re_first("£[0-9.]+")
        yield item
