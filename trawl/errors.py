"""What can go wrong, as a tree. ``trawl.exceptions`` is its public face.

::

    TrawlError
      UsageError                     the user's input can't be used; the command exits with status 2
        SettingsError                a setting: unknown name, wrong type, out of range
        FeedError                    a feed that can't be opened or written
      ItemLost                       an item that no feed can write
      JobError                       a job's directory: in use, damaged, full, not writable; exit status 1
      SpiderLoadError                the spider's file can't be found, read or run; the command exits with status 1
        WrittenForScrapy             it imports Scrapy: a UsageError too; the command exits with status 2
      PartLoadError                  the user's code failed while a pipeline, say, was made; exit status 1
      DownloadError                  a request got no whole response
        ConnectFailed                no connection: refused, unreachable, reset while connecting
          NameNotResolved            the host's name has no address
          TLSFailed                  the handshake failed or the certificate was refused
        ConnectTimeout               no connection within the connect timeout
        ProxyFailed                  a proxy was not reached, or would not reach the host
        ReadTimeout                  nothing came for the read timeout
        DownloadTimeout              the whole of it took longer than DOWNLOAD_TIMEOUT
        ResponseBroken               closed early, wrong length, not HTTP, endless headers
        BodyTooLarge                 more than DOWNLOAD_MAXSIZE, before or after decompression
        BodyNotWritten               a body that goes to a file, which the disk does not take
        UnsupportedScheme            a URL that this transport does not fetch
        AddressRefused               a host at an address that the crawl may not connect to
        TooManyRedirects             more in a row than REDIRECT_MAX_TIMES
        RequestInvalid               a request that can't be written as HTTP
        SoftBlocked                  a page that is a refusal: SOFT_BLOCK_DETECTOR says so
      HttpError                      a whole response whose status the spider does not handle
      IgnoreRequest                  drop this request (raised by users in middleware and errbacks)
      NotConfigured                  leave this one out (raised by users in from_crawler)
      DropItem                       drop this item (raised by users in pipelines)
      CloseSpider                    end the crawl with this reason (raised by users in callbacks)
      DontCloseSpider                do not end, though nothing is pending (raised by users where spider_idle is heard)

Expected ends (duplicate, offsite, refused by robots.txt) are not here: they are values, counted under their reason.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, ClassVar

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
    "HttpError",
    "IgnoreRequest",
    "ItemLost",
    "JobError",
    "NameNotResolved",
    "NotConfigured",
    "PartLoadError",
    "ProxyFailed",
    "ReadTimeout",
    "RequestInvalid",
    "ResponseBroken",
    "SettingsError",
    "SoftBlocked",
    "SpiderLoadError",
    "TLSFailed",
    "TooManyRedirects",
    "TrawlError",
    "UnsupportedScheme",
    "UsageError",
    "WrittenForScrapy",
]


class TrawlError(Exception):
    """Everything that trawl itself raises.

    Attributes:
        request: The request that an errback gets this error for; None elsewhere.
    """

    request: Any = None

    @property
    def value(self) -> TrawlError:
        """The error itself: errbacks written for Scrapy get a Failure, whose ``value`` is the error."""
        return self

    def check(self, *kinds: type[BaseException]) -> type[BaseException] | None:
        """The first of ``kinds`` that this error is, or None: as a Failure answers errbacks written for Scrapy."""
        return next((kind for kind in kinds if isinstance(self, kind)), None)

    def trap(self, *kinds: type[BaseException]) -> type[BaseException]:
        """As :meth:`check`, but an error that is none of ``kinds`` is raised."""
        kind = self.check(*kinds)
        if kind is None:
            raise self
        return kind

    @property
    def type(self) -> Any:
        """Its class."""
        return self.__class__

    def getErrorMessage(self) -> str:
        """What it says."""
        return str(self)

    def getTraceback(self) -> str:
        """Where it comes from, as Python prints it."""
        return "".join(traceback.format_exception(self))


class UsageError(TrawlError):
    """The user's input can't be used; its sentence names the entry and what to do."""


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
        uri: Where the feed was to go.
    """

    def __init__(self, sentence: str, uri: str = "") -> None:
        super().__init__(sentence)
        self.uri = uri


class ItemLost(TrawlError):
    """An item passed the pipelines, and no feed that wants it can write it; the sentence says why, feed by feed.

    It is counted as ``item_lost_count`` and not among the items; :class:`trawl.events.ItemFailed` carries it.
    """


class JobError(TrawlError):
    """A job can't be opened, read or written: in use by another process, damaged, of a newer version, the disk full.

    Nothing that the job holds was overwritten. The crawl that meets it ends; the job can be resumed once its cause is
    gone.

    Attributes:
        directory: The job's directory.
    """

    def __init__(self, sentence: str, directory: str = "") -> None:
        super().__init__(sentence)
        self.directory = directory


class SpiderLoadError(TrawlError):
    """The spider can't be loaded: no such file, a syntax error, no spider in it, or several."""


class PartLoadError(TrawlError):
    """A pipeline, a middleware or another part of the user's can't be imported or made: its own code failed.

    The sentence names the setting, the part, the line and the error, which is the cause.
    """


class WrittenForScrapy(SpiderLoadError, UsageError):
    """The spider's imports are Scrapy's; the sentence says what to write in place of each.

    Attributes:
        places: The same in parts: the file, the line and what to write there.
    """

    def __init__(self, sentence: str, places: tuple[tuple[str, int, str], ...] = ()) -> None:
        super().__init__(sentence)
        self.places: tuple[tuple[str, int, str], ...] = places


class DownloadError(TrawlError):
    """A request got no whole response.

    Attributes:
        url: What was asked for.
        method: How it was asked for.
        is_retryable: Whether another try may go better.
    """

    is_retryable: ClassVar[bool] = True

    def __init__(self, cause: str, *, url: str = "", method: str = "GET") -> None:
        super().__init__(cause)
        self.cause = cause
        self.url = url
        self.method = method

    def __str__(self) -> str:
        return f"{self.method} {self.url}: {self.cause}" if self.url else self.cause


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
    """No page through a proxy: it was not reached, refused us, is banned, or could not reach the host.

    Attributes:
        is_of_proxy: Whether the proxy itself is at fault; False: it works, but the host was not to be reached.
        response: What came instead of the page, where the proxy is banned; else None.
    """

    def __init__(
        self, cause: str, *, is_of_proxy: bool = True, response: Any = None, url: str = "", method: str = "GET"
    ) -> None:
        super().__init__(cause, url=url, method=method)
        self.is_of_proxy: bool = is_of_proxy
        self.response: Any = response


class ReadTimeout(DownloadError):
    """Nothing came for as long as the read timeout."""


class DownloadTimeout(DownloadError):
    """The whole exchange took longer than ``DOWNLOAD_TIMEOUT``."""


class ResponseBroken(DownloadError):
    """What came is not a whole HTTP response: closed early, wrong length, endless headers, another protocol."""


class BodyTooLarge(DownloadError):
    """The body passes ``DOWNLOAD_MAXSIZE``, as sent or once decompressed."""

    is_retryable = False


class BodyNotWritten(DownloadError):
    """The body goes to a file, and can't be written there: the disk is full, say."""

    is_retryable = False


class UnsupportedScheme(DownloadError):
    """The URL's scheme is not one that is fetched."""

    is_retryable = False


class AddressRefused(DownloadError):
    """The host is at a private address, and nobody but a page sends us there: see ``ALLOW_PRIVATE_ADDRESSES``."""

    is_retryable = False


class TooManyRedirects(DownloadError):
    """More redirects in a row than ``REDIRECT_MAX_TIMES``, those of pages that refresh included."""

    is_retryable = False


class RequestInvalid(DownloadError):
    """The request can't be written as HTTP: its ``Host`` is no host, say. Nothing was sent."""

    is_retryable = False


class SoftBlocked(DownloadError):
    """What came looks like a page and is a refusal, says ``SOFT_BLOCK_DETECTOR``; its scopes back off.

    Attributes:
        response: What came.
    """

    def __init__(self, response: Any, *, url: str = "", method: str = "GET") -> None:
        super().__init__(f"refused by a page with status {response.status}", url=url, method=method)
        self.response: Any = response


class HttpError(TrawlError):
    """A whole response whose status the spider does not handle.

    Attributes:
        response: The response, with its body.
    """

    def __init__(self, response: Any) -> None:
        super().__init__(f"{response.request.method} {response.url}: answered {response.status}")
        self.response = response


class IgnoreRequest(TrawlError):
    """Drop this request; its errback is called with this error."""


class NotConfigured(TrawlError):
    """Leave this middleware or pipeline out: raised by its ``from_crawler``."""


class DropItem(TrawlError):
    """Drop this item.

    Attributes:
        log_level: With which level that is logged, a name or a number of the logging module's; None: ``INFO``.
    """

    def __init__(self, message: object = "", log_level: str | int | None = None) -> None:
        super().__init__(message)
        self.log_level: str | int | None = log_level


class CloseSpider(TrawlError):
    """End the crawl: what is in flight ends, nothing new is sent.

    Attributes:
        reason: What ``CrawlResult.reason`` and the statistic ``finish_reason`` will say.
    """

    def __init__(self, reason: str = "closespider") -> None:
        super().__init__(reason)
        self.reason = reason


class DontCloseSpider(TrawlError):
    """Do not end the crawl, though nothing is pending: what a receiver of the signal ``spider_idle`` raises."""
