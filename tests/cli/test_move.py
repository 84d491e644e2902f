"""``trawl move``: a Scrapy project is changed where that is certain, and what is left is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trawl.cli import main

SPIDER = """import scrapy
from scrapy.http import Request, XmlRpcRequest
from scrapy.utils.log import configure_logging


class Books(scrapy.Spider):
    name = "books"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        yield {"headers": dict(response.headers), "body": response.body_as_unicode()}
        yield Request(response.urljoin("/b"), self.parse, "POST", {"X": "1"}, body=b"x")
        yield XmlRpcRequest("http://a.example/rpc", methodname="m")
"""

SETTINGS = """import os
from scrapy.utils.reqser import request_to_dict

BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
ROBOTSTXT_OBEY = False
DOWNLOAD_DELAY = float(os.environ.get("SHOP_DELAY", "0.5"))
ADDONS = {"shop.parts.Addon": 300}
"""

FILES = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
    "shop/__init__.py": "",
    "shop/settings.py": SETTINGS,
    "shop/spiders/__init__.py": "",
    "shop/spiders/books.py": SPIDER,
    "shop/plain.py": "import json\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if ".git" not in path.parts
    }


def moved(text: str, tmp_path: Path, *options: str) -> str:
    """The text of a file after ``trawl move FILE --write``."""
    path = tmp_path / "one.py"
    path.write_bytes(text.encode())
    assert main(["move", str(path), "--write", *options]) == 0
    return path.read_bytes().decode()


def test_the_changes_are_shown_and_nothing_is_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(project)
    assert main(["move", "shop"]) == 0
    out = capsys.readouterr().out
    assert contents(project) == before
    for line in (
        "--- shop/spiders/books.py",
        "-import scrapy",
        "+import trawl as scrapy",
        "+from trawl.http import Request",
        '+        yield {"headers": dict(response.headers.items()), "body": response.text}',
        "--- /dev/null",
        "+SCRAPY_COMPAT = true",
        "3 files to change; --write writes the changes",
    ):
        assert line in out.splitlines()


def test_a_project_is_written_and_a_second_move_changes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["move", "shop", "--write"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrote")] == [
        "wrote shop/settings.py",
        "wrote shop/spiders/books.py",
        "wrote pyproject.toml",
    ]
    assert (project / "shop/spiders/books.py").read_text("utf-8") == SPIDER.replace(
        "import scrapy\nfrom scrapy.http import Request, XmlRpcRequest\n"
        "from scrapy.utils.log import configure_logging\n",
        "import trawl as scrapy\nfrom trawl.http import Request\nfrom scrapy.http import XmlRpcRequest\n"
        "from trawl.utils.log import configure_logging\n",
    ).replace("response.headers)", "response.headers.items())").replace("body_as_unicode()", "text").replace(
        '"POST", {"X"', 'method="POST", headers={"X"'
    )
    assert "request_to_dict" not in (project / "shop/settings.py").read_text("utf-8")  # nothing uses it
    table = (project / "pyproject.toml").read_text("utf-8")
    assert "DOWNLOAD_DELAY = 0.5\n" in table
    written = contents(project)
    assert main(["move", "shop", "--write"]) == 0
    assert contents(project) == written
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to change"


def test_what_a_person_decides_is_told_with_place_reason_and_link(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = "docs/howto/coming-from-scrapy.md"
    for is_first in (True, False):  # a second move tells it again
        assert main(["move", ".", "--write"]) == 0
        told = capsys.readouterr().out.partition("Decide yourself:\n")[2].splitlines()
        assert any(line.startswith("shop/spiders/books.py:3: ") and f"({guide}#what-is-what)" in line for line in told)
        was_read = "shop/settings.py:6: DOWNLOAD_DELAY has the value that the environment gave now" in "\n".join(told)
        assert was_read is is_first  # the table that the first move wrote is not made again
        assert (
            f"pyproject.toml:7: ADDONS: there are no add-ons: set what their update_settings() sets ({guide}#settings)"
            in told
        )
        assert not any("BOT_NAME" in line for line in told)


def commit(project: Path) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@a.example")
    for words in (["init"], ["add", "."], ["commit", "-m", "x"]):
        subprocess.run(["git", *names, *words], cwd=project, check=True, capture_output=True)


def test_a_package_that_does_not_run_is_told_if_only_a_setting_names_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"{SETTINGS}SPIDER_MIDDLEWARES = {{'scrapy_deltafetch.DeltaFetch': 100, 'shop.parts.Own': 200}}\n"
    write(project, {"shop/settings.py": settings})
    for _ in range(2):
        assert main(["move", ".", "--write"]) == 0
        told = [line for line in capsys.readouterr().out.splitlines() if "deltafetch" in line and "copy" in line]
        assert len(told) == 1
        assert told[0].startswith("pyproject.toml:")
        assert "scrapy_deltafetch.DeltaFetch does not run here: copy its middleware into the project" in told[0]
        assert told[0].endswith("(docs/howto/coming-from-scrapy.md#plug-ins)")


def test_files_with_uncommitted_changes_are_left_alone_unless_one_says_so(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(project)
    (project / "shop/spiders/books.py").write_text(f"{SPIDER}# mine\n", "utf-8")
    assert main(["move", "shop", "--write"]) == 1
    captured = capsys.readouterr()
    assert captured.err == (
        "trawl: shop/spiders/books.py is not written, because it has changes that are not committed to git, or git "
        "does not track it: commit it, or add --dirty\n"
    )
    assert "wrote shop/settings.py" in captured.out
    assert (project / "shop/spiders/books.py").read_text("utf-8") == f"{SPIDER}# mine\n"
    assert main(["move", "shop", "--write", "--dirty"]) == 0
    assert "import trawl as scrapy" in (project / "shop/spiders/books.py").read_text("utf-8")


def test_files_that_git_ignores_are_left_alone_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, {".gitignore": "made.py\n", "shop/made.py": "import scrapy\n"})
    commit(project)
    assert main(["move", ".", "--write"]) == 1
    assert capsys.readouterr().err.startswith("trawl: shop/made.py is not written, because it has changes")
    assert (project / "shop/made.py").read_text("utf-8") == "import scrapy\n"
    assert (project / "pyproject.toml").exists()  # a new file


def test_a_link_to_a_file_outside_the_project_is_told_and_not_followed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, {"other.py": "import scrapy\n", "shop/same.py": "import scrapy\n"})
    (project / "shop/away.py").symlink_to(project / "other.py")
    (project / "shop/gone.py").symlink_to("nothing.py")
    (project / "shop/twice.py").symlink_to("same.py")
    assert main(["move", "shop", "--write"]) == 0
    told = capsys.readouterr().out
    assert "shop/away.py:1: not moved, because it is a link to a file outside the project: move " in told
    assert told.count("wrote shop/same.py\n") == 1
    assert (project / "other.py").read_text("utf-8") == "import scrapy\n"
    assert (project / "shop/twice.py").is_symlink()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import scrapy; x = 1\n", "import trawl as scrapy; x = 1\n"),
        ("import os, scrapy\r\nx = 1\r\n", "import os\r\nimport trawl as scrapy\r\nx = 1\r\n"),
        (
            "def f():\n    import scrapy  # late\n    return scrapy\n",
            "def f():\n    import trawl as scrapy  # late\n    return scrapy\n",
        ),
        (
            "from scrapy.selector import (\n    Selector,\n)\nfrom scrapy.http import Request as R\n"
            "x = 'é'; R, Selector\n",
            "from trawl.selector import Selector\nfrom trawl.http import Request as R\nx = 'é'; R, Selector\n",
        ),
        ("if x:\n    from scrapy.shell import Shell\n", "if x:\n    pass\n"),
        ("from scrapy.shell import Shell\nx = 1\n", "x = 1\n"),
        ("from scrapy.shell import Shell; x = 1\n", "pass; x = 1\n"),
        ("x = 1\nfrom scrapy.shell import Shell\n", "x = 1\npass\n"),
        ("x = 1\nfrom scrapy.shell import (\n    Shell,\n)", "x = 1\npass"),
        (
            "try:\n    import trawl as scrapy\nexcept ImportError:\n    import scrapy\n",
            "try:\n    import trawl as scrapy\nexcept ImportError:\n    import scrapy\n",
        ),
        (
            "import scrapy.http.response.html\ndef f(r: scrapy.http.response.html.HtmlResponse): ...\n",
            "import trawl as scrapy\ndef f(r: scrapy.http.response.html.HtmlResponse): ...\n",
        ),
        (
            "import scrapy\nr = response.follow(u, f, 'POST')\n",
            "import trawl as scrapy\nr = response.follow(u, f, method='POST')\n",
        ),
    ],
)
def test_an_edit_keeps_the_rest_of_its_file(before: str, after: str, tmp_path: Path) -> None:
    assert moved(before, tmp_path) == after
    assert moved(after, tmp_path) == after


@pytest.mark.parametrize(
    "code",
    [
        "from urllib.request import Request\nRequest(u, data, headers)\n",
        "from .requests import Request\nRequest(u, data, headers)\n",
        "class Request(scrapy.Request):\n    pass\nRequest(u, data, headers)\n",
        "from parsel import Selector\nSelector(response)\n",
        "self.api.follow(user, True, 5)\n",
        "follow(user, True, 5)\n",
    ],
)
def test_calls_of_other_code_are_kept(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert moved(f"import scrapy\n{code}", tmp_path) == f"import trawl as scrapy\n{code}"
    assert "Decide yourself" not in capsys.readouterr().out


def test_a_call_that_cannot_be_changed_is_told_and_the_others_are_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = "import scrapy\na = scrapy.Request(u, f, ('POST'))\nb = scrapy.Request(u, f, 'POST')\n"
    after = "import trawl as scrapy\na = scrapy.Request(u, f, ('POST'))\nb = scrapy.Request(u, f, method='POST')\n"
    assert moved(before, tmp_path) == after
    out = capsys.readouterr().out
    assert "one.py:2: Request() takes only url and callback as positional arguments" in out
    assert "can't be parsed" not in out


def test_code_for_both_imports_from_what_runs_it(tmp_path: Path) -> None:
    text = "import json\nimport scrapy\nfrom scrapy.spiders import CrawlSpider\nprint(scrapy, CrawlSpider, json)\n"
    both = moved(text, tmp_path, "--both")
    assert both == (
        'import json\nimport sys\n\nif "trawl" in sys.modules:\n    import trawl as scrapy\n'
        "    from trawl.spiders import CrawlSpider\nelse:\n    import scrapy\n"
        "    from scrapy.spiders import CrawlSpider\n"
        "print(scrapy, CrawlSpider, json)\n"
    )
    assert moved(both, tmp_path, "--both") == both
    assert moved(both, tmp_path) == both


_BOTH = 'if "trawl" in sys.modules:\n    import trawl as scrapy\nelse:\n    import scrapy'
_FIELDS = 'if "trawl" in sys.modules:\n    from trawl import Field\nelse:\n    from scrapy import Field'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import scrapy\nimport sys\n", f"import sys\n\n{_BOTH}\nimport sys\n"),
        ("import os, sys\nimport scrapy\n", f"import os, sys\n{_BOTH}\n"),
        ("import scrapy; x = 1\n", "import scrapy; x = 1\n"),
        (
            "import scrapy; x = 1\nfrom scrapy import Field\nField\n",
            f"import scrapy; x = 1\nimport sys\n\n{_FIELDS}\nField\n",
        ),
        (
            "import scrapy  # all\nfrom scrapy import Field\nField\n",
            f"import sys\n\n{_BOTH}  # all\n{_FIELDS}\nField\n",
        ),
    ],
)
def test_code_for_both_keeps_the_rest_of_its_file(before: str, after: str, tmp_path: Path) -> None:
    assert moved(before, tmp_path, "--both") == after
    assert moved(after, tmp_path, "--both") == after


def test_settings_that_cannot_be_read_and_files_that_cannot_be_parsed_are_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, {"shop/settings.py": "import nothing_like_it\n", "shop/old.py": "print 'x'\n"})
    assert main(["move", "shop", "--write"]) == 0
    out = capsys.readouterr().out
    assert "shop/settings.py:1: the settings can't be read: ModuleNotFoundError" in out
    assert "shop/old.py:1: it can't be parsed: " in out
    assert not (project / "pyproject.toml").exists()


def test_settings_of_the_project_are_kept(project: Path) -> None:
    write(project, {"pyproject.toml": "[project]\nname = 'shop'\n"})
    assert main(["move", ".", "--write"]) == 0
    text = (project / "pyproject.toml").read_text("utf-8")
    assert text.startswith("[project]\nname = 'shop'\n\n[tool.trawl]\nSCRAPY_COMPAT = true\n")
    write(project, {"pyproject.toml": "[tool.trawl]\nRETRY_TIMES = 3\n"})
    assert main(["move", ".", "--write"]) == 0
    assert (project / "pyproject.toml").read_text("utf-8") == "[tool.trawl]\nRETRY_TIMES = 3\n"


def test_spiders_whose_imports_show_nothing_are_moved_by_a_setting(tmp_path: Path) -> None:
    text = "from scrapy import Request, Spider\nclass A(Spider):\n    name = 'a'\n"
    assert moved(text, tmp_path).startswith("from trawl import Request, Spider\n")
    assert (tmp_path / "pyproject.toml").read_text("utf-8").startswith("[tool.trawl]\nSCRAPY_COMPAT = true\n")


def test_a_place_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["move", str(tmp_path / "none")]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_settings_that_import_the_project_are_read_as_they_are_after_the_move(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "shop/settings.py": "from shop.parts import Cheap\nfrom .names import NAME\nSPIDER_MODULES = ['shop.spiders']\n"
        "ITEM_PIPELINES = {Cheap: 1}\nUSER_AGENT = NAME\n",
        "shop/parts.py": "from scrapy.exceptions import DropItem\nclass Cheap:\n    error = DropItem\n",
        "shop/names.py": "import scrapy\nNAME = scrapy.Spider.__name__\n",
    }
    write(project, files)
    assert main(["move", "."]) == 0
    assert '+ITEM_PIPELINES = { "shop.parts.Cheap" = 1 }\n' in capsys.readouterr().out
    assert main(["move", ".", "--write"]) == 0
    assert 'USER_AGENT = "Spider"\n' in (project / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize("start", [".", "shop", "inside"])
def test_the_default_settings_of_a_package_win_and_the_others_are_told(
    start: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "scrapy.cfg": "[settings]\nprod = shop.prod\ndefault = shop.settings\n",
        "shop/settings.py": "SPIDER_MODULES = ['shop.spiders']\nDOWNLOAD_DELAY = 5\n",
        "shop/prod.py": "from .settings import *\nDOWNLOAD_DELAY = 0.1\n",
    }
    write(project, files)
    if start == "inside":
        monkeypatch.chdir(project / "shop")
    assert main(["move", "." if start == "inside" else start, "--write"]) == 0
    assert "DOWNLOAD_DELAY = 5\n" in (project / "pyproject.toml").read_text("utf-8")
    assert not (project / "shop/pyproject.toml").exists()
    assert "prod.py:1: not moved, because " in capsys.readouterr().out


def test_settings_modules_beside_each_other_have_one_table(project: Path) -> None:
    files = {
        "scrapy.cfg": "[settings]\ndefault = a\nprod = b\n",
        "a.py": "RETRY_TIMES = 5\n",
        "b.py": "RETRY_TIMES = 1\n",
    }
    write(project, files)
    assert main(["move", ".", "--write"]) == 0
    assert "RETRY_TIMES = 5\n" in (project / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize("file", ["shop/settings.py", "shop/settings/__init__.py"])
def test_classes_of_the_settings_module_are_written_with_its_whole_name(file: str, project: Path) -> None:
    (project / "shop/settings.py").unlink()
    write(project, {file: "class P: pass\nITEM_PIPELINES = {P: 1}\n"})
    assert main(["move", ".", "--write"]) == 0
    assert 'ITEM_PIPELINES = { "shop.settings.P" = 1 }\n' in (project / "pyproject.toml").read_text("utf-8")


def test_secrets_of_the_environment_are_not_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import os\nAPI_TOKEN = os.environ['SHOP_TOKEN']\nSHOP_KEY: str = os.getenv('SHOP_TOKEN')\n"
        "DB = {'user': 'me', 'password': os.environ['SHOP_TOKEN']}\n"
        "STORE = f'redis://me:{os.environ[\"SHOP_TOKEN\"]}@a.example/'\n"
        "token = os.environ['SHOP_TOKEN']\nAUTH_TOKEN = 'Bearer ' + token\n"
    )
    write(project, {"shop/settings.py": text})
    monkeypatch.setenv("SHOP_TOKEN", "s3cr3t")
    assert main(["move", ".", "--write"]) == 0
    table, out = (project / "pyproject.toml").read_text("utf-8"), capsys.readouterr().out
    assert "s3cr3t" not in table + out
    assert 'API_TOKEN = ""\n' in table
    assert 'DB = { user = "me", password = "" }\n' in table
    for line, name in ((2, "API_TOKEN"), (3, "SHOP_KEY"), (4, "DB"), (5, "STORE"), (7, "AUTH_TOKEN")):
        words = f"{name} is left empty, because the environment gave a secret: set TRAWL_{name} there instead"
        assert f"settings.py:{line}: {words}" in out


def test_settings_in_another_encoding_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "shop/settings.py").write_bytes("BOT_NAME = 'caf\xe9'\n".encode("latin-1"))
    assert main(["move", ".", "--write"]) == 0
    assert "shop/settings.py:1: the settings can't be read: " in capsys.readouterr().out
    assert "import trawl" in (project / "shop/spiders/books.py").read_text("utf-8")


def test_a_table_that_is_not_toml_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, {"pyproject.toml": "[project\n"})
    assert main(["move", ".", "--write"]) == 2
    assert "pyproject.toml is not valid TOML: " in capsys.readouterr().err
    assert (project / "shop/spiders/books.py").read_text("utf-8") == SPIDER


def test_nothing_is_written_if_git_fails_in_a_repository(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, {".git": "gitdir: nowhere\n"})
    before = contents(project)
    assert main(["move", "shop", "--write"]) == 1
    assert contents(project) == before
    assert "shop/spiders/books.py is not written, because it has changes" in capsys.readouterr().err
    assert main(["move", "shop", "--write", "--dirty"]) == 0


def test_settings_of_a_spider_that_change_the_records_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SPIDER.replace(
        "    start_urls",
        """    custom_settings: dict = {
        "SCHEDULER": "shop.parts.Scheduler",
        "DOWNLOAD_HANDLERS": handlers(),
        "ADDONS": {},
        "BOT_NAME": "shop",
        "FEEDS": {"a.json": {"format": "json", "shelf": 3}},
        NAME: 3,
    }
    start_urls""",
    )
    (tmp_path / "one.py").write_text(text, "utf-8")
    for options in ([], ["--write"], ["--write"]):
        assert main(["move", str(tmp_path / "one.py"), *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        told = [line.partition("one.py:")[2].split(" (")[0] for line in lines if "#settings)" in line]
        assert told == [
            "10: SCHEDULER: there is one scheduler: DEPTH_FIRST sets its order, and JOB_DIR stores it",
            "11: DOWNLOAD_HANDLERS: write a transport, or a middleware that returns the response",
            "14: FEEDS['a.json']",
        ]


def test_keys_of_a_feed_that_nothing_reads_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (project / "shop/settings.py").open("a", encoding="utf-8") as file:
        file.write("FEEDS = {'a.json': {'format': 'json', 'shelf': 3}}\n")
    assert main(["move", "shop"]) == 0
    assert ": FEEDS['a.json'] (in pyproject.toml) has your own key 'shelf'" in capsys.readouterr().out


def test_names_of_the_projects_own_in_custom_settings_are_declared(tmp_path: Path) -> None:
    start = "import trawl as scrapy\nclass A(scrapy.Spider):\n    name = 'a'\n"
    given = "    custom_settings = {\n        'SHELF_URL': 'x', 'RETRY_TIME': 2, 'JOBDIR': '', 'shelf': 1,\n    }"
    after = moved(f"{start}{given}  # mine\n    x = 1\n", tmp_path)
    assert after == f'{start}{given}  # mine\n    own_settings = {{"SHELF_URL": None}}\n    x = 1\n'
    assert moved(after, tmp_path) == after
    (tmp_path / "pyproject.toml").write_text("[tool.trawl.own]\nSHELF_URL = ''\n", "utf-8")
    assert moved(start + given, tmp_path) == start + given  # the project declares it


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\tx = {A}  # noqa\r\n\ty = 1\r\n", "\tx = {A}  # noqa\r\n\t{B}\r\n\ty = 1\r\n"),
        ("    x: ClassVar = {A}  # type: ignore", "    x: ClassVar = {A}  # type: ignore\n    {B}"),
        ("    name = 'é'; x = {A}; y = 1\n", "    name = 'é'; {B}; x = {A}; y = 1\n"),
        ("    if 1:\n\tx = {A}\n", "    if 1:\n\tx = {A}\n"),  # not in the class's body
        ("    own_settings = COMMON\n    x = {A}\n", None),
        ("    own_settings: ClassVar = {}\n    x = {A}\n", None),
        ("    if 1:\n        own_settings = COMMON\n    x = {A}\n", None),
        ("    x = {'URL': 1, **COMMON}\n", None),
        ("    own_settings = COMMON\n\nclass Sub(Mid):\n    x = {A}\n\nclass Mid(A):\n    pass\n", None),
    ],
)
def test_a_declaration_keeps_the_rest_of_its_class_and_hides_no_other(
    before: str, after: str | None, tmp_path: Path
) -> None:
    start = "import trawl as scrapy\nclass A(scrapy.Spider):\n"
    names = {"{A}": "{'URL': 1}", "{B}": 'own_settings = {"URL": None}', "x = {": "custom_settings = {"}
    texts = [before, before if after is None else after]
    for name, text in {**names, "x: C": "custom_settings: C"}.items():
        texts = [each.replace(name, text) for each in texts]
    assert moved(start + texts[0], tmp_path) == start + texts[1]


def test_a_declaration_of_a_base_class_in_another_file_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = "import trawl as scrapy\n\nclass Base(scrapy.Spider):\n    own_settings = {'URL': 1}\n"
    middle = "from base import Base\n\nclass Mid(Base):\n    pass\n"
    spider = "from mid import Mid\n\nclass A(Mid):\n    custom_settings = {'SHELF_URL': 1}\n"
    write(tmp_path, {"base.py": base, "mid.py": middle, "a.py": f"import trawl as scrapy\n{spider}"})
    monkeypatch.chdir(tmp_path)
    assert main(["move", ".", "--write"]) == 0
    assert (tmp_path / "a.py").read_text("utf-8") == f"import trawl as scrapy\n{spider}"
