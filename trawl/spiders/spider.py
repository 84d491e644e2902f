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
from trawl.passwords import without_passwords
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
    "warn",
]


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # supports a default, so that a plain `Spider` has items of any type

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
"""The result of a callback: one output or several, returned directly or asynchronously."""


def is_async(result: object) -> bool:
    """Return True if a callback's result must be awaited or iterated asynchronously."""
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


def iterate(result: Any) -> Iterable[Any]:
    """Return the outputs of a plain callback: the elements of an iterable that is neither a string nor an item."""
    if result is None:
        return ()
    if isinstance(result, list | tuple | Iterator):
        return result
    is_one = isinstance(result, str | bytes) or not isinstance(result, Iterable) or is_item(result)
    return (result,) if is_one else result


class OutputIterable:
    """Outputs that can be read with ``for`` and with ``async for``, because Scrapy's spiders use both forms."""

    def __init__(self, plain: Iterator[Any], later: Callable[[Iterator[Any]], AsyncGenerator[Any, None]]) -> None:
        """Read ``plain`` with ``for``, or ``later(plain)`` with ``async for``."""
        self._plain = plain
        self._later = later
        self._made: AsyncGenerator[Any, None] | None = None

    def __iter__(self) -> Iterator[Any]:
        return (output for output in self._plain if output is not None)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        self._made = self._later(self._plain)
        return self._made

    async def aclose(self) -> None:
        """Close the asynchronous iterator, if there is one. A checkpoint if closing the iterator is a checkpoint."""
        if self._made is not None:
            await self._made.aclose()


async def iterate_async(result: Any) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a callback of any kind. Closing this generator closes the callback's generator."""
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
            yield output  # noqa: ASYNC119 - the reader closes this


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
        """Return a copy of a mapping that was set, or an empty dict."""
        return dict(self.get(name) or {})

    def getlist(self, name: str) -> list[Any]:
        """Return a copy of a list that was set, or an empty list."""
        return list(self.get(name) or ())


class Spider(Generic[ItemT]):
    """The base class of spiders. Define a subclass with a name, start URLs and the method ``parse``.

    ``Spider[Quote]`` declares the type of the spider's items. Type checkers and ``trawl check`` then check its
    callbacks. A plain ``Spider`` has items of any type.

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
        allowed_domains: Domains to which requests are allowed, including their subdomains. Requests to other domains
            are dropped and counted as offsite. If empty, all domains are allowed. Requests from :meth:`start` are
            always allowed.
        custom_settings: Settings of this spider. Only the command line overrides them.
        own_settings: Settings that this spider adds, with their defaults. They are set like all other settings, and
            ``self.settings`` contains them.
        handle_httpstatus_list: Status codes outside 2xx that go to the callback instead of the errback.
        download_delay: Delay in seconds, which overrides every ``DOWNLOAD_DELAY``; None to keep the setting.
        crawler: The crawl under Scrapy's name, with its settings and statistics. Set after ``__init__``.

    Args:
        name: The spider's name in this run, instead of the class's name.
        kwargs: The arguments from ``-a key=value``. Each becomes an attribute.

    Raises:
        ValueError: If the spider has no name.
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
        handles_request = Unsupported(
            "trawl does not select spiders by URL; allowed_domains decides which links it follows"
        )

    def __init__(self, name: str | None = None, **kwargs: Any) -> None:
        if name is not None:
            self.name = name
        check_name(type(self), self.name or "")
        if not self.name:
            raise ValueError(f"{type(self).__name__} has no name: give the class an attribute `name`")
        self.__dict__.update(kwargs)
        if "start_urls" not in self.__dict__ and type(self).start_urls is Spider.start_urls:
            self.start_urls = []  # create a new list, because a spider may append to it
        self._crawl: RunningCrawl | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Create the spider for a crawl. An override may read ``crawler.settings`` first, and must call ``super()``.

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
        """Change the spider's settings. By default, adds ``custom_settings``. All values have the same precedence."""
        settings.setdict(cls.custom_settings or {})

    @property
    def crawl(self) -> RunningCrawl:
        """The running crawl; RuntimeError if the spider is not running, for example in ``__init__``."""
        crawl: RunningCrawl | None = getattr(self, "_crawl", None)
        if crawl is None:
            raise RuntimeError(f"{self.name} is not running yet: `crawl` and `settings` exist from start() on")
        return crawl

    def bind(self, crawl: RunningCrawl) -> None:
        """Connect the spider to its running crawl, before :meth:`start`; RuntimeError if it already has one."""
        if getattr(self, "_crawl", None) is not None:
            raise RuntimeError(f"{self!r} runs, or ran, in another crawl: make a new spider for each")
        self._crawl = crawl
        if (crawler := getattr(self, "crawler", None)) is not None:
            crawler.bind(crawl)

    def check(self) -> None:
        """Check the spider's attributes. Called once, before the crawl starts.

        ``start_urls`` are checked if they are a list or tuple and :meth:`start` is not overridden.

        Raises:
            UsageError: If a start URL is not a valid ``http`` or ``https`` URL, or another attribute is not valid.
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

        The crawl reads this generator only while no pending request may be sent and fewer than 10,000 requests are
        pending. So even an endless generator takes constant memory. By default, this calls :meth:`start_requests`,
        Scrapy's older form.
        """
        for request in self.start_requests():
            yield request

    def start_requests(self) -> Iterable[Any]:
        """Return the first requests as a plain iterable.

        This is Scrapy's older form of :meth:`start`, for moved spiders.
        """
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
        """Process a response whose request has no callback. The engine calls this. Subclasses in trawl override it."""
        return self.parse(response, **kwargs)

    def parse(self, response: Response, *args: Any, **kwargs: Any) -> Outputs[ItemT]:
        """Process a response to a request without a callback."""
        what = f"{type(self).__name__} has no parse()"
        raise NotImplementedError(f"{what}: the request for {response.url} names no callback")

    def closed(self, reason: str) -> Any:
        """Clean up. Called once, when the crawl has ended for ``reason``. May be async."""

    @staticmethod
    def close(spider: Spider[Any], reason: str) -> Any:
        """Call :meth:`closed`. This is Scrapy's older form, which moved spiders may override."""
        return spider.closed(reason)

    async def fetch(self, request: Request) -> Response:
        """Send ``request`` from within a callback and return its response, with any status code. A checkpoint.

        The request obeys the limits like all other requests. Redirects are followed, and failures are retried. If the
        caller is cancelled, the request is withdrawn.

        Raises:
            DownloadError: If there is no response.
            IgnoreRequest: If robots.txt or a middleware refused the request.
        """
        return await self.crawl.fetch(request)

    def session(self, name: str, **options: Any) -> Session:
        """Return a session with its own cookies and throttling scope and, optionally, proxy and headers.

        ``yield self.session("anna")(request)`` sends a request in the session.

        Args:
            name: The session's name. The session is created on first use.
            options: ``proxy``, ``headers`` and ``throttling``, as in :meth:`trawl.Crawl.session`. They replace the
                session's previous options.
        """
        return self.crawl.session(name, **options)

    def log(self, message: str, level: int = logging.DEBUG, **kwargs: Any) -> None:
        """Log a message under the spider's name."""
        self.logger.log(level, message, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def warn(spider: Spider[Any], response: Response, words: str, *given: object) -> None:
    """Log a warning about a response, whose URL precedes ``words``."""
    spider.logger.warning(f"%s{words}", without_passwords(response.url), *given)


def check_name(spider: type, name: object) -> None:
    """Raise a UsageError if a spider's name is not a string."""
    if not isinstance(name, str):
        raise UsageError(f"{spider.__name__}.name must be a string, not {name!r}")


def check_urls(name: str, attribute: str, urls: object) -> None:
    """Raise a UsageError if a URL in a list or tuple can't be fetched. Other iterables are not read."""
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
    """Create a spider with ``arguments``, and check it.

    Raises:
        UsageError: If an attribute is not valid.
        SpiderLoadError: If the constructor or ``from_crawler`` raised an exception, which is its ``__cause__``.
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
    """Return the position of the innermost frame of an error's traceback, in the spider's file if possible."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        own = inspect.getsourcefile(spider)
    except TypeError:  # the class has no file
        own = None
    frame = next((each for each in reversed(frames) if each.filename == own), frames[-1])
    return f"{Path(frame.filename).name}, line {frame.lineno}"
