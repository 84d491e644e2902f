BOT_NAME = "extended"
SPIDER_MODULES = ["extended.spiders"]
NEWSPIDER_MODULE = "extended.spiders"
ROBOTSTXT_OBEY = True
MYEXT_ENABLED = True
MYEXT_ITEMCOUNT = 5
EXTENSIONS = {
    "scrapy.extensions.telnet.TelnetConsole": None,
    "extended.extensions.StatsToFile": 500,
    "extended.extensions.Disabled": 600,
}
SPIDER_MIDDLEWARES = {
    "extended.middlewares.DeltaMiddleware": 100,
    "extended.middlewares.ExtendedSpiderMiddleware": 543,
}
DOWNLOADER_MIDDLEWARES = {"extended.middlewares.RenderMiddleware": 700}
STATS_PATH = "stats.json"
