"""Runs a project under Scrapy, moves a copy with `trawl move`, runs the copy under trawl, and compares."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from tests.scrapy.site import Site

HERE = Path(__file__).parent
PROJECTS = HERE / "projects"
QUICK = ("-s", "DOWNLOAD_DELAY=0", "-s", "DOWNLOAD_DELAY_PER_SLOT=0", "-s", "AUTOTHROTTLE_ENABLED=false")
"""Settings for the pace of a test. No other settings are added to the project's."""
NOTES = ".urls"
"""The folder in which trawl's media pipelines store data about each URL."""
AT_MOST = 250.0
"""Maximum seconds for one crawl."""


@attrs.frozen(kw_only=True)
class Project:
    """A project written for Scrapy, and its expected results.

    Attributes:
        name: The file or folder in ``projects``, without ``.py``.
        spider: The spider's name; "" for a single file.
        script: The file that Python runs directly; "" if Scrapy's command runs the project.
        arguments: Further arguments for both commands.
        feed: The feed that ``-O`` writes; "" for none.
        files: Files in the project's folder that must be equal. Files that end in ``.jsonl`` may differ in the order of
            lines.
        headers: Request headers to compare.
        told: Errors that trawl reports before its first request, each with file and line. No request is sent then.
        edits: Changes that a person makes after these errors: file, text, and replacement. The project runs with them.
        warned: Differences that `trawl check` and the first lines of `trawl crawl` report, each with file and line.
        differs: The reason why the records differ; "" if they are equal.
        requests_differ: The reason why the requests differ; "" if they are equal.
    """

    name: str
    spider: str = ""
    script: str = ""
    arguments: Sequence[str] = ()
    feed: str = "records.jsonl"
    files: Sequence[str] = ()
    headers: Sequence[str] = ()
    told: Sequence[str] = ()
    edits: Sequence[tuple[str, str, str]] = ()
    warned: Sequence[str] = ()
    differs: str = ""
    requests_differ: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it is a project with settings and not a single file."""
        return (PROJECTS / self.name).is_dir()


@attrs.frozen
class Run:
    """The result of one crawl.

    Attributes:
        status: The exit status.
        records: The records of the feed, each as JSON with sorted keys. A feed in another format is unchanged.
        asked: Method, host, path, body and compared headers of each request.
        files: The content of the files that the project names, by name; None for a missing file.
        said: Standard output and standard error.
    """

    status: int
    records: Counter[str] | str
    asked: Counter[tuple[str, ...]]
    files: Mapping[str, object]
    said: str


def under_scrapy(project: Project, folder: Path, site: Site) -> Run:
    """Run a copy of the project under Scrapy."""
    _copy(project, folder)
    if project.script:
        return _run(project, folder, site, [project.script])
    words = [
        "-m",
        "scrapy_as_before",
        *(("crawl", project.spider) if project.spider else ("runspider", f"{project.name}.py")),
    ]
    quiet = ("-s", "TELNETCONSOLE_ENABLED=False", "-s", "REMOTE_CONTROL_ENABLED=False")  # so that Scrapy opens no ports
    return _run(project, folder, site, [*words, *QUICK, *quiet, *_feed(project), *project.arguments])


def under_trawl(project: Project, folder: Path, site: Site, *, is_edited: bool = True) -> Run:
    """Move a copy of the project, and run it under trawl."""
    _copy(project, folder)
    move(folder, site)
    for name, before, after in project.edits if is_edited else ():
        text = (folder / name).read_text("utf-8")
        assert before in text, f"{name} has no {before!r} after the move:\n{text}"
        (folder / name).write_text(text.replace(before, after), "utf-8")
    if project.script:
        return _run(project, folder, site, [project.script])
    words = ["-m", "trawl", "crawl", project.spider or f"{project.name}.py"]
    return _run(project, folder, site, [*words, *QUICK, *_feed(project), *project.arguments])


def checked(project: Project, folder: Path, site: Site) -> str:
    """Move a copy of the project, and return the output of `trawl check`."""
    _copy(project, folder)
    move(folder, site)
    done = _call(
        folder, site, ["-m", "trawl", "check", *([project.name] if project.is_folder else [f"{project.name}.py"])]
    )
    return done.stdout + done.stderr


def move(folder: Path, site: Site) -> None:
    """Move a project with the command alone."""
    done = _call(folder, site, ["-m", "trawl", "move", ".", "--write"])
    assert done.returncode == 0, done.stdout + done.stderr


def _copy(project: Project, folder: Path) -> None:
    source = PROJECTS / project.name
    if project.is_folder:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir()
        shutil.copy(source.with_suffix(".py"), folder)


def _feed(project: Project) -> tuple[str, ...]:
    return ("-O", project.feed) if project.feed else ()


def _run(project: Project, folder: Path, site: Site, words: Sequence[str]) -> Run:
    site.forget()
    done = _call(folder, site, words)
    asked = Counter(
        (
            *(each.method, f"http://{each.host}{each.path}", each.body.decode("latin-1")),
            *(f"{name}: {each.headers.get(name.lower())}" for name in project.headers),
        )
        for each in site.asked
        if each.path != "/robots.txt"
    )
    records = _records(folder / project.feed) if project.feed else Counter[str]()
    files = {name: _content(folder / name) for name in project.files}
    return Run(done.returncode, records, asked, files, done.stdout + done.stderr)


def _call(folder: Path, site: Site, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAWL_", "SCRAPY_"))}
    paths = [str(HERE / "network"), str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = kept | {
        "PYTHONPATH": os.pathsep.join(paths),
        "SITE_PORT": str(site.server_port),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "300",
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        text=True,
        encoding="utf-8",
        capture_output=True,
        timeout=AT_MOST,
        check=False,
    )


def _records(path: Path) -> Counter[str] | str:
    if path.suffix != ".jsonl":
        return path.read_bytes().decode("utf-8") if path.exists() else ""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in lines)


def _content(path: Path) -> object:
    if path.is_dir():
        found = (each for each in sorted(path.rglob("*")) if each.is_file() and NOTES not in each.parts)
        return {str(each.relative_to(path)): each.read_bytes() for each in found}
    if not path.exists():
        return None
    return Counter(path.read_text("utf-8").splitlines()) if path.suffix in (".jsonl", ".jl") else path.read_bytes()
