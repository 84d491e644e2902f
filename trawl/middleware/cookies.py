"""Cookies on the way out and back."""

from __future__ import annotations

from trawl.cookies import Jars, NowUtc
from trawl.http import Fetch, Middleware, Outcome, Request

__all__ = ["cookies"]


def cookies(jars: Jars, now_utc: NowUtc) -> Middleware:
    """Middleware that sends what ``jars`` has for a request, and keeps what the response sets.

    What goes to the wire is a copy of the request, so that a cookie of today is not in the headers of tomorrow's retry.
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
                response.request = request  # one meta for the spider and the crawl
                jars.store(request, response, now_utc)
            return outcome

        return send

    return around
