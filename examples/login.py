"""Two users logged in at once, each in a session of its own, at the site of ``trawl demo``.

::

    trawl crawl examples/login.py -O quotes.jsonl -a users=anna:secret,ben:hidden

The form has a hidden field that belongs to a cookie: ``FormRequest.from_response`` sends the one, the session the
other. Only who is logged in sees which work a quote is from. With ``-s COOKIES_FILE=cookies.json`` the next crawl is
logged in already, and is not asked for passwords.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import trawl


class Login(trawl.Spider):
    """Logs in, and takes the quotes of the first pages as each user sees them."""

    name = "login"

    site = "http://127.0.0.1:8765"
    """``-a site=URL``: another one with such a form."""

    users = "anna:secret,ben:hidden"
    """``-a users=NAME:PASSWORD,...``: who is logged in."""

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """The first page, once for each user."""
        for user in self.users.split(","):
            name, _, password = user.partition(":")
            yield self.session(name).request(f"{self.site}/", cb_kwargs={"password": password})

    def parse(self, response: trawl.Response, password: str) -> Iterator[Any]:
        """Go on if the cookies of an earlier crawl still hold, else to the form."""
        if is_logged_in(response):
            yield from self.quotes(response)
        else:
            yield self.here(response, response.follow("/login", self.form, cb_kwargs={"password": password}))

    def form(self, response: trawl.Response, password: str) -> trawl.Request:
        """Fill the form in: the hidden field is there already.

        A login leads back to the first page, which was seen, as a stranger: so it is not to be taken for a duplicate.
        """
        fields = {"username": response.meta["session"], "password": password}
        filled = trawl.FormRequest.from_response(response, formdata=fields, callback=self.answered, dont_filter=True)
        return self.here(response, filled)

    def answered(self, response: trawl.Response) -> Iterator[Any]:
        """After the redirect that follows a login."""
        if is_logged_in(response):
            yield from self.quotes(response)
        else:
            self.logger.error("%s was not let in", response.meta["session"])

    def quotes(self, response: trawl.Response) -> Iterator[Any]:
        """The quotes of a page, and the way to the next one."""
        for quote in response.css("div.quote"):
            yield {
                "user": response.meta["session"],
                "author": quote.css("small.author::text").get(),
                "source": quote.css("cite.source::text").get(),
            }
        for request in response.follow_all(css="li.next a", callback=self.quotes):
            yield self.here(response, request)

    def here(self, response: trawl.Response, request: trawl.Request) -> trawl.Request:
        """A request in the session that a page came in."""
        return self.session(response.meta["session"])(request)


def is_logged_in(response: trawl.Response) -> bool:
    """Whether a page offers to log out."""
    return bool(response.css('a[href="/logout"]'))
