import base64
import itertools
import logging
import zlib

logger = logging.getLogger(__name__)


class RotateUserAgentMiddleware:
    """Chooses by URL, where most choose by chance."""

    def __init__(self, agents):
        self.agents = agents

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.getlist("USER_AGENTS"))

    def process_request(self, request, spider):
        agent = self.agents[zlib.crc32(request.url.encode()) % len(self.agents)]
        request.headers.setdefault("User-Agent", agent)
        request.meta["agent"] = agent


class ProxyMiddleware(object):
    def __init__(self, settings):
        self.proxies = settings.get("PROXIES")
        self.counter = itertools.count()

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings)

    def process_request(self, request, spider):
        if "proxy" in request.meta or not request.meta.get("use_proxy"):
            return None
        request.meta["proxy"] = self.proxies[zlib.crc32(request.url.encode()) % 2]
        logger.debug("%d: proxy %s", next(self.counter), request.meta["proxy"])

    def process_response(self, request, response, spider):
        if response.status in (403, 407):
            return request.replace(dont_filter=True)
        return response

    def process_exception(self, request, exception, spider):
        logger.error("proxy failed: %r", exception)
        request.meta.pop("proxy", None)


def basic(user, password):
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())
