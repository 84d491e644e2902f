BOT_NAME = "shop"

SPIDER_MODULES = ["shop.spiders"]
NEWSPIDER_MODULE = "shop.spiders"

ADDONS = {}

USER_AGENT = "shop (+http://www.yourdomain.com)"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 4
DOWNLOAD_DELAY = 0.1
COOKIES_ENABLED = True
TELNETCONSOLE_ENABLED = False
DEFAULT_REQUEST_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en",
}
SPIDER_MIDDLEWARES = {
    "shop.middlewares.ShopSpiderMiddleware": 543,
}
DOWNLOADER_MIDDLEWARES = {
    "shop.middlewares.ShopDownloaderMiddleware": 543,
    "shop.middlewares.BlockListMiddleware": 550,
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
    "shop.middlewares.RotateUserAgentMiddleware": 400,
}
EXTENSIONS = {
    "scrapy.extensions.telnet.TelnetConsole": None,
    "shop.extensions.SpiderOpenCloseLogging": 500,
}
MYEXT_ENABLED = True
MYEXT_ITEMCOUNT = 2
ITEM_PIPELINES = {
    "shop.pipelines.DuplicatesPipeline": 100,
    "shop.pipelines.PricePipeline": 300,
    "shop.pipelines.SqlitePipeline": 400,
    "shop.pipelines.JsonWriterPipeline": 800,
}
SQLITE_URI = "books.db"
USER_AGENTS = ["one/1", "two/2"]
AUTOTHROTTLE_ENABLED = True
AUTOTHROTTLE_START_DELAY = 0.1
AUTOTHROTTLE_MAX_DELAY = 60
AUTOTHROTTLE_TARGET_CONCURRENCY = 1.0
HTTPCACHE_ENABLED = False
FEEDS = {
    "out/%(name)s-%(time)s.json": {"format": "json", "encoding": "utf8", "indent": 4, "fields": ["name", "price"]},
    "out/%(name)s.csv": {"format": "csv", "overwrite": True, "item_export_kwargs": {"include_headers_line": True}},
}
FEED_EXPORT_ENCODING = "utf-8"
RETRY_TIMES = 1
LOG_LEVEL = "INFO"
CLOSESPIDER_ITEMCOUNT = 100
