"""A site for experiments, with a hundred quotes and a shop that sells the books of these quotes.

``trawl demo`` serves the site, and simulated webs can include it as a host. Its pages use the elements and classes that
are common in crawling tutorials (``div.quote``, ``article.product_pod``, ``li.next a``). The quotes come from books
whose copyright has ended. One class serves both the real and the simulated server, and reads only the given clock. So
the same requests get the same responses in each run.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape
from importlib.resources import files
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

import attrs
import trio

from trawl.errors import ResponseBroken
from trawl.http import Request
from trawl.testing.hosts import SimulatedResponse
from trawl.testing.limits import RateLimit, TokenBucket

__all__ = ["DEMO_HOST", "ROBOTS", "DemoSite"]

DEMO_HOST = "127.0.0.1:8765"
"""The default host and port of the site in ``trawl demo``."""

QUOTES_A_PAGE = 10
BOOKS_A_PAGE = 20
STARS = ("One", "Two", "Three", "Four", "Five")
COVER = (120, 180)  # pixels
API_LIMIT = RateLimit(2.0, 5.0, retry_after=True, headers="draft-03", body='{"error": "too many requests"}')
"""The limit of ``/api/authors``: five requests at once, and two per second on average."""

ROBOTS = SimulatedResponse(200, "User-agent: *\nDisallow: /private/\n", {"Content-Type": "text/plain; charset=utf-8"})
"""The response for ``/robots.txt``."""

LONGEST = 60.0  # seconds until /trouble/hang responds, and the maximum for /slow
CHANGED_UTC = datetime(2026, 1, 1, tzinfo=UTC)
JSON = {"Content-Type": "application/json"}

SCROLL = """<h1>Quotes to scroll through</h1>
<div class="quotes"></div>
<script>
let next = 1;
async function more() {
  if (!next || innerHeight + scrollY < document.body.offsetHeight - 200) return;
  const page = next;
  next = 0;
  const found = await (await fetch(`/api/quotes?page=${page}`)).json();
  for (const quote of found.quotes) {
    const block = document.createElement("div");
    block.className = "quote";
    block.textContent = `“${quote.text}” by ${quote.author.name}`;
    document.querySelector(".quotes").append(block);
  }
  next = found.has_next ? page + 1 : 0;
  more();
}
addEventListener("scroll", more);
more();
</script>"""
STYLE = "body{max-width:44rem;margin:2rem auto;font-family:sans-serif}.quote{margin:1.5rem 0}.text{font-size:1.1rem}"


@attrs.frozen
class Quote:
    """One quote."""

    text: str
    author: str  # the name of the quote's author
    source: str  # the title of the work that contains it
    tags: tuple[str, ...]  # the topics of the quote


@attrs.frozen
class Author:
    """The author of quotes."""

    name: str
    born: str  # the date of birth, in English
    place: str  # the place of birth

    @property
    def slug(self) -> str:
        """The last part of the path of the author's page."""
        return _slug(self.name)


@attrs.frozen
class Book:
    """One book of the shop."""

    title: str
    author: str  # the name of the book's author
    # The genre of the book. The shop has a list for each genre.
    shelf: str

    @property
    def slug(self) -> str:
        """The variable part of the path of the book's page."""
        return re.sub(r"\W+", "-", self.title).strip("-").lower()

    @property
    def digest(self) -> bytes:
        """A hash of the title. The book's product code, price and other values are derived from this hash."""
        return hashlib.blake2b(self.title.encode(), digest_size=8).digest()

    @property
    def price(self) -> str:
        """The price, from 5 to 60 pounds."""
        return f"£{5 + int.from_bytes(self.digest[:2], 'big') % 5500 / 100:.2f}"

    @property
    def stars(self) -> str:
        """The rating in stars, as a CSS class."""
        return STARS[self.digest[2] % len(STARS)]

    @property
    def in_stock(self) -> int:
        """The number of copies in stock."""
        return 1 + self.digest[3] % 22


def _slug(author: str) -> str:
    return re.sub(r"\W+", "-", author.replace("ë", "e")).strip("-")


def _rows(name: str) -> list[list[str]]:
    text = files("trawl.testing").joinpath(name).read_text("utf-8")
    return [line.split("\t") for line in text.splitlines()]


@cache
def all_quotes() -> Sequence[Quote]:
    """Return the hundred quotes in the order of the pages."""
    return [Quote(text, author, source, tuple(tags.split())) for text, author, source, tags in _rows("demo_quotes.tsv")]


@cache
def all_authors() -> Mapping[str, Author]:
    """Return the fifty authors by the last part of their path."""
    authors = [Author(*row) for row in _rows("demo_authors.tsv")]
    return {author.slug: author for author in authors}


@cache
def all_books() -> Mapping[str, Book]:
    """Return the books in the order of the lists, by the variable part of their page's path."""
    books = [Book(*row) for row in _rows("demo_books.tsv")]
    return {book.slug: book for book in books}


class DemoSite:
    """A site of quotes and books: a handler for :meth:`SimulatedWeb.add_host <trawl.testing.SimulatedWeb.add_host>`.

    ``web.add_host(DemoSite.host, handler=DemoSite(), robots=DemoSite.robots)`` adds it to a simulated web.

    Paths: ``/``, ``/page/N/``, ``/tag/NAME/``, ``/author/NAME``, ``/login``, ``/logout``, ``/scroll`` over
    ``/api/quotes?page=N``, ``/api/authors?page=N`` with a limit of two requests per second, ``/sitemap.xml``,
    ``/private/`` (disallowed by robots.txt), ``/books/``, ``/books/page/N/``, ``/books/shelf/NAME/``, ``/books/NAME/``,
    ``/books/covers/NAME.png``, ``/slow?seconds=N``, ``/trouble/500``, ``/trouble/503``, ``/trouble/cut`` and
    ``/trouble/hang``. The login accepts any name and password.

    Args:
        clock: Returns the time in seconds, for the rate limit.

    Attributes:
        host: The default host and port of the site in ``trawl demo``.
        robots: The response for ``/robots.txt``.
    """

    host: ClassVar[str] = DEMO_HOST
    robots: ClassVar[SimulatedResponse] = ROBOTS

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._began_at: float | None = None
        self._api = TokenBucket(API_LIMIT)
        self._forms = 0

    def __call__(self, request: Request) -> SimulatedResponse:
        """Return the response to a request."""
        parts = urlsplit(request.url)
        path, query = unquote(parts.path), _first_values(parts.query)
        steps = path.strip("/").split("/")
        match steps:
            case ["login"]:
                return self._login(request)
            case ["logout"]:
                return _redirect("/", "session=; Path=/; Max-Age=0")
            case ["api", "authors"]:
                return self._limited(query)
            case ["author", slug] if slug in all_authors():
                return _author_page(request, all_authors()[slug])
            case ["" | "page" | "tag", *_]:
                return _quotes_page(request, path, steps)
            case ["books", *rest]:
                return _shop(request, rest)
            case ["trouble", kind]:
                return _trouble(request, kind)
        return _other_page(request, path, query)

    def _login(self, request: Request) -> SimulatedResponse:
        """Return the form, or log in if the form's hidden field matches the cookie."""
        if request.method != "POST":
            self._forms += 1
            cookie = f"{self._forms}"
            form = _form(_token(cookie))
            return _page(request, form, {"Set-Cookie": f"form={cookie}; Path=/; HttpOnly"})
        fields = _first_values(request.body.decode("utf-8", "replace"))
        cookie = _cookies(request).get("form", "")
        if not cookie or fields.get("csrf_token") != _token(cookie):
            return _page(request, f"<p class='error'>The form has expired.</p>{_form('')}", status=403)
        if not fields.get("username") or not fields.get("password"):
            return _page(request, f"<p class='error'>A name and a password, please.</p>{_form(_token(cookie))}")
        session = _token(fields["username"])
        return _redirect("/", f"session={session}; Path=/; HttpOnly")

    def _limited(self, query: Mapping[str, str]) -> SimulatedResponse:
        """Return a page of authors as JSON, or status code 429 after too many requests."""
        now = self._clock()
        if self._began_at is None:
            self._began_at = now
        now -= self._began_at
        is_refusal = not self._api.take(now)
        fields = self._api.fields(now, CHANGED_UTC + timedelta(seconds=now), is_refusal=is_refusal)
        if is_refusal:
            return SimulatedResponse(429, API_LIMIT.body, {**JSON, **fields})
        authors = [{**attrs.asdict(author), "slug": slug} for slug, author in all_authors().items()]
        return _as_json("authors", authors, query, fields)


def _first_values(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def _token(text: str) -> str:
    """Return a token for ``text``. It is not secret, because anyone can compute it from this code."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _cookies(request: Request) -> dict[str, str]:
    pairs = (pair.strip().partition("=") for pair in request.headers.get("Cookie", "").split(";"))
    return {name: value for name, _, value in pairs if value}


def _redirect(to: str, cookie: str) -> SimulatedResponse:
    return SimulatedResponse(302, "", {"Location": to, "Set-Cookie": cookie})


def _page(
    request: Request, body: str, headers: Mapping[str, str] | None = None, *, status: int = 200, latency: float = 0.0
) -> SimulatedResponse:
    """Return an HTML page with the common head."""
    account = '<a href="/logout">Logout</a>' if "session" in _cookies(request) else '<a href="/login">Login</a>'
    whole = f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="UTF-8"><title>Quotes to crawl</title><style>{STYLE}</style></head>
<body>
<p class="account">{account}</p>
{body}
</body>
</html>
"""
    return SimulatedResponse(status, whole, headers, latency)


def _quotes_page(request: Request, path: str, steps: Sequence[str]) -> SimulatedResponse:
    """Return ``/``, ``/page/N/``, ``/tag/NAME/`` or ``/tag/NAME/page/N/``."""
    tag = steps[1] if steps[0] == "tag" and len(steps) > 1 else ""
    rest = list(steps[2:] if tag else steps)
    number = 1 if rest in ([], [""]) else _number(rest[1]) if rest[0] == "page" and len(rest) == 2 else 0
    chosen = [quote for quote in all_quotes() if not tag or tag in quote.tags]
    here = chosen[(number - 1) * QUOTES_A_PAGE : number * QUOTES_A_PAGE] if number else []
    if not here:
        return _missing(request)
    is_known = "session" in _cookies(request)
    prefix = f"/tag/{tag}" if tag else ""
    links = []
    if number > 1:
        links.append(
            f'<li class="previous"><a href="{prefix}/page/{number - 1}/"><span>&larr;</span> Previous</a></li>'
        )
    if number * QUOTES_A_PAGE < len(chosen):
        links.append(f'<li class="next"><a href="{prefix}/page/{number + 1}/">Next <span>&rarr;</span></a></li>')
    title = f"<h1>Quotes about {tag}</h1>" if tag else '<h1><a href="/">Quotes</a></h1>'
    blocks = "\n".join(_quote_block(quote, is_known) for quote in here)
    return _page(request, f'{title}\n{blocks}\n<nav><ul class="pager">{"".join(links)}</ul></nav>')


def _quote_block(quote: Quote, is_known: bool) -> str:
    """Return the HTML of a quote. After login, the HTML includes the source of the quote."""
    source = f' in <cite class="source">{escape(quote.source)}</cite>' if is_known else ""
    tags = "\n".join(f'<a class="tag" href="/tag/{tag}/">{tag}</a>' for tag in quote.tags)
    return f"""<div class="quote">
<span class="text">“{escape(quote.text, quote=False)}”</span>
<span>by <small class="author">{quote.author}</small>
<a href="/author/{_slug(quote.author)}">(about)</a>{source}</span>
<div class="tags">Tags:
{tags}
</div>
</div>"""


def _author_page(request: Request, author: Author) -> SimulatedResponse:
    return _page(
        request,
        f"""<div class="author-details">
<h3 class="author-title">{author.name}</h3>
<p><strong>Born:</strong> <span class="author-born-date">{author.born}</span>
<span class="author-born-location">in {author.place}</span></p>
</div>""",
    )


def _shop(request: Request, steps: Sequence[str]) -> SimulatedResponse:
    """Return a list of books, the page of a book, or its cover."""
    match steps:
        case [slug] if slug in all_books():
            return _book_page(request, all_books()[slug])
        case ["covers", name] if name.removesuffix(".png") in all_books():
            book = all_books()[name.removesuffix(".png")]
            return SimulatedResponse(200, _png(*COVER, book.digest[4:7]), {"Content-Type": "image/png"})
        case ["shelf", shelf, *rest]:
            return _books_page(request, f"/books/shelf/{shelf}/", shelf, rest)
    return _books_page(request, "/books/", "", steps)


def _books_page(request: Request, prefix: str, shelf: str, rest: Sequence[str]) -> SimulatedResponse:
    """Return a list of all books or of the books of a genre."""
    number = 1 if not rest else _number(rest[1]) if rest[0] == "page" and len(rest) == 2 else 0
    chosen = [book for book in all_books().values() if not shelf or book.shelf == shelf]
    here = chosen[(number - 1) * BOOKS_A_PAGE : number * BOOKS_A_PAGE] if number else []
    if not here:
        return _missing(request)
    next_page = f'<li class="next"><a href="{prefix}page/{number + 1}/">next</a></li>'
    more = next_page if number * BOOKS_A_PAGE < len(chosen) else ""
    blocks = "\n".join(_book_block(book) for book in here)
    return _page(request, f'<h1>{shelf or "Books"}</h1>\n{blocks}\n<nav><ul class="pager">{more}</ul></nav>')


def _book_block(book: Book) -> str:
    title, page = escape(book.title), f"/books/{book.slug}/"
    return f"""<article class="product_pod">
<a href="{page}"><img src="/books/covers/{book.slug}.png" alt="{title}" class="thumbnail"></a>
<p class="star-rating {book.stars}"></p>
<h3><a href="{page}" title="{title}">{title}</a></h3>
<p class="price_color">{book.price}</p>
<p class="instock availability">In stock</p>
</article>"""


def _book_page(request: Request, book: Book) -> SimulatedResponse:
    title = escape(book.title)
    quotes = [escape(quote.text, quote=False) for quote in all_quotes() if quote.source == book.title]
    return _page(
        request,
        f"""<ul class="breadcrumb">
<li><a href="/">Home</a></li>
<li><a href="/books/">Books</a></li>
<li><a href="/books/shelf/{book.shelf}/">{book.shelf}</a></li>
<li class="active">{title}</li>
</ul>
<article class="product_page">
<h1>{title}</h1>
<p class="author">{book.author}</p>
<img src="/books/covers/{book.slug}.png" alt="{title}">
<p class="price_color">{book.price}</p>
<p class="instock availability">In stock ({book.in_stock} available)</p>
<p class="star-rating {book.stars}"></p>
<div id="product_description"><h2>What is in it</h2></div>
<p>{" ... ".join(quotes)}</p>
<table>
<tr><th>UPC</th><td>{book.digest.hex()}</td></tr>
<tr><th>Price (incl. tax)</th><td>{book.price}</td></tr>
<tr><th>Availability</th><td>In stock ({book.in_stock} available)</td></tr>
</table>
</article>""",
    )


def _png(width: int, height: int, colour: bytes) -> bytes:
    """Return a single-color PNG image (W3C, Portable Network Graphics, sections 5 and 11)."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress((b"\0" + colour * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def _form(token: str) -> str:
    return f"""<form action="/login" method="post">
<input type="hidden" name="csrf_token" value="{token}">
<label>Name <input type="text" name="username"></label>
<label>Password <input type="password" name="password"></label>
<input type="submit" value="Login">
</form>"""


def _other_page(request: Request, path: str, query: Mapping[str, str]) -> SimulatedResponse:
    """Return a page that is not about quotes and needs no state."""
    match path.rstrip("/"):
        case "/robots.txt":
            return ROBOTS
        case "/sitemap.xml":
            return _sitemap(request.url)
        case "/scroll":
            return _page(request, SCROLL)
        case "/api/quotes":
            quotes = [
                {"text": q.text, "author": {"name": q.author, "slug": _slug(q.author)}, "tags": q.tags}
                for q in all_quotes()
            ]
            return _as_json("quotes", quotes, query)
        case "/private":
            return _page(request, "<h1>Not for crawlers</h1>")
        case "/slow":
            seconds = min(_seconds(query.get("seconds", "3")), LONGEST)
            return _page(request, f"<h1>This took {seconds:g} s</h1>", latency=seconds)
    return _missing(request)


def _trouble(request: Request, kind: str) -> SimulatedResponse:
    """Return a response that fails in the named way."""
    match kind:
        case "500":
            return _page(request, "<h1>Something went wrong</h1>", status=500)
        case "503":
            return _page(request, "<h1>Come back later</h1>", {"Retry-After": "5"}, status=503)
        case "cut":
            return SimulatedResponse(200, "<h1>This page ends before its end</h1>" * 100, error=ResponseBroken)
        case "hang":
            return _page(request, "<h1>At last</h1>", latency=LONGEST)
    return _missing(request)


def _missing(request: Request) -> SimulatedResponse:
    return _page(request, "<h1>There is no such page</h1>", status=404)


def _as_json(
    name: str, everything: Sequence[object], query: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> SimulatedResponse:
    """Return a page of a list as JSON."""
    number = _number(query.get("page", "1")) or 1
    end = number * QUOTES_A_PAGE
    found = {"page": number, "has_next": end < len(everything), name: everything[end - QUOTES_A_PAGE : end]}
    return SimulatedResponse(200, json.dumps(found, ensure_ascii=False), {**JSON, **(headers or {})})


def _sitemap(url: str) -> SimulatedResponse:
    pages = ["/", *(f"/page/{number}/" for number in range(2, len(all_quotes()) // QUOTES_A_PAGE + 1))]
    paths = [*pages, *(f"/author/{slug}" for slug in all_authors())]
    day = f"<lastmod>{CHANGED_UTC:%Y-%m-%d}</lastmod>"
    entries = "\n".join(f"<url><loc>{urljoin(url, path)}</loc>{day}</url>" for path in paths)
    whole = f"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
{entries}
</urlset>
"""
    return SimulatedResponse(200, whole, {"Content-Type": "application/xml"})


def _number(text: str) -> int:
    """Return an integer from 1 to 9999, or 0 for any other text."""
    return int(text) if re.fullmatch(r"[1-9]\d{0,3}", text, re.ASCII) else 0


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text, re.ASCII) else 3.0
