"""Scrapy's filters of duplicates, for ``DUPEFILTER_CLASS`` and ``REQUEST_FINGERPRINTER_CLASS``.

The engine asks one function for the mark by which a request is seen (:func:`marks`). A filter that only has its own
idea of which requests are the same gives marks, which the frontier remembers, with a job too. One that remembers by
itself, for example in a database, is asked once for each request; a job can't rely on that, and is refused.

Only crawls that name such a class load this module, and users who derive from its classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self

from trawl.errors import SettingsError
from trawl.http import Request
from trawl.http.request import FINGERPRINT_BYTES
from trawl.http.request import fingerprint as own_fingerprint
from trawl.middleware.factory import entry_name, make_instance

if TYPE_CHECKING:
    from trawl.compat.crawler import Crawler

__all__ = ["BaseDupeFilter", "RFPDupeFilter", "marks"]

logger: logging.Logger = logging.getLogger("trawl.admission")

FILTER, FINGERPRINTER = "DUPEFILTER_CLASS", "REQUEST_FINGERPRINTER_CLASS"

_SCRAPYS = ("scrapy.dupefilters.", "trawl.dupefilters.")
_DEFAULTS = {f"{root}.utils.request.RequestFingerprinter" for root in ("scrapy", "trawl")}


class BaseDupeFilter:
    """A filter that takes no request for a duplicate."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make it for a crawl."""
        return cls()

    def request_seen(self, request: Request) -> bool:
        """Return whether a request was seen before, and remember it; not called for ``dont_filter``."""
        return False

    def open(self) -> Any:
        """Called before the crawl begins."""

    def close(self, reason: str) -> Any:
        """Called when the crawl has ended for ``reason``."""

    def log(self, request: Request, spider: Any) -> None:
        """Called with each duplicate."""


class RFPDupeFilter(BaseDupeFilter):
    """A filter that compares fingerprints.

    Args:
        path: Not used: a job remembers by itself.
        debug: ``DUPEFILTER_DEBUG``, for subclasses.
        fingerprinter: Makes the fingerprints; None: Scrapy's.

    Attributes:
        fingerprinter: Makes the fingerprints.
        debug: ``DUPEFILTER_DEBUG``.
    """

    def __init__(self, path: str | None = None, debug: bool = False, *, fingerprinter: Any = None) -> None:
        from trawl.compat.crawler import RequestFingerprinter  # noqa: PLC0415 - which may be asking for this module

        self.fingerprinter: Any = fingerprinter or RequestFingerprinter()
        self.debug: bool = debug
        self._seen: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make it for a crawl, with ``crawler.request_fingerprinter``."""
        debug = bool(crawler.settings.get("DUPEFILTER_DEBUG"))
        return cls(None, debug, fingerprinter=crawler.request_fingerprinter)

    def request_seen(self, request: Request) -> bool:
        """Return whether a request with the same fingerprint was seen before, and remember it."""
        mark = self.request_fingerprint(request)
        is_seen = mark in self._seen
        self._seen.add(mark)
        return is_seen

    def request_fingerprint(self, request: Request) -> str:
        """Return a text that is the same for requests that are the same."""
        found: bytes = self.fingerprinter.fingerprint(request)
        return found.hex()


def marks(crawler: Crawler, *, has_job: bool) -> Callable[[Request], bytes | None]:
    """Return the function that makes the mark by which a request is seen; None: it is always new; empty: it was seen.

    Args:
        crawler: The crawl; its ``request_fingerprinter`` becomes that of the setting.
        has_job: Requests are kept with the marks from one run to the next.

    Raises:
        SettingsError: A class is not there, can't be made, or remembers by itself what a job has to know.
        PartLoadError: Its own code failed.
    """
    chosen, fingerprinter = crawler.settings[FILTER], crawler.settings[FINGERPRINTER]
    if fingerprinter and fingerprinter not in _DEFAULTS:
        crawler.request_fingerprinter = _made(fingerprinter, FINGERPRINTER, "fingerprint", crawler)
    if isinstance(chosen, str) and chosen.startswith(_SCRAPYS):
        ours = {"BaseDupeFilter": BaseDupeFilter, "RFPDupeFilter": RFPDupeFilter}
        chosen = ours.get(chosen.rpartition(".")[2], chosen)
    if not chosen or chosen is RFPDupeFilter:
        if not fingerprinter or fingerprinter in _DEFAULTS:
            return own_fingerprint
        return _safe(lambda request: _mark(crawler.request_fingerprinter.fingerprint(request)), chosen or fingerprinter)
    found = _made(chosen, FILTER, "request_seen", crawler)
    kind = type(found)
    if kind is BaseDupeFilter:
        return lambda request: None
    if isinstance(found, RFPDupeFilter) and kind.request_seen is RFPDupeFilter.request_seen:
        return _safe(lambda request: _mark(found.request_fingerprint(request).encode()), chosen)
    if has_job:
        words = f"{FILTER}: {entry_name(chosen)} remembers requests by itself, which a job can't rely on: "
        raise SettingsError(f"{words}override request_fingerprint alone, or crawl without JOB_DIR", FILTER)
    return _safe(_asked(found, crawler), chosen)


def _safe(mark: Callable[[Request], bytes | None], entry: Any) -> Callable[[Request], bytes | None]:
    """Return ``mark`` with its errors logged: the request is dropped, as in Scrapy."""

    def marked(request: Request) -> bytes | None:
        try:
            return mark(request)
        except Exception:
            logger.exception("%r is dropped: %s failed", request, entry_name(entry))
            return b""

    return marked


def _asked(found: Any, crawler: Crawler) -> Callable[[Request], bytes | None]:
    """Open a filter that remembers by itself, and return the function that asks it."""
    if hasattr(found, "open"):
        found.open()
    if hasattr(found, "close"):
        crawler.signals.connect(found.close, signal="spider_closed")

    def mark(request: Request) -> bytes | None:
        if not found.request_seen(request):
            return None
        if hasattr(found, "log"):
            found.log(request, crawler.spider)
        return b""

    return mark


def _mark(fingerprint: bytes) -> bytes:
    return blake2b(fingerprint, digest_size=FINGERPRINT_BYTES).digest()


def _made(entry: Any, setting: str, method: str, crawler: Crawler) -> Any:
    found = make_instance(entry, setting, crawler)
    if not callable(getattr(found, method, None)):
        raise SettingsError(f"{setting}: {entry_name(entry)} has no method {method}(request)", setting)
    return found
