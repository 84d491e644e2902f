from itemadapter import ItemAdapter


class Cheap:
    def __init__(self, feed_options):
        self.feed_options = feed_options

    def accepts(self, item):
        price = ItemAdapter(item).get("price")
        return price is not None and price < 20
