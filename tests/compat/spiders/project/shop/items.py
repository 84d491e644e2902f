import scrapy
from itemloaders.processors import TakeFirst, MapCompose, Join
from scrapy.loader import ItemLoader
from w3lib.html import remove_tags


def filter_price(value):
    if value.isdigit():
        return value


class BookItem(scrapy.Item):
    name = scrapy.Field(input_processor=MapCompose(remove_tags, str.strip), output_processor=TakeFirst())
    price = scrapy.Field(input_processor=MapCompose(remove_tags, lambda v: v.replace("£", "")), output_processor=TakeFirst(), serializer=float)
    tags = scrapy.Field()
    url = scrapy.Field(output_processor=TakeFirst())
    last_updated = scrapy.Field(serializer=str)


class BookLoader(ItemLoader):
    default_item_class = BookItem
    default_output_processor = TakeFirst()
    tags_out = Join(",")
