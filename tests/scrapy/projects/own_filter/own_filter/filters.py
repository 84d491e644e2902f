import re

from scrapy.dupefilters import RFPDupeFilter


class SkuFilter(RFPDupeFilter):
    """Two pages of one book are the same."""

    def request_seen(self, request):
        if "page-" in request.url:
            return False
        found = re.search(r"book-(\d+)", request.url)
        if found and int(found.group(1)) > 20:
            return True
        return super().request_seen(request)
