from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

if __name__ == "__main__":
    settings = get_project_settings()
    settings.set("DOWNLOAD_DELAY", 0)
    settings.set("FEEDS", {"records.jsonl": {"format": "jsonlines", "overwrite": True}})
    process = CrawlerProcess(settings)
    process.crawl("listing")
    process.start()
