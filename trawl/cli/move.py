"""The command ``trawl move``: changes a project that was written for Scrapy so that it runs on trawl.

It makes the certain edits of ``trawl check``, and writes the settings of ``trawl settings --move``. The decisions that
a person must make are listed at the end. A second run changes nothing.

Length: the edits of imports, calls and settings, and the decisions that remain, are about the same texts of a project.
"""

from __future__ import annotations

import ast
import configparser
import difflib
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.machinery import PathFinder, SourceFileLoader
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import typer

from trawl.cli import FAILED, OK
from trawl.cli.checks.compat import check_text
from trawl.cli.checks.scrapy_only import last_name
from trawl.cli.list import content, files_in, find_spiders
from trawl.cli.settings import lines_of, to_toml, without_secrets
from trawl.errors import SettingsError, TrawlError, UsageError
from trawl.observe import printable
from trawl.scrapy_names.imports import Change, Edit, changes, edited
from trawl.scrapy_names.moved import is_moved_text
from trawl.scrapy_names.names import plugin_advice
from trawl.scrapy_names.settings import is_felt, is_foreign_setting, setting_advice
from trawl.settings import Layer, Settings, load, of_project
from trawl.settings.check import nearest
from trawl.settings.values import known
from trawl.tracebacks import describe_error

__all__ = ["move_command", "settings_modules", "shown"]

_GUIDE = "docs/howto/coming-from-scrapy.md"

_PLAIN = "pyproject.toml"


@attrs.frozen(order=True)
class Decision:
    """A decision that a person must make, with the line in the moved file and the section of the guide."""

    path: str
    line: int
    reason: str
    section: str = "what-is-different-and-why"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason} ({_GUIDE}#{self.section})"


@attrs.frozen
class _File:
    """A file, and its text before and after the move. ``before`` is "" for a new file."""

    path: Path
    before: str
    after: str
    encoding: str = "utf-8"

    def diff(self) -> str:
        name = shown(self.path)
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, name if self.before else "/dev/null", name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def move_command(
    place: str, *, writes: bool = False, takes_uncommitted: bool = False, is_for_both: bool = False
) -> int:
    """Show the changes to a project, or write them, and list the remaining decisions. Returns the exit status."""
    root = Path(place)
    if not root.exists():
        raise UsageError(f"{place}: no such file or folder; give the folder of a project, or a file")
    decisions: list[Decision] = []
    declared = _declared(root)
    files = [
        file
        for path in _files(root, decisions)
        if (file := _moved(path, decisions, is_for_both=is_for_both, declared=declared)) is not None
    ]
    settings, tables = _settings(root, files, decisions)
    for file in files:
        decisions += _differences(file, settings)
    changed = [file for file in (*files, *tables) if file.before != file.after]
    unsafe = [] if takes_uncommitted or not writes else _uncommitted(root, [file.path for file in changed])
    for file in changed:
        if not writes:
            typer.echo(file.diff(), nl=False)
        elif file.path.resolve() in unsafe:
            words = (
                "is not written, because it has changes that are not committed to git, or git does not track it: "
                "commit it, or add --dirty"
            )
            typer.echo(f"trawl: {printable(shown(file.path))} {words}", err=True)
        else:
            file.path.write_bytes(file.after.encode(file.encoding))
            typer.echo(f"wrote {printable(shown(file.path))}")
    _tell_end(decisions, len(changed), writes=writes)
    return FAILED if unsafe else OK


def _files(root: Path, decisions: list[Decision] | None = None) -> list[Path]:
    """Return the Python files of a project. Links to files outside the project are left out, with a decision."""
    if root.is_file():
        return [root]
    found: dict[Path, Path] = {}
    for path in files_in(root):
        if path.resolve().is_relative_to(root.resolve()):
            found.setdefault(path.resolve(), path)
        elif decisions is not None:
            words = f"not moved, because it is a link to a file outside the project: move {path.resolve()} itself"
            decisions.append(Decision(str(path), 1, words, "coming-from-scrapy"))
    return [*found.values()]


def _tell_end(decisions: Sequence[Decision], number: int, *, writes: bool) -> None:
    if decisions:
        typer.echo("\nDecide yourself:")
    for decision in sorted(set(decisions)):
        typer.echo(printable(str(decision)))
    if not number:
        typer.echo("nothing to change")
    elif not writes:
        typer.echo(f"\n{number} file{'' if number == 1 else 's'} to change; --write writes the changes")


def shown(path: Path) -> str:
    """Return a path, relative to the working directory if it is below it."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd()))
    return str(path)


def _read(path: Path) -> tuple[str, str]:
    """Return the text of a Python file with its own line ends, and its encoding."""
    content = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
    return content.decode(encoding), encoding


def _moved(path: Path, decisions: list[Decision], *, is_for_both: bool, declared: Collection[str] = ()) -> _File | None:
    """Return a file with the certain changes to its imports and calls; None if the file can't be parsed."""
    try:
        text, encoding = _read(path)
        found = [change for change in changes(text, is_whole=True) if change.is_certain]
        after = edited(text, _for_both(text, found) if is_for_both else _edits(text, found))
        if is_moved_text(after) or found:
            after = _with_calls(after, declared)
        left = changes(after, is_whole=True)
    except (SyntaxError, ValueError, LookupError) as error:
        line = getattr(error, "lineno", None) or 1
        decisions.append(Decision(shown(path), line, f"it can't be parsed: {error}", "coming-from-scrapy"))
        return None
    decisions += [Decision(shown(path), change.line, str(change), "what-is-what") for change in left]
    return _File(path, text, after, encoding)


def _with_calls(text: str, declared: Collection[str] = ()) -> str:
    """Make the certain changes to calls. A change that would break the syntax is left to a person."""
    found = [edits for *_, edits in check_text(text, _moved_settings()) if edits]
    found += [(edit,) for edit in _own_settings(text, declared)]
    after = edited(text, chain.from_iterable(found))
    if _parses(after):
        return after
    made: list[Edit] = []
    for edits in found:
        made += edits if _parses(edited(text, [*made, *edits])) else ()
    return edited(text, made)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _edits(text: str, found: Sequence[Change]) -> Iterator[Edit]:
    """Yield the edits of import lines. A removed import becomes ``pass``, unless its line can be removed."""
    for change in found:
        place = change.edit
        if place is None:
            continue
        lines = [*change.after, *([change.rest] if change.rest else [])]
        first, last = place.start, place.end
        if not lines:
            is_removable = not first[1] and not _other_code(text, place) and last[0] < len(text.encode().splitlines())
            yield Edit(first, (last[0] + 1, 0), "") if is_removable else attrs.evolve(place, text="pass")
            continue
        yield attrs.evolve(place, text=_joined(text, place, lines))


def _joined(text: str, place: Edit, lines: Sequence[str]) -> str:
    """Join statements that replace one statement: on separate lines, unless the line contains other code."""
    if _other_code(text, place):
        return "; ".join(lines)
    end = "\r\n" if "\r\n" in text else "\n"
    return f"{end}{_beside(text, place)[0]}".join(lines)


def _beside(text: str, place: Edit) -> tuple[str, str]:
    """Return the text before and after a statement on its lines."""
    written = text.encode().splitlines()
    before, after = written[place.start[0] - 1][: place.start[1]], written[place.end[0] - 1][place.end[1] :]
    return before.decode(), after.decode()


def _other_code(text: str, place: Edit) -> bool:
    """Return whether the lines of a statement contain other code."""
    before, after = _beside(text, place)
    return bool(before.strip() or after.split("#")[0].strip())


def _for_both(text: str, found: Sequence[Change]) -> Iterator[Edit]:
    """Yield edits that import from trawl if trawl runs the file, otherwise from Scrapy; one edit for adjacent lines."""
    runs: list[list[Change]] = []
    for change in found:
        if change.edit is None or not change.after or _other_code(text, change.edit):
            continue
        last = runs[-1][-1].edit if runs else None
        follows = last is not None and (last.end[0] + 1, last.start[1]) == change.edit.start
        if last is not None and follows and not _beside(text, last)[1].strip():  # keep a comment after the last import
            runs[-1].append(change)
        else:
            runs.append([change])
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import)]
    of_sys = [node.lineno for node in imports if any((each.name, each.asname) == ("sys", None) for each in node.names)]
    for run in runs:
        first, last = run[0].edit, run[-1].edit
        assert first is not None
        assert last is not None
        ours = [line for change in run for line in (*change.after, *([change.rest] if change.rest else []))]
        head = [] if any(line < first.start[0] for line in of_sys) else ["import sys", ""]
        of_sys += [] if first.start[1] else [first.start[0]]
        scrapys = [change.before for change in run]
        lines = [*head, 'if "trawl" in sys.modules:', *(f"    {line}" for line in ours), "else:"]
        lines += [f"    {line}" for line in scrapys]
        place = Edit(first.start, last.end, "")
        yield attrs.evolve(place, text=_joined(text, place, lines))


@cache
def _moved_settings() -> Settings:
    return load(Layer("moved", {"SCRAPY_COMPAT": True}))


def _differences(file: _File, settings: Settings) -> Iterator[Decision]:
    """Yield the differences between a moved file's behavior in trawl and in Scrapy."""
    if not is_moved_text(file.after) and settings is _moved_settings() and file.before == file.after:
        return  # the file has nothing to do with Scrapy
    forbids = ["robots.txt"] if settings["ROBOTSTXT_OBEY"] else []
    forbids += ["allowed_domains"] if "allowed_domains" in file.after else []
    for line, words, _, _ in check_text(file.after, settings, ", ".join(forbids)):
        yield Decision(shown(file.path), line, words)
    for line, words in _custom_settings(file.after):
        yield Decision(shown(file.path), line, words, "settings")


def _custom_settings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and warning of each entry of ``custom_settings`` that changes the records because trawl ignores it."""
    for _, value in _assigned(ast.walk(ast.parse(text)), "custom_settings"):
        for key, each in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from ((key.lineno, words) for words in _felt(key.value, each))


def _assigned(nodes: Iterable[ast.AST], name: str) -> Iterator[tuple[ast.Assign | ast.AnnAssign, ast.Dict]]:
    """Yield each assignment of a dict to ``name``, with the dict."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(each, "id", "") == name for each in targets):
                yield node, node.value


def _declared(root: Path) -> set[str]:
    """Return the names that the project's settings declare for its spiders, and its classes with ``own_settings``."""
    found: list[ast.stmt] = []
    for path in _files(root):
        with suppress(SyntaxError, ValueError, LookupError):  # reported as a decision
            found += ast.parse(_read(path)[0]).body
    names = _declaring(ast.Module(found, []))
    for path in settings_modules(root) if root.is_dir() else ():
        with suppress(SyntaxError, ValueError, LookupError):  # reported as a decision
            names |= lines_of(_read(path)[0]).keys()
    with suppress(SettingsError):  # reported when the table is read
        own = of_project((root if root.is_dir() else root.parent).resolve()).own
        names |= own.keys() if isinstance(own, Mapping) else set()
    return names


def _own_settings(text: str, declared: Collection[str]) -> Iterator[Edit]:
    """Yield an edit for each class whose ``custom_settings`` have the project's own names: it declares the names.

    A person must decide on a name that is similar to a setting's, on a dict with ``**``, and on a class that has or
    inherits ``own_settings``, because the new line would hide them.
    """
    tree = ast.parse(text)
    declaring = _declaring(tree, declared)
    for made in ast.walk(tree):
        if not isinstance(made, ast.ClassDef) or made.name in declaring:
            continue
        for node, value in _assigned(made.body, "custom_settings"):
            written = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            names = [name for name in written if name.isidentifier() and name.isupper() and not _is_setting(name)]
            names = [name for name in names if name not in declared]
            line = f"own_settings = {{{', '.join(f'{json.dumps(name)}: None' for name in names)}}}"
            if names and None not in value.keys:
                yield _added(text, Edit.of(node, ""), line)


def _added(text: str, place: Edit, line: str) -> Edit:
    """Return the edit that adds a line after the statement at ``place``, or before it if its line has other code."""
    before, after = _beside(text, place)
    if _other_code(text, place):
        return Edit(place.start, place.start, f"{line}; ")
    end = (place.end[0], place.end[1] + len(after.encode()))
    line_end = "\r\n" if "\r\n" in text else "\n"
    return Edit(end, end, f"{line_end}{before}{line}")


def _declaring(tree: ast.AST, others: Collection[str] = ()) -> set[str]:
    """Return the names of the classes that have ``own_settings``, and of their and the others' subclasses."""
    bases: dict[str, set[str]] = {}
    found = set(others)
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef):
            bases.setdefault(made.name, set()).update(map(last_name, made.bases))
            names = (each for each in ast.walk(made) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
            found |= {made.name for each in names if each.id == "own_settings"}
    for _ in bases:
        found |= {name for name, above in bases.items() if above & found}
    return found


def _is_setting(name: str) -> bool:
    """Return whether a name, or a similar name, is a setting of trawl or Scrapy."""
    return bool(is_foreign_setting(name) or name in known() or nearest(name, known()))


def _felt(name: str, node: ast.expr) -> list[str]:
    """Return the warnings about one setting. A value that is not a literal counts as one that changes the records."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = ast.unparse(node)
    if setting_advice(name):
        return [f"{name}: {setting_advice(name)}"] if is_felt(name, value) else []
    warnings: list[str] = []
    with suppress(TrawlError):  # `trawl check` reports the error
        load(Layer("custom_settings", {"SCRAPY_COMPAT": True, name: value}), tell=warnings.append)
    return warnings


def _settings(root: Path, files: Sequence[_File], decisions: list[Decision]) -> tuple[Settings, list[_File]]:
    """Return the settings of the moved project, and its files ``pyproject.toml``."""
    sources = settings_modules(root) if root.is_dir() else {}
    texts = {str(file.path.resolve()): file.after for file in files}
    tables: list[_File] = []
    taken: dict[Path, Path] = {}
    for path, target in sources.items():
        if (first := taken.setdefault(target, path)) is not path:
            words = (
                f"not moved, because {shown(target)} has the settings of {shown(first)}: set the differences with -s"
            )
            decisions.append(Decision(shown(path), 1, words, "settings"))
            continue
        try:
            text = texts.get(str(path.resolve())) or _read(path)[0]
        except (SyntaxError, ValueError, LookupError) as error:
            decisions.append(Decision(shown(path), 1, f"the settings can't be read: {error}", "settings"))
            continue
        table = _table(target, partial(_converted, path, text, texts, decisions))
        tables += [] if table is None else [table]
    folder = root if root.is_dir() else root.parent
    # Without settings, only the imports show that a spider is moved, and some imports show nothing.
    is_hidden = any(file.before != file.after and not is_moved_text(file.after) for file in files)
    if not sources and is_hidden and find_spiders(root)[0] and not of_project(folder.resolve()).values:
        table = _table(folder / _PLAIN, lambda: to_toml({}))
        tables += [] if table is None else [table]
    settings = _moved_settings()
    for table in tables:
        found = tomllib.loads(table.after)["tool"]["trawl"]
        own = found.get("own", {})
        values = {name: value for name, value in found.items() if name != "own"}
        told: list[str] = []
        with suppress(SettingsError):  # `trawl check` reports the error
            settings = load(Layer(_PLAIN, values, own=own), tell=told.append)
        decisions += _of_table(table, own, told)
    return settings, tables


def settings_modules(root: Path) -> dict[Path, Path]:
    """Return the settings modules of a Scrapy project, the default first, each with its ``pyproject.toml``."""
    root = root.resolve()
    config = next((folder for folder in (root, root.parent) if (folder / "scrapy.cfg").is_file()), None)
    parser = configparser.ConfigParser()
    named: list[str] = []
    if config is not None:
        with suppress(configparser.Error, UnicodeDecodeError):
            parser.read(config / "scrapy.cfg", "utf-8")
            given = dict(parser["settings"]) if parser.has_section("settings") else {}
            named = list(dict.fromkeys([given.get("default", ""), *given.values()]))
    package = root.parent if (root / "__init__.py").is_file() else root
    folder = package if config is None else config
    found = [path for module in named if (path := _file_of(folder, module)) is not None]
    if not found:
        guessed = [folder / "settings.py", *sorted(folder.glob("*/settings.py"))]
        found = [path for path in guessed if b"SPIDER_MODULES" in content(path)]
    homes = {path: folder.joinpath(*path.relative_to(folder).parts[:-1][:1]) for path in found}
    is_one = len(set(homes.values())) == 1
    return {path: (folder if is_one else home) / _PLAIN for path, home in homes.items()}


def _file_of(folder: Path, module: str) -> Path | None:
    if not all(map(str.isidentifier, module.split("."))):
        return None
    place = folder.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _table(path: Path, made: Callable[[], str | None]) -> _File | None:
    """Return a ``pyproject.toml`` with the table ``[tool.trawl]``; None if the table is missing and ``made`` fails."""
    try:
        before = path.read_text("utf-8") if path.is_file() else ""
        has_table = "trawl" in tomllib.loads(before).get("tool", {})
    except ValueError as error:
        raise UsageError(f"{shown(path)} is not valid TOML: {error}; correct it and try again") from error
    if has_table:
        return _File(path, before, before)
    text = made()
    if text is None:
        return None
    return _File(path, before, f"{before.rstrip()}\n\n{text}" if before.strip() else text)


class _MovedLoader(SourceFileLoader):
    """Imports a file of the project as it is after the move, although the moved text may not be written yet."""

    text: str = ""

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec")


@contextmanager
def _importing(texts: Mapping[str, str], root: Path) -> Iterator[None]:
    """Let the block import from ``root`` with the ``texts`` of moved files. At the end, these modules are forgotten."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            spec = PathFinder.find_spec(name, path)
            if spec is not None and spec.origin is not None and spec.origin in texts:
                spec.loader = loader = _MovedLoader(name, spec.origin)
                loader.text = texts[spec.origin]
            return spec

    paths, modules = sys.path[:], set(sys.modules)
    finder: Any = Finder
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = paths
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "__file__", None) in texts:
                del sys.modules[name]


_EMPTIED = "is left empty, because the environment gave a secret"


def _converted(path: Path, text: str, texts: Mapping[str, str], decisions: list[Decision]) -> str | None:
    """Run the moved text of a settings module, and return its settings as TOML; None if the module fails."""
    folders = [folder for folder in path.resolve().parents if (folder / "__init__.py").is_file()]
    names = [folder.name for folder in reversed(folders)]
    module = ModuleType(".".join([*names, path.stem]).removesuffix(".__init__"))
    module.__dict__.update(__file__=str(path.resolve()), __package__=".".join(names))
    try:
        with _importing(texts, path.resolve().parents[len(folders)]):
            exec(compile(text, str(path), "exec"), vars(module))
    except Exception as error:
        words = f"the settings can't be read: {describe_error(error)}; after a change, run `trawl move` again"
        decisions.append(Decision(shown(path), getattr(error, "lineno", None) or 1, words, "settings"))
        return None
    values = {name: value for name, value in vars(module).items() if name.isupper()}
    for name, line in _of_environment(text):
        if name not in values:
            continue
        safe = without_secrets(name, vars(module)[name])
        is_safe = safe == vars(module)[name]
        state = "has the value that the environment gave now" if is_safe else _EMPTIED
        values[name] = safe
        decisions.append(Decision(shown(path), line, f"{name} {state}: set TRAWL_{name} there instead", "settings"))
    return to_toml(values, lines_of(text))


def _of_environment(text: str) -> Iterator[tuple[str, int]]:
    """Yield name and line of each setting whose value, or a part of it, is read from the environment."""
    sources = {"environ", "getenv"}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
            continue
        if any(getattr(part, "attr", getattr(part, "id", "")) in sources for part in ast.walk(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            sources |= {each.id for each in names}
            yield from ((each.id, each.lineno) for each in names if each.id.isupper())


_PATH = re.compile(r'"(\w+(?:\.\w+)+)"')

_COMMENT = re.compile(r"# (?P<name>[A-Z][A-Z0-9_]+)\b.*|# (is left out|a secret\?).*")


def _of_table(table: _File, own: Mapping[str, object], told: Sequence[str]) -> Iterator[Decision]:
    """Yield the comments of a ``pyproject.toml`` that name a difference, the warnings about its feeds, and packages."""
    begins = False
    for number, line in enumerate(table.after.splitlines(), 1):
        begins = begins or line.strip() == "[tool.trawl]"
        found = _COMMENT.match(line) if begins else None
        name = found["name"] if found else None
        is_unfelt = name is not None and setting_advice(name) and not is_felt(name, own.get(name, True))
        if found and not is_unfelt:
            yield Decision(shown(table.path), number, line.removeprefix("# "), "settings")
        for path in _PATH.findall(line) if begins else ():
            if advice := plugin_advice(path):
                yield Decision(shown(table.path), number, f"{path} does not run here: {advice}", "plug-ins")
        if begins and line.startswith("FEEDS = "):
            yield from (
                Decision(shown(table.path), number, words, "feeds") for words in told if words.startswith("FEEDS[")
            )


def _uncommitted(root: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the files that differ from the last commit of git. If git fails in a repository, every file counts."""
    folder = root if root.is_dir() else root.parent
    try:
        top = _git(folder, "rev-parse", "--show-toplevel").strip()
        changed = _git(folder, "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        tracked = _git(Path(top), "ls-files", "-z")  # ignored files, and files of another repository, are not listed
    except (OSError, subprocess.CalledProcessError):
        above = (folder.resolve(), *folder.resolve().parents)
        return [path.resolve() for path in paths] if any((each / ".git").exists() for each in above) else []
    names = {Path(top, entry[3:]).resolve() for entry in changed.split("\0") if entry}
    safe = {Path(top, entry).resolve() for entry in tracked.split("\0") if entry} - names
    return [path.resolve() for path in paths if path.exists() and path.resolve() not in safe]


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    found = subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=True)
    return found.stdout
