import hashlib
import os
from urllib.parse import urlparse

import scrapy
from scrapy.exceptions import DropItem
from scrapy.pipelines.images import ImagesPipeline


class Book(scrapy.Item):
    upc = scrapy.Field()
    image_urls = scrapy.Field()
    images = scrapy.Field()
    image_paths = scrapy.Field()


class NamedImages(ImagesPipeline):
    def get_media_requests(self, item, info):
        for n, url in enumerate(item["image_urls"]):
            yield scrapy.Request(url, meta={"upc": item["upc"], "n": n})

    def file_path(self, request, response=None, info=None, *, item=None):
        name = os.path.basename(urlparse(request.url).path)
        return f"{item['upc'][-2:]}/{request.meta['n']}-{hashlib.md5(name.encode()).hexdigest()[:6]}.jpg"

    def thumb_path(self, request, thumb_id, response=None, info=None, *, item=None):
        return f"thumbs/{thumb_id}/{item['upc']}.jpg"

    def item_completed(self, results, item, info):
        paths = [x["path"] for ok, x in results if ok]
        if not paths:
            raise DropItem("no image")
        item["image_paths"] = paths
        return item


class ImagesSpider(scrapy.Spider):
    name = "images"
    start_urls = ["http://books.example/catalogue/page-1.html", "http://books.example/catalogue/page-2.html"]
    custom_settings = {
        "ITEM_PIPELINES": {NamedImages: 1},
        "IMAGES_STORE": "covers",
        "IMAGES_THUMBS": {"small": (8, 8)},
        "IMAGES_MIN_WIDTH": 11,
    }

    def parse(self, response):
        for a in response.css("h3 a"):
            yield response.follow(a, self.parse_book)

    def parse_book(self, response):
        book = Book(upc=response.css("td::text").get())
        book["image_urls"] = [response.urljoin(src) for src in response.css("#img img::attr(src)").getall()]
        yield book
