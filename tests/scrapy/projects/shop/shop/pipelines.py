import json

from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem


class PricePipeline:
    def __init__(self, factor):
        self.factor = factor

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.getfloat("VAT_FACTOR", 1.0))

    def process_item(self, item, spider):
        adapter = ItemAdapter(item)
        try:
            adapter["price"] = round(float(adapter["price"]) * self.factor, 2)
        except ValueError:
            raise DropItem(f"no price in {item!r}")
        return item


class DuplicatesPipeline:
    def __init__(self):
        self.seen = set()

    def process_item(self, item, spider):
        if item["upc"] in self.seen:
            raise DropItem("Duplicate item found: %s" % item["upc"])
        self.seen.add(item["upc"])
        return item


class JsonWriterPipeline:
    def open_spider(self, spider):
        self.file = open("items.jl", "w", encoding="utf-8")

    def close_spider(self, spider):
        self.file.close()

    def process_item(self, item, spider):
        self.file.write(json.dumps(dict(item), ensure_ascii=False) + "\n")
        return item
