BOT_NAME = "rotating"
SPIDER_MODULES = ["rotating.spiders"]
NEWSPIDER_MODULE = "rotating.spiders"
ROBOTSTXT_OBEY = False
CONCURRENT_REQUESTS_PER_DOMAIN = 4

USER_AGENTS = ["Mozilla/5.0 (X11; Linux x86_64) One", "Mozilla/5.0 (Windows NT 10.0) Two", "Mozilla/5.0 (Mac) Three"]
PROXIES = ["http://proxy-a.example:80", "http://user:pa%20ss@proxy-b.example:80"]

DOWNLOADER_MIDDLEWARES = {
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
    "rotating.middlewares.RotateUserAgentMiddleware": 400,
    "rotating.middlewares.ProxyMiddleware": 410,
}
