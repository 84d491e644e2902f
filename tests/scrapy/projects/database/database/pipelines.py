import json
import sqlite3

from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem, NotConfigured


class FakeMongo:
    """Stands for pymongo's client."""

    def __init__(self, uri):
        self.uri, self.documents = uri, []

    def insert_one(self, document):
        self.documents.append(document)

    def close(self):
        with open("mongo.jl", "w") as f:
            f.writelines(json.dumps(document, sort_keys=True) + "\n" for document in self.documents)


class CleanPipeline:
    def process_item(self, item, spider):
        adapter = ItemAdapter(item)
        if not adapter.get("price"):
            raise DropItem("Missing price in %s" % item)
        for name, value in adapter.items():
            if isinstance(value, str):
                adapter[name] = " ".join(value.split())
        adapter["price"] = float(adapter["price"].strip("£ "))
        return item


class SqlitePipeline:
    def __init__(self, path):
        if not path:
            raise NotConfigured
        self.path = path

    @classmethod
    def from_settings(cls, settings):
        return cls(settings["SQLITE_PATH"])

    @classmethod
    def from_crawler(cls, crawler):
        return cls.from_settings(crawler.settings)

    def open_spider(self, spider):
        self.connection = sqlite3.connect(self.path)
        self.cursor = self.connection.cursor()
        self.cursor.execute("create table if not exists books (upc text primary key, title text, price real)")

    def process_item(self, item, spider):
        values = (item["upc"], item["title"], item["price"])
        self.cursor.execute("insert or replace into books values (?, ?, ?)", values)
        self.connection.commit()
        return item

    def close_spider(self, spider):
        with open("rows.jl", "w") as f:
            for row in self.cursor.execute("select * from books order by upc"):
                f.write(json.dumps(row) + "\n")
        self.connection.close()


class MongoPipeline:
    collection_name = "books"

    def __init__(self, mongo_uri, mongo_db):
        self.mongo_uri = mongo_uri
        self.mongo_db = mongo_db

    @classmethod
    def from_crawler(cls, crawler):
        return cls(
            mongo_uri=crawler.settings.get("MONGO_URI"),
            mongo_db=crawler.settings.get("MONGO_DATABASE", "items"),
        )

    def open_spider(self, spider):
        self.client = FakeMongo(self.mongo_uri)

    def close_spider(self, spider):
        self.client.close()

    def process_item(self, item, spider):
        self.client.insert_one({**ItemAdapter(item).asdict(), "db": self.mongo_db, "spider": spider.name})
        return item
