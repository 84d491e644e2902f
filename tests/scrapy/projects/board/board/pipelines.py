import json
import sqlite3

import scrapy
from itemadapter import ItemAdapter, is_item
from scrapy.exceptions import DropItem, NotConfigured

from board.items import Book


class Clean:
    def __init__(self, min_price):
        self.min_price = min_price

    @classmethod
    def from_crawler(cls, crawler):
        return cls(min_price=crawler.settings.getfloat("MIN_PRICE", 0))

    def process_item(self, item, spider):
        if not isinstance(item, Book):
            return item
        adapter = ItemAdapter(item)
        price = adapter.get("price")
        adapter["price"] = float(price.strip("£").replace(",", "")) if price and price.startswith("£") else None
        if adapter["price"] is not None and adapter["price"] < self.min_price:
            raise DropItem(f"Too cheap {item}")
        return item


class Unique:
    def __init__(self):
        self.seen = set()

    def process_item(self, item, spider):
        assert is_item(item)
        key = item["title"] if isinstance(item, Book) else item.url + str(item.why)
        if key in self.seen:
            raise DropItem("Duplicate: %r" % key)
        self.seen.add(key)
        return item


class Sqlite:
    def __init__(self, path, stats):
        self.path, self.stats = path, stats

    @classmethod
    def from_crawler(cls, crawler):
        if not crawler.settings.get("SQLITE_PATH"):
            raise NotConfigured
        return cls(crawler.settings["SQLITE_PATH"], crawler.stats)

    def open_spider(self, spider):
        self.db = sqlite3.connect(self.path)
        self.db.execute("create table things (kind, body)")

    def close_spider(self, spider):
        self.db.commit()
        rows = sorted(self.db.execute("select kind, body from things"))
        self.db.close()
        with open("rows.json", "w") as file:
            json.dump(rows, file)

    def process_item(self, item, spider):
        body = json.dumps(ItemAdapter(item).asdict(), sort_keys=True)
        self.db.execute("insert into things values (?, ?)", (type(item).__name__, body))
        self.stats.inc_value(f"stored/{type(item).__name__}")
        return item


class Stock:
    """Asks an API for each book."""

    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        made.crawler = crawler
        return made

    async def process_item(self, item, spider):
        if isinstance(item, Book):
            number = item["url"].partition("book-")[2].partition(".")[0]
            answer = await self.crawler.engine.download_async(scrapy.Request(f"http://api.example/detail/{number}"))
            item["stock"] = answer.json()["stock"]
        return item


class Totals:
    names = ["stored/Book", "stored/Trouble", "item_dropped_count", "blocked", "dupefilter/filtered", "downloader/response_status_count/404"]

    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        made.crawler = crawler
        return made

    def process_item(self, item, spider):
        return item

    def close_spider(self, spider):
        with open("totals.json", "w") as file:
            json.dump({name: self.crawler.stats.get_value(name) for name in self.names}, file, sort_keys=True)
