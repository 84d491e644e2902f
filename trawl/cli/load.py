"""Loads the spider given as ``FILE.py``, ``FILE.py:CLASS``, ``MODULE``, ``MODULE:CLASS`` or by its name.

A spider's name takes precedence over a folder or module with the same name. The module also parses ``-o``, ``-O`` and
``-a``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from trawl.cli.list import Found, files_in, find_spiders
from trawl.errors import SettingsError, SpiderLoadError, SpiderNotFound, UsageError, WrittenForScrapy
from trawl.scrapy_names.imports import hint, hint_of_file
from trawl.scrapy_names.names import GUIDE
from trawl.settings import Layer, of_project
from trawl.settings.check import nearest
from trawl.spiders import Spider
from trawl.tracebacks import describe_error, user_frames
from trawl.user_files import is_imported_for_spiders, is_user_file

__all__ = [
    "STANDARD_OUTPUT",
    "all_spiders",
    "check_arguments",
    "feeds_layer",
    "find_spider",
    "load_module",
    "load_spider",
    "load_spiders",
    "look_beside",
    "spider_arguments",
    "spiders_here",
]

STANDARD_OUTPUT = "-"

logger: logging.Logger = logging.getLogger("trawl.settings")

_WITH_FORMAT = re.compile(r"(?P<path>.+):(?P<format>[A-Za-z][A-Za-z0-9]*)\Z", re.DOTALL)


def feeds_layer(appended: Iterable[str], overwritten: Iterable[str]) -> Layer:
    """Return the setting FEEDS of ``-o`` (append) and ``-O`` (overwrite). By default, standard output is JSON lines."""
    feeds: dict[str, dict[str, object]] = {}
    for option, texts, overwrite in (("-o", appended, False), ("-O", overwritten, True)):
        for text in texts:
            path, form = _path_and_format(text)
            if not path:
                raise UsageError(f"{option} takes FEED or FEED:FORMAT, not {text!r}")
            if path in feeds:
                raise UsageError(f"the feed {path!r} is given twice")
            feeds[path] = {"overwrite": overwrite} | ({"format": form} if form else {})
    return Layer("-o/-O", {"FEEDS": feeds} if feeds else {}, is_beside=True)


def _path_and_format(text: str) -> tuple[str, str]:
    match = _WITH_FORMAT.match(text)
    path, form = (match["path"], match["format"]) if match else (text, "")
    return path, form or ("jsonl" if path == STANDARD_OUTPUT else "")


def spider_arguments(texts: Iterable[str]) -> dict[str, str]:
    """Return the spider's arguments from ``-a NAME=VALUE``; the last value of a name counts."""
    arguments: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"-a takes NAME=VALUE, not {text!r}")
        arguments[name] = value
    return arguments


def check_arguments(spider: type[Spider], arguments: Mapping[str, str]) -> None:
    """Raise UsageError if the spider's constructor does not accept the arguments."""
    try:
        inspect.signature(spider).bind(**arguments)
    except TypeError as error:
        raise UsageError(f"-a does not fit {spider.__name__}(): {error}") from error


_PROJECT_FILES = ("pyproject.toml", "scrapy.cfg")

_SHOWN = 5
"""Maximum number of spiders named in an error message."""


def load_spider(target: str) -> type[Spider]:
    """Import the module that ``target`` names and return its spider class.

    The function appends directories to ``sys.path``, so that a spider can import the modules next to it: the root of a
    file's package, the file's directory, the working directory, and each parent folder with a ``pyproject.toml``. They
    come last, because otherwise a file ``resource.py`` next to the spider would hide Python's module of that name from
    trawl and its dependencies, which import some modules late.

    Raises:
        SpiderNotFound: If the file, module or class does not exist, or contains no spider or more than one.
        SpiderLoadError: If the import fails, for example with a syntax error, or the spider has no name.
        WrittenForScrapy: If it is written for Scrapy. The message says what to write instead.
    """
    module, place, class_name = _loaded(target)
    return _spider_in(module, place, class_name)


def load_spiders(target: str) -> list[type[Spider]]:
    """Return all classes with a ``name`` that ``target`` names, in the order in which the module defines them."""
    module, place, class_name = _loaded(target)
    found = _spiders_of(module)
    if class_name or not found:
        return [_spider_in(module, place, class_name)]
    return list({name: spider for name, spider in found.items() if spider.name}.values() or found.values())


def look_beside(file: str) -> None:
    """Make modules in the working directory and next to ``file`` importable, for classes that settings name."""
    _add_to_path(Path(file).resolve().parent, Path.cwd())


_URL = re.compile(r"[a-z][a-z0-9+.-]*://|www\.[^/]+\.(?!py$)", re.IGNORECASE)


def _loaded(target: str) -> tuple[ModuleType, str, str]:
    """Return the module that ``target`` names, the module's name as typed, and the class after the colon."""
    if _URL.match(target):
        raise SpiderNotFound(
            f"{target!r} is a URL; crawl takes a spider. To look at a page: trawl fetch URL or trawl shell URL"
        )
    place, class_name = _split(target)
    if not class_name and not _is_path(place) and (named := find_spider(place)):
        place, class_name = _split(named)
    is_file = _is_path(place) or Path(place).is_file()
    return load_module(Path(place)) if is_file else _from_name(place), place, class_name


def _split(target: str) -> tuple[str, str]:
    place, colon, class_name = target.rpartition(":")
    return (place, class_name) if colon and class_name.isidentifier() else (target, "")


def find_spider(name: str) -> str:
    """Return the target of the spider with this name below the working directory; "" if there is none.

    If several spiders have this name, raise SpiderNotFound. But of several spiders of a moved project, the last counts,
    as in Scrapy, and a warning names them.
    """
    _add_to_path(Path.cwd())
    targets = [each.target for each in find_spiders(Path())[0] if each.name == name]
    targets = targets or [each.target for each in all_spiders(Path())[0] if each.name == name]
    if len(targets) > 1:  # prefer the project of the working directory to projects in folders below
        targets = [target for target in targets if _project_of(_split(target)[0]) == _project_of("x.py")] or targets
    roots = _spider_modules(Path.cwd()) if len(targets) > 1 else []
    if roots:
        targets = [target for target in targets if _is_in(Path(_split(target)[0]), roots)] or targets
    if len(targets) > 1 and roots:
        logger.warning("several spiders are named %r: %s runs, the last of %s", name, targets[-1], ", ".join(targets))
        return targets[-1]
    if len(targets) > 1:
        raise SpiderNotFound(f"several spiders are named {name!r}; give one of {', '.join(targets)}")
    return targets[0] if targets else ""


def all_spiders(*places: Path) -> tuple[list[Found], dict[str, str]]:
    """Return the spiders of :func:`~trawl.cli.list.find_spiders`, and those that only an import finds.

    In a moved project, a class may compute its name, or its base may be in another file. As in Scrapy, such a spider is
    found in the modules that ``SPIDER_MODULES`` names, because these are imported if they have a class.
    """
    found, unread = find_spiders(*places)
    roots = cache(_spider_modules)
    for path in (path for place in places for path in ([place] if place.is_file() else files_in(place))):
        is_named = _is_in(path, roots(path.resolve().parent))
        if not is_named or str(path) in unread or path.name == "__init__.py" or b"class " not in path.read_bytes():
            continue
        try:
            spiders = _spiders_of(load_module(path)).values()
        except SpiderLoadError as error:
            unread[str(path)] = f"{path}: {error}"
            continue
        found += [Found(each.name, f"{path}:{each.__name__}") for each in spiders if each.name]
    return sorted(set(found)), unread


def _is_in(path: Path, roots: Iterable[tuple[str, ...]]) -> bool:
    parts = path.resolve().with_suffix("").parts
    return any(parts[: len(root)] == root for root in roots)


def _spider_modules(folder: Path) -> list[tuple[str, ...]]:
    """Return the parts of the paths of ``SPIDER_MODULES`` in the project of a folder."""
    with suppress(SettingsError):  # the crawl reports the error
        project = of_project(folder)
        named = project.own.get("SPIDER_MODULES") if isinstance(project.own, Mapping) else None
        names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        return [(*Path(project.source).parent.parts, *str(name).split(".")) for name in names]
    return []


def _project_of(path: str) -> Path | None:
    """Return the nearest folder around a file that is a project, of trawl or of Scrapy."""
    folders = Path(path).resolve().parents
    return next((each for each in folders if any((each / name).is_file() for name in _PROJECT_FILES)), None)


def _is_path(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def load_module(path: Path) -> ModuleType:
    """Import and return a Python file."""
    if not path.exists():
        close = nearest(path.name, [each.name for each in path.parent.glob("*.py")])
        raise SpiderNotFound(f"{path}: no such file{f'; did you mean {path.with_name(close)}?' if close else ''}")
    if not path.is_file():
        raise SpiderNotFound(_no_spider_in(path) if path.is_dir() else f"{path}: not a file")
    path = path.resolve()
    root = _root_of(path)
    projects = (folder for folder in path.parents if (folder / "pyproject.toml").is_file())
    # The root comes before the file's folder, so that shop/spiders/shop.py does not hide the package shop.
    _add_to_path(root, path.parent, Path.cwd(), *projects)
    if root != path.parent and (module := _from_packages(path, root)) is not None:
        return module
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier():
        name = f"spider_{''.join(c if c.isalnum() else '_' for c in path.stem)}"  # must not hide another module
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise SpiderNotFound(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module in sys.modules
    try:
        with _import_errors(path.name):
            loader.exec_module(module)
    except SpiderLoadError:
        sys.modules.pop(name, None)
        raise
    return module


def _no_spider_in(folder: Path) -> str:
    names = list(dict.fromkeys(found.name for found in find_spiders(folder)[0]))
    return f"{folder} is a folder; {f'give one of {_first(names)}' if names else 'it holds no spider'}"


def _from_name(name: str) -> ModuleType:
    if Path(name).is_dir() and not name.isidentifier():
        raise SpiderNotFound(_no_spider_in(Path(name)))
    if not all(part.isidentifier() for part in name.split(".")):
        raise SpiderNotFound(
            f"{name!r} is not a file, a module or a spider{spiders_here(name)};"
            " give FILE.py, MODULE, MODULE:CLASS or the name of a spider"
        )
    _add_to_path(Path.cwd())
    try:
        with _import_errors(name):
            return importlib.import_module(name)
    except SpiderLoadError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name and f"{name}.".startswith(f"{missing.name}."):
            beside = f"{name.replace('.', '/')}.py"
            hint = f" (there is a file {beside})" if Path(beside).is_file() else spiders_here(name)
            raise SpiderNotFound(f"no file, module or spider is named {name!r}{hint}") from missing
        raise


def spiders_here(name: str) -> str:
    """Return a hint that names the spiders below the working directory, because ``name`` is not one of them."""
    found, unread = all_spiders(Path())
    names = list(dict.fromkeys(each.name for each in found))
    close = nearest(name, names)
    parts = [f"did you mean {close}?" if close else f"spiders here: {_first(names)}"] if names else []
    parts += [f"can't be read: {why}" for why in [*unread.values()][:_SHOWN]]  # the spider may be in such a file
    return f" ({'; '.join(parts)})" if parts else ""


def _first(names: list[str]) -> str:
    return ", ".join([*names[:_SHOWN], "..."] if len(names) > _SHOWN else names)


def _from_packages(path: Path, root: Path) -> ModuleType | None:
    """Import a file as a module of its package, so that ``from ..items`` works; None if another file has that name."""
    parts = path.relative_to(root).with_suffix("").parts
    known = sys.modules.get(parts[0])
    is_other = known is not None and getattr(known, "__file__", None) != str(root / parts[0] / "__init__.py")
    if is_other or not all(part.isidentifier() for part in parts):
        return None
    with _import_errors(path.name):
        spec = importlib.util.find_spec(".".join(parts))  # find_spec() imports the parent packages
        if spec is None or spec.origin is None or Path(spec.origin) != path:
            return None  # another file has this name
        return importlib.import_module(".".join(parts))


def _root_of(path: Path) -> Path:
    """Return the parent folder of a file's outermost package, or the file's own folder if it is not in a package."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _add_to_path(*directories: Path) -> None:
    for directory in map(str, directories):
        if directory not in sys.path:
            sys.path.append(directory)


@contextmanager
def _import_errors(name: str) -> Iterator[None]:
    """Convert any error of an import to a SpiderLoadError with file and line. The import can't start a crawl."""
    token = is_imported_for_spiders.set(True)
    try:
        yield
    except SyntaxError as error:
        file = Path(error.filename).name if error.filename else name
        raise SpiderLoadError(f"{file}, line {error.lineno}: {type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        if said := hint(error):
            raise WrittenForScrapy(str(said), said.places) from error
        lines = user_frames(error)
        # Prefer a line in the spider's own file, even if another file raised the error.
        last = next((line for line in reversed(lines) if Path(line.filename).name == Path(name).name), None)
        last = last or (lines[-1] if lines else None)
        where = f"{Path(last.filename).name}, line {last.lineno}" if last else name
        raise SpiderLoadError(f"{where}: {describe_error(error)}{_hidden(error)}") from error
    finally:
        is_imported_for_spiders.reset(token)


def _hidden(error: BaseException) -> str:
    """Return advice if an import found another module instead of the user's file with that name; otherwise ""."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    found = getattr(sys.modules.get(name), "__file__", None) or getattr(error, "path", None) or ""
    own = next((path for each in sys.path if name and (path := Path(each) / f"{name}.py").is_file()), None)
    if own is None or is_user_file(str(found)) or not is_user_file(str(own)):
        return ""
    return f" (an installed module has the name of your {own.name} and is found first: rename your file)"


def _spiders_of(module: ModuleType) -> dict[str, type[Spider]]:
    return {
        value.__name__: value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Spider) and value.__module__ == module.__name__
    }


def _spider_in(module: ModuleType, place: str, class_name: str) -> type[Spider]:
    found = _spiders_of(module)
    if class_name:
        return _named(module, place, class_name, found)
    spiders = {name: spider for name, spider in found.items() if spider.name} or found
    if not spiders:
        _refuse_scrapys(module, *vars(module).values())
        if Path(place).is_dir():
            raise SpiderNotFound(_no_spider_in(Path(place)))
        raise SpiderNotFound(f"{place}: no spider in it; define a subclass of trawl.Spider")
    if len(spiders) > 1:
        names = ", ".join(sorted(spiders))
        raise SpiderNotFound(f"{place}: several spiders in it ({names}); choose one, as in {place}:{min(spiders)}")
    return _checked(next(iter(spiders.values())), place)


def _named(module: ModuleType, place: str, class_name: str, found: dict[str, type[Spider]]) -> type[Spider]:
    value = getattr(module, class_name, None)
    if value is None:
        close = nearest(class_name, found)
        known = f"; did you mean {close}?" if close else f"; it has {', '.join(sorted(found)) or 'no spiders'}"
        raise SpiderNotFound(f"{place}: no class {class_name!r} in it{known}")
    if not (isinstance(value, type) and issubclass(value, Spider)):
        _refuse_scrapys(module, value)
        raise SpiderNotFound(f"{place}: {class_name} is not a spider; derive it from trawl.Spider")
    return _checked(value, place)


def _refuse_scrapys(module: ModuleType, *values: object) -> None:
    """Raise WrittenForScrapy if one of ``values`` is a Scrapy spider that this module defines."""
    for value in values:
        if isinstance(value, type) and value.__module__ == module.__name__ and _is_scrapys(value):
            said = hint_of_file(module.__file__ or "")
            advice = said or f"derive it from trawl.Spider ({GUIDE})"
            places = said.places if said else ()
            raise WrittenForScrapy(f"{value.__name__} is a Scrapy spider, not a trawl spider: {advice}", places)


def _is_scrapys(kind: type) -> bool:
    return any(base.__name__ == "Spider" and base.__module__.partition(".")[0] == "scrapy" for base in kind.__mro__)


def _checked(spider: type[Spider], place: str) -> type[Spider]:
    if spider.name and not isinstance(spider.name, str):
        raise SpiderNotFound(f"{place}: {spider.__name__}.name must be a string, not {spider.name!r}")
    if not spider.name:
        raise SpiderLoadError(f"{place}: {spider.__name__} has no name; add a class attribute `name`")
    # Search the files for Scrapy imports. If Scrapy is installed, such imports raised no error until now, and imports
    # inside functions would fail only during the crawl.
    for file in dict.fromkeys(getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in spider.__mro__):
        if file and is_user_file(file) and (said := hint_of_file(file, is_whole=False)):
            raise WrittenForScrapy(str(said), said.places)
    return spider
