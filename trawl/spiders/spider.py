"""The base class of spiders, their creation for a crawl, and the outputs of their callbacks."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias

from trawl.errors import SpiderLoadError, TrawlError, UsageError
from trawl.http import FETCHED_SCHEMES, Request, Response, normalize_url, scheme_of
from trawl.items import is_item
from trawl.middleware import Session
from trawl.scrapy_names import Unsupported
from trawl.spiders.crawler import Crawler
from trawl.spiders.running_crawl import RunningCrawl
from trawl.tracebacks import contained, describe_error

__all__ = [
    "CustomSettings",
    "ItemT",
    "Output",
    "OutputIterable",
    "Outputs",
    "Spider",
    "check_urls",
    "is_async",
    "iterate",
    "iterate_async",
    "make_spider",
]


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default: `Spider` alone is a spider of any items

    ItemT = TypeVar("ItemT", default=Any)
else:
    from typing import TypeVar

    ItemT = TypeVar("ItemT")


Output: TypeAlias = Request | ItemT | None
"""One output of a callback."""

Outputs: TypeAlias = (
    Request
    | ItemT
    | Iterable[Request | ItemT | None]
    | AsyncIterable[Request | ItemT | None]
    | Awaitable[Request | ItemT | Iterable[Request | ItemT | None] | None]
    | None
)
"""The result of a callback: one output or several, at once or asynchronously."""


def is_async(result: object) -> bool:
    """Return True if a callback's result has to be awaited or iterated asynchronously."""
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


def iterate(result: Any) -> Iterable[Any]:
    """Return the outputs of a callback that is not asynchronous: of any iterable that is neither text nor an item."""
    if result is None:
        return ()
    if isinstance(result, list | tuple | Iterator):
        return result
    is_one = isinstance(result, str | bytes) or not isinstance(result, Iterable) or is_item(result)
    return (result,) if is_one else result


class OutputIterable:
    """Outputs that an override may read with ``for`` or with ``async for``, as Scrapy's spiders do."""

    def __init__(self, plain: Iterator[Any], later: Callable[[Iterator[Any]], AsyncGenerator[Any, None]]) -> None:
        """Read ``plain``, or what ``later`` makes of it."""
        self._plain = plain
        self._later = later
        self._made: AsyncGenerator[Any, None] | None = None

    def __iter__(self) -> Iterator[Any]:
        return (output for output in self._plain if output is not None)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        self._made = self._later(self._plain)
        return self._made

    async def aclose(self) -> None:
        """Close what ``async for`` reads. A checkpoint where that is one."""
        if self._made is not None:
            await self._made.aclose()


async def iterate_async(result: Any) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a callback of any kind. Closing it closes the callback's generator."""
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, AsyncIterable):
        many = iterate(result)
        try:
            for output in many:
                yield output
        finally:
            if inspect.isgenerator(many):
                many.close()
        return
    closing: Any = aclosing(result) if hasattr(result, "aclose") else nullcontext(result)
    async with closing as outputs:
        async for output in outputs:
            yield output  # noqa: ASYNC119 - who reads this closes it


class CustomSettings(dict[str, Any]):
    """The argument of :meth:`trawl.Spider.update_settings`: values by name, with methods of Scrapy's settings.

    All values have the precedence of ``custom_settings``; ``priority`` is ignored.
    """

    def set(self, name: str, value: Any, priority: str | int = "spider") -> None:
        """Set a value."""
        self[name] = value

    def setdict(self, values: Mapping[str, Any], priority: str | int = "spider") -> None:
        """Set several values."""
        self.update(values)

    def getdict(self, name: str) -> dict[str, Any]:
        """Return a copy of a mapping that was set here, or an empty one."""
        return dict(self.get(name) or {})

    def getlist(self, name: str) -> list[Any]:
        """Return a copy of a list that was set here, or an empty one."""
        return list(self.get(name) or ())


class Spider(Generic[ItemT]):
    """The base class of spiders: subclass it, give it a name and start URLs, and write ``parse``.

    ``Spider[Quote]`` declares that its items are quotes; type checkers and ``trawl check`` check its callbacks against
    that. A plain ``Spider`` has items of any kind.

    A callback is a function, a generator, an async function or an async generator. It takes a response (and the
    request's ``cb_kwargs``) and yields or returns requests, items (dict, dataclass, attrs, pydantic, msgspec) or None.

    >>> class Titles(trawl.Spider):
    ...     name = "titles"
    ...     start_urls = ["http://a.example/"]
    ...
    ...     def parse(self, response):
    ...         yield {"title": response.css("title::text").get()}
    ...         yield from response.follow_all(css="a")

    Attributes:
        name: The spider's name in logs and feeds. Required.
        start_urls: The URLs that the default :meth:`start` requests.
        allowed_domains: Requests to domains other than these and their subdomains are dropped and counted as offsite;
            empty means no limit. Requests from :meth:`start` are always allowed.
        custom_settings: Settings of this spider; only the command line overrides them.
        own_settings: Settings that this spider adds, with their defaults. ``self.settings`` has them, and they are set
            like all others.
        handle_httpstatus_list: Statuses outside 2xx that go to the callback instead of the errback.
        download_delay: Seconds; overrides every ``DOWNLOAD_DELAY``; None leaves the setting.
        crawler: The crawl under Scrapy's name, for its settings and statistics; set after ``__init__``.

    Args:
        name: Replaces the class's name for this run.
        kwargs: The arguments of ``-a key=value``; each becomes an attribute.

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
        check_name(type(self), self.name or "")
        if not self.name:
            raise ValueError(f"{type(self).__name__} has no name: give the class an attribute `name`")
        self.__dict__.update(kwargs)
        if "start_urls" not in self.__dict__ and type(self).start_urls is Spider.start_urls:
            self.start_urls = []  # which a spider may append to
        self._crawl: RunningCrawl | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Make the spider for a crawl. An override may read ``crawler.settings`` first, and must call ``super()``.

        Args:
            crawler: The crawl, not yet running, with its settings and statistics.
            args: Arguments of the constructor.
            kwargs: Keyword arguments of the constructor, from ``-a key=value``.
        """
        spider = cls(*args, **kwargs)
        spider.crawler = crawler
        crawler.spider = spider
        return spider

    @classmethod
    def update_settings(cls, settings: CustomSettings) -> None:
        """Set the spider's settings, by default those in ``custom_settings``, whose precedence all of them have."""
        settings.setdict(cls.custom_settings or {})

    @property
    def crawl(self) -> RunningCrawl:
        """The running crawl.

        Raises:
            RuntimeError: The spider is not running: in ``__init__``, for example.
        """
        crawl: RunningCrawl | None = getattr(self, "_crawl", None)
        if crawl is None:
            raise RuntimeError(f"{self.name} is not running yet: `crawl` and `settings` are there from start() on")
        return crawl

    def bind(self, crawl: RunningCrawl) -> None:
        """Connect the spider to its running crawl, before :meth:`start`.

        Raises:
            RuntimeError: The spider belongs to another crawl already.
        """
        if getattr(self, "_crawl", None) is not None:
            raise RuntimeError(f"{self!r} runs, or ran, in another crawl: make a new spider for each")
        self._crawl = crawl
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.bind(crawl)

    def check(self) -> None:
        """Check the spider's attributes; called once, before the crawl begins.

        ``start_urls`` are checked if they are a list or tuple and :meth:`start` is the default one.

        Raises:
            UsageError: A start URL is not a valid ``http`` or ``https`` URL, or another attribute is not valid.
        """
        check_name(type(self), self.name)
        statuses: object = self.handle_httpstatus_list
        if isinstance(statuses, str) or not isinstance(statuses, Iterable):
            raise UsageError(f"{self.name}: handle_httpstatus_list must be a list of statuses, not {statuses!r}")
        if type(self).start is not Spider.start:
            return
        check_urls(self.name, "start_urls", self.start_urls)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The crawl's settings by upper-case name, with typed values."""
        crawler: Crawler | None = getattr(self, "crawler", None)
        if crawler is not None and getattr(self, "_crawl", None) is None:
            return crawler.settings
        return self.crawl.settings

    @property
    def logger(self) -> logging.Logger:
        """The logger named after the spider."""
        return logging.getLogger(self.name)

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first requests (and items), by default one request for each start URL.

        It is read under back-pressure: only while no pending request may be sent, and fewer than 10,000 are pending. So
        an endless generator runs in constant memory. The default calls :meth:`start_requests`, Scrapy's older form.
        """
        for request in self.start_requests():
            yield request

    def start_requests(self) -> Iterable[Any]:
        """Return the first requests as a plain iterable: Scrapy's older form of :meth:`start`, for moved spiders."""
        crawl = getattr(self, "_crawl", None)
        if crawl is None or crawl.settings["FILTER_START_URLS"]:
            for url in self.start_urls:
                yield Request(url)
            return
        for url in self.start_urls:
            request = Request(url, dont_filter=True)
            request.is_start_url = True
            yield request

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        """Called by the engine for requests without a callback; kinds of spiders override it."""
        return self.parse(response, **kwargs)

    def parse(self, response: Response, *args: Any, **kwargs: Any) -> Outputs[ItemT]:
        """Handle the responses of requests without a callback."""
        what = f"{type(self).__name__} has no parse()"
        raise NotImplementedError(f"{what}: the request for {response.url} names no callback")

    def closed(self, reason: str) -> Any:
        """Called once, when the crawl has ended for ``reason``; may be async."""

    @staticmethod
    def close(spider: Spider[Any], reason: str) -> Any:
        """Call :meth:`closed`: Scrapy's older form of it, for moved spiders, which may override it."""
        return spider.closed(reason)

    async def fetch(self, request: Request) -> Response:
        """Send ``request`` from within a callback and return its response, of any status. A checkpoint.

        It waits for its turn like other requests; redirects are followed, failures retried. Cancelling frees its turn.

        Raises:
            DownloadError: There is no response.
            IgnoreRequest: robots.txt or a middleware refused it.
        """
        return await self.crawl.fetch(request)

    def session(self, name: str, **options: Any) -> Session:
        """Return a session, with its own cookies and throttling scope and, optionally, proxy and headers.

        ``yield self.session("anna")(request)`` puts a request into it.

        Args:
            name: Its name; the session is made when first used.
            options: ``proxy``, ``headers`` and ``throttling``, as in :meth:`trawl.Crawl.session`; they replace the
                session's former ones.
        """
        return self.crawl.session(name, **options)

    def log(self, message: str, level: int = logging.DEBUG, **kwargs: Any) -> None:
        """Log a message under the spider's name."""
        self.logger.log(level, message, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def check_name(spider: type, name: object) -> None:
    """Check that a spider's name is a string.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(name, str):
        raise UsageError(f"{spider.__name__}.name must be a string, not {name!r}")


def check_urls(name: str, attribute: str, urls: object) -> None:
    """Check that all URLs in a list or tuple can be fetched; other iterables are not read.

    Raises:
        UsageError: One of them can't be fetched, or ``urls`` is a string.
    """
    if isinstance(urls, str):
        raise UsageError(f"{name}: {attribute} must be a list of URLs, not a string: use [{urls!r}]")
    if not isinstance(urls, Iterable):
        raise UsageError(f"{name}: {attribute} must be a list of URLs, not {urls!r}")
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
    """Make a spider with ``arguments``, and check it.

    Raises:
        UsageError: An attribute is not valid.
        SpiderLoadError: Its constructor or ``from_crawler`` failed; the error is the cause.
    """
    try:
        with contained:
            instance = spider.from_crawler(crawler, **arguments or {})
            instance.check()
    except TrawlError:
        raise
    except Exception as error:
        raise SpiderLoadError(
            f"{_where(spider, error)}: {spider.__name__} can't be made: {describe_error(error)}"
        ) from error
    return instance


def _where(spider: type[Spider], error: Exception) -> str:
    """Return the innermost line of the spider's file, or else of any file, in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        own = inspect.getsourcefile(spider)
    except TypeError:  # a class without a file
        own = None
    frame = next((each for each in reversed(frames) if each.filename == own), frames[-1])
    return f"{Path(frame.filename).name}, line {frame.lineno}"
