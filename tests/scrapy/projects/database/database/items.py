from scrapy.item import Field, Item


class BookItem(Item):
    upc = Field()
    title = Field()
    price = Field()
    page = Field()
