"""A spider: where a crawl starts, and what becomes of each page.

A spider's own settings while ``update_settings`` writes them.

Makes the spider of a crawl, and says in one line why that can't be done.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from trawl.errors import SpiderLoadError, TrawlError, UsageError
from trawl.http import FETCHED_SCHEMES, Request, Response, normalize_url, scheme_of
from trawl.middleware import Session
from trawl.migration import Unsupported
from trawl.spiders.results import ItemT, Outputs
from trawl.spiders.running_crawl import RunningCrawl
from trawl.tracebacks import describe_error

if TYPE_CHECKING:
    from trawl.compat.crawler import Crawler

__all__ = ["CustomSettings", "Spider", "check_urls", "make_spider"]


class CustomSettings(dict[str, Any]):
    """Names to values, with the words of Scrapy's settings: what :meth:`trawl.Spider.update_settings` is given.

    Whatever it writes has the strength of ``custom_settings``; a ``priority`` is taken and not looked at.
    """

    def set(self, name: str, value: Any, priority: str | int = "spider") -> None:
        """Set one."""
        self[name] = value

    def setdict(self, values: Mapping[str, Any], priority: str | int = "spider") -> None:
        """Set many."""
        self.update(values)

    def getdict(self, name: str) -> dict[str, Any]:
        """A copy of a mapping that was set here; empty if it was not."""
        return dict(self.get(name) or {})

    def getlist(self, name: str) -> list[Any]:
        """A copy of a list that was set here; empty if it was not."""
        return list(self.get(name) or ())


class Spider(Generic[ItemT]):
    """Subclass it, give it a name and start URLs, and write ``parse``.

    ``Spider[Quote]`` is a spider whose items are quotes: a type checker, and ``trawl check``, hold its callbacks to
    that. A plain ``Spider`` has items of any kind.

    A callback is a function, a generator, an async function or an async generator. It takes a response (and the
    request's ``cb_kwargs``) and yields or returns requests, items (dict, dataclass, attrs, pydantic, msgspec) or None.

    Attributes:
        name: Names the spider in logs and feeds. Needed.
        start_urls: What the default :meth:`start` asks for.
        allowed_domains: Requests to other domains (and not below one of these) are dropped and counted as offsite;
            empty means no limit. Requests from :meth:`start` are always let through.
        custom_settings: Settings of this spider; weaker than the command line's, stronger than all others.
        own_settings: Settings of the spider's own, with their defaults: ``self.settings`` has them, and whatever sets
            settings may set them.
        handle_httpstatus_list: Statuses outside 2xx that go to the callback in place of the errback.
        download_delay: Seconds, stronger than any ``DOWNLOAD_DELAY``; None leaves the setting.
        crawler: The crawl under Scrapy's name, for its settings and statistics; there after ``__init__``.

    Args:
        name: Replaces the class's name for this run.
        kwargs: What ``-a key=value`` gives; each becomes an attribute.

    Raises:
        ValueError: The spider has no name.
    """

    name: str = ""
    start_urls: Iterable[str] = ()
    allowed_domains: Iterable[str] = ()
    custom_settings: ClassVar[Mapping[str, Any] | None] = None
    own_settings: ClassVar[Mapping[str, Any]] = {}
    handle_httpstatus_list: Iterable[int] = ()
    download_delay: float | None = None
    crawler: Crawler
    if not TYPE_CHECKING:
        state = Unsupported(
            "what must be remembered is in requests' cb_kwargs and meta, which a job keeps; or in a file that start()"
            " reads and closed() writes"
        )
        handles_request = Unsupported("nobody asks which spider a URL is for; allowed_domains says what it follows")

    def __init__(self, name: str | None = None, **kwargs: Any) -> None:
        if name is not None:
            self.name = name
        if not self.name:
            raise ValueError(f"{type(self).__name__} has no name: give the class an attribute `name`")
        self.__dict__.update(kwargs)
        self._crawl: RunningCrawl | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Make the spider for a crawl. Override it to look at ``crawler.settings`` first; call ``super()``'s.

        Args:
            crawler: The crawl to be, with its settings and statistics.
            args: For the constructor.
            kwargs: For the constructor: what ``-a key=value`` gives.
        """
        spider = cls(*args, **kwargs)
        spider.crawler = crawler
        crawler.spider = spider
        return spider

    @classmethod
    def update_settings(cls, settings: CustomSettings) -> None:
        """Write the spider's own settings: by default those in ``custom_settings``.

        Override it where they depend on something; what is written has the strength of ``custom_settings``.
        """
        settings.setdict(cls.custom_settings or {})

    @property
    def crawl(self) -> RunningCrawl:
        """The running crawl.

        Raises:
            RuntimeError: The spider is not running: in ``__init__``, say.
        """
        if getattr(self, "_crawl", None) is None:
            raise RuntimeError(f"{self.name} is not running yet: `crawl` and `settings` are there from start() on")
        assert self._crawl is not None
        return self._crawl

    def bind(self, crawl: RunningCrawl) -> None:
        """Called by the engine before :meth:`start`.

        Raises:
            RuntimeError: The spider runs in another crawl already: make one for each.
        """
        if getattr(self, "_crawl", None) is not None:
            raise RuntimeError(f"{self!r} runs, or ran, in another crawl: make a new spider for each")
        self._crawl = crawl
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.bind(crawl)

    def check(self) -> None:
        """Refuse what can't be crawled before anything is sent; called once, before the crawl begins.

        Looks at ``start_urls`` where they are a list or tuple and :meth:`start` is the default one.

        Raises:
            UsageError: A start URL is no valid ``http`` or ``https`` URL; the sentence names the entry. Or another
                attribute is not what it has to be.
        """
        statuses: object = self.handle_httpstatus_list
        if isinstance(statuses, str) or not isinstance(statuses, Iterable):
            raise UsageError(f"{self.name}: handle_httpstatus_list is a list of statuses, not {statuses!r}")
        if type(self).start is not Spider.start:
            return
        check_urls(self.name, "start_urls", self.start_urls)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The crawl's settings by their upper-case names; typed values."""
        crawler: Crawler | None = getattr(self, "crawler", None)
        if crawler is not None and getattr(self, "_crawl", None) is None:
            return crawler.settings
        return self.crawl.settings

    @property
    def logger(self) -> logging.Logger:
        """The logger named after the spider."""
        return logging.getLogger(self.name)

    async def start(self) -> AsyncIterator[Any]:
        """The first requests (items too), by default one request a start URL.

        Read under back-pressure: while nothing that is pending may be sent, and fewer than 10,000 requests are pending.
        A generator without end runs in constant memory. A spider that has no ``start`` of its own is started from
        :meth:`start_requests`, a plain iterable, Scrapy's older form.
        """
        for request in self.start_requests():
            yield request

    def start_requests(self) -> Iterable[Any]:
        """What the default :meth:`start` gives, by default a request for each start URL: Scrapy's older form of it.

        Something new is written as :meth:`start`. A spider that overrides this one may call ``super()``'s.
        """
        for url in self.start_urls:
            yield Request(url)

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        """What the engine calls for requests that name no callback: a kind of spider may do something before."""
        return self.parse(response, **kwargs)

    def parse(self, response: Response, *args: Any, **kwargs: Any) -> Outputs[ItemT]:
        """The callback of requests that name no other."""
        what = f"{type(self).__name__} has no parse()"
        raise NotImplementedError(f"{what}: the request for {response.url} names no callback")

    def closed(self, reason: str) -> Any:
        """Called once, when the crawl has ended for ``reason``; may be async."""

    async def fetch(self, request: Request) -> Response:
        """The response to ``request``, in the middle of a callback. A checkpoint.

        It waits for its turn like any other request; redirects are followed and failures retried; any status is
        returned. Cancelling gives its turn back.

        Raises:
            DownloadError: There is no response.
            IgnoreRequest: robots.txt or a middleware refused it.
        """
        return await self.crawl.fetch(request)

    def session(self, name: str, **options: Any) -> Session:
        """The session of this name: its own cookies and throttling scope, and its own proxy and fields if wanted.

        ``yield self.session("anna")(request)`` puts a request into it.

        Args:
            name: It is made when it is first named.
            options: ``proxy``, ``headers`` and ``throttling``, as :meth:`trawl.middleware.session.Sessions.get` has
                them, in place of what the session had.
        """
        return self.crawl.session(name, **options)

    def log(self, message: str, level: int = logging.DEBUG, **kwargs: Any) -> None:
        """Log a message under the spider's name."""
        self.logger.log(level, message, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def check_urls(name: str, attribute: str, urls: object) -> None:
    """Refuse a list of start URLs with one in it that can't be fetched; what is no list or tuple is not looked at.

    Raises:
        UsageError: The sentence names the spider, the attribute and the entry.
    """
    if isinstance(urls, str):
        raise UsageError(f"{name}: {attribute} is a list of URLs, not one text: use [{urls!r}]")
    if not isinstance(urls, list | tuple):
        return
    for i, url in enumerate(urls):
        try:
            scheme = scheme_of(normalize_url(url))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{name}: {attribute}[{i}]: {error}") from error
        if scheme not in FETCHED_SCHEMES:
            raise UsageError(f"{name}: {attribute}[{i}]: {url!r} is not fetched: only http and https are")


def make_spider(spider: type[Spider], arguments: Mapping[str, Any] | None, crawler: Crawler) -> Spider:
    """The spider, made with ``arguments`` and checked.

    Raises:
        UsageError: An attribute of it is not what it has to be.
        SpiderLoadError: Its constructor, or its ``from_crawler``, failed; the sentence names the line and the error,
            which is the cause.
    """
    try:
        instance = spider.from_crawler(crawler, **arguments or {})
    except TrawlError:
        raise
    except Exception as error:
        raise SpiderLoadError(
            f"{_where(spider, error)}: {spider.__name__} can't be made: {describe_error(error)}"
        ) from error
    instance.check()
    return instance


def _where(spider: type[Spider], error: Exception) -> str:
    """The innermost line of the spider's own file, or else of whatever file, that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        own = inspect.getsourcefile(spider)
    except TypeError:  # a class that no file has
        own = None
    frame = next((each for each in reversed(frames) if each.filename == own), frames[-1])
    return f"{Path(frame.filename).name}, line {frame.lineno}"
