import json
import sqlite3

import scrapy
from itemloaders.processors import Compose, Join, MapCompose, TakeFirst
from scrapy import signals
from scrapy.exceptions import DropItem
from scrapy.http import JsonRequest
from scrapy.loader import ItemLoader


class Hit(scrapy.Item):
    sku = scrapy.Field()
    query = scrapy.Field(output_processor=Join("|"))
    number = scrapy.Field()
    page = scrapy.Field()


class Total(scrapy.Item):
    total = scrapy.Field()


class HitLoader(ItemLoader):
    default_item_class = Hit
    default_output_processor = TakeFirst()
    query_in = MapCompose(str.strip, str.title)
    number_in = MapCompose(lambda text: text.lstrip("S"), int)
    number_out = Compose(max, lambda n: n * 10)


class NoFirst:
    def process_item(self, item, spider):
        if item.get("sku") == "S0":
            raise DropItem("the first")
        return item


class Sqlite:
    def open_spider(self, spider):
        self.db = sqlite3.connect("hits.sqlite")
        self.db.execute("CREATE TABLE hits (sku TEXT PRIMARY KEY, number INTEGER)")

    def process_item(self, item, spider):
        if isinstance(item, Hit):
            self.db.execute("INSERT OR IGNORE INTO hits VALUES (?, ?)", (item["sku"], item["number"]))
            self.db.commit()
        return item

    def close_spider(self, spider):
        rows = self.db.execute("SELECT * FROM hits ORDER BY sku").fetchall()
        self.db.close()
        with open("rows.json", "w") as f:
            json.dump(rows, f)


class Watching:
    def __init__(self, stats):
        self.stats = stats
        self.dropped = []

    @classmethod
    def from_crawler(cls, crawler):
        ext = cls(crawler.stats)
        crawler.signals.connect(ext.dropped_one, signals.item_dropped)
        crawler.signals.connect(ext.opened, signals.spider_opened)
        crawler.signals.connect(ext.closed, signals.spider_closed)
        return ext

    def opened(self, spider):
        self.name = spider.name

    def dropped_one(self, item, exception, spider):
        self.dropped.append([item["sku"], str(exception)])

    def closed(self, spider, reason):
        scraped = self.stats.get_value("item_scraped_count")
        with open("watched.json", "w") as f:
            json.dump({"name": self.name, "dropped": self.dropped, "reason": reason, "scraped": scraped}, f)


class SearchSpider(scrapy.Spider):
    """An API of JSON by POST, page by page as its answers' total says; two feeds, each with one kind of item."""

    name = "search"
    custom_settings = {
        "FEEDS": {
            "hits.csv": {"format": "csv", "item_classes": [Hit], "fields": ["sku", "number", "query"], "overwrite": True},
            "totals.json": {"format": "json", "item_classes": [Total], "indent": 2, "overwrite": True},
            "all-%(name)s.xml": {"format": "xml", "overwrite": True, "item_export_kwargs": {"root_element": "found"}},
        },
        "ITEM_PIPELINES": {NoFirst: 100, Sqlite: 200},
        "EXTENSIONS": {Watching: 1},
        "DEFAULT_REQUEST_HEADERS": {"Accept": "application/json", "X-Api": "1"},
    }

    def start_requests(self):
        yield self.asked(0)

    def asked(self, number):
        return JsonRequest("http://api.example/search", data={"query": " salt & stone ", "page": number}, cb_kwargs={"number": number})

    def parse(self, response, number):
        data = json.loads(response.text)
        if number == 0:
            yield Total(total=data["total"])
        for hit in data["hits"]:
            loader = HitLoader()
            loader.add_value("sku", hit["sku"])
            loader.add_value("query", [hit["q"], "x"])
            loader.add_value("number", hit["sku"])
            loader.add_value("page", number)
            yield loader.load_item()
        if (number + 1) * 3 < data["total"]:
            yield self.asked(number + 1)

    def closed(self, reason):
        with open("closed.txt", "w") as f:
            f.write(reason)
