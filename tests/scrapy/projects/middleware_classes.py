import scrapy
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware


class AgentsMiddleware(UserAgentMiddleware):
    def __init__(self, user_agent=""):
        super().__init__(user_agent)
        self.agents = ["first/1.0", "second/2.0", "third/3.0"]

    def process_request(self, request, spider=None):
        agent = self.agents[len(request.url) % 3]
        request.headers.setdefault("User-Agent", agent)


class PatientRetryMiddleware(RetryMiddleware):
    def process_response(self, request, response, spider=None):
        if b"html" in response.headers.get("Content-Type", b"") and b"robot" in response.body:
            return self._retry(request, "banned") or response
        return super().process_response(request, response)


class CountingRedirectMiddleware(RedirectMiddleware):
    def process_response(self, request, response, spider=None):
        answer = super().process_response(request, response)
        if isinstance(answer, scrapy.Request):
            answer.meta["hops"] = request.meta.get("hops", 0) + 1
        return answer


class DefaultsMiddleware:
    def process_request(self, request, spider=None):
        request.headers.setdefault(b"X-Client", b"42")
        if request.headers.get("X-Client") == b"42":
            request.headers.setdefault("X-Seen", "yes")

    def process_response(self, request, response, spider=None):
        response.headers["X-Served"] = request.headers[b"User-Agent"].decode() + "!"
        return response


class MiddlewareClassesSpider(scrapy.Spider):
    name = "middleware_classes"
    start_urls = ["http://flaky.example/", "http://books.example/catalogue/book-3.html"]
    handle_httpstatus_list = [500]
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {
            "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
            "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
            RedirectMiddleware: None,
            DefaultsMiddleware: 450,
            AgentsMiddleware: 543,
            PatientRetryMiddleware: 550,
            CountingRedirectMiddleware: 600,
        },
        "RETRY_TIMES": 2,
        "BACKOFF_HTTP_CODES": [],
    }

    def parse(self, response):
        if "books" in response.url:
            yield from self.parse_book(response)
            return
        yield from self.parse_page(response)
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse_page)
        yield response.follow("/ban", self.parse_page)

    def parse_page(self, response):
        yield {
            "url": response.url,
            "status": response.status,
            "title": response.css("title::text, h1::text").get(),
            "agent": response.request.headers["User-Agent"].decode(),
            "served": response.headers.get("X-Served").decode("ascii"),
            "seen": response.request.headers.get("X-Seen") == b"yes",
            "retries": response.meta.get("retry_times"),
            "hops": response.meta.get("hops"),
        }

    def parse_book(self, response):
        cookies = [value.decode() for value in response.headers.getlist("Set-Cookie")]
        yield {
            "cookies": cookies,
            "last": response.headers["Set-Cookie"].split(b";")[0].decode(),
            "stock": response.headers.get(b"x-stock") == b"Yes",
            "missing": response.headers.get("X-Nothing"),
            "default": response.headers.get("X-Nothing", b"none").decode(),
            "names": sorted(name.decode() for name in response.headers if name.startswith(b"X-")),
            "fields": {
                name.decode(): [value.decode() for value in values]
                for name, values in response.headers.items()
                if name in (b"Set-Cookie", b"X-Stock", b"Content-Type")
            },
            "text": response.headers.to_unicode_dict()["content-type"],
        }
