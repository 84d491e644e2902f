import os

BOT_NAME = "downloads"
SPIDER_MODULES = ["downloads.spiders"]
NEWSPIDER_MODULE = "downloads.spiders"
ROBOTSTXT_OBEY = True
BASE_DIR = os.getcwd()
FILES_STORE = os.path.join(BASE_DIR, "files")
IMAGES_STORE = os.path.join(BASE_DIR, "images")
IMAGES_MIN_WIDTH = 15
IMAGES_THUMBS = {"small": (8, 8)}
ITEM_PIPELINES = {
    "downloads.pipelines.ReportsPipeline": 1,
    "downloads.pipelines.CoverPipeline": 2,
    "scrapy.pipelines.images.ImagesPipeline": 3,
    "downloads.pipelines.ChecksumPipeline": 10,
}
