"""The command ``trawl new``: writes a project, or a spider with its test, from the templates below."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from string import Template
from xml.sax.saxutils import escape

import typer

from trawl.errors import UsageError
from trawl.http import host_of, host_scope, normalize_url, origin_of
from trawl.observe import printable
from trawl.settings.check import nearest

__all__ = ["PROJECT", "SPIDERS", "TESTS", "new_project", "new_spider"]

_BASIC = '''\
"""The pages of $domain: crawl with ``trawl crawl $path``."""

import trawl


class $kind(trawl.Spider):
    name = "$name"
    allowed_domains = ["$domain"]
    start_urls = ["$start"]

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
'''

_CRAWL = '''\
"""The pages of $domain, its links followed by rules: crawl with ``trawl crawl $path``."""

import trawl


class $kind(trawl.CrawlSpider):
    name = "$name"
    allowed_domains = ["$domain"]
    start_urls = ["$start"]
    rules = (trawl.Rule(trawl.LinkExtractor(), callback="parse_page", follow=True),)

    def parse_start_url(self, response):
        return self.parse_page(response)

    def parse_page(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
'''

_SITEMAP = '''\
"""The pages of $domain, found by its sitemaps: crawl with ``trawl crawl $path``."""

import trawl


class $kind(trawl.SitemapSpider):
    name = "$name"
    allowed_domains = ["$domain"]
    sitemap_urls = ["$origin/sitemap.xml"]

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
'''

SPIDERS: Mapping[str, str] = {"basic": _BASIC, "crawl": _CRAWL, "sitemap": _SITEMAP}
"""The text of a spider by ``--template``."""

_TEST = '''\
"""$kind on a simulated web: the real crawl on a virtual clock. Nothing is sent, and waiting takes no time."""

from $module import $kind

from trawl.testing import SimulatedWeb, simulate


def a_web():
    web = SimulatedWeb()
    web.add_host("$scope", latency=0.5)
    web.add_page(
        "$start",
        body="<title>Home</title><a href='$path_of_another'>About</a>",
    )
    web.add_page("$origin$path_of_another", body="<title>About</title>")
    return web


def test_every_page_is_an_item():
    sim = simulate($kind, a_web())
    assert sim.reason == "finished"
    assert "spider_exceptions" not in sim.stats
    assert sorted(item["title"] for item in sim.items) == ["About", "Home"]


def test_it_is_gentle():
    sim = simulate($kind, a_web(), settings={"RANDOMIZE_DOWNLOAD_DELAY": False})
    assert sim.most_in_flight("$scope") == 1
    assert all(gap >= 1.0 for gap in sim.gaps("$scope"))
'''

_SITEMAP_PAGE = """\
    web.add_page(
        "$origin/sitemap.xml",
        body="<urlset><url><loc>$listed</loc></url>"
        "<url><loc>$origin$path_of_another</loc></url></urlset>",
        headers={"Content-Type": "application/xml"},
    )
    return web
"""

TESTS: Mapping[str, str] = {
    "basic": _TEST,
    "crawl": _TEST,
    "sitemap": _TEST.replace("    return web\n", _SITEMAP_PAGE),
}
"""The text of the spider's test by ``--template``."""

PROJECT: Mapping[str, str] = {
    "pyproject.toml": """\
[project]
name = "$project"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["trawl-crawler"]

[dependency-groups]
test = ["pytest>=8.3"]

# Settings of every spider below this folder: `trawl settings` shows them all.
[tool.trawl]
# CONTACT = "https://your.site/crawler"  # or an e-mail address: site owners find it in the User-Agent
DOWNLOAD_DELAY = 1.0  # seconds between two pages of a host
DOWNLOAD_DELAY_PER_SLOT = 1.0  # seconds between two pages of a slot; a host has CONCURRENT_REQUESTS_PER_DOMAIN slots, 1

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
""",
    "README.md": """\
# $project

Run a spider, check it for errors before it crawls, test it on a virtual clock, and add another spider:

    trawl crawl spiders/$name.py -O items.jsonl
    trawl check spiders/$name.py
    pytest
    trawl new spider NAME DOMAIN

`trawl list` shows all spiders.
""",
    ".gitignore": "__pycache__/\n.venv/\njobs/\n*.jsonl\n",
    "spiders/__init__.py": "",
    "tests/__init__.py": "",
}
"""Content of a project's files by path, without the first spider and its test."""

FIRST = "example"

FIRST_DOMAIN = "example.com"


def new_project(directory: str) -> None:
    """Write a project with a first spider and its test. No file is overwritten."""
    root = Path(directory)
    name = root.resolve().name
    texts = {path: Template(text).substitute(project=_plain(name), name=FIRST) for path, text in PROJECT.items()}
    texts |= _spider_texts(FIRST, _start_of(FIRST_DOMAIN), "basic", Path("spiders"), Path("tests"))
    _write(root, texts, f"cd {shlex.quote(directory)} && trawl crawl spiders/{FIRST}.py")


def new_spider(name: str, domain: str, template: str) -> None:
    """Write a spider and its test, to ``spiders/`` and ``tests/`` if these exist. ``domain`` may be a start URL."""
    start = _start_of(domain)
    _check(name, template)
    spiders = Path("spiders") if Path("spiders").is_dir() else Path()
    tests = Path("tests") if Path("tests").is_dir() else Path()
    texts = _spider_texts(name, start, template, spiders, tests)
    _write(Path(), texts, f"trawl crawl {shlex.quote((spiders / _file_name(name)).as_posix())}.py")


def _spider_texts(name: str, start: str, template: str, spiders: Path, tests: Path) -> dict[str, str]:
    file = _file_name(name)
    path = spiders / f"{file}.py"
    values = {
        "kind": "".join(part.capitalize() for part in file.removesuffix("_spider").split("_")) + "Spider",
        "name": name.replace('"', '\\"'),
        "path": path.as_posix(),
        "module": ".".join([*spiders.parts, file]),
        "domain": host_of(start).rstrip("."),
        "scope": host_scope(start),
        "origin": origin_of(start),
        "start": start,
        "listed": escape(start),
        "path_of_another": "/about" if not start.endswith("/about") else "/contact",
    }
    return {
        path.as_posix(): Template(SPIDERS[template]).substitute(values),
        (tests / f"test_{file}.py").as_posix(): Template(TESTS[template]).substitute(values),
    }


def _plain(name: str) -> str:
    """Convert a name to a valid package name (PEP 508)."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-").lower()
    return plain or "project"


def _file_name(name: str) -> str:
    """Return a file name for a spider. Python can import the file, and no other module hides it."""
    plain = unicodedata.normalize("NFKC", name)  # Python normalizes names in the same way
    plain = "_".join(part for part in "".join(c if c.isalnum() else "_" for c in plain).split("_") if part)
    if plain and not plain.isidentifier():
        plain = f"spider_{plain}"
    return f"{plain}_spider" if keyword.iskeyword(plain) or _hides_a_module(plain) else plain


def _hides_a_module(name: str) -> bool:
    """Return True for the name of an installed module. Python would find that module before a spider's file."""
    if name in ("conftest", *sys.stdlib_module_names):
        return True
    with suppress(ImportError, ValueError):
        found = PathFinder.find_spec(name, [place for place in sys.path if Path(place).resolve() != Path.cwd()])
        return found is not None and found.origin is not None
    return False


def _check(name: str, template: str) -> None:
    if "/" in name or "\\" in name:
        raise UsageError(f"{name!r} is a path; give a name (the file goes to spiders/, or to the working directory)")
    if not _file_name(name) or not name.isprintable():
        raise UsageError(f"{name!r} can't name a spider; use letters and digits")
    if template not in SPIDERS:
        close = nearest(template, SPIDERS)
        hint = f"did you mean {close}?" if close else f"choose one of {', '.join(SPIDERS)}"
        raise UsageError(f"unknown template {template!r}; {hint}")


_OWN_MACHINE = re.compile(r"(localhost|127\.[\d.]+|\[::1\])(:|/|$)")


def _start_of(domain: str) -> str:
    try:
        scheme = "http" if _OWN_MACHINE.match(domain) else "https"  # test servers rarely have a certificate
        url = normalize_url(domain if "://" in domain else f"{scheme}://{domain}").partition("#")[0]
        host = host_of(url)
    except ValueError as error:
        raise UsageError(f"{domain!r} is not a domain: {error}") from error
    has_password = "@" in url.partition("//")[2].partition("/")[0]
    if not host.strip(".") or has_password or not url.startswith(("http://", "https://")):
        raise UsageError(f"{domain!r} is not a domain; give a host such as example.com, or an http or https URL")
    return url


def _write(root: Path, texts: dict[str, str], then: str) -> None:
    there = [path for path in texts if (root / path).exists()]
    if there:
        raise UsageError(f"{root / there[0]} exists already; nothing was written")
    try:
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            typer.echo(printable(str(root / path)))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    typer.echo(f"\nNow: {printable(then)}")
