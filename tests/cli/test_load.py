from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from trawl.cli import main
from trawl.cli.list import Found
from trawl.cli.load import all_spiders, load_spider
from trawl.errors import SpiderLoadError, SpiderNotFound, WrittenForScrapy

ONE = "import trawl.spiders\nclass One(trawl.spiders.Spider):\n    name = 'one'\n"
TWO = f"{ONE}class Two(trawl.spiders.Spider):\n    name = 'two'\n"


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def refusal(target: str) -> str:
    with pytest.raises(SpiderLoadError) as caught:
        load_spider(target)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_one_spider_of_a_file_is_loaded(tmp_path: Path) -> None:
    assert load_spider(write(tmp_path / "a" / "myone.py", ONE)).name == "one"


def test_a_relative_file_is_found(tmp_path: Path) -> None:
    write(tmp_path / "myone.py", ONE)
    assert load_spider("myone.py").name == "one"


def test_a_file_that_is_not_there_is_refused_with_the_one_that_may_be_meant(tmp_path: Path) -> None:
    write(tmp_path / "a" / "quotes.py", ONE)
    assert refusal("a/quote.py") == "a/quote.py: no such file; did you mean a/quotes.py?"
    assert refusal("a/xyz.py") == "a/xyz.py: no such file"
    assert refusal("b/quote.py") == "b/quote.py: no such file"


def test_a_class_is_named_after_a_colon(tmp_path: Path) -> None:
    assert load_spider(write(tmp_path / "mytwo.py", TWO) + ":Two").name == "two"


def test_a_module_on_the_path_is_loaded_by_name(tmp_path: Path) -> None:
    write(tmp_path / "mypackage" / "__init__.py", "")
    write(tmp_path / "mypackage" / "inner.py", TWO)
    assert load_spider("mypackage.inner:One").name == "one"


def test_what_lies_beside_a_spider_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path / "far" / "beside.py", "NAME = 'beside'\n")
    spider = write(tmp_path / "far" / "myimporter.py", f"import beside\n{ONE.replace(repr('one'), 'beside.NAME')}")
    assert load_spider(spider).name == "beside"


def test_the_packages_around_a_spider_and_what_lies_in_the_working_directory_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("mydepot", "mydepot/spiders"):
        write(tmp_path / "far" / package / "__init__.py", "")
    write(tmp_path / "far" / "mydepot" / "items.py", "NAME = 'packed'\n")
    text = (
        f"from ..items import NAME\nimport mydepot.items, mycommon\n{ONE.replace(repr('one'), 'NAME + mycommon.END')}"
    )
    spider = write(tmp_path / "far" / "mydepot" / "spiders" / "mypacked.py", text)
    write(tmp_path / "here" / "mycommon.py", "END = '!'\n")
    monkeypatch.chdir(tmp_path / "here")
    assert load_spider(spider).name == "packed!"


def test_a_file_in_a_package_that_is_called_as_a_known_one_is_loaded_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "json" / "__init__.py", "")
    assert load_spider(write(tmp_path / "json" / "myspider.py", ONE)).__module__ == "myspider"
    write(tmp_path / "mypack.py", ONE)
    load_spider("mypack.py")  # now this one is called so
    write(tmp_path / "far" / "mypack" / "__init__.py", "")
    assert load_spider(write(tmp_path / "far" / "mypack" / "myother.py", ONE)).__module__ == "myother"
    assert load_spider(write(tmp_path / "far" / "mypack" / "my-one.py", ONE)).__module__ == "spider_my_one"


def test_a_file_named_like_a_known_module_hides_it_from_nobody(tmp_path: Path) -> None:
    known = sys.modules["json"]
    assert load_spider(write(tmp_path / "json.py", ONE)).__module__ == "spider_json"
    assert sys.modules["json"] is known


@pytest.mark.parametrize("target", ["a/myone.py", "a.myone", "one", "myone"])
def test_what_lies_beside_a_spider_hides_no_module_of_pythons_or_of_a_package(tmp_path: Path, target: str) -> None:
    names = ("resource", "h2", "IPython", "sqlite3")
    for folder in (tmp_path, tmp_path / "a"):
        for name in names:
            write(folder / f"{name}.py", "raise RuntimeError\n")
    write(tmp_path / "a" / "myone.py" if target != "myone" else tmp_path / "myone.py", ONE)
    assert load_spider(target).name == "one"
    for name in names:
        found = PathFinder.find_spec(name)
        assert found is not None
        assert not str(found.origin).startswith(str(tmp_path))


def test_a_neighbour_that_an_installed_module_hides_is_told_of(tmp_path: Path) -> None:
    write(tmp_path / "resource.py", "class Resource: ...\n")
    write(tmp_path / "mine.py", f"from resource import Resource\n{ONE}")
    said = refusal("mine.py")
    assert "cannot import name 'Resource' from 'resource'" in said
    assert "an installed module has the name of your resource.py and is found first: rename your file" in said


def test_an_imported_spider_and_a_nameless_base_are_not_counted(tmp_path: Path) -> None:
    write(tmp_path / "mybase.py", ONE)
    text = "from mybase import One\nclass Base(One):\n    name = ''\nclass Real(Base):\n    name = 'real'\n"
    assert load_spider(write(tmp_path / "myreal.py", text)).name == "real"


def test_no_such_file() -> None:
    assert refusal("nowhere.py") == "nowhere.py: no such file"
    assert refusal("no/such/dir/x.py:Cls") == "no/such/dir/x.py: no such file"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert refusal(f"{tmp_path}/") == f"{tmp_path} is a folder; it holds no spider"
    assert refusal(".").startswith(". is a folder; ")
    write(tmp_path / "mybooks.py", "import trawl\n\nclass Books(trawl.Spider):\n    name = 'books'\n")
    assert refusal(f"{tmp_path}/") == f"{tmp_path} is a folder; give one of books"


def test_a_package_without_a_spider_of_its_own_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mypackage").mkdir()
    assert refusal("mypackage") == "mypackage is a folder; it holds no spider"
    write(tmp_path / "mypackage" / "mybooks.py", "import trawl\n\nclass Books(trawl.Spider):\n    name = 'books'\n")
    assert refusal("mypackage") == "mypackage is a folder; give one of books"


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    told = refusal(write(tmp_path / "mybroken.py", f"{ONE}    def parse(self, response)\n        pass\n"))
    assert told == "mybroken.py, line 4: SyntaxError: expected ':'"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mybytes.py").write_bytes(b"\xff\xfe\x00x")
    assert refusal("mybytes.py").startswith("mybytes.py")


def test_an_error_while_importing_is_told_with_the_line_of_the_file(tmp_path: Path) -> None:
    told = refusal(write(tmp_path / "myfailing.py", "import json\n\njson.loads('{')\n"))
    assert told.startswith("myfailing.py, line 3: JSONDecodeError: ")


def test_a_missing_import_is_told(tmp_path: Path) -> None:
    told = refusal(write(tmp_path / "mymissing.py", "import no_such_module\n"))
    assert told == "mymissing.py, line 1: ModuleNotFoundError: No module named 'no_such_module'"


def test_a_missing_import_of_a_module_is_told_with_its_line(tmp_path: Path) -> None:
    write(tmp_path / "mymodule.py", "\nimport no_such_module\n")
    assert refusal("mymodule").startswith("mymodule.py, line 2: ModuleNotFoundError")


def test_a_file_that_exits_is_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "myexit.py", "raise SystemExit('bye')")) == "myexit.py, line 1: SystemExit: bye"


def test_no_module_of_that_name(tmp_path: Path) -> None:
    assert refusal("no_such_module") == "no file, module or spider is named 'no_such_module'"
    assert refusal("no_such.module:X") == "no file, module or spider is named 'no_such.module'"


def test_what_is_neither_file_nor_module_is_refused() -> None:
    assert refusal("my-spider") == (
        "'my-spider' is not a file, a module or a spider; give FILE.py, MODULE, MODULE:CLASS or the name of a spider"
    )


def test_the_spiders_that_are_there_are_named(tmp_path: Path) -> None:
    for number in range(6):
        text = f"import trawl\n\nclass A(trawl.Spider):\n    name = 'shop-{number}'\n"
        write(tmp_path / f"shop{number}.py", text)
    assert refusal("shop-55") == (
        "'shop-55' is not a file, a module or a spider (did you mean shop-5?); give FILE.py, MODULE,"
        " MODULE:CLASS or the name of a spider"
    )
    assert refusal("myhat") == (
        "no file, module or spider is named 'myhat' (spiders here: shop-0, shop-1, shop-2, shop-3, shop-4, ...)"
    )


def test_a_file_that_may_have_the_spider_is_named_where_it_can_not_be_parsed(tmp_path: Path) -> None:
    write(tmp_path / "shop.py", "import trawl\nclass A(trawl.Spider)\n    name = 'books'\n")
    why = "can't be read: shop.py, line 2: SyntaxError: expected ':'"
    assert refusal("books") == f"no file, module or spider is named 'books' ({why})"
    write(tmp_path / "other.py", "import trawl\nclass B(trawl.Spider):\n    name = 'prices'\n")
    assert refusal("books") == f"no file, module or spider is named 'books' (spiders here: prices; {why})"


def test_a_spider_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop" / "spiders").mkdir(parents=True)
    text = "import trawl\nclass A(trawl.Spider):\n    name = 'by-name'\nclass B(trawl.Spider):\n    name = 'b_name'\n"
    (tmp_path / "shop" / "spiders" / "several_here.py").write_text(text)
    assert load_spider("by-name").__name__ == "A"
    assert load_spider("b_name").__name__ == "B"
    (tmp_path / "again.py").write_text(text)
    told = "several spiders are named 'by-name'; give one of again.py:A, shop/spiders/several_here.py:A"
    assert refusal("by-name") == told


@pytest.mark.parametrize("name", ["shop", "math", "trio", "test", "data"])
def test_a_spider_s_name_wins_over_a_folder_a_module_and_a_file(tmp_path: Path, name: str) -> None:
    for package in ("shop", "shop/spiders"):
        write(tmp_path / package / "__init__.py", "")
    write(tmp_path / "data", "no Python")
    write(tmp_path / "shop" / "spiders" / f"{name}.py", TWO.replace("'one'", repr(name)))
    assert load_spider(name).__name__ == "One"
    assert load_spider(f"shop.spiders.{name}:Two").name == "two"
    assert refusal(f"{name}.py") == f"{name}.py: no such file"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("from twisted.internet import threads\n", "line 1: take out "),
        ("def later():\n    from trawl.shell import inspect_response\n", "line 2: "),
    ],
)
def test_a_spider_that_can_be_imported_but_not_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, said: str
) -> None:
    write(tmp_path / "site" / "twisted" / "internet" / "__init__.py", "threads = None\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(WrittenForScrapy, match=said):
        load_spider(write(tmp_path / "mylate.py", f"{lines}{ONE}"))
    path = write(tmp_path / "myboth.py", f"try:\n    from twisted.internet import threads\nexcept OSError: pass\n{ONE}")
    assert load_spider(path).name == "one"


def test_what_check_finds_in_a_moved_spider_is_logged_before_its_crawl(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "    start_urls = ['http://nowhere.invalid/']\n    def parse(self, response):\n        time.sleep(1)\n"
    path = write(tmp_path / "mymoved.py", f"import time\n{ONE.replace('import trawl.spiders', 'import trawl')}{text}")
    for moved in ("true", "false"):
        main(["crawl", path, "-s", f"SCRAPY_COMPAT={moved}", "-s", "ROBOTSTXT_OBEY=false", "-s", "RETRY_TIMES=0"])
        before = capfd.readouterr().err.partition("nowhere.invalid")[0]
        assert ("time.sleep() blocks the whole crawl" in before) is (moved == "true")


def test_no_spider_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mynone.py", "class Plain: pass\n")
    assert refusal(path) == f"{path}: no spider in it; define a subclass of trawl.Spider"


def test_several_spiders_are_named_and_how_to_choose(tmp_path: Path) -> None:
    path = write(tmp_path / "mytwo.py", TWO)
    assert refusal(path) == f"{path}: several spiders in it (One, Two); choose one, as in {path}:One"


def test_an_unknown_class_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "mytwo.py", TWO)
    assert refusal(f"{path}:Tow") == f"{path}: no class 'Tow' in it; did you mean Two?"
    assert refusal(f"{path}:Xyzzy") == f"{path}: no class 'Xyzzy' in it; it has One, Two"


def test_a_class_that_is_no_spider_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "myplain.py", f"{ONE}class Plain: pass\n")
    assert refusal(f"{path}:Plain") == f"{path}: Plain is not a spider; derive it from trawl.Spider"


def test_a_spider_without_a_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "mynameless.py", ONE.replace("'one'", "''"))
    assert refusal(path) == f"{path}: One has no name; add a class attribute `name`"


SCRAPYS = (
    "import scrapy\nfrom scrapy.linkextractors import LinkExtractor\nclass One(scrapy.Spider):\n    name = 'one'\n"
)
MOVED = (
    'myscrapys.py is written for Scrapy: line 1: change "import scrapy" to "import trawl as scrapy"; line 2: change '
    '"from scrapy.linkextractors import LinkExtractor" to "from trawl.linkextractors import LinkExtractor" '
    "(see the guide 'Coming from Scrapy')"
)


@pytest.fixture
def installed_scrapy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Scrapy that can be imported, with as much in it as a spider's file needs."""
    write(tmp_path / "site" / "scrapy" / "__init__.py", "class Spider:\n    name = None\n")
    write(tmp_path / "site" / "scrapy" / "linkextractors.py", "class LinkExtractor: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "scrapy"]:
        del sys.modules[name]


def test_a_spider_that_imports_scrapy_is_told_what_to_write(tmp_path: Path) -> None:
    path = write(tmp_path / "myscrapys.py", SCRAPYS)
    with pytest.raises(WrittenForScrapy) as caught:
        load_spider(path)
    assert str(caught.value) == MOVED


def test_so_is_one_whose_items_import_it(tmp_path: Path) -> None:
    write(tmp_path / "myitems.py", "\nfrom scrapy.item import Field, Item\n")
    path = write(tmp_path / "myshop.py", f"import myitems\n{ONE}")
    assert refusal(path).startswith('myitems.py is written for Scrapy: line 2: change "from scrapy.item import')


@pytest.mark.usefixtures("installed_scrapy")
@pytest.mark.parametrize("ending", ["", ":One"])
def test_with_scrapy_installed_its_spider_is_told_the_same(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / "myscrapys.py", SCRAPYS)
    with pytest.raises(WrittenForScrapy, match="One is a Scrapy spider, not a trawl spider: ") as caught:
        load_spider(f"{path}{ending}")
    assert str(caught.value).endswith(MOVED)


def test_an_import_of_what_only_scrapy_has_is_told_what_to_use(tmp_path: Path) -> None:
    text = "from trawl.utils.project import inside_project\n"
    assert "trawl.run() and the command read" in refusal(write(tmp_path / "myscript.py", text))
    text = "from trawl.exceptions import (\n    DropItem,\n    StopDownload,\n)\n"
    assert "StopDownload is not here: no code runs" in refusal(write(tmp_path / "mystop.py", text))


def test_a_misspelled_name_of_trawls_is_no_matter_of_scrapys(tmp_path: Path) -> None:
    told = refusal(write(tmp_path / "mytypo.py", "from trawl.spiders import Sipder\n"))
    assert told.startswith("mytypo.py, line 1: ImportError: cannot import name 'Sipder'")


def test_the_command_says_so_in_one_line_with_the_status_of_wrong_usage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "myscrapys.py", SCRAPYS)
    assert main(["crawl", "myscrapys.py"]) == 2
    assert capfd.readouterr() == ("", f"trawl: {MOVED}\n")


def test_the_check_says_so_a_line_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "myscrapys.py", SCRAPYS)
    assert main(["check", "myscrapys.py"]) == 2
    assert capfd.readouterr().out.splitlines() == [
        'myscrapys.py:1: change "import scrapy" to "import trawl as scrapy"',
        'myscrapys.py:2: change "from scrapy.linkextractors import LinkExtractor" to'
        ' "from trawl.linkextractors import LinkExtractor"',
    ]


def test_a_spider_of_this_project_comes_before_one_of_a_project_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("outer", "outer/inner"):
        write(tmp_path / folder / "scrapy.cfg", "")
        write(tmp_path / folder / "one.py", "import trawl\nclass One(trawl.Spider):\n    name = 'one'\n")
    monkeypatch.chdir(tmp_path / "outer")
    assert load_spider("one").__module__ == "one"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpiderNotFound, match="several spiders are named 'one'"):
        load_spider("one")


def test_a_spider_of_a_moved_project_is_found_by_import_if_parsing_does_not_show_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spiders = {
        "computed.py": "import trawl\nfrom computed_shop.parts import NAME\nclass A(trawl.Spider): name = NAME\n",
        "derived.py": "from computed_shop.parts import Base\nclass B(Base): name = 'derived'\n",
        "broken.py": "class Nothing: ...\nraise ValueError('no')\n",
        "mixed.py": (
            "import trawl\nfrom computed_shop.parts import NAME\n"
            "class C(trawl.Spider): name = 'static'\nclass D(trawl.Spider): name = NAME * 2\n"
        ),
        "plain.py": "raise SystemExit('this is not imported: it has no class')\n",
    }
    files = {
        "pyproject.toml": '[tool.trawl]\nSCRAPY_COMPAT = true\nown.SPIDER_MODULES = ["computed_shop.spiders"]\n',
        "computed_shop/__init__.py": "",
        "computed_shop/parts.py": "import trawl\nNAME = 'com' + 'puted'\nclass Base(trawl.Spider): ...\n",
        "computed_shop/spiders/__init__.py": "",
        **{f"computed_shop/spiders/{name}": text for name, text in spiders.items()},
    }
    for name, text in files.items():
        write(tmp_path / name, text)
    found, unread = all_spiders(Path())
    assert found == [
        Found("computed", "computed_shop/spiders/computed.py:A"),
        Found("computedcomputed", "computed_shop/spiders/mixed.py:D"),
        Found("derived", "computed_shop/spiders/derived.py:B"),
        Found("static", "computed_shop/spiders/mixed.py:C"),
    ]
    path = "computed_shop/spiders/broken.py"
    assert unread == {path: f"{path}: broken.py, line 2: ValueError: no"}
    assert load_spider("computed").name == "computed"
    with pytest.raises(SpiderNotFound, match=r"; can't be read: .*broken\.py, line 2: ValueError: no\)$"):
        load_spider("three")
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "static  computed_shop/spiders/mixed.py:C\n"  # it runs no code


@pytest.mark.parametrize(("command", "status"), [("list", 0), ("crawl three", 2), ("check shop", 1), ("move .", 0)])
def test_links_that_lead_nowhere_are_skipped(
    tmp_path: Path, command: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "pyproject.toml", '[tool.trawl]\nSCRAPY_COMPAT = true\nown.SPIDER_MODULES = ["shop"]\n')
    write(tmp_path / "shop/one.py", ONE)
    (tmp_path / "shop/gone.py").symlink_to("nothing.py")
    (tmp_path / "shop/round.py").symlink_to("round.py")
    assert main(command.split()) == status
    captured = capsys.readouterr()
    assert "gone" not in captured.out + captured.err
    assert "round" not in captured.out + captured.err


def test_of_several_spiders_of_a_moved_project_with_one_name_the_last_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "pyproject.toml", '[tool.trawl]\nSCRAPY_COMPAT = true\nown.SPIDER_MODULES = ["twice.spiders"]\n')
    for name in ("twice/__init__.py", "twice/spiders/__init__.py"):
        write(tmp_path / name, "")
    for name in ("twice/old.py", "twice/spiders/a.py", "twice/spiders/b.py", "zold.py"):
        write(tmp_path / name, ONE)
    assert load_spider("one").__module__ == "twice.spiders.b"
    assert "several spiders are named 'one': twice/spiders/b.py:One runs, the last of" in caplog.text
