import json
import sqlite3
from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem, NotConfigured


class PricePipeline:
    vat_factor = 1.15

    def process_item(self, item, spider):
        adapter = ItemAdapter(item)
        if adapter.get("price"):
            adapter["price"] = round(float(adapter["price"]) * self.vat_factor, 2)
            return item
        else:
            raise DropItem(f"Missing price in {item}")


class JsonWriterPipeline:
    def open_spider(self, spider):
        self.file = open("items.jsonl", "w")

    def close_spider(self, spider):
        self.file.close()

    def process_item(self, item, spider):
        line = json.dumps(ItemAdapter(item).asdict()) + "\n"
        self.file.write(line)
        return item


class SqlitePipeline:
    collection_name = "scrapy_items"

    def __init__(self, uri, table, stats):
        self.uri = uri
        self.table = table
        self.stats = stats

    @classmethod
    def from_crawler(cls, crawler):
        if not crawler.settings.getbool("SQLITE_ENABLED", True):
            raise NotConfigured
        return cls(
            uri=crawler.settings.get("SQLITE_URI"),
            table=crawler.settings.get("SQLITE_TABLE", "items"),
            stats=crawler.stats,
        )

    def open_spider(self, spider):
        self.db = sqlite3.connect(self.uri)
        self.db.execute(f"create table if not exists {self.table} (name text, price real)")

    def close_spider(self, spider):
        self.db.commit()
        self.db.close()

    def process_item(self, item, spider):
        d = ItemAdapter(item).asdict()
        self.db.execute(f"insert into {self.table} values (?, ?)", (d.get("name"), d.get("price")))
        self.stats.inc_value("sqlite/rows")
        return item


class DuplicatesPipeline:
    def __init__(self):
        self.ids_seen = set()

    def process_item(self, item, spider):
        adapter = ItemAdapter(item)
        if adapter["url"] in self.ids_seen:
            raise DropItem(f"Item ID already seen: {adapter['url']}")
        self.ids_seen.add(adapter["url"])
        return item
