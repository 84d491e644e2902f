BOT_NAME = "retrying"
SPIDER_MODULES = ["retrying.spiders"]
NEWSPIDER_MODULE = "retrying.spiders"
ROBOTSTXT_OBEY = False
RETRY_TIMES = 3
DOWNLOADER_MIDDLEWARES = {
    "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
    "retrying.middlewares.CaptchaRetryMiddleware": 550,
}
