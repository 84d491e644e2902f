"""A few pages of each site that the moved spiders crawl."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from tests.examples.sandboxes import add_quotes
from trawl.http import Request
from trawl.testing import SimulatedResponse, SimulatedWeb

__all__ = ["web"]

MENU = """<div id="menu"><a href="/">Home</a> <a href="/about">About</a> <a href="/private/x">No</a>
<a href="/list.csv">List</a></div>"""


def web() -> SimulatedWeb:
    """Return a web with all sites."""
    simulated = SimulatedWeb()
    add_quotes(simulated)
    answers: dict[str, Callable[[Request], SimulatedResponse]] = {
        "members.example": members,
        "www.shop.example": shop,
        "files.example": files,
        "api.example": api,
        "cookies.example": cookies,
        "status.example": lambda request: SimulatedResponse(int(request.url.rpartition("/")[2])),
    }
    robots = {"www.shop.example": "User-agent: *\nAllow: /\nSitemap: http://www.shop.example/sitemap.xml\n"}
    for host, answer in answers.items():
        simulated.add_host(host, latency=0.1, handler=answer, robots=robots.get(host))
    return simulated


def html(body: str, title: str = "") -> SimulatedResponse:
    page = f"<html><head><title>{title}</title></head><body>{body}</body></html>"
    return SimulatedResponse(200, page, {"Content-Type": "text/html; charset=utf-8"})


def members(request: Request) -> SimulatedResponse:
    path = urlsplit(request.url).path
    is_member = "session=a1" in (request.headers.get("Cookie") or "")
    if path == "/private":
        return html('<p class="secret">42</p><a href="/logout">Logout</a>' if is_member else "<p>members only</p>")
    if request.method == "POST":
        fields = parse_qs(request.body.decode())
        if fields == {"csrf": ["t0ken"], "username": ["user"], "password": ["secret"], "go": ["Log in"]}:
            return SimulatedResponse(302, "", {"Location": "/", "Set-Cookie": "session=a1; Path=/; HttpOnly"})
        return html("authentication failed")
    form = '<form method="post"><input type="hidden" name="csrf" value="t0ken"><input name="username"><input'
    return html(f'{form} type="password" name="password"><input type="submit" name="go" value="Log in"></form>')


def shop(request: Request) -> SimulatedResponse:
    parts = urlsplit(request.url)
    number = parse_qs(parts.query).get("id", ["0"])[0]
    if parts.path == "/item.php":
        return html(
            f'<table><tr><td id="item_id">ID: {number}</td><td id="item_name"> Thing  {number}</td>'
            f'<td id="additional_data" href="/more.php?id={number}">more</td></tr></table>'
        )
    if parts.path == "/more.php":
        return html(f'<p id="additional_data">All about {number}</p>')
    if parts.path == "/category.php":
        links = "".join(f'<a class="item" href="item.php?id={number}{i}"> Thing {number}{i} </a>' for i in (1, 2))
        return html(f'{links}<a href="subsection.php?category.php">x</a>')
    if parts.path.startswith("/sitemap"):
        return SimulatedResponse(200, SITEMAPS[parts.path], {"Content-Type": "application/xml"})
    if parts.path == "/list.csv":
        return SimulatedResponse(200, b"\0\1\2", {"Content-Type": "application/octet-stream"})
    links = '<a href="category.php?id=1">One</a><a href="category.php?id=2">Two</a><a href="item.php?id=9">Nine</a>'
    return html(MENU + links, parts.path)


SITEMAPS = {
    "/sitemap.xml": "<sitemapindex><sitemap><loc>http://www.shop.example/sitemap_items.xml</loc></sitemap>"
    "<sitemap><loc>http://www.shop.example/sitemap_news.xml</loc></sitemap></sitemapindex>",
    "/sitemap_items.xml": '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    "<url><loc>http://www.shop.example/item.php?id=1</loc></url><url><loc>http://www.shop.example/x</loc></url></urlset>",
}


def files(request: Request) -> SimulatedResponse:
    parts = urlsplit(request.url)
    if parts.path == "/feed.xml":
        body = '<?xml version="1.0"?><items><item id="1"><name>A <b>b</b></name></item><item id="2"/></items>'
        return SimulatedResponse(200, body, {"Content-Type": "application/xml"})
    if parts.path == "/feed.csv":
        return SimulatedResponse(200, "1;'One; two';x\n2;Two;y\n", {"Content-Type": "text/csv"})
    page = parse_qs(parts.query)["page"][0]
    rows = [("Pen", f"£{page}.50", "<td class='stock'>7</td>"), ("Desk", "£120.00", "")]
    cells = [f'<tr><td><a href="/{name}">{name}</a></td><td>{price}</td>{more}</tr>' for name, price, more in rows]
    return html(f'<table class="big prices"><tr><th>Name</th><th>Price</th></tr>{"".join(cells)}</table>')


def api(request: Request) -> SimulatedResponse:
    parts = urlsplit(request.url)
    if parts.path == "/quotes":
        page = int(parse_qs(parts.query)["page"][0])
        quotes = [{"author": {"name": f"Author {page}"}, "text": f"Text {page}"}]
        return as_json({"page": page, "has_next": page < 3, "quotes": quotes})
    if parts.path == "/form":
        return as_json({"form": parse_qs(request.body.decode())})
    return as_json({"method": request.method, "query": json.loads(request.body)["query"]})


def as_json(value: object) -> SimulatedResponse:
    return SimulatedResponse(200, json.dumps(value), {"Content-Type": "application/json"})


def cookies(request: Request) -> SimulatedResponse:
    sent = request.headers.get("Cookie") or ""
    if request.url.endswith("/set"):
        session = "dollar" if "USD" in sent else "peso"
        return SimulatedResponse(200, sent, {"Set-Cookie": f"session={session}", "Content-Type": "text/plain"})
    return SimulatedResponse(200, sent, {"Content-Type": "text/plain"})
