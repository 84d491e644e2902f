"""The checks of the project, one session each. ``nox`` runs lint, types, tests and docs, ``nox -s NAME`` runs one.

Each session installs its own dependencies, so a new machine only needs ``pip install nox``. With ``nox[uv]``, the
installation takes seconds. With ``SHORT=1`` in the environment, a session that takes minutes runs its short form.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "docs"]
nox.options.error_on_missing_interpreters = True
nox.options.default_venv_backend = "uv|virtualenv"

PYPROJECT = nox.project.load_toml("pyproject.toml")
CHECKED = ["trawl", "tests", "examples", "benchmarks", "docs", "hatch_build.py", "noxfile.py"]
IN_USE = ["trawl", "examples", "benchmarks"]
PUBLIC_API_SAMPLES = "tests/typing"
# ASYNC109: `timeout` parameters in protocols of other libraries. 127: only one module uses httpx. 9: matters of taste.
# 100, 124 (RUF029) and 300 (RUF006) are ruff's too, and each would walk through all files once more.
IN_CODE = "--disable=ASYNC100,ASYNC109,ASYNC124,ASYNC127,ASYNC300,ASYNC9"
# Awaits in finally, and swallowed cancellations. ruff finds the rest, or tests may do it. All rules take twice as long.
IN_TESTS = "--enable=ASYNC102,ASYNC103,ASYNC104"

FILES_OF_OTHERS = {
    "citation-file-format": ["CITATION.cff"],
    "compose-spec": ["examples/deploy/compose.yaml"],
    "github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "github-workflows": [".github/workflows/ci.yml"],
    "readthedocs": [".readthedocs.yaml"],
}
"""Files that the forge and other services read, by their schema."""

WHOLE_CRAWLS = ["docs", "examples", "jobs", "mixtures", "net", "promises", "regressions", "soak"]
"""Folders of tests that replay whole crawls many times."""

COVERING_CRAWLS = ["jobs/test_shared.py", "jobs/test_shared_scopes.py"]
"""Tests of whole crawls that cover code which no other test without a server covers."""

ADDING_LITTLE = [
    "cli/test_interrupted.py",
    "compat/test_moved.py",
    "compat/test_moved_project.py",
    "compat/test_moved_spiders.py",
    "frontier/test_sessions.py",
    "jobs/test_shared_scopes.py",
    "pipelines/test_large_files.py",
    "security/test_stored.py",
    "security/test_work.py",
    "selectors/test_attribute_limit.py",
    "test_benchmarks.py",
    "test_compiled.py",
    "test_release.py",
    "test_tables.py",
    "transport/http11/test_fuzz.py",
    "transport/http11/test_httpx_options.py",
]
"""Tests without which 0.2 % fewer lines are covered (measured file by file), and which take 23 % of the time. Only
the short form leaves them out."""

UNTRACED = ["scrapy", "servers", "test_lazy", "test_lint", "test_structure"]
"""Tests that check files, or need more than Python."""

IS_SHORT = os.environ.get("SHORT") == "1"
"""Whether a session only starts, collects its tests, and passes the quickest of them. ``.ci/run`` runs this form of
each session that it does not run completely."""

SAMPLE = "test_a_concurrency_delay_slots or test_compiled or test_entry or test_pool"
"""The tests that the short form runs after all tests were collected: some of each kind."""

PLAIN = ("--assert=plain",) if IS_SHORT else ()
"""Where pytest has not rewritten the tests yet. That takes twelve seconds."""

MONITORED = "3.13"
"""The Python that measures coverage without slowing the tests down, but only of lines (``sys.monitoring``)."""


def install(session: nox.Session, group: str, *, project: str = ".[brotli,cache,zstd]", editable: bool = False) -> None:
    """Install a dependency group, and the project (editable if its files are measured or walked).

    The groups are read here, because the pip of a new Python 3.11 does not know ``--group``.
    """
    # If this is set, each of a hundred processes that the tests start compiles all of its imports.
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    requirements = nox.project.dependency_groups(PYPROJECT, group)
    session.install(*requirements, *(["-e"] if editable else []), project)


# The fixtures of a module (an installed package) are created once or twice, and neither core is idle.
ON_TWO_CORES = ("-n", "2", "--dist", "worksteal")
# A server is started once per file, and most of the time is spent waiting.
BY_FILE = ("-n", "3", "--dist", "loadfile")


def run_tests(
    session: nox.Session,
    *options: str,
    folder: str = "tests",
    workers: Sequence[str] = ON_TWO_CORES,
    quickest: str = SAMPLE,
    env: dict[str, str] | None = None,
) -> None:
    """Run pytest: with the session's arguments, in the short form (what ``-k`` selects), or completely."""
    wanted = session.posargs or (("-k", quickest) if IS_SHORT else workers)
    paths = [] if any(each.startswith("tests") for each in session.posargs) else [folder]
    session.run("pytest", *options, *wanted, *paths, env=env)


SERVED = re.compile(r"\bmark\.servers\b")

ASYNCHRONOUS = re.compile(r"^\s*async (def|for|with)\b", re.MULTILINE)


CLEANING_UP = re.compile(r"^\s*(finally:|except\*?\s*:|except\b.*(BaseException|Cancelled))|__aexit__", re.MULTILINE)


def files_with(*patterns: re.Pattern[str], folders: Sequence[str]) -> list[str]:
    """Return the Python files that match all patterns, because flake8-async takes a fifth of a second per file."""
    texts = {str(path): path.read_text(encoding="utf-8") for folder in folders for path in Path(folder).rglob("*.py")}
    return sorted(path for path, text in texts.items() if all(pattern.search(text) for pattern in patterns))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, asynchronous pitfalls, layers of imports, spelling, and the news fragments."""
    install(session, "lint", project=".", editable=True)
    session.run("ruff", "check", *CHECKED)
    session.run("ruff", "check", "--preview", "--select=RUF029", *IN_USE)
    session.run("ruff", "format", "--check", *CHECKED)
    session.run("lint-imports", "--no-cache", "--no-logo")
    session.run("codespell")
    for rules, files in (
        (IN_CODE, files_with(ASYNCHRONOUS, folders=IN_USE)),
        (IN_TESTS, files_with(ASYNCHRONOUS, CLEANING_UP, folders=["tests"])),
    ):
        session.log(f"flake8-async {rules}: {len(files)} files")
        session.run(
            "python",
            ".ci/pitfalls.py",
            rules,
            "--startable-in-context-manager=write,_serve,_hold,_run_one",
            *files,
            log=False,
        )
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check package, tests and examples with strict mypy, and the completeness of public types with pyright."""
    install(session, "types")
    session.run("mypy")
    session.run("pyright", "--ignoreexternal", "--verifytypes", "trawl")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that need only Python, on two cores."""
    install(session, "test", editable=True)
    run_tests(session)


@nox.session(python=["3.12", "3.13"])
def pythons(session: nox.Session) -> None:
    """Run the same tests on the other versions of Python that pyproject.toml names."""
    install(session, "test", editable=True)
    run_tests(session, *PLAIN)


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """Run the same tests with the lowest allowed version of each dependency and extra. Ten minutes."""
    session.install("uv")
    pins = str(Path(session.create_tmp()).resolve() / "lowest.txt")
    lowest_direct = ("--all-extras", "--resolution", "lowest-direct", "--python", "3.11", "--quiet")
    session.run("uv", "pip", "compile", "pyproject.toml", *lowest_direct, "--output-file", pins)
    session.install("-r", pins, *nox.project.dependency_groups(PYPROJECT, "test"), "-e", ".")
    # Old versions of other packages cause warnings on this Python that trawl can't fix.
    run_tests(session, *PLAIN, "-W", "default")


@nox.session
def extras(session: nox.Session) -> None:
    """Test each extra by itself: its features with it, and the message without it. Two minutes."""
    session.install("uv")
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder)
    uses = Path("tests/extras.py").resolve()
    extras = [*PYPROJECT["project"]["optional-dependencies"]]
    for extra in session.posargs or (extras[:2] if IS_SHORT else extras):
        session.run("uv", "venv", "--quiet", str(folder / extra))
        python = str(folder / extra / "bin" / "python")
        for packages, word in ((".", "without"), (f".[{extra}]", "with")):
            session.run("uv", "pip", "install", "--quiet", "--python", python, packages)
            session.run(python, "-I", str(uses), word, extra, external=True)


@nox.session
def compiled(session: nox.Session) -> None:
    """Run the same tests on the installed compiled build, from a copy of the checkout without the sources."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "test"))
    build = {"TRAWL_COMPILED": "1", "TRAWL_OPT_LEVEL": "0" if IS_SHORT else "2"}
    session.install("--no-cache-dir", ".[brotli,cache,zstd]", env=build)
    found = session.run("python", "-I", "-c", "import trawl; print(trawl.__path__[0])", silent=True)
    copy = Path(session.create_tmp()).resolve() / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    session.run("git", "checkout-index", "--all", f"--prefix={copy}/", external=True)
    shutil.rmtree(copy / "trawl")
    (copy / "trawl").symlink_to(str(found).strip(), target_is_directory=True)
    session.chdir(copy)
    # Not the temporary folder of the session: it lies in this checkout, and its path is too long for a Unix socket.
    run_tests(session, *PLAIN, env={"TRAWL_COMPILED": "1", "TMPDIR": tempfile.gettempdir()})


@nox.session(python=MONITORED if IS_SHORT else None)
def coverage(session: nox.Session) -> None:
    """Measure branch coverage (in short: of lines, with fewer cases), without whole crawls, which add few lines."""
    install(session, "test", editable=True)
    # pytest's plugins import trawl before a coverage plugin would start. So coverage starts pytest, and its patch of
    # subprocess starts it first in each worker.
    parts = (path for path in Path("tests").iterdir() if path.stem not in {*WHOLE_CRAWLS, *UNTRACED, "conftest"})
    paths = [
        *(path for path in parts if path.is_dir() or path.suffix == ".py"),
        *map(Path("tests").joinpath, COVERING_CRAWLS),
    ]
    session.run("coverage", "erase")
    env = {"HYPOTHESIS_PROFILE": "coverage"}
    wanted = ["-m", "not long and not scrapy and not servers and not sweep and not soak"]
    if IS_SHORT:
        env |= {"COVERAGE_BRANCH": "false", "COVERAGE_CORE": "sysmon"}
        left_out = {Path("tests", each) for each in ADDING_LITTLE}
        wanted += ["-p", "tests.few_cases", *(f"--ignore={path}" for path in sorted(left_out))]
        paths = [path for path in paths if path not in left_out]
    session.run("coverage", "run", "-m", "pytest", *PLAIN, *ON_TWO_CORES, *wanted, *map(str, sorted(paths)), env=env)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", env=env)


@nox.session
def servers(session: nox.Session) -> None:
    """Run the tests with real servers from the system's packages."""
    install(session, "servers", editable=True)
    files = [path for path in files_with(SERVED, folders=["tests"]) if Path(path).name.startswith("test_")]
    session.run("pytest", "-m", "servers", "-o", "faulthandler_timeout=1200", *(session.posargs or (*BY_FILE, *files)))


@nox.session
def scrapy(session: nox.Session) -> None:
    """Run the tests that compare trawl with Scrapy, on two cores."""
    install(session, "scrapy", editable=True)
    run_tests(session, "-m", "scrapy", folder="tests/scrapy", quickest="test_cookies or test_fingerprints")


@nox.session
def sweep(session: nox.Session) -> None:
    """Run the long forms of tests, for whole ranges of values. Takes minutes."""
    install(session, "test", editable=True)
    wanted = "(sweep or hypothesis) and not servers and not soak"  # hypothesis selects all tests of properties
    long = {"HYPOTHESIS_PROFILE": "sweep", **({"MIXTURES": "4"} if IS_SHORT else {})}
    options = ("-m", wanted, "-o", "faulthandler_timeout=1800")
    folder = "tests/mixtures" if IS_SHORT else "tests"
    run_tests(session, *options, folder=folder, workers=(), quickest="test_each_of_many_mixtures", env=long)


@nox.session
def stored(session: nox.Session) -> None:
    """Run the tests of the promises with a job in a simulated server. Five minutes."""
    install(session, "test", editable=True)
    quickest = "test_b_backoff"
    run_tests(session, "-p", "tests.promises.in_a_store", folder="tests/promises", quickest=quickest)


@nox.session
def soak(session: nox.Session) -> None:
    """Crawl with every kind of fault for an hour (SOAK_SECONDS), and send a million requests (SOAK_SENDS)."""
    install(session, "servers", editable=True)
    short = {"SOAK_SENDS": "2000", "CHAOS_DRAWS": "1", "CHAOS_SEED": "10"} if IS_SHORT else {}
    options = ("-m", "soak", "-s", "-o", "faulthandler_timeout=0")
    folder = "tests/soak" if IS_SHORT else "tests"
    run_tests(session, *options, folder=folder, workers=(), quickest="million or chaos", env=short)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation. Any warning is an error."""
    install(session, "docs")
    # -a: otherwise the search index lacks the declared words of pages that Sphinx does not write again.
    strictly = ("-a", "-n", "-W", "--keep-going")
    session.run("sphinx-build", *strictly, "-b", "html", "docs", "docs/_build/html", *session.posargs)


@nox.session(name="typing-legacy")
def typing_legacy(session: nox.Session) -> None:
    """Check samples of the public API with trio-typing's plugin and the last mypy that supports it."""
    install(session, "typing-legacy", project=".")
    session.run("mypy", "--config-file", f"{PUBLIC_API_SAMPLES}/legacy.ini", PUBLIC_API_SAMPLES)


@nox.session
def release(session: nox.Session) -> None:
    """Build wheel and sdist, install each with pip in a new environment, and run a crawl there. A minute."""
    session.install("build[uv]", "check-jsonschema", "kubernetes-validate", "twine")
    for schema, files in FILES_OF_OTHERS.items():
        session.run("check-jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}", *files)
    session.run("kubernetes-validate", "--strict", "--quiet", "examples/deploy/kubernetes.yaml")
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder)
    session.run("python", "-m", "build", "--installer", "uv", "--outdir", str(folder / "dist"), silent=True)
    built = sorted(str(path) for path in (folder / "dist").iterdir())  # the wheel is built from the sdist
    session.run("twine", "check", "--strict", *built)
    spider = Path("examples/pydoc.py").resolve()
    for package in built[:1] if IS_SHORT else built:
        fresh = folder / Path(package).name.removeprefix("trawl_crawler-")
        session.run("python", "-m", "venv", str(fresh))
        session.run(str(fresh / "bin" / "pip"), "install", "--quiet", package, external=True)
        with session.chdir(fresh):  # elsewhere, because `import trawl` would find the checkout
            session.run("bin/trawl", "version", external=True)
            session.run(
                "bin/trawl", "crawl", str(spider), "-s", "CLOSESPIDER_ITEMCOUNT=20", "-O", "a.csv", external=True
            )
            records = len((fresh / "a.csv").read_text(encoding="utf-8").splitlines()) - 1
        if records < 20:
            session.error(f"{package}: {records} records")
    session.log(f"ready to be uploaded: {' '.join(built)}")


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks and compare trawl with the peers."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)
