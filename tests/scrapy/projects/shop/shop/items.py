import scrapy
from itemloaders.processors import Join, MapCompose, TakeFirst
from scrapy.loader import ItemLoader
from w3lib.html import remove_tags


def clean_price(value):
    return value.replace("£", "").strip()


class Product(scrapy.Item):
    name = scrapy.Field(input_processor=MapCompose(remove_tags, str.strip), output_processor=TakeFirst())
    price = scrapy.Field(input_processor=MapCompose(clean_price), output_processor=TakeFirst())
    tags = scrapy.Field(output_processor=Join("|"))
    upc = scrapy.Field()
    breadcrumb = scrapy.Field()


class ProductLoader(ItemLoader):
    default_item_class = Product
    default_output_processor = TakeFirst()
    breadcrumb_out = MapCompose(str.strip)
