"""``trawl list``: the spiders in files and folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trawl.cli import main

FILES = {
    "quotes.py": """
import trawl as scrapy
print("never run")
class Base(scrapy.Spider): ...
class Quotes(Base): name = "quotes"
class Typed(scrapy.Spider[dict]):
    name: str = "typed"
class Below(Quotes): ...
class Loop(Loop): name = "loop"
class NotOne: name = "not one"
""",
    "shop/books.py": "from trawl.spiders import SitemapSpider\nclass Books(SitemapSpider):\n    name = 'books'\n",
    "shop/broken.py": "class Spider(:",
    "shop/other.py": "print('no spiders')",
    "shop/same.py": "import trawl as scrapy\nclass Spider(scrapy.Spider):\n    name = 'same'\n",
    "shop/named.py": "from trawl import Spider\nclass Spider(Spider):\n    name = 'named'\n",
    ".hidden/hidden.py": "import trawl\nclass Hidden(trawl.Spider): name = 'hidden'",
    "env/pyvenv.cfg": "",
    "env/lib.py": "import trawl\nclass Lib(trawl.Spider): name = 'lib'",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_spider_is_told_with_what_crawl_takes_for_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "books   shop/books.py:Books",
        "named   shop/named.py:Spider",
        "quotes  quotes.py:Below",
        "quotes  quotes.py:Quotes",
        "same    shop/same.py:Spider",
        "typed   quotes.py:Typed",
    ]


def test_only_where_one_looks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "shop", "none"]) == 2
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "books  shop/books.py:Books",
        "named  shop/named.py:Spider",
        "same   shop/same.py:Spider",
    ]
    assert captured.err.splitlines() == [
        "trawl: none: no such file or folder",
        "trawl: shop/broken.py, line 1: SyntaxError: invalid syntax; its spiders are not listed",
    ]
    assert main(["list", "shop/other.py"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "trawl: no spider in shop/other.py\n")


def test_a_file_is_read_in_the_encoding_that_it_declares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '# -*- coding: latin-1 -*-\nimport trawl\nclass Caf\u00e9(trawl.Spider): name = "caf\u00e9"\n'
    (tmp_path / "shop.py").write_bytes(text.encode("latin-1"))
    assert main(["list", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"caf\u00e9  {tmp_path / 'shop.py'}:Caf\u00e9\n"
    assert captured.err == ""


def test_a_file_that_can_not_be_parsed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nulls.py").write_bytes(b"class Spider: \0")
    (tmp_path / "other.py").write_text("class Other(:")  # no spider can be in it
    assert main(["list", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"trawl: {tmp_path / 'nulls.py'}")
    assert captured.err.endswith("null bytes; its spiders are not listed\n")


def test_a_folder_that_may_not_be_entered_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exists = Path.exists

    def refused(path: Path) -> bool:  # root, who may run this, enters any folder
        if path.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    (folder / "closed").mkdir()
    monkeypatch.setattr(Path, "exists", refused)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "books   shop/books.py:Books"


def test_only_regular_files_of_limited_size_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spider = "import trawl\nclass {0}(trawl.Spider): name = '{0}'\n"
    (folder / "long.py").write_text(spider.format("Long") + "#" * 1_000_000)
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "tty.py").symlink_to("/dev/tty")
    os.mkfifo(folder / "pipe.py")
    (folder / "one.py").symlink_to(folder / "two.py")
    (folder / "two.py").write_text(spider.format("Two"))
    assert main(["list", ".", "pipe.py", "/dev/zero"]) == 0
    captured = capsys.readouterr()
    for name in ("Long", "zero", "tty", "pipe.py:"):
        assert name not in captured.out + captured.err
    assert captured.out.count("Two") == 4


@pytest.mark.parametrize("text", ["-" * 200_000 + "1", "(" * 200_000, "x = " + "a." * 100_000 + "b"])
def test_a_file_that_is_too_deep_is_told_of(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (folder / "deep.py").write_text(f"# Spider\n{text}\n")
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert "quotes" in captured.out
    assert "deep.py" in captured.err


@pytest.mark.long
def test_classes_of_many_bases_take_no_long_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["class A0: ...", "class B0: ..."]
    for at in range(1, 1000):
        lines += [f"class {each}{at}(A{at - 1}, B{at - 1}): name = 'Spider'" for each in "AB"]
    (folder / "many.py").write_text("\n".join(lines))
    assert main(["list"]) == 0
    assert "many" not in capsys.readouterr().out
