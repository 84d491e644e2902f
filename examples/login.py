"""Two users who are logged in at the same time, each in a separate session, on the site of ``trawl demo``.

::

    trawl crawl examples/login.py -O quotes.jsonl -a users=anna:secret,ben:hidden

The login form has a hidden field whose value fits a cookie. ``FormRequest.from_response`` sends the field, and the
session sends the cookie. Only users who are logged in see the source of each quote. With
``-s COOKIES_FILE=cookies.json``, the next crawl is already logged in and does not send passwords.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import trawl


class Login(trawl.Spider):
    """Logs in, and extracts the quotes of the first pages for each user."""

    name = "login"

    site = "http://127.0.0.1:8765"
    """``-a site=URL``: another site with such a form."""

    users = "anna:secret,ben:hidden"
    """``-a users=NAME:PASSWORD,...``: the users to log in."""

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield a request for the first page for each user."""
        for user in self.users.split(","):
            name, _, password = user.partition(":")
            yield self.session(name).request(f"{self.site}/", cb_kwargs={"password": password})

    def parse(self, response: trawl.Response, password: str) -> Iterator[Any]:
        """Continue if the cookies of an earlier crawl are still valid. Otherwise, request the form."""
        if is_logged_in(response):
            yield from self.quotes(response)
        else:
            yield self.here(response, response.follow("/login", self.form, cb_kwargs={"password": password}))

    def form(self, response: trawl.Response, password: str) -> trawl.Request:
        """Return the request that sends the filled form, including the hidden field.

        After a login, the site redirects to the first page. This page was seen before the login, so the duplicate
        filter must not apply.
        """
        fields = {"username": response.meta["session"], "password": password}
        filled = trawl.FormRequest.from_response(response, formdata=fields, callback=self.answered, dont_filter=True)
        return self.here(response, filled)

    def answered(self, response: trawl.Response) -> Iterator[Any]:
        """Process the page after the redirect that follows a login."""
        if is_logged_in(response):
            yield from self.quotes(response)
        else:
            self.logger.error("%s was not let in", response.meta["session"])

    def quotes(self, response: trawl.Response) -> Iterator[Any]:
        """Yield the quotes of a page, and the request for the next page."""
        for quote in response.css("div.quote"):
            yield {
                "user": response.meta["session"],
                "author": quote.css("small.author::text").get(),
                "source": quote.css("cite.source::text").get(),
            }
        for request in response.follow_all(css="li.next a", callback=self.quotes):
            yield self.here(response, request)

    def here(self, response: trawl.Response, request: trawl.Request) -> trawl.Request:
        """Return a request in the session of a response."""
        return self.session(response.meta["session"])(request)


def is_logged_in(response: trawl.Response) -> bool:
    """Return whether a page has a link to log out."""
    return bool(response.css('a[href="/logout"]'))
