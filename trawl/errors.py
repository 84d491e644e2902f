"""The hierarchy of trawl's exceptions. Users import them from :mod:`trawl.exceptions`.

::

    TrawlError
    ├─ UsageError                  the user's input is wrong; exit status 2
    │  ├─ SettingsError            a setting: unknown name, wrong type, out of range
    │  └─ FeedError                a feed that can't be opened or written
    ├─ SpiderLoadError             the spider's own code fails; exit status 1
    │  ├─ SpiderNotFound           the named spider does not exist; also a UsageError, exit status 2
    │  └─ WrittenForScrapy         the spider imports Scrapy; also a UsageError, exit status 2
    ├─ PartLoadError               a pipeline, middleware or other component can't be created; exit status 1
    ├─ JobError                    a job's directory: in use, damaged, full, not writable; exit status 1
    │  ├─ JobUnavailable           the job's server can't be reached, or is currently a replica
    │  └─ SessionEnded             other processes replaced this process; the command joins the job again
    ├─ ItemLost                    an item that no feed could write
    ├─ DownloadError               a request without a complete response
    │  ├─ ConnectFailed            no connection: refused, unreachable, reset while connecting
    │  │  ├─ NameNotResolved       the host's name has no address
    │  │  └─ TLSFailed             the handshake failed or the certificate was refused
    │  ├─ ConnectTimeout           no connection within the connect timeout
    │  ├─ ProxyFailed              the proxy was not reached, or did not reach the host
    │  ├─ ReadTimeout              nothing received for the read timeout
    │  ├─ DownloadTimeout          the exchange took longer than DOWNLOAD_TIMEOUT
    │  ├─ ResponseBroken           closed early, wrong length, not HTTP, endless headers
    │  ├─ BodyTooLarge             more than DOWNLOAD_MAXSIZE, before or after decompression
    │  ├─ BodyNotWritten           a body that could not be written to its file
    │  ├─ UnsupportedScheme        a URL that this transport does not fetch
    │  ├─ AddressRefused           a host at an address that the crawl may not connect to
    │  ├─ TooManyRedirects         more in a row than REDIRECT_MAX_TIMES; an IgnoreRequest too
    │  ├─ RequestInvalid           a request that can't be written as HTTP
    │  ├─ HostGivenUp              a host without a good response for BACKOFF_GIVE_UP_AFTER
    │  └─ SoftBlocked              a page that SOFT_BLOCK_DETECTOR recognizes as a refusal
    ├─ HttpError                   a response whose status code the spider does not handle
    │
    │  raised by users:
    ├─ IgnoreRequest               drop this request (in middleware and errbacks)
    ├─ DropItem                    drop this item (in pipelines)
    ├─ CloseSpider                 end the crawl with this reason (in callbacks)
    ├─ DontCloseSpider             do not end the crawl (in receivers of spider_idle)
    └─ NotConfigured               leave this component out (in from_crawler)

Expected ends of a request (duplicate, offsite, disallowed by robots.txt) are not errors. They are counted by reason.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, ClassVar

from trawl.passwords import without_passwords

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "AddressRefused",
    "BodyNotWritten",
    "BodyTooLarge",
    "BrowserEnded",
    "CloseSpider",
    "ConnectFailed",
    "ConnectTimeout",
    "DontCloseSpider",
    "DownloadError",
    "DownloadTimeout",
    "DropItem",
    "FeedError",
    "HostGivenUp",
    "HttpError",
    "IgnoreRequest",
    "ItemLost",
    "JobError",
    "JobUnavailable",
    "NameNotResolved",
    "NotConfigured",
    "PageCrashed",
    "PageNotReady",
    "PartLoadError",
    "ProxyFailed",
    "ReadTimeout",
    "RenderError",
    "RequestInvalid",
    "ResponseBroken",
    "SessionEnded",
    "SettingsError",
    "SoftBlocked",
    "SpiderLoadError",
    "SpiderNotFound",
    "TLSFailed",
    "TooManyRedirects",
    "TrawlError",
    "UnsupportedScheme",
    "UsageError",
    "WrittenForScrapy",
]


class TrawlError(Exception):
    """The base class of trawl's exceptions. Messages show ``***`` instead of passwords in URLs.

    Attributes:
        request: The request, if the error is passed to an errback; else None.
    """

    request: Any = None

    def __str__(self) -> str:
        return without_passwords(super().__str__())

    @property
    def value(self) -> BaseException:
        """The error itself. Errbacks written for Scrapy expect a Failure, which has this attribute."""
        return self

    def check(self, *kinds: type[BaseException]) -> type[BaseException] | None:
        """Return the first of ``kinds`` of which this error is an instance, or None, like Scrapy's Failure."""
        return next((kind for kind in kinds if isinstance(self.value, kind)), None)

    def trap(self, *kinds: type[BaseException]) -> type[BaseException]:
        """Return the result of :meth:`check`, or raise the error if it is not an instance of any of ``kinds``."""
        kind = self.check(*kinds)
        if kind is None:
            raise self.value
        return kind

    @property
    def type(self) -> Any:
        """The error's class."""
        return self.value.__class__

    def getErrorMessage(self) -> str:
        """Return the message."""
        return str(self.value)

    def getTraceback(self) -> str:
        """Return the traceback as Python prints it."""
        return "".join(traceback.format_exception(self.value))


class UsageError(TrawlError):
    """The user's input is wrong. The message names the entry and says what to do."""


class SettingsError(UsageError):
    """A setting is unknown, of the wrong type or out of range.

    Attributes:
        name: The wrong setting, or the wrong entry in it.
    """

    def __init__(self, sentence: str, name: str = "") -> None:
        super().__init__(sentence)
        self.name = name


class FeedError(UsageError):
    """A feed can't be opened or written.

    Attributes:
        uri: The feed's URI.
    """

    def __init__(self, sentence: str, uri: str = "") -> None:
        super().__init__(sentence)
        self.uri = uri


class ItemLost(TrawlError):
    """An item passed the pipelines, but no feed could write it. The message has the reason for each feed.

    The item is counted as ``item_lost_count`` instead of ``item_scraped_count``. The event
    :class:`trawl.events.ItemFailed` contains this error.
    """


class JobError(TrawlError):
    """A job can't be opened, read or written: in use by another process, damaged, of a newer version, on a full disk.

    Nothing in the job was overwritten. The crawl ends. The job can be resumed when the cause is fixed.

    Attributes:
        directory: The job's directory.
    """

    def __init__(self, sentence: str, directory: str = "") -> None:
        super().__init__(sentence)
        self.directory = directory


class JobUnavailable(JobError):
    """The server of a job can't be reached, or can't store the job yet, for example during a failover.

    A command fails with this error when it starts. A process that already works on the job waits for the server
    instead.
    """


class SessionEnded(JobError):
    """Other processes of the job replaced this process, or the job's server has lost steps of this process.

    Nothing is lost, because a new process can join the job. ``trawl crawl`` and ``trawl worker`` do so automatically.
    """


class SpiderLoadError(TrawlError):
    """The spider can't be loaded, because it does not exist or its file has an error."""


class SpiderNotFound(SpiderLoadError, UsageError):
    """The named spider does not exist: no such file, module or class, or it contains no spider or more than one."""


class PartLoadError(TrawlError):
    """A user pipeline, middleware or other component can't be imported or created because its own code failed.

    The message names the setting, the component, the line and the error. The error is the cause of this exception.
    """


class WrittenForScrapy(SpiderLoadError, UsageError):
    """The spider imports Scrapy. The message says what to write instead.

    Attributes:
        places: The file, the line and the change for each import.
    """

    def __init__(self, sentence: str, places: tuple[tuple[str, int, str], ...] = ()) -> None:
        super().__init__(sentence)
        self.places: tuple[tuple[str, int, str], ...] = places


class IgnoreRequest(TrawlError):
    """Drop this request; its errback is called with this error."""


class DownloadError(TrawlError):
    """A request got no complete response.

    Attributes:
        cause: The message without method and URL.
        url: The request's URL.
        method: The request's method.
        response: The last response if a response caused the error; else None.
        is_retryable: True if a retry may succeed.
    """

    is_retryable: ClassVar[bool] = True
    response: Any = None

    def __init__(self, cause: str, *, url: str = "", method: str = "GET") -> None:
        super().__init__(cause)
        self.cause = cause
        self.url = url
        self.method = method

    def __str__(self) -> str:
        return without_passwords(f"{self.method} {self.url}: {self.cause}" if self.url else self.cause)


class ConnectFailed(DownloadError):
    """No connection: refused, unreachable, or reset while connecting."""


class NameNotResolved(ConnectFailed):
    """The host's name has no address, or no name server responded."""


class TLSFailed(ConnectFailed):
    """The TLS handshake failed, or the certificate was refused."""

    is_retryable = False


class ConnectTimeout(DownloadError):
    """No connection within the connect timeout."""


class ProxyFailed(DownloadError):
    """A proxy failed: it was not reached, refused the request, is banned, or did not reach the host.

    Attributes:
        is_of_proxy: True if the proxy itself failed. False if the proxy works, but did not reach the host.
        response: The response that shows the ban of the proxy; else None.
        ready_in: Seconds until a proxy of ``ROTATING_PROXY_LIST`` may be used again if all its proxies cool down; else
            0.0.
    """

    def __init__(
        self, cause: str, *, is_of_proxy: bool = True, response: Any = None, url: str = "", method: str = "GET"
    ) -> None:
        super().__init__(cause, url=url, method=method)
        self.is_of_proxy: bool = is_of_proxy
        self.response: Any = response
        self.ready_in: float = 0.0


class ReadTimeout(DownloadError):
    """Nothing was received for the read timeout."""


class DownloadTimeout(DownloadError):
    """The exchange took longer than ``DOWNLOAD_TIMEOUT``."""


class ResponseBroken(DownloadError):
    """The response is not complete or not HTTP: closed early, wrong length, endless headers."""


class BodyTooLarge(DownloadError):
    """The body is larger than ``DOWNLOAD_MAXSIZE``, before or after decompression."""

    is_retryable = False


class BodyNotWritten(DownloadError):
    """The body can't be written to its file, for example because the disk is full."""

    is_retryable = False


class UnsupportedScheme(DownloadError):
    """The URL's scheme is not supported."""

    is_retryable = False


class AddressRefused(DownloadError):
    """The host has a private address that is not allowed; see ``ALLOW_PRIVATE_ADDRESSES``."""

    is_retryable = False


class TooManyRedirects(DownloadError, IgnoreRequest):
    """More redirects in a row than ``REDIRECT_MAX_TIMES``, including meta refreshes."""

    is_retryable = False


class RequestInvalid(DownloadError):
    """The request can't be written as HTTP, for example because ``Host`` is invalid. Nothing was sent."""

    is_retryable = False


class HostGivenUp(DownloadError):
    """The host of the request was given up, so the request ends without being sent (again).

    There are two reasons: the host gave no good response for ``BACKOFF_GIVE_UP_AFTER`` seconds and the time that it
    named has passed, or its robots.txt could not be read. A job keeps the request for its next run
    (``JOB_KEEP_GIVEN_UP``).

    >>> def failed(self, error):
    ...     if isinstance(error, trawl.exceptions.HostGivenUp):
    ...         status = error.response.status if error.response is not None else None
    ...         yield {"url": error.request.url, "dead": error.cause, "status": status}

    Attributes:
        WORDS: The text by which a job finds such requests.
        response: The last response of the host, possibly to another request; None if the last attempt got no response.
            A body of more than 16 KiB is left out. The error of the last attempt is the ``__cause__``.
    """

    is_retryable = False
    WORDS: ClassVar[str] = "its host was given up"


class SoftBlocked(DownloadError):
    """``SOFT_BLOCK_DETECTOR`` recognized the page as a refusal. Its scopes back off.

    Attributes:
        response: The response.
    """

    def __init__(self, response: Any, *, url: str = "", method: str = "GET") -> None:
        super().__init__(f"refused by a page with status {response.status}", url=url, method=method)
        self.response: Any = response


class RenderError(DownloadError):
    """A page was received, but the browser could not render it (meta ``browser``).

    ``response`` is the response as received.
    """


class BrowserEnded(RenderError):
    """The browser ended before the page was rendered."""


class PageCrashed(RenderError):
    """The process of the page has ended, for example because its scripts used too much memory."""


class PageNotReady(RenderError):
    """The page was not ready within its timeout (``BROWSER_TIMEOUT``).

    ``response`` has the HTML at that time.
    """


class HttpError(TrawlError):
    """A response whose status code the spider does not handle.

    >>> def failed(self, error):
    ...     if isinstance(error, trawl.HttpError):
    ...         yield {"url": error.request.url, "status": error.response.status}

    Attributes:
        response: The response, with its body.
    """

    def __init__(self, response: Any) -> None:
        super().__init__(f"{response.request.method} {response.url}: answered {response.status}")
        self.response = response


class NotConfigured(TrawlError):
    """Leave this middleware or pipeline out. Raise it in ``from_crawler``."""


class DropItem(TrawlError):
    """Drop this item.

    >>> class Priced:
    ...     def process_item(self, item):
    ...         if "price" not in item:
    ...             raise trawl.DropItem("it has no price")
    ...         return item

    Attributes:
        log_level: Log level for the dropped item, a name or number of the logging module; None for ``INFO``.
    """

    def __init__(self, message: object = "", log_level: str | int | None = None) -> None:
        super().__init__(message)
        self.log_level: str | int | None = log_level


class CloseSpider(TrawlError):
    """End the crawl. Requests in flight are finished, and no new requests are sent.

    >>> def parse(self, response):
    ...     if response.url.endswith("/last"):
    ...         raise trawl.CloseSpider("the last page")

    Attributes:
        reason: The value of ``CrawlResult.reason`` and of the statistic ``finish_reason``.
    """

    def __init__(self, reason: str = "closespider") -> None:
        super().__init__(reason)
        self.reason = reason


class DontCloseSpider(TrawlError):
    """Do not end the crawl although nothing is pending. Raise it in a receiver of the signal ``spider_idle``."""
