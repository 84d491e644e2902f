import datetime

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.project import get_project_settings

from ..items import BookItem, BookLoader


class BooksSpider(CrawlSpider):
    name = "books"
    allowed_domains = ["shop.example"]

    rules = (
        Rule(LinkExtractor(allow=r"/page/\d+", restrict_css="li.next")),
        Rule(LinkExtractor(allow=r"/book/", deny=(r"secret",)), callback="parse_item", follow=False, process_links="limit"),
    )

    def __init__(self, base=None, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.base = base
        self.start_urls = [f"{base}/page/1"]

    def limit(self, links):
        return links[:10]

    def parse_start_url(self, response, **kwargs):
        self.logger.info("start page %s", response.url)
        return []

    def parse_item(self, response):
        l = BookLoader(item=BookItem(), response=response)
        l.add_css("name", "h1")
        l.add_xpath("price", '//p[@class="price"]')
        l.add_css("tags", "li.tag::text")
        l.add_value("url", response.url)
        l.add_value("last_updated", str(datetime.date(2024, 1, 1)))
        return l.load_item()
