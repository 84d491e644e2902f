"""Commands and blocks of pages that the tests do not run, each with the reason and the check that replaces the run.

Everything that is not in one of the two tables is run.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import attrs
import typer

from benchmarks.__main__ import arguments
from tests.docs.blocks import Block
from tests.docs.given import ROOT
from tests.examples.installed import install_parcel
from tests.servers.limited import HTTP, SERVER
from trawl.cli.app import app

__all__ = ["BLOCKS", "LINES", "group_of_trawl", "is_looked_at", "known", "looked_at", "understood"]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

OF_OTHERS = {
    "psycopg[binary]",
    "-e",
    "--upgrade",
    "--force-reinstall",
    "--no-deps",
    ".",
    "pip",
    "nox",
    "nox[uv]",
    "pytest",
    "pytest-trio",
}
"""Other requirements that the pages install with pip."""


@attrs.frozen
class NotRun:
    """Why a line or block is not run.

    Attributes:
        sign: A text in the line, or the start of the block.
        why: The reason.
        look: Checks the words of the line or the lines of the block. Raises an error if they are wrong.
    """

    sign: str
    why: str
    look: Callable[[Sequence[str]], object]


def installable(words: Sequence[str]) -> None:
    """Refuse extras, groups and folders that pip could not install from this checkout."""
    given = list(words[words.index("install") + 1 :])
    if "--group" in given:
        at = given.index("--group")
        assert given[at + 1] in PROJECT["dependency-groups"]
        del given[at : at + 2]
    for what in given:
        if what.startswith("./"):
            install_parcel(Path("site"))
        elif what not in OF_OTHERS:
            known(what)


def known(requirement: str) -> None:
    """Refuse other distributions, and extras that this distribution does not have."""
    name, extras = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
    assert name == PROJECT["project"]["name"]
    assert extras is None or {*extras.split(",")} <= {*PROJECT["project"]["optional-dependencies"]}


def a_session(words: Sequence[str]) -> None:
    """Refuse a session that nox does not have."""
    tree = ast.parse((ROOT / "noxfile.py").read_text("utf-8"))
    assert words[words.index("-s") + 1].replace("-", "_") in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef)
    }


def understood(words: Sequence[str]) -> None:
    """Refuse a command line of ``trawl`` with an unknown word or option. It is parsed but not run."""
    words = words[next(at for at, word in enumerate(words) if Path(word).name == "trawl") :]
    group = group_of_trawl()
    with group.make_context("trawl", [words[1]]) as context:
        name, command, rest = group.resolve_command(context, list(words[1:]))
        assert command is not None
        command.make_context(name, rest, parent=context)


@cache
def group_of_trawl() -> typer.core.TyperGroup:
    """Return the parser of the command ``trawl``."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group


def an_example(words: Sequence[str]) -> None:
    """Refuse a program that is not an example, or that no test of the examples names."""
    path = ROOT / next(word for word in words if word.startswith("examples/"))
    assert path.is_file()
    assert any(path.name in test.read_text("utf-8") for test in (ROOT / "tests" / "examples").rglob("*.py"))


def a_benchmark(words: Sequence[str]) -> None:
    """Refuse a missing module of the benchmarks, and options that it does not accept."""
    if words[1:3] == ["-m", "benchmarks"]:
        arguments(words[3:])
    else:
        path = ROOT / (f"{words[2].replace('.', '/')}.py" if words[1] == "-m" else words[1])
        options = {word for word in words if word.startswith("--")}
        assert options <= {*re.findall(r'"(--[a-z-]+)"', path.read_text("utf-8"))}


def floors(lines: Sequence[str]) -> None:
    """Refuse an order of the layers that differs from the configuration of import-linter."""
    contract = next(one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["id"] == "floors")
    held = [[name for name in layer.split(" | ") if name[0] != "("] for layer in contract["layers"]]
    assert [re.split(r"\s{2,}", line)[0].split(" | ") for line in lines] == [names for names in held if names]


def a_crontab(lines: Sequence[str]) -> None:
    """Refuse a cron line whose command is not the command that the page has run."""
    (line,) = lines
    page = (ROOT / "docs" / "tutorial" / "your-own-site.md").read_text("utf-8").replace("\\\n", " ")
    crawl = line[line.index("trawl crawl") :].partition(" && ")[0]
    understood(shlex.split(crawl))
    assert crawl in " ".join(page.partition(lines[0])[0].split())


def limits_of_nginx(lines: Sequence[str]) -> None:
    """Refuse directives that the tests of the servers do not use with nginx, except for the key."""
    given = {line.strip() for line in (HTTP + SERVER).replace("$five", "$host").splitlines()}
    assert {line.partition("  #")[0].strip() for line in lines} <= given


LINES = [
    NotRun("-m venv", "makes a Python, to be filled from an index of packages", tuple),
    NotRun(". .venv/bin/activate", "there is no such environment to enter", tuple),
    NotRun("pip install", "installs from an index of packages, or takes seconds", installable),
    NotRun("trawl demo", "serves until it is stopped: tests/cli/test_demo.py", understood),
    NotRun("--processes ", "starts a server: tests/servers/test_printed_commands.py types it", understood),
    NotRun("trawl crawl examples/fed.py", "runs until it is stopped: tests/examples/test_running.py", understood),
    NotRun("trawl crawl examples/graphql.py", "asks GitHub, with a token: tests/examples/test_asking.py", understood),
    NotRun("createdb ", "asks a server of PostgreSQL", tuple),
    NotRun("trawl crawl examples/postgres.py", "needs a server: tests/examples/test_postgres.py", understood),
    NotRun("redis-server ", "serves until it is stopped: tests/servers start some", tuple),
    NotRun("redis://127.0.0.1/", "needs a server: tests/servers/test_example_shared.py", understood),
    NotRun("trawl crawl examples/proxies.py", "needs proxies: tests/examples/test_asking.py", understood),
    NotRun("trawl fetch http://127.0.0.1:8765/scroll --browser", "needs a Chromium: tests/servers", understood),
    NotRun("trawl crawl examples/rendered.py", "needs a Chromium: tests/servers/test_browser.py", understood),
    NotRun("trawl crawl examples/signed.py", "asks an API of yours: tests/examples/test_asking.py", understood),
    NotRun("sqlite3 queue.sqlite", "asks beside the crawl of the line above it", tuple),
    NotRun("redis://store.internal/", "asks a server: tests/servers/test_printed_commands.py types it", understood),
    NotRun("nox -s", "runs the tests, this one among them", a_session),
    NotRun(".venv/bin/nox", "runs the tests, this one among them", tuple),
    NotRun(
        "trawl crawl examples/pydoc.py", "takes half a minute: tests/examples/test_pydoc.py, and .ci/run", understood
    ),
    NotRun("python examples/program.py", "asks the network: its own test asks this machine", an_example),
    NotRun("python examples/lines.py", "asks the network: its own test asks this machine", an_example),
    NotRun("python examples/transport.py", "asks the network: its own test asks this machine", an_example),
    NotRun("python -m benchmarks", "measures for minutes, or writes into the checkout", a_benchmark),
    NotRun("python benchmarks/frontier.py", "measures for minutes", a_benchmark),
    NotRun("python -m docs._ext.first_page", "writes into the checkout", a_benchmark),
    NotRun("python -m pydoc", "serves until it is stopped: examples/pydoc.py starts one", tuple),
    NotRun("pip wheel", "compiles for minutes: `nox -s compiled` does it", tuple),
    NotRun("bash .ci/run", "runs the tests, this one among them", tuple),
    NotRun("pre-commit install", "writes into the checkout", tuple),
    NotRun("towncrier build --draft", "needs the tools of `nox -s lint`, which runs it", tuple),
    NotRun("towncrier build --version", "writes the changelog of a release", tuple),
    NotRun("crontab -e", "opens an editor", tuple),
    NotRun("git tag", "makes a release", tuple),
    NotRun("twine upload", "publishes a release", tuple),
    NotRun("apt-get install", "installs packages of the system", tuple),
    NotRun("docker compose", "needs Docker: tests/examples/test_deploy.py reads its file", tuple),
    NotRun("systemctl ", "needs systemd: tests/examples/test_deploy.py has it check the units", tuple),
    NotRun("scrapy ", "what Scrapy's users typed there", tuple),
    NotRun("redis-cli ", "asks a server: tests/servers/test_printed_commands.py types it", tuple),
    NotRun("quotes-job --w", "a job of several processes: tests/servers/test_printed_commands.py types it", understood),
    NotRun("top quotes-job", "a job of several processes: tests/servers/test_printed_commands.py types it", understood),
    NotRun("trawl panel ", "serves until it is stopped: tests/servers/test_job_panel.py", understood),
    NotRun("trawl job books-job", "needs a running crawl: tests/engine/test_steering.py", understood),
    NotRun("--panel 0.0.0.0", "opens a port for other machines: tests/test_panel.py", understood),
    NotRun("TRAWL_PANEL_TOKEN=", "the start of the line below it", tuple),
    NotRun("sqlite3 DIR/job.db", "tests/docs/test_every_command.py executes it on a job", tuple),
    NotRun(".recover", "reads a damaged database with sqlite3's own means", tuple),
]
"""Lines of commands, by a text in the line."""

BLOCKS = [
    NotRun("your code, which called trawl", "a drawing", tuple),
    NotRun("        taken               sent", "a drawing", tuple),
    NotRun("configured ─► AutoThrottle or rampup", "a drawing", tuple),
    NotRun("cli", "a list: import-linter holds it", floors),
    NotRun("15 3 * * *", "a line of cron's", a_crontab),
    NotRun("limit_req_zone", "of nginx's, which tests/servers start", limits_of_nginx),
    NotRun("user trawl ", "of Redis's configuration: tests/servers has a server take it", tuple),
]
"""Blocks that are neither code of trawl nor its output, by their start."""


def looked_at(line: str) -> bool:
    """Return whether a line is not run. If so, check it."""
    found = next((one for one in LINES if one.sign in line), None)
    if found is not None:
        found.look(shlex.split(line.removesuffix("&"), comments=True))
    return found is not None


def is_looked_at(block: Block) -> bool:
    """Return whether a block is not run. If so, check it."""
    found = next((one for one in BLOCKS if block.text.startswith(one.sign)), None)
    if found is not None:
        found.look(block.text.splitlines())
    return found is not None
