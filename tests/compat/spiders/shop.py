import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Product(scrapy.Item):
    id = scrapy.Field()
    name = scrapy.Field()
    description = scrapy.Field()
    link_text = scrapy.Field(serializer=str)


class ShopSpider(CrawlSpider):
    name = "shop"
    allowed_domains = ["shop.example"]
    start_urls = ["http://www.shop.example"]

    rules = (
        # Categories are followed (no callback means follow=True by default), but for one.
        Rule(LinkExtractor(allow=(r"category\.php",), deny=(r"subsection\.php",))),
        # Items are parsed.
        Rule(LinkExtractor(allow=(r"item\.php",)), callback="parse_item"),
    )

    def parse_item(self, response):
        self.logger.info("Hi, this is an item page! %s", response.url)
        item = Product()
        item["id"] = response.xpath('//td[@id="item_id"]/text()').re(r"ID: (\d+)")[0]
        item["name"] = response.xpath('//td[@id="item_name"]/text()').get()
        item["link_text"] = response.meta["link_text"]
        url = response.xpath('//td[@id="additional_data"]/@href').get()
        return response.follow(url, self.parse_additional_page, cb_kwargs=dict(item=item))

    def parse_additional_page(self, response, item):
        item["description"] = response.xpath('//p[@id="additional_data"]/text()').get()
        return item
