"""The command line that a reader types for a command in a sentence, and the reader's folder.

Most sentences contain the complete command. Others omit its arguments or use placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.docs.given import ACCESS_LOG, URLS

__all__ = ["PLACEHOLDERS", "TYPED", "Typed", "filled", "reader_in", "typed_for"]

HOME = "http://127.0.0.1:8765/"
JOB = "redis://store.internal/quotes"
PLACEHOLDERS = {
    "$path": "quotes.py",
    "%s": "shop/settings.py",
    "...": "",
    "A": "a",
    "B": "b",
    "COMMAND": "crawl",
    "DIR": "shop-two",
    "DOMAIN": "127.0.0.1:8765",
    "FILE": "items.jsonl",
    "FILE.py": "quotes.py",
    "FILE.toml": "web.toml",
    "JOB": JOB,
    "N": "2",
    "NAME": "quotes",
    "SPIDER": "quotes.py",
    "URL": HOME,
    "'trawl-crawler[{extra}]'": "'trawl-crawler[s3]'",
    "{address}": JOB,
    "{found[1]}": "quotes.py",
    "{kind}": "quotes",
    "{place}": JOB,
    "{target}": "DOWNLOAD_DELAY",
}
"""Values that a reader uses for placeholders, by placeholder."""
OPTIONAL = re.compile(r" \[--[^\]]*\]")
OF_A_SERVER = re.compile(r"trawl (?:worker|export|top|job) |--job ")


@attrs.frozen
class Typed:
    """A command line and its expected result.

    Attributes:
        line: The command line.
        first: Command lines to run before it.
        status: The expected exit status.
        says: A pattern that its output must contain.
    """

    line: str
    first: tuple[str, ...] = ()
    status: int = 0
    says: str = ""


NO_CHROMIUM = ("export TRAWL_BROWSER_SANDBOX=false", "export TRAWL_BROWSER_PATH=no-chromium")
"""Tests with servers render pages. Here the command must only be understood."""

IN_A_JOB = ("trawl crawl quotes.py --job jobs/quotes",)
TYPED = {
    "kill -9": Typed("sleep 60 & kill -9 $!"),
    "nox -s NAME": Typed("nox -s lint"),
    "python -m cProfile -o FILE -m trawl crawl ...": Typed(
        "python -m cProfile -o crawl.profile -m trawl crawl offline.py", says="finished"
    ),
    "python -m trawl": Typed("python -m trawl version", says=r"^trawl \d"),
    "trawl --help": Typed("trawl --help", says="A polite, fast web crawler"),
    "trawl --version": Typed("trawl --version", says=r"^trawl \d.*Python.*Trio"),
    "trawl NAME": Typed("trawl parcel --name me", first=("pip install ./plugin",), says="for me"),
    "trawl check": Typed("trawl check quotes.py"),
    "trawl completion bash": Typed("trawl completion bash", says="complete"),
    "trawl crawl": Typed("trawl crawl quotes.py", says="finished"),
    "trawl crawl --all": Typed("trawl crawl --all", says="quotes"),
    "trawl crawl --fail-on": Typed("trawl crawl quotes.py --fail-on errors"),
    "trawl crawl --processes 4": Typed("trawl crawl quotes.py --processes 4"),
    "trawl crawl --processes N": Typed("trawl crawl quotes.py --processes 2"),
    "trawl crawl --quiet": Typed("trawl crawl quotes.py --quiet", says="^$"),
    "trawl crawl ... & echo $! > FILE": Typed("trawl crawl offline.py & echo $! > crawl.pid", says="finished"),
    "trawl edit": Typed("trawl edit", status=2, says="open the file that `trawl list` names"),
    "trawl export": Typed(f"trawl export {JOB} -o items.jsonl"),
    "trawl fetch": Typed(f"trawl fetch {HOME}", says="<title>"),
    "trawl fetch --headers URL": Typed(f"trawl fetch --headers {HOME}", says="throttled"),
    "trawl fetch URL --headers": Typed(f"trawl fetch {HOME} --headers", says="(?s)User-Agent: .*200"),
    "trawl job": Typed("trawl job jobs/quotes", first=IN_A_JOB, says="finished"),
    "trawl job --workers": Typed(f"trawl job {JOB} --workers"),
    "trawl list": Typed("trawl list", says="quotes +quotes.py"),
    "trawl move": Typed("trawl move quotes.py", says="nothing to change"),
    "trawl move shelf.py --write": Typed("trawl move quotes.py --write"),
    "trawl new": Typed("trawl new project shop-two", says="Now: cd shop-two && trawl crawl spiders/example.py"),
    "trawl new project": Typed("trawl new project shop-two", says="tests/test_example.py"),
    "trawl new spider": Typed("trawl new spider quotes-two 127.0.0.1:8765", says="test_quotes_two.py"),
    "trawl new spider NAME DOMAIN": Typed("trawl new spider quotes-two 127.0.0.1:8765", says="test_quotes_two.py"),
    "trawl new spider quotes 127.0.0.1:8765": Typed(
        "trawl new spider quotes 127.0.0.1:8765", first=("rm quotes.py",), says="test_quotes.py"
    ),
    "trawl parse": Typed(f"trawl parse {HOME} --spider quotes.py", says='"title":"Quotes to crawl"'),
    "trawl settings": Typed("trawl settings", says="DOWNLOAD_DELAY "),
    "trawl settings --get": Typed("trawl settings --get DOWNLOAD_DELAY", says=r"^[\d.]+$"),
    "trawl settings --move": Typed(
        "trawl settings --move shop/settings.py", says=r"(?s)\[tool.trawl\].*DOWNLOAD_DELAY = 2"
    ),
    "trawl settings FILE.py": Typed("trawl settings moved.py", says="moved from"),
    "trawl shell": Typed(f"trawl shell {HOME} -c response.status", says="200"),
    "trawl plan": Typed("trawl plan quotes.py --urls urls.txt"),
    "trawl receipt": Typed("trawl receipt --check access.log"),
    "trawl fetch --browser URL --requests": Typed(
        f"trawl fetch --browser {HOME} --requests", first=NO_CHROMIUM, status=2, says="BROWSER_PATH"
    ),
    "trawl fetch --browser URL --screenshot page.png": Typed(
        f"trawl fetch --browser {HOME} --screenshot page.png", first=NO_CHROMIUM, status=2, says="BROWSER_PATH"
    ),
    "trawl crawl --metrics PORT": Typed("trawl crawl quotes.py --metrics 0"),
    "trawl crawl --panel": Typed("trawl crawl quotes.py --panel 0"),
    "trawl crawl --panel [HOST:]PORT": Typed("trawl crawl quotes.py --panel 0"),
    "trawl crawl --receipt": Typed("trawl crawl quotes.py --receipt receipt.json"),
    "trawl simulate": Typed("trawl simulate quotes.py --web web.toml"),
    "trawl panel": Typed("trawl panel no-job", status=2, says="there is no job"),
    "trawl top": Typed(f"trawl top {JOB}"),
    "trawl version": Typed("trawl version", says=r"^trawl \d"),
    "trawl worker": Typed(f"trawl worker {JOB} --spider quotes.py"),
}
"""Command lines by the command in the sentence, if more must be typed or the output is known."""


def filled(printed: str) -> str:
    """Return a command with placeholders replaced and optional parts removed."""
    found = PLACEHOLDERS | ({"URL": JOB} if OF_A_SERVER.search(printed) else {})
    return " ".join(found.get(word, word) for word in OPTIONAL.sub("", printed).split(" ")).strip()


def typed_for(printed: str) -> Typed:
    """Return the command line for a command in a sentence."""
    return TYPED.get(printed) or Typed(filled(printed))


ONE_PAGE = """
import trawl


class {kind}(trawl.Spider):
    name = "{name}"
    start_urls = ["{start}"]

    def parse(self, response):
        yield {{"title": response.css("title::text").get()}}
"""
OFFLINE = """
import trawl


class Offline(trawl.Spider):
    name = "offline"

    async def start(self):
        yield {"title": "nothing is asked for"}
"""
MOVED = ONE_PAGE.replace("import trawl", "import trawl as scrapy").replace("trawl.Spider", "scrapy.Spider")
SETTINGS = "DOWNLOAD_DELAY = 2\n"
NAMES = ("a", "b", "books", "prices", "quotes")
FILES: Mapping[str, str] = {
    **{f"{name}.py": ONE_PAGE.format(name=name, kind=name.title(), start=HOME) for name in NAMES},
    "offline.py": OFFLINE,
    "moved.py": MOVED.format(name="moved", kind="Moved", start=HOME),
    "a/settings.py": SETTINGS,
    "shop/settings.py": SETTINGS,
    "web.toml": '[hosts."127.0.0.1:8765"]\n',
    "access.log": ACCESS_LOG,
    "urls.txt": URLS,
}


def reader_in(folder: Path) -> None:
    """Write the reader's files."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
