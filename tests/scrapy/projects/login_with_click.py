import logging

import scrapy
from scrapy.http import FormRequest


class LoginSpider(scrapy.Spider):
    """Logs in by the page's second form; a wrong password first; then threads, with errbacks on what is not there."""

    name = "login"
    allowed_domains = ["forum.example"]
    login_page = "http://forum.example/login"
    handle_httpstatus_list = [404]

    def __init__(self, user="anna", password="secret", pages=3, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.user, self.password = user, password
        self.pages = int(pages)
        self.seen = set()

    def start_requests(self):
        yield scrapy.Request(self.login_page, callback=self.parse_login, meta={"try": 1})

    def parse_login(self, response):
        password = "wrong" if response.meta["try"] == 1 else self.password
        yield FormRequest.from_response(
            response,
            formxpath="//form[@id='login']",
            formdata={"username": self.user, "password": password, "remember": None},
            clickdata={"name": "go"},
            callback=self.after_login,
            meta=response.meta,
            dont_filter=True,
        )

    def after_login(self, response):
        if "Login failed" in response.text:
            self.logger.log(logging.INFO, "failed once")
            yield {"failed": response.css("p.error::text").get()}
            yield scrapy.Request(self.login_page, self.parse_login, meta={"try": 2}, dont_filter=True)
            return
        yield {"user": response.css("b.user::text").get(), "url": response.url}
        for number, link in enumerate(response.css("a.thread")[: self.pages]):
            yield response.follow(link, callback=self.parse_thread, errback=self.failed, cb_kwargs={"number": number})
        yield response.follow("/nowhere", callback=self.parse_missing, errback=self.failed)
        yield scrapy.Request("http://nosuchhost.invalid/", self.parse_missing, errback=self.failed, meta={"allow_offsite": True, "dont_retry": True})

    def parse_thread(self, response, number):
        for post in response.css("div.post"):
            yield {"number": number, "by": post.css("i::text").get(), "text": post.xpath("string(p)").get()}

    def parse_missing(self, response):
        yield {"status": response.status, "url": response.url}

    def failed(self, failure):
        yield {"error": failure.request.url, "cb": failure.request.callback.__name__}
