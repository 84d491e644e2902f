"""``import trawl`` loads nothing that is not used yet, and every name is there when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trawl

PACKAGE = Path(trawl.__file__).parent


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_no_library_and_no_part_of_it() -> None:
    program = "import sys; was = set(sys.modules); import trawl; print(sorted(set(sys.modules) - was - {'trawl'}))"
    heavy = {"attrs", "ada_url", "httpx", "lxml", "msgspec", "parsel", "rich", "trio", "typer"}
    loaded = printed(program)
    assert not [name for name in heavy if f"'{name}'" in loaded]
    assert "'trawl." not in loaded


def test_a_crawl_loads_no_extra_and_no_database_before_a_setting_asks_for_it() -> None:
    program = (
        "import sys; was = set(sys.modules); import trawl._run;"
        " print(sorted({name.partition('.')[0] for name in set(sys.modules) - was}))"
    )
    loaded = printed(program)
    assert not [name for name in ("hishel", "pyarrow", "fsspec", "zstandard", "sqlite3") if f"'{name}'" in loaded]


NOT_OF_A_PLAIN_CRAWL = {
    *("browser.devtools", "browser.page", "browser.rendering", "engine.callback_deaths", "engine.status"),
    *("engine.steering", "frontier.running_callbacks", "panel"),
    *("cache.cache", "cli", "compat.classes", "compat.messages", "compat.middleware", "engine.host_state"),
    *("engine.job", "engine.job_items", "engine.shared_job", "feeds.outbox", "frontier.job", "frontier.job_frontier"),
    *("frontier.parts", "frontier.redis", "frontier.sections", "frontier.sqlite", "scheduler.shared_job"),
    *("scrapy_names.imports", "scrapy_names.names", "scrapy_names.settings", "testing", "throttling.allowance"),
    *("telemetry", "throttling.job_scopes", "transport.warc"),
}


def test_a_plain_crawl_loads_no_code_for_jobs_processes_browsers_views_or_moved_spiders() -> None:
    program = "class Plain(trawl.Spider):\n    name = 'plain'\ntrawl.run(Plain)\nprint(*sys.modules)"
    loaded = printed(f"import sys, trawl\n{program}").split()
    assert not {f"trawl.{name}" for name in NOT_OF_A_PLAIN_CRAWL} & set(loaded)
    assert {name.replace(".", "/") for name in NOT_OF_A_PLAIN_CRAWL} <= {
        str(path.relative_to(PACKAGE).with_suffix("")) for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("[!_]*/"))
    }


def test_the_command_crawl_loads_no_code_for_jobs_in_servers() -> None:
    loaded = printed("import sys, trawl.cli.crawl; print(*sys.modules)").split()
    assert not [name for name in loaded if name.startswith("trawl.frontier.redis")]


def test_the_checks_after_a_crawl_without_items_load_no_tools_for_tests() -> None:
    loaded = printed("import sys, trawl.cli.checks; print(*sys.modules)").split()
    assert not {"pytest", "trio.testing"} & set(loaded)


@pytest.mark.parametrize("name", trawl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(trawl, name) is not None
    assert name in dir(trawl)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sipder'"):
        trawl.__getattribute__("Sipder")
    assert not hasattr(trawl, "Sipder")


@pytest.mark.parametrize(
    "program",
    [
        "import trawl._run; print(trawl.crawl)",
        "import trawl; trawl.run; from trawl._run import crawl_with; print(trawl.crawl)",
    ],
)
def test_crawl_is_the_function_however_its_module_is_imported(program: str) -> None:
    assert printed(program).startswith("<function crawl ")


def test_what_spiders_use_needs_no_import_of_its_own() -> None:
    assert printed("import trawl; print(trawl.spiders.Spider, trawl.http.Request)").count("<class 'trawl.") == 2


def test_the_help_loads_no_part_of_a_crawl_and_asks_no_metadata_where_no_package_has_a_command() -> None:
    program = (
        "import contextlib, io, sys; from trawl.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "print(sorted(sys.modules))"
    )
    loaded = printed(program)
    heavy = ("importlib.metadata", "email.message", "trio", "msgspec", "lxml", "rich", "attrs")
    assert not [name for name in heavy if f"'{name}'" in loaded]


@pytest.mark.parametrize("declares", [True, False])
def test_a_package_that_declares_a_part_is_found_without_asking_the_others(tmp_path: Path, declares: bool) -> None:
    info = tmp_path / "shelf-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n", "utf-8")
    group = "trawl.commands" if declares else "trawl.commands.not"
    (info / "entry_points.txt").write_text(f"[{group}]\nshelve = shelf:app\n", "utf-8")
    names = printed(
        f"import sys; sys.path.append({str(tmp_path)!r}); from trawl.plugins import plugin_names;"
        " print(plugin_names('trawl.commands'), 'importlib.metadata' in sys.modules)"
    )
    assert names == ("['shelve'] True" if declares else "[] False")
