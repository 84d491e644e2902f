BOT_NAME = "own_filter"
SPIDER_MODULES = ["own_filter.spiders"]
NEWSPIDER_MODULE = "own_filter.spiders"
ROBOTSTXT_OBEY = True
DUPEFILTER_CLASS = "own_filter.filters.SkuFilter"
REQUEST_FINGERPRINTER_CLASS = "own_filter.fingerprints.HostlessFingerprinter"
EXTENSIONS = {"scrapy.extensions.telnet.TelnetConsole": None, "own_filter.extensions.Counting": 10}
