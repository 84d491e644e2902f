"""Cookies on requests and responses, and the file (``COOKIES_FILE``) that stores them between crawls."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import trio

from trawl.blocking import Blocking
from trawl.cookies import Jars, NowUtc, from_json, from_netscape, is_netscape, to_json, to_netscape
from trawl.errors import UsageError
from trawl.file_sync import write_file
from trawl.http import Fetch, Middleware, Outcome, Request

__all__ = ["cookies", "open_cookie_file", "set_cookies"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

WRITE_GRACE = 10.0  # maximum seconds for writing the file


@asynccontextmanager
async def open_cookie_file(
    path: str, jars: Jars, *, blocking: Blocking, now_utc: Callable[[], datetime]
) -> AsyncGenerator[None, None]:
    """Load the cookies of a file into ``jars``. On exit, write the jars to the file, even after a cancellation.

    An empty ``path`` means no file. The file is replaced by a complete new file, so the old file stays intact if the
    process is killed. Only the owner may read the file.

    Raises:
        UsageError: If the file can't be read or is not a file of cookies, or its folder does not exist.
    """
    if not path:
        yield
        return
    await blocking.run(_read, path, jars)
    try:
        yield
    finally:
        with trio.move_on_after(WRITE_GRACE, shield=True) as grace:
            try:
                await blocking.run(_write, path, jars, now_utc())
            except OSError:
                logger.exception("COOKIES_FILE: %r could not be written", path)
        if grace.cancelled_caught:
            logger.error("COOKIES_FILE: %r was not written within %g s", path, WRITE_GRACE)


def _read(path: str, jars: Jars) -> None:
    file = Path(path)
    if not file.parent.is_dir():
        raise UsageError(f"COOKIES_FILE: the folder {str(file.parent)!r} does not exist: create it")
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"COOKIES_FILE: {path!r} can't be read: {error}") from error
    try:
        if is_netscape(path):
            for cookie in from_netscape(text):
                jars.add(cookie)
        else:
            for name, cookie in from_json(text):
                jars.add(cookie, name)
    except ValueError as error:
        raise UsageError(f"COOKIES_FILE: {path!r} can't be read: {error}") from error


def _write(path: str, jars: Jars, now_utc: datetime) -> None:
    if is_netscape(path):
        others = [name for name, jar in jars.items() if name is not None and len(jar)]
        if others:
            logger.warning("COOKIES_FILE: cookies.txt holds only one jar, so %r are not saved: use .json", others)
        text = to_netscape(jars.jar(), now_utc)
    else:
        text = to_json(jars, now_utc)
    write_file(Path(path), text, 0o600)  # only for the owner, because cookies are as secret as passwords


def set_cookies(request: Request, header: str) -> None:
    """Set the ``Cookie`` header of a request; "" removes it."""
    request.headers.pop("Cookie", None)
    if header:
        request.headers["Cookie"] = header


def cookies(jars: Jars, now_utc: NowUtc, *, debug: bool = False) -> Middleware:
    """Return middleware that sends the cookies of ``jars`` and stores the cookies that responses set.

    Cookies are added to a copy of the request, because a retry must not send the cookies of the first attempt.

    Args:
        jars: The cookies.
        now_utc: Returns the wall time.
        debug: True to log the cookies sent and set (``COOKIES_DEBUG``).
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            header = jars.header(request, now_utc)
            if header is None:
                outcome = await fetch(request)
            else:
                sent = request.replace()
                set_cookies(sent, header)
                outcome = await fetch(sent)
            response = outcome.response
            if response is not None:
                response.answer(request)  # the spider and the crawl share the meta of this request, not of the copy
                jars.store(request, response, now_utc)
            if debug:
                _log(request, header, outcome)
            return outcome

        return send

    return around


def _log(request: Request, header: str | None, outcome: Outcome) -> None:
    sent = request.headers.get("Cookie") if header is None else header
    if sent:
        logger.info("%r: sent the cookies %r", request, sent)
    for field in () if outcome.response is None else outcome.response.headers.getlist("Set-Cookie"):
        logger.info("%r: received the cookie %r", request, field)
