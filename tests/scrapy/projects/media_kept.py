import hashlib
import os
from io import BytesIO

import scrapy
from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline
from scrapy.pipelines.images import ImagesPipeline


class Document(scrapy.Item):
    kind = scrapy.Field()
    title = scrapy.Field()
    file_urls = scrapy.Field()
    files = scrapy.Field()


class Poor(scrapy.Item):
    kind = scrapy.Field()
    file_urls = scrapy.Field()
    image_urls = scrapy.Field()


class NamedFiles(FilesPipeline):
    DEFAULT_FILES_URLS_FIELD = "named_urls"
    DEFAULT_FILES_RESULT_FIELD = "named"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = 0

    @classmethod
    def from_crawler(cls, crawler):
        made = super().from_crawler(crawler)
        made.prefix = crawler.settings.get("BOT_PREFIX", "own")
        return made

    def get_media_requests(self, item, info):
        for url in ItemAdapter(item).get(self.files_urls_field, []):
            yield scrapy.Request(url, meta={"title": item.get("title")})

    def file_path(self, request, response=None, info=None, *, item=None):
        return f"{self.prefix}/{request.meta['title']}-{os.path.basename(request.url.split('?')[0])}"

    def file_downloaded(self, response, request, info, *, item=None):
        self.seen += 1
        path = self.file_path(request, response=response, info=info, item=item)
        content = BytesIO(response.body.upper())
        self.store.persist_file(path, content, info)
        return hashlib.sha1(content.getvalue()).hexdigest()


class Covers(ImagesPipeline):
    def item_completed(self, results, item, info):
        item = super().item_completed(results, item, info)
        if item.get("kind") == "picture" and not any(is_there for is_there, _ in results):
            raise DropItem("no picture")
        return item

    def thumb_path(self, request, thumb_id, response=None, info=None, *, item=None):
        return f"small/{thumb_id}-{os.path.basename(request.url)}"

    def convert_image(self, image, size=None, *, response_body):
        image, content = super().convert_image(image, size, response_body=response_body)
        return image.convert("L").convert("RGB"), content


class MediaSpider(scrapy.Spider):
    name = "media"
    allowed_domains = ["files.example"]
    start_urls = ["http://files.example/"]
    custom_settings = {
        "ITEM_PIPELINES": {FilesPipeline: 1, NamedFiles: 2, ImagesPipeline: 3, Covers: 4},
        "FILES_STORE": "store",
        "IMAGES_STORE": "pictures",
        "IMAGES_THUMBS": {"small": (8, 8)},
        "IMAGES_MIN_WIDTH": 12,
    }

    def parse(self, response):
        for link in response.css("a.doc"):
            url = response.urljoin(link.attrib["href"].replace(" ", "-"))
            yield Document(kind="document", title=link.css("::text").get(), file_urls=[url, url])
        for image in response.css("img::attr(src)").getall():
            yield {"kind": "picture", "image_urls": [response.urljoin(image)]}
        yield {"kind": "picture", "image_urls": [response.urljoin("/docs/x.pdf")]}
        yield Poor(kind="poor", file_urls=[response.urljoin("/docs/poor.pdf")], image_urls=[response.urljoin("/img/9.png")])
        yield {"kind": "named", "title": "T", "named_urls": [response.urljoin("/docs/a.pdf"), response.urljoin("/docs/3.pdf")]}
