"""What ``trawl new`` writes: spiders with their tests, and what a project has around them."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PROJECT", "SPIDERS", "TESTS"]

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
"""A spider's text, by the kind that ``--template`` names."""

_TEST = '''\
"""$kind on a simulated web: the real crawl on a virtual clock. Nothing is sent, and nothing waits."""

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
"""The text of its test, by the same."""

PROJECT: Mapping[str, str] = {
    "pyproject.toml": """\
[project]
name = "$project"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["trawl-crawler"]

[dependency-groups]
test = ["pytest>=8.3", "pytest-trio>=0.8"]

# Settings of every spider below this folder: `trawl settings` shows them all.
[tool.trawl]
# USER_AGENT = "$project (+https://your.site/)"
DOWNLOAD_DELAY = 1.0

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
trio_mode = true
""",
    "README.md": """\
# $project

    trawl list                                    which spiders there are
    trawl check spiders/$name.py                  what is wrong with one, before it crawls
    trawl crawl spiders/$name.py -O items.jsonl   run it
    pytest                                        test it on a virtual clock
    trawl new spider NAME DOMAIN                  begin another
""",
    ".gitignore": "__pycache__/\n.venv/\njobs/\n*.jsonl\n",
    "spiders/__init__.py": "",
    "tests/__init__.py": "",
}
"""The files of a project besides its first spider, by their path."""
