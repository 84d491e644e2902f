"""Errors say what failed, on what, and whether to try again."""

from __future__ import annotations

import pytest

import trawl.errors
import trawl.exceptions
from trawl.errors import (
    BodyTooLarge,
    CloseSpider,
    ConnectFailed,
    ConnectTimeout,
    DropItem,
    HttpError,
    IgnoreRequest,
    NameNotResolved,
    TrawlError,
)
from trawl.http import Request, Response


def test_a_download_error_is_one_sentence_that_names_the_request() -> None:
    error = ConnectTimeout("no connection within 30 s", url="http://a.example/", method="POST")
    assert str(error) == "POST http://a.example/: no connection within 30 s"
    assert error.is_retryable
    assert not BodyTooLarge("too large").is_retryable
    assert str(BodyTooLarge("too large")) == "too large"


def test_an_http_error_carries_its_response() -> None:
    response = Response("http://a.example/", 404, request=Request("http://a.example/"))
    error = HttpError(response)
    assert error.response is response
    assert str(error) == "GET http://a.example/: answered 404"


def test_close_spider_carries_its_reason() -> None:
    assert CloseSpider("enough").reason == "enough"
    assert CloseSpider().reason == "closespider"


def test_the_public_face_has_every_error() -> None:
    assert trawl.exceptions.__all__ == trawl.errors.__all__
    for name in trawl.errors.__all__:
        assert issubclass(getattr(trawl.exceptions, name), TrawlError)


def test_an_errback_written_for_scrapy_finds_what_it_asks_a_failure_for() -> None:
    error = NameNotResolved("no address", url="http://a.example/")
    assert error.value is error
    assert error.check(IgnoreRequest, ConnectFailed, NameNotResolved) is ConnectFailed
    assert error.check(IgnoreRequest) is None
    assert error.type is NameNotResolved
    assert error.getErrorMessage() == str(error)
    assert error.getTraceback().endswith(f"NameNotResolved: {error}\n")
    assert error.trap(ConnectFailed) is ConnectFailed
    with pytest.raises(NameNotResolved):
        error.trap(IgnoreRequest, HttpError)


SCRAPYS = [
    *("NotConfigured", "IgnoreRequest", "DontCloseSpider", "CloseSpider", "StopDownload", "DropItem", "NotSupported"),
    *("DownloadConnectionRefusedError", "CannotResolveHostError", "DownloadTimeoutError", "DownloadCancelledError"),
    *("DownloadFailedError", "ResponseDataLossError", "UnsupportedURLSchemeError", "UsageError"),
    *("ScrapyDeprecationWarning", "ContractFail"),
]
"""What scrapy.exceptions has that is its users' (Scrapy 2.19, "Exceptions")."""


@pytest.mark.parametrize("name", SCRAPYS)
def test_an_exception_of_scrapys_is_there_or_its_import_says_what_to_use(name: str) -> None:
    if name in trawl.exceptions.__all__:
        return
    with pytest.raises(ImportError, match=rf"^there is no {name} here: \w"):
        exec(f"from trawl.exceptions import {name}")


def test_a_misspelled_exception_is_an_attribute_error() -> None:
    assert not hasattr(trawl.exceptions, "DropItme")
    with pytest.raises(ImportError, match="cannot import name 'DropItme'"):
        exec("from trawl.exceptions import DropItme")


def test_a_dropped_item_may_say_how_it_is_logged() -> None:
    assert str(DropItem("no price")) == "no price"
    assert DropItem("no price", log_level="ERROR").log_level == "ERROR"
