import scrapy


class AccountsSpider(scrapy.Spider):
    """One session for each account, kept apart by cookiejar."""

    name = "accounts"
    accounts = [("anna", "secret"), ("ben", "secret"), ("eve", "wrong")]

    def start_requests(self):
        for i, (user, password) in enumerate(self.accounts):
            yield scrapy.Request(
                "http://forum.example/login",
                meta={"cookiejar": i, "user": user, "password": password},
                dont_filter=True,
                callback=self.parse_login,
            )

    def parse_login(self, response):
        yield scrapy.FormRequest.from_response(
            response,
            formcss="#login",
            formdata={"username": response.meta["user"], "password": response.meta["password"], "remember": None},
            clickdata={"name": "go"},
            meta={"cookiejar": response.meta["cookiejar"], "user": response.meta["user"]},
            callback=self.parse_home,
            dont_filter=True,
        )

    def parse_home(self, response):
        if response.xpath("//p[@class='error']"):
            yield {"user": response.meta["user"], "error": response.xpath("//p[@class='error']/text()").get()}
            return
        yield scrapy.Request(
            "http://forum.example/thread/1",
            callback=self.parse_thread,
            meta={"cookiejar": response.meta["cookiejar"], "user": response.meta["user"]},
            dont_filter=True,
        )
        yield scrapy.Request(
            "http://forum.example/echo",
            callback=self.parse_echo,
            cookies={"theme": "dark"},
            meta={"cookiejar": response.meta["cookiejar"], "user": response.meta["user"]},
            dont_filter=True,
        )

    def parse_thread(self, response):
        yield {"user": response.meta["user"], "author": response.css("i::text").get(), "url": response.url}

    def parse_echo(self, response):
        yield {"user": response.meta["user"], "cookies": response.json()["cookies"]}
