import scrapy
from scrapy.http import FormRequest


class ForumSpider(scrapy.Spider):
    name = "forum"
    login_url = "http://forum.example/login"
    user = "anna"
    password = "secret"

    def start_requests(self):
        return [scrapy.Request(self.login_url, callback=self.login)]

    def login(self, response):
        return FormRequest.from_response(
            response,
            formid="login",
            formdata={"username": self.user, "password": self.password},
            callback=self.after_login,
            dont_filter=True,
        )

    def after_login(self, response):
        if b"Login failed" in response.body:
            self.logger.error("Login failed")
            return
        assert response.css("b.user::text").get() == self.user
        for href in response.css("a.thread::attr(href)").getall():
            yield scrapy.Request(response.urljoin(href), self.parse_thread)

    def parse_thread(self, response):
        for n, post in enumerate(response.css("div.post")):
            yield {
                "thread": response.css("h1::text").re_first(r"\d+"),
                "n": n,
                "author": post.css("i::text").get(),
                "text": " ".join(post.css("p ::text").getall()),
                "url": response.url,
            }
