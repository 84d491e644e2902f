"""The tutorial's site: quotes.toscrape.com at its full size, with its markup, its redirects, and its first page.

Like the site itself it has ten pages of ten quotes, fifty authors, pages of a tag, a login that takes any password, and
no robots.txt; the link to an author leads to a redirect, to ``http`` and a path that ends in a slash.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import attrs

from tests.examples.sandboxes import next_link, page
from trawl.http import Request
from trawl.testing import SimulatedResponse, SimulatedWeb

__all__ = ["tutorial_site"]

HOST = "quotes.toscrape.com"
QUOTES_A_PAGE = 10
FORM = '<form action="/login" method="post"><input type="hidden" name="csrf_token" value="1"/></form>'
LOVED = 14
"""How many quotes have the tag ``love``."""

FIRST = [
    (
        "The world as we have created it is a process of our thinking."
        " It cannot be changed without changing our thinking.",
        "Albert Einstein",
        "change deep-thoughts thinking world",
    ),
    (
        "It is our choices, Harry, that show what we truly are, far more than our abilities.",
        "J.K. Rowling",
        "abilities choices",
    ),
    (
        "There are only two ways to live your life. One is as though nothing is a miracle."
        " The other is as though everything is a miracle.",
        "Albert Einstein",
        "inspirational life live miracle miracles",
    ),
    (
        "The person, be it gentleman or lady, who has not pleasure in a good novel, must be intolerably stupid.",
        "Jane Austen",
        "aliteracy books classic humor",
    ),
    (
        "Imperfection is beauty, madness is genius and it's better to be absolutely ridiculous than absolutely boring.",
        "Marilyn Monroe",
        "be-yourself inspirational",
    ),
    (
        "Try not to become a man of success. Rather become a man of value.",
        "Albert Einstein",
        "adulthood success value",
    ),
    (
        "It is better to be hated for what you are than to be loved for what you are not.",
        "André Gide",
        "life love",
    ),
    (
        "I have not failed. I've just found 10,000 ways that won't work.",
        "Thomas A. Edison",
        "edison failure inspirational paraphrased",
    ),
    (
        "A woman is like a tea bag; you never know how strong it is until it's in hot water.",
        "Eleanor Roosevelt",
        "misattributed-eleanor-roosevelt",
    ),
    ("A day without sunshine is like, you know, night.", "Steve Martin", "humor obvious simile"),
]
BORN = {
    "Albert Einstein": ("March 14, 1879", "in Ulm, Germany"),
    "J.K. Rowling": ("July 31, 1965", "in Yate, South Gloucestershire, England, The United Kingdom"),
}
AUTHORS = 50


@attrs.frozen
class Quote:
    """One quote of the site."""

    text: str
    author: str
    tags: list[str]


def quotes() -> Iterator[Quote]:
    """All hundred: the first page's as they are, the others in their number, with authors enough."""
    known = list(dict.fromkeys(author for _, author, _ in FIRST))
    names = [*known, *(f"Author {number}" for number in range(len(known) + 1, AUTHORS + 1))]
    for text, author, tags in FIRST:
        yield Quote(text, author, tags.split())
    for number in range(len(FIRST) + 1, 101):
        tag = "love" if number <= len(FIRST) + LOVED - 1 else "life"
        yield Quote(f"Quote {number}.", names[number % AUTHORS], [tag])


def tutorial_site() -> SimulatedWeb:
    """A web with that site alone; an answer takes a fifth of a second, a new connection another."""
    everything = list(quotes())
    by_path = {path_of(quote.author): quote.author for quote in everything}

    def answer(request: Request) -> SimulatedResponse:
        parts = urlsplit(request.url)
        path, secure = parts.path, parts.scheme == "https"
        if path == "/login":
            cookie = {"Location": "/", "Set-Cookie": "session=1; Path=/"}
            return SimulatedResponse(302, "", cookie) if request.method == "POST" else html(FORM)
        if path.rstrip("/") in by_path:
            if secure or not path.endswith("/"):
                return SimulatedResponse(301, "", {"Location": f"http://{HOST}{path.rstrip('/')}/"})
            return html(author_page(by_path[path.rstrip("/")]))
        words = path.strip("/").split("/")
        tag = words[1] if words[0] == "tag" and len(words) > 1 else ""
        chosen = [quote for quote in everything if not tag or tag in quote.tags]
        number = int(words[-1]) if len(words) > 1 and words[-2] == "page" else 1
        here = chosen[(number - 1) * QUOTES_A_PAGE : number * QUOTES_A_PAGE]
        if path not in ("/", f"/page/{number}/", f"/tag/{tag}/", f"/tag/{tag}/page/{number}/") or not here:
            return SimulatedResponse(404, "")
        prefix = f"/tag/{tag}" if tag else ""
        more = next_link(f"{prefix}/page/{number + 1}/") if number * QUOTES_A_PAGE < len(chosen) else ""
        account = '<a href="/logout">Logout</a>' if "session=" in request.headers.get("Cookie", "") else ""
        return html(account + "".join(quote_block(quote) for quote in here) + more)

    web = SimulatedWeb()
    web.add_host(HOST, latency=0.2, connect=0.2, handler=answer)
    return web


def html(body: str) -> SimulatedResponse:
    """A page of the site."""
    whole = page(body).replace("<head>", "<head><title>Quotes to Scrape</title>")
    return SimulatedResponse(200, whole, {"Content-Type": "text/html; charset=utf-8"})


def path_of(author: str) -> str:
    """Where an author's page is."""
    return f"/author/{author.replace('. ', '-').replace('.', '-').replace(' ', '-').replace('é', 'e')}"


def quote_block(quote: Quote) -> str:
    """A quote as a page of the site has it."""
    links = "\n".join(f'<a class="tag" href="/tag/{tag}/page/1/">{tag}</a>' for tag in quote.tags)
    return f"""
    <div class="quote" itemscope itemtype="http://schema.org/CreativeWork">
        <span class="text" itemprop="text">“{quote.text}”</span>
        <span>by <small class="author" itemprop="author">{quote.author}</small>
        <a href="{path_of(quote.author)}">(about)</a>
        </span>
        <div class="tags">
            Tags:
            <meta class="keywords" itemprop="keywords" content="{",".join(quote.tags)}" />
            {links}
        </div>
    </div>"""


def author_page(name: str) -> str:
    """The page of an author."""
    born, place = BORN.get(name, ("January 01, 1900", "in The United States"))
    return f"""
    <div class="author-details">
        <h3 class="author-title">{name}
        </h3>
        <p><strong>Born:</strong> <span class="author-born-date">{born}</span>
        <span class="author-born-location">{place}</span></p>
    </div>"""
