import scrapy
from scrapy.spidermiddlewares.httperror import HttpError

DOMAINS = ["books.example", "www.news.example", "flaky.example/home", "nowhere.test", "files.example"]


class BareHostsSpider(scrapy.Spider):
    """Begins at a list of domains, and writes down the URL of each page."""

    name = "bare_hosts"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "RETRY_ENABLED": False,
        "CONCURRENT_REQUESTS": 100,
        "AJAXCRAWL_ENABLED": True,
        "REACTOR_THREADPOOL_MAXSIZE": 20,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    }

    def start_requests(self):
        for domain in DOMAINS:
            yield scrapy.Request(f"http://{domain}", callback=self.parse_home, errback=self.failed, meta={"domain": domain})

    def parse_home(self, response):
        yield {"url": response.url, "asked": response.request.url, "domain": response.meta.get("domain"), "title": response.css("title::text").get()}
        for href in response.css("a::attr(href)").getall():
            if not href.startswith("mailto:"):
                yield response.follow(href, self.parse_page, errback=self.failed)
        for number, link in enumerate(("HTTP://Books.Example", "//files.example ", "http://files.example/gallery?", "http://files.example/?")):
            yield response.follow(link, self.parse_link, cookies={"a": "1"}, meta={"link": link, "n": number}, dont_filter=True)

    def parse_page(self, response):
        yield {"page": response.url}

    def parse_link(self, response):
        yield {"link": response.meta["link"], "url": response.url, "asked": response.request.url, "depth": response.meta["depth"]}
        if response.meta["n"] < 1:
            yield response.request.replace(dont_filter=True, meta={"n": 1, "link": "again"})
            yield response.request.replace(url="http://last.news.example", dont_filter=True, meta={"n": 1, "link": "last"})

    def failed(self, failure):
        if failure.check(HttpError):
            response = failure.value.response
            yield {"failed": response.url, "status": response.status}
        else:
            yield {"failed": failure.request.url}
