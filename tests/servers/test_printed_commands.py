"""The commands that need a job in a server, as they are printed: by pages, in sentences, in help.

The server and the site are others than those that are printed; each command is typed for a job of its own, which a
worker has crawled before.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.test_demo import demo
from tests.docs.blocks import blocks_of
from tests.docs.given import ROOT, first_python
from tests.docs.mentioned import MENTIONED
from tests.docs.test_examples import WORDS, commands_in
from tests.docs.typed import typed_for
from tests.servers.stores import StoreProcess, running_store
from trawl.cli import main
from trawl.testing.demo import DEMO_HOST

pytestmark = pytest.mark.servers

PRINTED_JOB = "redis://store.internal/quotes"
QUICK = """
[tool.trawl]
DOWNLOAD_DELAY = 0.0
DOWNLOAD_DELAY_PER_SLOT = 0.0
DEPTH_LIMIT = 1
"""
PAGES = [ROOT / "docs" / "howto" / f"{name}.md" for name in ("redis", "all-cores", "many-machines")]


def printed() -> list[str]:
    blocks = [block.text for page in PAGES for block in blocks_of(page.read_text("utf-8")) if block.language == "sh"]
    lines = [line for text in blocks for line in text.splitlines() if line.startswith("trawl ")]
    lines += [typed_for(command).line for command in MENTIONED]
    lines += [line for text in WORDS.values() for line in commands_in(text)]
    wanted = (line for line in lines if PRINTED_JOB in line or "quotes-job" in line or "--processes" in line)
    # `trawl panel` serves until Ctrl-C: tests/servers/test_job_panel.py
    wanted = (line for line in wanted if not line.startswith("trawl panel"))
    return [*dict.fromkeys(line.partition("  #")[0] for line in wanted)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with running_store("valkey", tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with demo() as (_, url):
        yield urlsplit(url).netloc


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a reader's folder. Returns what it prints."""
    (tmp_path / "pyproject.toml").write_text(QUICK, "utf-8")
    text = first_python(ROOT / "README.md").replace(DEMO_HOST, host)
    (tmp_path / "quotes.py").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(line: str) -> str:
        status = main(shlex.split(line)[1:])
        said = "".join(capfd.readouterr())
        assert status == 0, f"{line}\n{said}"
        assert not re.search(r"(?m)^\S+ ERROR |Traceback", said), f"{line}\n{said}"
        return said

    return run


@pytest.mark.parametrize("line", printed())
def test_a_command_for_a_job_in_a_server_works_as_printed(
    line: str, run: Run, store: StoreProcess, tmp_path: Path
) -> None:
    job = store.url(tmp_path.name)
    arguments = "-a tag=love" if "tag=love" in line else ""
    if "quotes-job" in line:
        run("trawl crawl quotes.py --processes 2 -o quotes.jsonl --job quotes-job")
    elif "--processes" not in line:
        run(f"trawl worker {job} --spider quotes.py {arguments}")
    typed = line.replace(PRINTED_JOB, job)
    said = run(typed)
    if line.startswith("trawl export"):
        assert re.search(r"[1-9]\d* items copied", said), said
        assert (tmp_path / shlex.split(line)[shlex.split(line).index("-o") + 1]).stat().st_size
    if line.startswith("trawl job") and line.endswith("quotes"):
        assert "finished" in said or "nothing is pending" in said


def test_what_is_said_to_delete_a_job_deletes_it(run: Run, store: StoreProcess) -> None:
    [line] = [command for command in MENTIONED if command.startswith("redis-cli ")]
    run(f"trawl worker {store.url('quotes')} --spider quotes.py")
    run(f"trawl worker {store.url('others')} --spider quotes.py")
    mine = line.replace("redis-cli", f"redis-cli -p {store.port}")
    subprocess.run(["sh", "-c", mine], check=True, stdout=subprocess.DEVNULL)
    assert b"{quotes}" not in store.ask("KEYS", "*")
    assert b"{others}" in store.ask("KEYS", "*")
