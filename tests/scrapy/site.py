"""The sites that the projects crawl: one server on loopback for all hosts under ``.example``.

A response depends on the request, and for :func:`flaky` also on the number of equal requests before it. Each crawl has
a new :class:`Site`.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlsplit

import attrs
from PIL import Image

HTML = "text/html; charset=utf-8"
JSON = "application/json"
BOOKS = 24
A_PAGE = 6
TITLES = ("The Salt Path", "Café Society", "Night & Day", "Zürich 1917", "Stoner", "Ubik")
OLD = (
    ("\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440", "cp1251"),
    ("\u4ef7\u683c\uff1a\u4eba\u6c11\u5e01", "gbk"),
    ("Caf\u00e9 d\u00e9j\u00e0 vu", "latin-1"),
    ("\u00dcber M\u00fcnchen", "utf-8"),
)
"""Headings and codecs of pages that declare no charset."""
ROBOTS = "User-agent: *\nDisallow: /private/\n"


@attrs.frozen
class Asked:
    """A request that the server received.

    Attributes:
        path: The path with the query, as sent.
        headers: The headers, by lower-case name.
        before: Number of earlier requests with the same method and path.
    """

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    before: int = 0

    @property
    def query(self) -> dict[str, str]:
        """The last value of each name in the query."""
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    @property
    def form(self) -> dict[str, list[str]]:
        """The values of each name in the form in the body."""
        return parse_qs(self.body.decode(), keep_blank_values=True)

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name."""
        pairs = (pair.strip().partition("=") for pair in self.headers.get("cookie", "").split(";"))
        return {name: value for name, _, value in pairs if name}


@attrs.frozen
class Answer:
    """A response of the server."""

    body: str | bytes = ""
    type: str = HTML
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


NOT_FOUND = Answer("<h1>Not found</h1>", status=404)


def page(title: str, body: str, head: str = "") -> str:
    """An HTML page."""
    return f"<!doctype html><html><head><title>{title}</title>{head}</head><body>{body}</body></html>"


def to(place: str, status: int = 302, *headers: tuple[str, str]) -> Answer:
    """A redirect."""
    return Answer(status=status, headers=(("Location", place), *headers))


def books(asked: Asked) -> Answer:
    """Respond as a shop: 24 books with tracking parameters, fragments and duplicates; images; a search."""
    path = urlsplit(asked.path).path
    name = path.rstrip("/").rpartition("/")[2]
    if path == "/":
        links = "".join(f'<li><a href="catalogue/page-{n}.html">Page {n}</a></li>' for n in (1, 2))
        aside = '<a href="/private/basket">basket</a><a href="http://ads.example/x">ad</a><a href="mailto:a@b.c">m</a>'
        return Answer(page("Books", f"<ul class=nav>{links}</ul>{aside}"))
    if path.startswith("/catalogue/page-"):
        return _listing(int(name[5:-5]))
    if path.startswith("/catalogue/book-"):
        return _book(int(name[5:-5])) if name[5:-5].isdigit() and int(name[5:-5]) < BOOKS else NOT_FOUND
    if path.startswith("/images/"):
        return Answer(picture(int(name[:-4])), "image/png") if int(name[:-4]) % 7 else NOT_FOUND
    if path == "/search":
        found = [n for n in range(BOOKS) if asked.query.get("q", "").lower() in title(n).lower()]
        links = "".join(
            f'<a class=hit href="/catalogue/book-{n}.html?q={asked.query.get("q", "")}">x</a>' for n in found
        )
        return Answer(page("Search", f"<p class=count>{len(found)}</p>{links}"))
    if path == "/filters":
        shown = "".join(f"<b>{name}={value}</b>" for name, value in asked.query.items())
        spellings = (
            "?f[a]=1|2",
            "?f%5Ba%5D=3",
            "/filters?f[b]=4&amp;g=^5`{}",
            "?f=a b",
            "http://books.example",
            "?é=ü",
        )
        links = "".join(f'<a href="{each}">x</a>' for each in spellings)
        return Answer(page("Filters", f"{shown}{links if not asked.query else ''}"))
    if path == "/sort.html":
        links = "".join(f"<a href=\"javascript:go('/catalogue/book-{n}.html')\">b</a>" for n in range(3))
        return Answer(page("Sort", f"{links}<a href='/catalogue/book-3.html?sort=b&amp;page=1&sid=9'>s</a>"))
    return NOT_FOUND


def title(n: int) -> str:
    """Return the title of a book."""
    return f"{TITLES[n % len(TITLES)]} {n}"


def _listing(number: int) -> Answer:
    if not 1 <= number <= BOOKS // A_PAGE:
        return NOT_FOUND
    first = (number - 1) * A_PAGE
    rows = "".join(
        f'<article class="product" data-id="{n}"><h3><a href="book-{n}.html?utm_source=list&amp;ref={number}#reviews" '
        f'title="{title(n)}">{title(n)[:8]}...</a></h3><p class="price">\u00a3{n + 10}.{n:02}</p>'
        f'<a class="again" href="../catalogue/./book-{n}.html?utm_source=list&amp;ref={number}">more</a></article>'
        for n in range(first, first + A_PAGE)
    )
    following = f'<li class="next"><a href="page-{number + 1}.html">next</a></li>' if number < BOOKS // A_PAGE else ""
    return Answer(page(f"Page {number}", f'{rows}<ul class="pager">{following}<a href="page-1.html">first</a></ul>'))


def _book(n: int) -> Answer:
    price = (
        f'<p class="price_color"> \u00a3{n + 10:,}.{n:02} </p>' if n % 5 else '<p class="price_color">on request</p>'
    )
    tags = "".join(f'<li class="tag">{tag}</li>' for tag in ("fiction", "paper", "new")[: n % 4])
    also = f'<a class="also" href="/catalogue/book-{(n + 7) % BOOKS}.html">also</a>'
    body = (
        f'<ul class="breadcrumb"><li><a href="../">Home</a></li><li><a href="page-1.html"> Books </a></li></ul>'
        f"<h1>\n  {title(n)}\n</h1>{price}<table><tr><th>UPC</th><td>{n:08x}</td></tr>"
        f"<tr><th>Stock</th><td>In stock ({n} available)</td></tr></table>"
        f'<div id="img"><img src="../images/{n}.png" alt="cover"></div><ul class="tags">{tags}</ul>'
        f'<p class="star-rating {("One", "Two", "Three")[n % 3]}"></p>'
        f'<a class="manual" href="/files/{n % 3}.pdf">manual</a>{also}<a href="/catalogue/page-1.html">list</a>'
    )
    cookie = ("Set-Cookie", f"last={n}; Path=/"), ("Set-Cookie", "visit=1; Path=/"), ("X-Stock", "Yes")
    return Answer(page(title(n), body), headers=cookie)


def picture(n: int) -> bytes:
    """Return a PNG of ``10 + n`` by 20 pixels."""
    file = BytesIO()
    Image.new("RGB", (10 + n, 20), (n * 9 % 256, 80, 120)).save(file, "PNG")
    return file.getvalue()


def news(asked: Asked) -> Answer:
    """Respond as a newspaper: sitemaps, articles in several encodings, feeds, canonical and fragment links."""
    path = urlsplit(asked.path).path
    host = asked.host
    if path == "/sitemap_index.xml":
        places = "".join(f"<sitemap><loc>http://{host}/{each}</loc></sitemap>" for each in ("s1.xml", "s2.xml.gz"))
        return Answer(f'<?xml version="1.0"?><sitemapindex xmlns="{SITEMAPS}">{places}</sitemapindex>', "text/xml")
    if path == "/s1.xml":
        return Answer(_sitemap(host, range(4)), "application/xml")
    if path == "/s2.xml.gz":
        return Answer(gzip.compress(_sitemap(host, range(4, 8)).encode(), mtime=0), "application/x-gzip")
    if path.startswith("/old/") and len(path) == len("/old/1"):
        heading, codec = OLD[int(path[5:])]
        return Answer(page("Old", f"<h1>{heading}</h1><a href='?q={heading[:2]}'>more</a>").encode(codec), "text/html")
    if path.startswith("/article/"):
        return _article(int(path.rpartition("/")[2]))
    if path in ("/", "/latest"):
        links = "".join(
            f'<a class=story href="/article/{n}#comments">{n}</a><a href="/article/{n}">{n}</a>' for n in range(5)
        )
        abroad = '<a href="http://sport.news.example/article/7?ref=home">s</a><a href="http://ads.example/1">ad</a>'
        return Answer(page("Latest", f'{links}{abroad}<a href="?page=2#top">2</a>'))
    if path == "/rss.xml":
        items = "".join(
            f"<item><title>Story {n}</title><link>http://{host}/article/{n}</link><guid>g{n}</guid>"
            f"<pubDate>Mon, 0{n + 1} Jan 2024 00:00:00 GMT</pubDate><category>a</category><category>b</category></item>"
            for n in range(4)
        )
        return Answer(
            f'<?xml version="1.0"?><rss version="2.0"><channel>{items}</channel></rss>', "application/rss+xml"
        )
    if path == "/atom.xml":
        entries = "".join(
            f"<entry><title>Entry {n}</title><id>urn:{n}</id><link rel='alternate' href='/article/{n}'/>"
            f"<dc:creator>Anna {n}</dc:creator>"
            f"<media:group><media:thumbnail url='/i/{n}.png' width='{n}0'/></media:group>"
            f"<content type='html'>&lt;b&gt;{n}&lt;/b&gt;</content></entry>"
            for n in range(4)
        )
        spaces = "xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:media='http://search.yahoo.com/mrss/'"
        text = f"<?xml version='1.0'?><feed xmlns='http://www.w3.org/2005/Atom' {spaces}>{entries}</feed>"
        return Answer(text, "application/atom+xml")
    if path == "/prices.csv":
        rows = "".join(f'{n};"Thing; {n}";{n}.5\n' for n in range(5))
        return Answer(f"id;name;price\n{rows}", "text/csv")
    return NOT_FOUND


SITEMAPS = "http://www.sitemaps.org/schemas/sitemap/0.9"


def _sitemap(host: str, numbers: range) -> str:
    places = "".join(
        f"<url><loc>http://{host}/article/{n}</loc><lastmod>2024-01-0{n % 4 + 1}</lastmod>"
        f"<priority>0.5</priority></url><url><loc> http://{host}/about/{n} </loc></url>"
        for n in numbers
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="{SITEMAPS}">{places}</urlset>'


def _article(n: int) -> Answer:
    body = (
        f"<article><h1>Nachricht {n}: \u00dcber M\u00fcnchen</h1><time datetime='2024-01-0{n + 1}T08:00:00'></time>"
        f"<p>Erster\u00a0Absatz.</p><p>Zweiter <b>Absatz</b>.</p><a rel=tag href='/tag/politik'>Politik</a>"
        f"<a href='#top'>top</a><a href='/article/{(n + 1) % 8}#comments'>next</a></article>"
    )
    head = f'<link rel="canonical" href="http://www.news.example/article/{n}"><base href="/x/">' if n % 2 else ""
    if n % 4 == 1:
        return Answer(page(f"A{n}", body, head).encode("latin-1"), "text/html; charset=ISO-8859-1")
    if n % 4 == 2:
        text = page(f"A{n}", "<h1>\u65b0\u95fb \u4e2d\u6587</h1>", '<meta charset="gb2312">')
        return Answer(text.encode("gbk"), "text/html")
    if n % 4 == 3:
        packed = gzip.compress(page(f"A{n}", body, head).encode(), mtime=0)
        return Answer(packed, HTML, headers=(("Content-Encoding", "gzip"),))
    return Answer(page(f"A{n}", body, head))


def forum(asked: Asked) -> Answer:
    """Respond as a forum: a login with a token and a cookie, threads, a form with many kinds of fields."""
    path, cookies = urlsplit(asked.path).path, asked.cookies
    if path == "/login" and asked.method == "GET":
        form = (
            '<form id="search" action="/search"><input name="q"></form>'
            '<form id="login" action="/session" method="post">'
            '<input type="hidden" name="csrf_token" value="T0K3N=="><input type="text" name="username" value="">'
            '<input type="password" name="password"><input type="checkbox" name="remember" value="1" checked>'
            '<select name="lang"><option value="en">E<option value="de" selected>D</select>'
            '<input type="submit" name="go" value="Log in"></form>'
        )
        return Answer(page("Login", form), headers=(("Set-Cookie", "sid=anonymous; Path=/"),))
    if path == "/session":
        sent = asked.form
        if sent.get("csrf_token") != ["T0K3N=="] or sent.get("password") != ["secret"]:
            return Answer(page("Login", "<p class=error>Login failed</p>"))
        return to("/threads", 302, ("Set-Cookie", f"sid={sent['username'][0]}; Path=/; HttpOnly"))
    who = cookies.get("sid", "")
    if path == "/threads" and who not in ("", "anonymous"):
        links = "".join(f'<a class="thread" href="/thread/{n}?sid=x#p1">{n}</a>' for n in range(4))
        return Answer(page("Threads", f"<b class=user>{who}</b>{links}<a href='/logout'>Log out</a>"))
    if path.startswith("/thread/") and who not in ("", "anonymous"):
        posts = "".join(f"<div class=post><i>{who}</i><p>Post {n}<br>more</p></div>" for n in range(2))
        return Answer(page("Thread", f"<h1>Thread {path[8:]}</h1>{posts}"))
    if path == "/logout":
        return to("/login", 302, ("Set-Cookie", "sid=anonymous; Path=/"))
    if path == "/echo":
        told = {"method": asked.method, "body": asked.body.decode("latin-1"), "cookies": dict(sorted(cookies.items()))}
        return Answer(json.dumps(told), JSON)
    return to("/login") if path.startswith("/thread") else NOT_FOUND


def api(asked: Asked) -> Answer:
    """Respond as an API: cursors, infinite scroll, JSON in POST requests, a token, basic authentication."""
    path, query = urlsplit(asked.path).path, asked.query
    if path == "/token":
        return Answer(json.dumps({"access_token": "abc", "expires": 60}), JSON)
    if path == "/v1/products":
        if asked.headers.get("authorization") != "Bearer abc":
            return Answer('{"error": "unauthorized"}', JSON, 401)
        at = int(query.get("cursor", "0"))
        found: dict[str, Any] = {"data": [{"id": n, "name": title(n)} for n in range(at, at + 5)]}
        return Answer(json.dumps(found | {"next": str(at + 5) if at < 15 else None}), JSON)
    if path == "/search":
        wanted = json.loads(asked.body)
        first = wanted["page"] * 3
        hits = [{"sku": f"S{n}", "q": wanted["query"]} for n in range(first, min(first + 3, 8))]
        return Answer(json.dumps({"hits": hits, "total": 8}), JSON)
    if path == "/scroll":
        number = int(query.get("page", "1"))
        rows = "".join(f'<div class="quote"><span>Quote {number}-{n}</span></div>' for n in range(3))
        return Answer(json.dumps({"html": rows, "has_next": number < 4, "page": number}), JSON)
    if path.startswith("/detail/"):
        return Answer(json.dumps({"id": int(path[8:]), "stock": int(path[8:]) * 2}), JSON)
    if path == "/basic":
        right = asked.headers.get("authorization") == f"Basic {base64.b64encode(b'user:pass').decode()}"
        return Answer('{"ok": true}', JSON) if right else Answer("{}", JSON, 401)
    if path == "/headers":
        told = {
            name: asked.headers.get(name) for name in ("user-agent", "referer", "accept-language", "x-requested-with")
        }
        return Answer(json.dumps(told), JSON)
    return Answer('{"error": "not found"}', JSON, 404)


def flaky(asked: Asked) -> Answer:
    """Respond with pages that fail: once, always, or with redirects."""
    path = urlsplit(asked.path).path
    if path == "/":
        links = "".join(
            f'<a href="{each}">x</a>' for each in ("/once", "/ok/1", "/missing", "/always", "/hop/3", "/ok/2")
        )
        return Answer(page("Flaky", links))
    if path.startswith("/ok/"):
        return Answer(page(f"Ok {path[4:]}", f"<h1>Fine {path[4:]}</h1>"))
    if path.startswith("/once"):
        return Answer(page("Once", "<h1>Well again</h1>")) if asked.before else Answer("busy", HTML, 503)
    if path.startswith("/always"):
        return Answer("<h1>Broken</h1>", HTML, 500)
    if path.startswith("/gone"):
        return Answer("<h1>Gone</h1>", HTML, 410)
    if path.startswith("/ban"):
        return Answer(page("Captcha", "<p>Are you a robot?</p>") if not asked.before else page("In", "<h1>Let in</h1>"))
    if path.startswith("/hop/"):
        n = int(path[5:])
        return to(f"/hop/{n - 1}", 301) if n else Answer(page("Landed", "<h1>Landed</h1>"))
    if path == "/moved":
        links = "".join(f'<a href="{each}">x</a>' for each in ("/hop/2", "/wall", "/to/echo", "/refresh/echo"))
        return Answer(page("Moved", links))
    if path == "/wall":  # set a cookie first, then return the page at the same URL
        return (
            Answer(page("In", "<h1>In</h1>")) if "wall" in asked.cookies else to("/wall", 302, ("Set-Cookie", "wall=1"))
        )
    if path == "/to/echo":
        return to("/echo?of=redirect")
    if path == "/refresh/echo":
        return Answer(page("R", "", '<meta http-equiv="refresh" content="0; url=/echo?of=refresh">'))
    if path == "/echo":
        return Answer(page("Echo", f"<h1>{asked.headers.get('referer')}</h1>"))
    if path == "/home":
        return to("http://moved.files.example")
    if path == "/loop":
        return to("/loop")
    if path == "/refresh":
        return Answer(page("R", "", '<meta http-equiv="refresh" content="0; url=/ok/9">'))
    if path == "/empty":
        return Answer("")
    return NOT_FOUND


def splash(asked: Asked) -> Answer:
    """Respond as Splash's HTTP API, according to its documentation: render.html and render.json, with GET and POST."""
    path = urlsplit(asked.path).path
    said: Mapping[str, Any] = json.loads(asked.body) if asked.method == "POST" else asked.query
    if asked.method == "POST" and asked.headers.get("content-type") != JSON:
        return Answer('{"error": 400, "type": "BadOption"}', JSON, 400)
    if "url" not in said:
        return Answer('{"error": 400, "info": {"argument": "url", "type": "argument_required"}}', JSON, 400)
    links = "".join(f'<a class=next href="/quotes?page={n}">n</a>' for n in (2, 3) if "page=" not in said["url"])
    html = page("Rendered", f"<h1>{said['url']} after {said.get('wait')} s</h1>{links}")
    if path == "/render.html":
        return Answer(html)
    if path == "/render.json":
        told = {"url": said["url"], "title": "Rendered", "html": html if int(said.get("html", 0)) else None}
        return Answer(json.dumps(told), JSON)
    return NOT_FOUND


def files(asked: Asked) -> Answer:
    """Respond with documents to download."""
    path = urlsplit(asked.path).path
    if path == "/":
        links = "".join(f'<li><a class="doc" href="/docs/report-{n}.pdf?v={n}">Report {n}</a></li>' for n in range(4))
        return Answer(page("Files", f"<ul>{links}</ul><img src='/img/1.png'><img src='/img/30.png'>"))
    if path == "/gallery":
        return Answer(page("Gallery", '<img src="img/a picture.png"><img src="/img/bücher.png">'))
    if path.startswith("/docs/"):
        return Answer(b"%PDF-1.4 " + path.encode(), "application/pdf") if "3.pdf" not in path else NOT_FOUND
    if path.startswith("/img/"):
        return Answer(picture(int(path[5:-4])), "image/png")
    return NOT_FOUND


HOSTS: Mapping[str, Callable[[Asked], Answer]] = {
    "books": books, "news": news, "forum": forum, "api": api, "flaky": flaky, "files": files,
    "splash": splash,
}  # fmt: skip
"""The functions that respond, by the last label before ``.example``."""


class Site(ThreadingHTTPServer):
    """The server. ``with`` runs it in a thread.

    Attributes:
        asked: The requests so far.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def forget(self) -> None:
        """Reset the state for another crawl."""
        with self._lock:
            self.asked, self._counts = [], Counter()

    def hear(self, asked: Asked) -> Asked:
        """Record a request, and return it with its count."""
        key = (asked.method, asked.host, asked.path)
        with self._lock:
            asked = attrs.evolve(asked, before=self._counts[key])
            self._counts[key] += 1
            self.asked.append(asked)
        return asked

    def answer(self, asked: Asked) -> Answer:
        """Return the response of the request's host."""
        path = urlsplit(asked.path).path
        if path == "/robots.txt":
            return Answer(f"{ROBOTS}Sitemap: http://{asked.host}/sitemap_index.xml\n", "text/plain")
        names = asked.host.removesuffix(".example").split(".")
        return HOSTS[names[-1]](asked) if names[-1] in HOSTS else NOT_FOUND


class Handler(BaseHTTPRequestHandler):
    """Handles one persistent connection."""

    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        """Answer."""
        host = self.headers.get("Host", "")
        path = self.path
        if path.startswith("http://"):  # a request to a proxy
            parts = urlsplit(path)
            host, path = parts.netloc, path.split(parts.netloc, 1)[1] or "/"
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        asked = self.server.hear(Asked(self.command, host.partition(":")[0], path, headers, body))
        answer = self.server.answer(asked)
        payload = answer.body.encode() if isinstance(answer.body, str) else answer.body
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(payload)))
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    do_POST = do_HEAD = do_PUT = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
