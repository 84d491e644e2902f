BOT_NAME = "shop"

SPIDER_MODULES = ["shop.spiders"]
NEWSPIDER_MODULE = "shop.spiders"

ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 8
COOKIES_ENABLED = False

ITEM_PIPELINES = {
    "shop.pipelines.PricePipeline": 100,
    "shop.pipelines.DuplicatesPipeline": 200,
    "shop.pipelines.JsonWriterPipeline": 800,
}

VAT_FACTOR = 1.19

FEED_EXPORT_ENCODING = "utf-8"
