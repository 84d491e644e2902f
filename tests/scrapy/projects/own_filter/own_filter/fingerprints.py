import hashlib
from weakref import WeakKeyDictionary

from scrapy.utils.python import to_bytes
from w3lib.url import canonicalize_url, url_query_cleaner


class HostlessFingerprinter:
    cache = WeakKeyDictionary()

    def fingerprint(self, request):
        if request not in self.cache:
            url = canonicalize_url(url_query_cleaner(request.url, ["sort"]))
            fp = hashlib.sha1()
            fp.update(to_bytes(url))
            self.cache[request] = fp.digest()
        return self.cache[request]
