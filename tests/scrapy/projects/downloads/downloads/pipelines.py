import os
from urllib.parse import unquote, urlparse

from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline
from scrapy.pipelines.images import ImagesPipeline


class ReportsPipeline(FilesPipeline):
    def get_media_requests(self, item, info):
        for url, name in zip(item.get("docs", []), item.get("names", [])):
            yield Request(url, meta={"filename": name, "item_id": item["id"]})

    def file_path(self, request, response=None, info=None, *, item=None):
        name = os.path.basename(unquote(urlparse(request.url).path))
        return f"{request.meta['item_id']}/{request.meta['filename']}-{name}"

    def item_completed(self, results, item, info):
        paths = [x["path"] for ok, x in results if ok]
        if item.get("docs") and not paths:
            raise DropItem("Item contains no files")
        item["paths"] = paths
        item["failed"] = sum(not ok for ok, _ in results)
        return item


class CoverPipeline(ImagesPipeline):
    """Covers are named by their item."""

    def get_media_requests(self, item, info):
        if item.get("cover"):
            return [Request(item["cover"])]
        return []

    def file_path(self, request, response=None, info=None, *, item=None):
        return f"covers/{item['id']}.jpg"

    def thumb_path(self, request, thumb_id, response=None, info=None, *, item=None):
        return f"thumbs/{thumb_id}/{item['id']}.jpg"

    def item_completed(self, results, item, info):
        adapter = ItemAdapter(item)
        adapter["cover_paths"] = [x["path"] for ok, x in results if ok]
        return item


class ChecksumPipeline:
    def process_item(self, item, spider):
        item["checksums"] = sorted(each["checksum"] for each in item.get("images", []))
        return item
