"""The command ``trawl new``: a project, or a spider with its test, that runs as it is written."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template

import typer

from trawl.cli.exits import OK, USAGE
from trawl.cli.templates import PROJECT, SPIDERS, TESTS
from trawl.errors import UsageError
from trawl.http import host_of, normalize_url
from trawl.observe import printable
from trawl.settings.check import nearest

__all__ = ["new_project", "new_spider"]

FIRST = "example"
FIRST_DOMAIN = "example.com"


def new_project(directory: str) -> int:
    """Write a project with a first spider and its test; the exit status.

    Args:
        directory: Where; made if it is not there. Files that are there are never overwritten.
    """
    root = Path(directory)
    name = root.resolve().name
    texts = {path: _filled(text, project=_plain(name), name=FIRST) for path, text in PROJECT.items()}
    texts |= _spider_texts(FIRST, FIRST_DOMAIN, "basic", Path("spiders"), Path("tests"))
    return _written(root, texts, f"cd {directory} && trawl crawl spiders/{FIRST}.py")


def new_spider(name: str, domain: str, template: str) -> int:
    """Write a spider, and its test where there are tests; the exit status.

    It goes to ``spiders/`` and ``tests/`` where the working directory has these, and else to the working directory.

    Args:
        name: Of the spider and its file.
        domain: What it crawls; a URL's host is taken.
        template: Its kind.
    """
    try:
        host = _host_of(domain)
        _check(name, template)
    except UsageError as error:
        return _refused(str(error))
    spiders = Path("spiders") if Path("spiders").is_dir() else Path()
    tests = Path("tests") if Path("tests").is_dir() else Path()
    texts = _spider_texts(name, host, template, spiders, tests)
    return _written(Path(), texts, f"trawl crawl {spiders / name}.py")


def _spider_texts(name: str, domain: str, template: str, spiders: Path, tests: Path) -> dict[str, str]:
    kind = "".join(part.capitalize() for part in name.split("_")) + "Spider"
    path = spiders / f"{name}.py"
    words = f"The pages of {domain}"
    module = ".".join([*spiders.parts, name])
    values = {"kind": kind, "name": name, "domain": domain, "path": path.as_posix(), "words": words, "module": module}
    return {
        path.as_posix(): _filled(SPIDERS[template], **values),
        (tests / f"test_{name}.py").as_posix(): _filled(TESTS[template], **values),
    }


def _filled(text: str, **values: str) -> str:
    return Template(text).substitute(values)


def _plain(name: str) -> str:
    """A name that is a package's (PEP 508)."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-").lower()
    return plain or "project"


def _check(name: str, template: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(f"{name!r} can't be the name of a Python file that is imported: use letters, digits and _")
    if template not in SPIDERS:
        close = nearest(template, SPIDERS)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(SPIDERS)}"
        raise UsageError(f"no template {template!r}; {hint}")


def _host_of(domain: str) -> str:
    try:
        return host_of(normalize_url(domain if "://" in domain else f"https://{domain}/"))
    except ValueError as error:
        raise UsageError(f"{domain!r} is no domain: {error}") from error


def _written(root: Path, texts: dict[str, str], then: str) -> int:
    there = [path for path in texts if (root / path).exists()]
    if there:
        return _refused(f"{printable(str(root / there[0]))} is there already: nothing was written")
    try:
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            typer.echo(printable(str(root / path)))
    except OSError as error:
        return _refused(f"{error.filename}: {error.strerror}")
    typer.echo(f"\nNow: {printable(then)}")
    return OK


def _refused(words: str) -> int:
    typer.echo(f"trawl: {words}", err=True)
    return USAGE
