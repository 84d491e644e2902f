"""A site with a login form, served by the HTTP server of the standard library and without code of trawl."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import trio

PASSWORDS = {"anna": "secret", "ben": "hidden"}
PAGES = 3


class Site(ThreadingHTTPServer):
    """Stores the logged-in users and the requests.

    Attributes:
        tokens: The required value of the form's hidden field, by the visitor's cookie.
        users: The logged-in user, by the visitor's cookie.
        asked: Method, path and user of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tokens: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.asked: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    @property
    def visitor(self) -> str:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("visitor")
        return "" if cookie is None else cookie.value

    def do_GET(self) -> None:
        user = self.server.users.get(self.visitor)
        self.server.asked.append(("GET", self.path, user))
        if self.path == "/login":
            visitor = self.visitor or secrets.token_hex(8)
            self.server.tokens[visitor] = secrets.token_hex(8)
            self.answer(200, form(self.server.tokens[visitor]), {"Set-Cookie": f"visitor={visitor}; HttpOnly; Path=/"})
        elif self.path in ("/", *(f"/page/{number}/" for number in range(2, PAGES + 1))):
            number = int(self.path.strip("/").partition("/")[2] or 1)
            self.answer(200, quotes(number, user))
        else:
            self.answer(404, "")

    def do_POST(self) -> None:
        self.server.asked.append(("POST", self.path, None))
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        is_ours = fields.get("csrf_token") == self.server.tokens.get(self.visitor, "none")
        if is_ours and PASSWORDS.get(fields.get("username", "")) == fields.get("password"):
            fresh = secrets.token_hex(8)  # a login sets a new cookie
            self.server.users[fresh] = fields["username"]
            self.answer(302, "", {"Location": "/", "Set-Cookie": f"visitor={fresh}; HttpOnly; Path=/"})
        else:
            self.answer(200, form(self.server.tokens.get(self.visitor, "")))

    def answer(self, status: int, text: str, fields: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (fields or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def form(token: str) -> str:
    return f"""<form action="/login" method="post">
    <input type="hidden" name="csrf_token" value="{token}"/>
    <input type="text" name="username"/><input type="password" name="password"/>
    <input type="submit" value="Login"/></form>"""


def quotes(number: int, user: str | None) -> str:
    source = "" if user is None else ' in <cite class="source">Walden</cite>'
    account = '<a href="/login">Login</a>' if user is None else '<a href="/logout">Logout</a>'
    more = f'<li class="next"><a href="/page/{number + 1}/">Next</a></li>' if number < PAGES else ""
    return f"""{account}<div class="quote"><span class="text">No. {number}</span>
    <small class="author">Author {number}</small>{source}</div><ul>{more}</ul>"""


@asynccontextmanager
async def serving() -> AsyncGenerator[Site, None]:
    """Serve the site on a free port of the loopback interface."""
    site = Site()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, site.serve_forever, 0.01)
        try:
            yield site
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(site.shutdown)
    site.server_close()
