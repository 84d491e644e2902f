"""Small copies of the sandboxes at toscrape.com: the markup of their pages, with a few quotes and books."""

from __future__ import annotations

from trawl.testing import SimulatedWeb

AUTHORS = {
    "Albert-Einstein": ("Albert Einstein", "March 14, 1879", "in Ulm, Germany"),
    "J-K-Rowling": ("J.K. Rowling", "July 31, 1965", "in Yate, South Gloucestershire, England, The United Kingdom"),
}
QUOTES = [
    ("The world as we have created it is a process of our thinking.", "Albert-Einstein", ["change", "world"]),
    ("It is our choices, Harry, that show what we truly are.", "J-K-Rowling", ["abilities", "choices"]),
    ("Try not to become a man of success. Rather become a man of value.", "Albert-Einstein", ["success", "value"]),
    ("It matters not what someone is born, but what they grow to be.", "J-K-Rowling", ["choices"]),
    ("If I were not a physicist, I would probably be a musician.", "Albert-Einstein", []),
]
QUOTES_A_PAGE = 2

BOOKS = {
    "a-light-in-the-attic_1000": ("A Light in the Attic", "Poetry", "51.77", "Three", 22),
    "tipping-the-velvet_999": ("Tipping the Velvet", "Historical Fiction", "53.74", "One", 20),
    "soumission_998": ("Soumission", "Fiction", "50.10", "One", 20),
}
BOOKS_A_LIST = 2


def quote_block(text: str, author: str, tags: list[str]) -> str:
    links = "\n".join(f'<a class="tag" href="/tag/{tag}/page/1/">{tag}</a>' for tag in tags)
    return f"""
    <div class="quote" itemscope itemtype="http://schema.org/CreativeWork">
        <span class="text" itemprop="text">“{text}”</span>
        <span>by <small class="author" itemprop="author">{AUTHORS[author][0]}</small>
        <a href="/author/{author}">(about)</a>
        </span>
        <div class="tags">
            Tags:
            <meta class="keywords" itemprop="keywords" content="{",".join(tags)}" />
            {links}
        </div>
    </div>"""


def page(body: str) -> str:
    return f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="UTF-8"></head><body>{body}</body></html>'


def next_link(href: str) -> str:
    return f'<nav><ul class="pager"><li class="next"><a href="{href}">Next <span>&rarr;</span></a></li></ul></nav>'


def add_quotes(web: SimulatedWeb, site: str = "https://quotes.toscrape.com") -> None:
    """Add a site of quotes, with the pages of one tag."""
    web.add_host(site, latency=0.1, status=404)
    pages = [QUOTES[at : at + QUOTES_A_PAGE] for at in range(0, len(QUOTES), QUOTES_A_PAGE)]
    for number, quotes in enumerate(pages, 1):
        body = "".join(quote_block(*quote) for quote in quotes)
        more = next_link(f"/page/{number + 1}/") if number < len(pages) else ""
        web.add_page(f"{site}/page/{number}/" if number > 1 else f"{site}/", body=page(body + more))
    web.add_page(f"{site}/tag/choices/", body=page("".join(quote_block(*q) for q in QUOTES if "choices" in q[2])))
    for key, (name, born, place) in AUTHORS.items():
        web.add_page(
            f"{site}/author/{key}",
            body=page(f"""
    <div class="author-details">
        <h3 class="author-title">{name}
        </h3>
        <p><strong>Born:</strong> <span class="author-born-date">{born}</span>
        <span class="author-born-location">{place}</span></p>
    </div>"""),
        )


def add_books(web: SimulatedWeb, *, missing: str = "") -> None:
    """Add a shop like the demo's. The page of the book ``missing`` does not exist."""
    site = "http://127.0.0.1:8765/books"
    web.add_host("127.0.0.1:8765", latency=0.1, status=404)
    lists = [list(BOOKS)[at : at + BOOKS_A_LIST] for at in range(0, len(BOOKS), BOOKS_A_LIST)]
    for number, keys in enumerate(lists, 1):
        prefix = "catalogue/" if number == 1 else ""
        more = next_link(f"{prefix}page-{number + 1}.html") if number < len(lists) else ""
        body = "".join(book_block(prefix, key) for key in keys) + more
        web.add_page(f"{site}/catalogue/page-{number}.html" if number > 1 else f"{site}/", body=page(body))
    for key in BOOKS:
        if key != missing:
            web.add_page(f"{site}/catalogue/{key}/index.html", body=page(book_page(key)))


def book_block(prefix: str, key: str) -> str:
    title, _, price, rating, _ = BOOKS[key]
    return f"""
    <article class="product_pod">
        <div class="image_container"><a href="{prefix}{key}/index.html"><img class="thumbnail" src="x.jpg"></a></div>
        <p class="star-rating {rating}"><i class="icon-star"></i></p>
        <h3><a href="{prefix}{key}/index.html" title="{title}">{title[:12]} ...</a></h3>
        <div class="product_price"><p class="price_color">£{price}</p></div>
    </article>"""


def book_page(key: str) -> str:
    title, category, price, _, stock = BOOKS[key]
    return f"""
    <ul class="breadcrumb">
        <li><a href="../../index.html">Home</a></li><li><a href="../category/books_1/index.html">Books</a></li>
        <li><a href="../category/books/{category}/index.html">{category}</a></li><li class="active">{title}</li>
    </ul>
    <h1>{title}</h1>
    <table class="table table-striped">
        <tr><th>UPC</th><td>{key[::-1]}</td></tr><tr><th>Product Type</th><td>Books</td></tr>
        <tr><th>Price (excl. tax)</th><td>£{price}</td></tr><tr><th>Price (incl. tax)</th><td>£{price}</td></tr>
        <tr><th>Tax</th><td>£0.00</td></tr><tr><th>Availability</th><td>In stock ({stock} available)</td></tr>
        <tr><th>Number of reviews</th><td>0</td></tr>
    </table>"""
