"""Cookies on the way out and back."""

from __future__ import annotations

import logging

from trawl.cookies import Jars, NowUtc
from trawl.http import Fetch, Middleware, Outcome, Request

__all__ = ["cookies"]

logger: logging.Logger = logging.getLogger("trawl.middleware")


def cookies(jars: Jars, now_utc: NowUtc, *, debug: bool = False) -> Middleware:
    """Middleware that sends what ``jars`` has for a request, and keeps what the response sets.

    What goes to the wire is a copy of the request, so that a cookie of today is not in the headers of tomorrow's retry.

    Args:
        jars: The cookies.
        now_utc: Wall time.
        debug: Log what is sent and what is set (``COOKIES_DEBUG``).
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            header = jars.header(request, now_utc)
            if header is None:
                outcome = await fetch(request)
            else:
                sent = request.replace()
                sent.headers["Cookie"] = header
                outcome = await fetch(sent)
            response = outcome.response
            if response is not None:
                response.answer(request)  # one meta for the spider and the crawl
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
        logger.info("%r: was given the cookie %r", request, field)
