import scrapy


class TableSpider(scrapy.Spider):
    name = "table"
    start_urls = [f"http://files.example/table?page={page}" for page in range(1, 4)]

    def parse(self, response):
        rows = response.xpath("//table[has-class('prices')]//tr[position() > 1]")
        for row in rows:
            yield {
                "name": row.xpath("./td[1]/a/text()").get(),
                "price": row.css("td:nth-child(2)::text").re_first(r"[\d.]+"),
                "stock": row.xpath(".//td[@class=$kind]/text()", kind="stock").get(default="none"),
                "link": response.urljoin(row.css("a::attr(href)").get()),
            }
