"""Signs requests with a custom middleware, which uses a secret from the environment and the crawl's clock.

::

    export TRAWL_SIGNING_SECRET=secret
    trawl crawl examples/signed.py -s SIGNING_KEY_ID=me -a url=https://api.example/orders -O orders.jsonl

The headers of each request contain the key, the time, and an HMAC-SHA256 of method, path, time and body. With these,
the server can check that the request is authentic, recent and unchanged. The exact format differs between APIs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

import trawl
from trawl.exceptions import NotConfigured
from trawl.http import Fetch, Outcome, Request
from trawl.middleware import MiddlewareCrawl


def signature(secret: str, request: Request, at: str) -> str:
    """Return the signature of a request that is sent at the time ``at``."""
    parts = urlsplit(request.url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    signed = "\n".join([request.method, path, at, hashlib.sha256(request.body).hexdigest()])
    return hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()


class Signed:
    """Signs requests to one host. Requests to other hosts, for example after a redirect, are not signed."""

    def __init__(self, host: str, crawl: MiddlewareCrawl) -> None:
        self.host, self.crawl = host, crawl
        self.key_id: str = crawl.settings["SIGNING_KEY_ID"]
        self.secret: str = crawl.settings["SIGNING_SECRET"]

    @classmethod
    def from_crawler(cls, crawl: MiddlewareCrawl) -> Self:
        """Return the middleware of a crawl. If there is no secret, the crawl does not use this middleware."""
        if not crawl.settings["SIGNING_SECRET"]:
            raise NotConfigured("SIGNING_SECRET is not set: requests go unsigned")
        return cls(urlsplit(crawl.spider.url).netloc, crawl)

    def __call__(self, fetch: Fetch) -> Fetch:
        """Return the function that signs and sends a request. Each retry calls it again and gets a new signature."""

        async def send(request: Request) -> Outcome:
            if urlsplit(request.url).netloc != self.host:
                return await fetch(request)
            at = self.crawl.now_utc().isoformat(timespec="seconds")
            signed = request.replace()  # a copy, because a redirect would copy the signature
            signed.headers["X-Key-Id"] = self.key_id
            signed.headers["X-Signed-At"] = at
            signed.headers["X-Signature"] = signature(self.secret, signed, at)
            outcome = await fetch(signed)
            if outcome.response is not None:
                outcome.response.answer(request)
            return outcome

        return send


class Orders(trawl.Spider):
    """Reads a list from an API."""

    name = "orders"
    url = "https://api.example/orders"
    own_settings = {"SIGNING_KEY_ID": "", "SIGNING_SECRET": ""}
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Signed: 720}}  # after the cookies, so that it signs the final request

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield the request for the list."""
        yield trawl.Request(self.url)

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any]]:
        """Yield the orders in the list."""
        yield from response.json()
