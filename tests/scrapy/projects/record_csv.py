import gzip

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CSVFeedSpider, CrawlSpider, Rule, SitemapSpider, XMLFeedSpider


class Prices(CSVFeedSpider):
    name = "prices"
    start_urls = ["http://news.example/prices.csv"]
    delimiter = ";"
    headers = ["id", "name", "price"]

    def parse_rows(self, response):
        for number, row in enumerate(super().parse_rows(response)):
            if number:
                yield row

    def parse_row(self, response, row):
        row["price"] = row["price"].replace(".", ",")
        return row
