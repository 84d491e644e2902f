from scrapy.spiders import CSVFeedSpider


class PricesSpider(CSVFeedSpider):
    name = "prices"
    allowed_domains = ["news.example"]
    start_urls = ["http://www.news.example/prices.csv"]
    delimiter = ";"
    quotechar = '"'

    def parse_row(self, response, row):
        self.logger.debug("row %r", row)
        if row["id"] == "3":
            return None
        return {"id": int(row["id"]), "name": row["name"], "price": float(row["price"]), "keys": sorted(row)}
