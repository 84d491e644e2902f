import re

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class BookItem(scrapy.Item):
    title = scrapy.Field()
    price = scrapy.Field()
    upc = scrapy.Field()
    rating = scrapy.Field()
    url = scrapy.Field()


def strip_tracking(value):
    return re.sub(r"\?.*$", "", value)


class BooksSpider(CrawlSpider):
    name = "books"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/catalogue/page-1.html"]

    rules = (
        Rule(LinkExtractor(restrict_css="li.next"), follow=True),
        Rule(
            LinkExtractor(allow=r"/book-\d+\.html", deny=(r"book-1\d\.html",), process_value=strip_tracking),
            callback="parse_book",
        ),
    )

    def parse_book(self, response):
        item = BookItem()
        item["title"] = response.xpath("//h1/text()").get().strip()
        price = response.css("p.price_color::text").re_first(r"[\d.]+")
        item["price"] = float(price) if price else None
        item["upc"] = response.xpath('//th[text()="UPC"]/following-sibling::td/text()').get()
        item["rating"] = response.css("p.star-rating::attr(class)").get().split()[-1]
        item["url"] = response.url
        return item
