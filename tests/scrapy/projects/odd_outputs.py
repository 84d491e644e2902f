from dataclasses import dataclass

import scrapy
from scrapy.exceptions import CloseSpider, IgnoreRequest


class Named(scrapy.Item):
    name = scrapy.Field()


@dataclass
class Counted:
    count: int


KINDS = [
    *("nothing", "one", "item", "dataclass", "pairs", "several", "values", "filtered", "generator", "text", "number", "yields_text"),
    *("yields_list", "yields_none", "later", "later_list", "later_generator", "request", "requests", "fails", "fails_later"),
    *("ignored", "nested", "returns_in_generator", "bytes", "mapping_generator", "wrong_arguments"),
]


class OddSpider(scrapy.Spider):
    name = "odd"
    custom_settings = {"ROBOTSTXT_OBEY": False}

    async def start(self):
        yield {"from": "start"}
        for kind in KINDS:
            yield scrapy.Request(f"http://flaky.example/ok/{kind}", getattr(self, kind))
        yield scrapy.Request("http://flaky.example/ok/default", cb_kwargs={"word": "kept"})
        yield scrapy.Request("http://flaky.example/ok/named", self.named, errback=self.failed, meta={"a": {"b": [1]}})
        yield scrapy.Request("http://flaky.example/missing", self.one, errback=self.failed)
        yield scrapy.Request("http://flaky.example/gone", self.one, errback=self.failed_later)

    def _parse(self, response, **kwargs):
        yield {"own _parse": response.url}
        yield from super()._parse(response, **kwargs)

    def parse(self, response, word="none"):
        yield {"word": word}

    def named(self, response):
        return {"meta": response.meta["a"], "h1": response.xpath("//h1/text()").get()}

    def failed(self, failure):
        return {"failed": failure.value.response.status}

    async def failed_later(self, failure):
        yield {"failed later": failure.value.response.status}
        yield scrapy.Request("http://flaky.example/ok/found", self.one)

    def nothing(self, response):
        return None

    def one(self, response):
        return {"one": response.url}

    def item(self, response):
        return Named(name=response.url)

    def dataclass(self, response):
        return Counted(count=1)

    def pairs(self, response):
        return {"a": 1}, Named(name="pair")

    def several(self, response):
        return [{"n": 1}, None, {"n": 2}]

    def values(self, response):
        return {1: {"v": 1}, 2: {"v": 2}}.values()

    def filtered(self, response):
        return filter(None, [{"f": 1}, {}, {"f": 2}])

    def generator(self, response):
        return ({"g": n} for n in range(2))

    def text(self, response):
        return "text"

    def number(self, response):
        return 5

    def bytes(self, response):
        return b"bytes"

    def yields_text(self, response):
        yield {"before": "text"}
        yield "text"
        yield 5
        yield {"after": "text"}

    def yields_list(self, response):
        yield [{"in": "list"}]
        yield {"after": "list"}

    def yields_none(self, response):
        yield None
        yield {"after": "none"}

    async def later(self, response):
        return {"later": 1}

    async def later_list(self, response):
        return [{"later": 2}, scrapy.Request("http://flaky.example/ok/from-later", self.one)]

    async def later_generator(self, response):
        for n in range(2):
            yield {"later generator": n}

    def request(self, response):
        return response.follow("/ok/followed", self.one)

    def requests(self, response):
        return {response.follow("/ok/in-set", self.one)}

    def fails(self, response):
        yield {"before": "failure"}
        raise ValueError("failed")

    async def fails_later(self, response):
        yield {"before": "later failure"}
        raise ValueError("failed")

    def ignored(self, response):
        yield {"before": "ignored"}
        raise IgnoreRequest("enough")

    def nested(self, response):
        yield from self.several(response)
        yield from self.generator(response)

    def returns_in_generator(self, response):
        yield {"yielded": 1}
        return {"returned": 1}

    def mapping_generator(self, response):
        return map(lambda n: {"mapped": n}, range(2))

    def wrong_arguments(self, response, missing):
        yield {"never": missing}
