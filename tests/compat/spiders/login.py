import scrapy


class LoginSpider(scrapy.Spider):
    name = "login"
    start_urls = ["https://members.example/login"]

    def __init__(self, user="user", *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.user = user

    def parse(self, response):
        return scrapy.FormRequest.from_response(
            response,
            formdata={"username": self.user, "password": "secret"},
            callback=self.after_login,
        )

    def after_login(self, response):
        if b"authentication failed" in response.body:
            self.logger.error("Login failed")
            return
        yield scrapy.Request("https://members.example/private", self.parse_private)

    def parse_private(self, response):
        yield {"secret": response.css("p.secret::text").get(), "logout": bool(response.css("a[href='/logout']"))}
