"""A spider that learns its pages from a site's sitemaps."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

import trio

from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.spiders.outputs import ItemT
from trawl.spiders.since import since_utc
from trawl.spiders.sitemap_file import Sitemap, latest_of, sitemaps_in_robots
from trawl.spiders.spider import Spider, check_urls

__all__ = ["SitemapSpider"]

_DEPTH = "sitemap_depth"
_Pattern = str | re.Pattern[str]


class SitemapSpider(Spider[ItemT]):
    """Reads sitemaps, indexes of sitemaps, and robots.txt files that name some; asks for the pages they list.

    Files may be XML, XML in gzip, or text of one address a line. They are read piece by piece and in bounds. A sitemap
    that another names waits until the pages that are known have been asked for, so that a site of millions is never
    in memory at once.

    Attributes:
        sitemap_urls: Where to begin: sitemaps, indexes, or robots.txt files.
        sitemap_rules: Pairs of a regular expression and a callback (or its name): the first that finds something in a
            page's address gets its response.
        sitemap_follow: Regular expressions: only the sitemaps of an index that one of them finds are read.
        sitemap_alternate_links: Ask for pages in other languages too (``<xhtml:link rel="alternate">``).
        sitemap_modified_since: Leave out what says that it was last changed before: a datetime, a date, or a text
            (``2024-05-01``), in UTC unless it says otherwise. What says nothing stays.
        sitemap_max_bytes: How much of a file is read, in bytes, unpacked. The protocol allows 50 MiB.
        sitemap_max_entries: How many entries of a file are taken. The protocol allows 50,000.
        sitemap_max_depth: How far an index may lead to indexes; the protocol allows none to.
    """

    sitemap_urls: Sequence[str] = ()
    sitemap_rules: Sequence[tuple[_Pattern, str | Callable[..., Any]]] = (("", "parse"),)
    sitemap_follow: Sequence[_Pattern] = ("",)
    sitemap_alternate_links: bool = False
    sitemap_modified_since: str | date | None = None
    sitemap_max_bytes: int = 128 * 1024 * 1024
    sitemap_max_entries: int = 500_000
    sitemap_max_depth: int = 5

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._callbacks: list[tuple[re.Pattern[str], Callable[..., Any]]] = [
            (self._compiled(f"sitemap_rules[{i}]", pattern), self._method(f"sitemap_rules[{i}]", callback))
            for i, (pattern, callback) in enumerate(self.sitemap_rules)
        ]
        self._follow: list[re.Pattern[str]] = [
            self._compiled(f"sitemap_follow[{i}]", pattern) for i, pattern in enumerate(self.sitemap_follow)
        ]
        since = self.sitemap_modified_since
        self._since: datetime | None = since_utc(self.name, "sitemap_modified_since", since)

    def check(self) -> None:
        """Refuse sitemap URLs that can't be fetched, as start URLs are refused.

        Raises:
            UsageError: The sentence names the entry.
        """
        super().check()
        check_urls(self.name, "sitemap_urls", self.sitemap_urls)

    def start_requests(self) -> Iterable[Any]:
        """The sitemaps to begin with."""
        for url in self.sitemap_urls:
            yield Request(url, self._parse_sitemap)

    def sitemap_filter(self, entries: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """The entries of a file, of pages or of sitemaps (``entries.type`` says which): override it to choose.

        Other tasks of the crawl run between the entries that it gives, not while it looks for the next one.
        """
        return entries

    async def _parse_sitemap(self, response: Response) -> AsyncGenerator[Request | None, None]:
        depth = response.meta.get(_DEPTH, 0) if response.request is not None else 0
        if response.url.partition("?")[0].endswith("/robots.txt"):
            for named in self._sitemaps(response, sitemaps_in_robots(response.text), depth):
                yield named
            return
        sitemap = self._opened(response)
        if not sitemap.type:
            self.logger.warning("%s is no sitemap: ignored", response.url)
            return
        pieces = sitemap.pieces
        for each in self._requests(response, sitemap, depth):
            if sitemap.pieces > pieces:  # a file may have any number of entries that nothing follows from
                pieces = sitemap.pieces
                await trio.lowlevel.checkpoint()
            if each is not None:
                yield each
        if sitemap.is_cut:
            self.logger.warning(
                "%s is longer than %d bytes or %d entries: the rest is left out",
                response.url,
                self.sitemap_max_bytes,
                self.sitemap_max_entries,
            )
        if sitemap.is_broken:
            self.logger.warning("%s: its gzip data is broken; what could be read was taken", response.url)

    def _requests(self, response: Response, sitemap: Sitemap, depth: int) -> Iterator[Request | None]:
        """The requests that follow from a file; None for each entry that none follows from."""
        addresses = self._addresses(self.sitemap_filter(sitemap))
        if sitemap.type == "sitemapindex":
            wanted = (url if url and any(each.search(url) for each in self._follow) else None for url in addresses)
            yield from self._sitemaps(response, wanted, depth + 1)
        else:
            yield from self._pages(response, addresses)

    def _opened(self, response: Response) -> Sitemap:
        is_text = response.headers.get("content-type", "").startswith("text/plain") or response.url.endswith(".txt")
        return Sitemap(
            response.body,
            most_bytes=self.sitemap_max_bytes,
            most_entries=self.sitemap_max_entries,
            is_text=is_text,
        )

    def _sitemaps(self, response: Response, addresses: Iterable[str | None], depth: int) -> Iterator[Request | None]:
        if depth > self.sitemap_max_depth:
            self.logger.warning("%s: an index %d deep is not followed", response.url, depth)
            return
        for address in addresses:
            request = None if address is None else self._request(response, address, self._parse_sitemap)
            if request is not None:
                request.meta[_DEPTH] = depth
                request.priority = -1
            yield request

    def _pages(self, response: Response, addresses: Iterable[str | None]) -> Iterator[Request | None]:
        for address in addresses:
            callback = None if address is None else self._callback_of(address)
            yield None if address is None or callback is None else self._request(response, address, callback)

    def _callback_of(self, address: str) -> Callable[..., Any] | None:
        return next((callback for pattern, callback in self._callbacks if pattern.search(address)), None)

    def _request(self, response: Response, address: str, callback: Callable[..., Any]) -> Request | None:
        try:
            return Request(address, callback, base=response.url)
        except ValueError:
            self.logger.warning("%s names %r, which is no URL", response.url, address)
            return None

    def _addresses(self, entries: Iterable[dict[str, Any]]) -> Iterator[str | None]:
        for entry in entries:
            if self._since is not None and (changed := latest_of(entry.get("lastmod", ""))) and changed < self._since:
                yield None
                continue
            yield entry["loc"]
            if self.sitemap_alternate_links:
                yield from entry.get("alternate", ())

    def _compiled(self, what: str, pattern: _Pattern) -> re.Pattern[str]:
        try:
            return re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{self.name}: {what}: {pattern!r} is no regular expression: {error}") from error

    def _method(self, what: str, callback: str | Callable[..., Any]) -> Callable[..., Any]:
        method = getattr(self, callback, None) if isinstance(callback, str) else callback
        if not callable(method):
            raise UsageError(f"{self.name}: {what}: {type(self).__name__} has no method {callback!r}")
        return method
