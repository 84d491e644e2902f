BOT_NAME = "board"
SPIDER_MODULES = ["board.spiders"]
NEWSPIDER_MODULE = "board.spiders"
USER_AGENT = "board (+http://www.board.example)"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS = 8
COOKIES_ENABLED = False
TELNETCONSOLE_ENABLED = False
DEFAULT_REQUEST_HEADERS = {"Accept": "text/html", "Accept-Language": "de"}
SPIDER_MIDDLEWARES = {"board.middlewares.Tagging": 543, "scrapy.spidermiddlewares.referer.RefererMiddleware": None}
DOWNLOADER_MIDDLEWARES = {
    "board.middlewares.Blocked": 560,
    "board.middlewares.Fallback": 610,
    "board.middlewares.Headers": 410,
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
}
EXTENSIONS = {"scrapy.extensions.telnet.TelnetConsole": None, "board.extensions.Report": 500}
ITEM_PIPELINES = {
    "board.pipelines.Clean": 100,
    "board.pipelines.Unique": 200,
    "board.pipelines.Sqlite": 300,
    "board.pipelines.Stock": 400,
    "board.pipelines.Totals": 900,
}
SQLITE_PATH = "board.db"
REPORT_ENABLED = True
MIN_PRICE = 12.5
RETRY_TIMES = 1
FEEDS = {
    "out/troubles.jsonl": {"format": "jsonlines", "item_classes": ["board.items.Trouble"], "overwrite": True, "store_empty": False},
    "out/cheap.jsonl": {"format": "jsonlines", "item_filter": "board.feeds.Cheap", "overwrite": True, "fields": {"title": "name", "price": "price"}},
}
FEED_EXPORT_ENCODING = "utf-8"
LOG_LEVEL = "INFO"
HTTPERROR_ALLOWED_CODES = [404]
