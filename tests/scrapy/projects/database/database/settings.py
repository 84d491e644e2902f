from pathlib import Path

BOT_NAME = "database"
SPIDER_MODULES = ["database.spiders"]
NEWSPIDER_MODULE = "database.spiders"
ROBOTSTXT_OBEY = True
DOWNLOAD_DELAY = 0.25
RANDOMIZE_DOWNLOAD_DELAY = False
COOKIES_ENABLED = False
TELNETCONSOLE_ENABLED = False
AUTOTHROTTLE_ENABLED = True
AUTOTHROTTLE_START_DELAY = 5
HTTPCACHE_ENABLED = False

SQLITE_PATH = str(Path("books.db"))
MONGO_URI = "mongodb://localhost:27017"
MONGO_DATABASE = "items"
ITEM_PIPELINES = {
    "database.pipelines.CleanPipeline": 100,
    "database.pipelines.SqlitePipeline": 300,
    "database.pipelines.MongoPipeline": 400,
}
