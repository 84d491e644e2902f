"""The exceptions of trawl, as a tree; users import them from :mod:`trawl.exceptions`.

::

    TrawlError
    ├─ UsageError                  the user's input is wrong; exit status 2
    │  ├─ SettingsError            a setting: unknown name, wrong type, out of range
    │  └─ FeedError                a feed that can't be opened or written
    ├─ SpiderLoadError             the spider's own code fails; exit status 1
    │  ├─ SpiderNotFound           what was named is no spider; also a UsageError, exit status 2
    │  └─ WrittenForScrapy         it imports Scrapy; also a UsageError, exit status 2
    ├─ PartLoadError               the user's pipeline, middleware or the like can't be made; exit status 1
    ├─ JobError                    a job's directory: in use, damaged, full, not writable; exit status 1
    │  ├─ JobUnavailable           its server can't be reached, or is a replica for now
    │  └─ SessionEnded             other processes go on in this one's place; the command joins them again
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
    │  └─ SoftBlocked              a page that SOFT_BLOCK_DETECTOR takes for a refusal
    ├─ HttpError                   a response whose status the spider does not handle
    │
    │  raised by users:
    ├─ IgnoreRequest               drop this request (in middleware and errbacks)
    ├─ DropItem                    drop this item (in pipelines)
    ├─ CloseSpider                 end the crawl with this reason (in callbacks)
    ├─ DontCloseSpider             do not end the crawl (in receivers of spider_idle)
    └─ NotConfigured               leave this part out (in from_crawler)

Expected ends of a request (duplicate, offsite, forbidden by robots.txt) are not errors: they are counted by reason.
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
    "PartLoadError",
    "ProxyFailed",
    "ReadTimeout",
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
    """The base class of trawl's exceptions; as text, passwords in URLs are ``***``.

    Attributes:
        request: The request, if an errback gets the error; else None.
    """

    request: Any = None

    def __str__(self) -> str:
        return without_passwords(super().__str__())

    @property
    def value(self) -> BaseException:
        """The error itself, for errbacks written for Scrapy, which get a Failure."""
        return self

    def check(self, *kinds: type[BaseException]) -> type[BaseException] | None:
        """Return the first of ``kinds`` that this error is an instance of, or None, as Scrapy's Failure does."""
        return next((kind for kind in kinds if isinstance(self.value, kind)), None)

    def trap(self, *kinds: type[BaseException]) -> type[BaseException]:
        """Like :meth:`check`, but raise the error if it is an instance of none of ``kinds``."""
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
    """The user's input is wrong; the message names the entry and says what to do."""


class SettingsError(UsageError):
    """A setting is unknown, of the wrong type or out of range.

    Attributes:
        name: The setting (or the entry inside it) that is wrong.
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
    """An item passed the pipelines, but none of its feeds could write it; the message says why, feed by feed.

    It is counted as ``item_lost_count`` instead of ``item_scraped_count``; :class:`trawl.events.ItemFailed` carries it.
    """


class JobError(TrawlError):
    """A job can't be opened, read or written: in use by another process, damaged, of a newer version, on a full disk.

    Nothing in the job was overwritten. The crawl ends; the job can be resumed once the cause is gone.

    Attributes:
        directory: The job's directory.
    """

    def __init__(self, sentence: str, directory: str = "") -> None:
        super().__init__(sentence)
        self.directory = directory


class JobUnavailable(JobError):
    """The server of a job can't be reached, or can't keep the job yet, for example during a failover.

    A command that starts fails with it. A process that was working on the job waits for the server instead.
    """


class SessionEnded(JobError):
    """Other processes of a job in a server go on in this one's place, or its server has lost steps of it.

    Nothing is lost: what is started again joins them. ``trawl crawl`` and ``trawl worker`` do so by themselves.
    """


class SpiderLoadError(TrawlError):
    """The spider can't be loaded: its name leads nowhere, or its file has an error."""


class SpiderNotFound(SpiderLoadError, UsageError):
    """No spider is where one was named: no such file, module or class, no spider in it, or several."""


class PartLoadError(TrawlError):
    """A pipeline, a middleware or another part of the user's can't be imported or made because its own code failed.

    The message names the setting, the part, the line and the error, which is the cause.
    """


class WrittenForScrapy(SpiderLoadError, UsageError):
    """The spider imports Scrapy; the message says what to write instead.

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
        response: The last response, if the error is due to one; else None.
        is_retryable: A retry may succeed.
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
    """The host's name has no address, or no name server answered."""


class TLSFailed(ConnectFailed):
    """The TLS handshake failed, or the certificate was refused."""

    is_retryable = False


class ConnectTimeout(DownloadError):
    """No connection within the connect timeout."""


class ProxyFailed(DownloadError):
    """No page through a proxy: it was not reached, refused the request, is banned, or did not reach the host.

    Attributes:
        is_of_proxy: The proxy itself is at fault. False: the proxy works, but did not reach the host.
        response: The response that shows the ban of the proxy; else None.
        ready_in: Seconds until a proxy of ``ROTATING_PROXY_LIST`` may be used again, where all of them cool down; else
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
    """The host has a private address and only a page led there; see ``ALLOW_PRIVATE_ADDRESSES``."""

    is_retryable = False


class TooManyRedirects(DownloadError, IgnoreRequest):
    """More redirects in a row than ``REDIRECT_MAX_TIMES``, meta refreshes included."""

    is_retryable = False


class RequestInvalid(DownloadError):
    """The request can't be written as HTTP, for example for an invalid ``Host``. Nothing was sent."""

    is_retryable = False


class HostGivenUp(DownloadError):
    """The host of the request was given up, so the request ends without being sent (again).

    The host gave no good response for ``BACKOFF_GIVE_UP_AFTER`` seconds, and the time that it named itself has passed;
    or its robots.txt could not be read. A job keeps the request for its next run (``JOB_KEEP_GIVEN_UP``).

    >>> def failed(self, error):
    ...     if isinstance(error, trawl.exceptions.HostGivenUp):
    ...         status = error.response.status if error.response is not None else None
    ...         yield {"url": error.request.url, "dead": error.cause, "status": status}

    Attributes:
        WORDS: What a job says of such requests, and finds them by.
        response: The last response of the host, which may be of another request; None if the last attempt got none.
            A body of more than 16 KiB is left out. The error of the last attempt is the ``__cause__``.
    """

    is_retryable = False
    WORDS: ClassVar[str] = "its host was given up"


class SoftBlocked(DownloadError):
    """``SOFT_BLOCK_DETECTOR`` takes the page for a refusal; its scopes back off.

    Attributes:
        response: The response.
    """

    def __init__(self, response: Any, *, url: str = "", method: str = "GET") -> None:
        super().__init__(f"refused by a page with status {response.status}", url=url, method=method)
        self.response: Any = response


class HttpError(TrawlError):
    """A response whose status the spider does not handle.

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
    """Leave this middleware or pipeline out: raised by its ``from_crawler``."""


class DropItem(TrawlError):
    """Drop this item.

    >>> class Priced:
    ...     def process_item(self, item):
    ...         if "price" not in item:
    ...             raise trawl.DropItem("it has no price")
    ...         return item

    Attributes:
        log_level: The level to log it with, a name or number of the logging module; None means ``INFO``.
    """

    def __init__(self, message: object = "", log_level: str | int | None = None) -> None:
        super().__init__(message)
        self.log_level: str | int | None = log_level


class CloseSpider(TrawlError):
    """End the crawl: requests in flight are finished, no new ones are sent.

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
    """Do not end the crawl although nothing is pending; raised by receivers of the signal ``spider_idle``."""
