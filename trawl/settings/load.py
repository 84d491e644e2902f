"""Settings from their sources, weakest first: defaults, pyproject.toml, the environment, the spider, the command line.

Everything that is given is checked before anything starts, also what a stronger source overrides: a typing error never
turns into a default that nobody notices (I03).
"""

from __future__ import annotations

import logging
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import attrs
import msgspec

from trawl.errors import SettingsError
from trawl.migration import migration_hints
from trawl.settings.check import checked, from_text, nearest
from trawl.settings.sections import SECTIONS, Definition, known
from trawl.settings.values import HOW_TO_DECLARE, Settings, declared
from trawl.spiders import CustomSettings, Spider
from trawl.tracebacks import is_user_file, user_code

__all__ = ["Layer", "ambient", "assignments", "file_of", "load", "of_environment", "of_project", "of_spider"]

PREFIX = "TRAWL_"
logger: logging.Logger = logging.getLogger("trawl.settings")

_TYPING_ERROR = 0.85
"""From this likeness on (difflib's ratio) a name is taken for another one misspelled, not for one of the user's own."""


@attrs.frozen
class Layer:
    """What one source says.

    Attributes:
        source: Its name, as messages say it: ``"custom_settings"``, ``"-s"``, ``"/a/pyproject.toml"``.
        values: Upper-case names to values.
        is_text: Whether the values are texts that are to be read as JSON where they can be.
        prefix: What the source writes before each name (``"TRAWL_"`` in the environment).
        own: Settings of the user's own that it declares, with their defaults.
    """

    source: str
    values: Mapping[str, object]
    is_text: bool = False
    prefix: str = ""
    own: object = attrs.field(factory=dict)

    def place(self, name: str) -> str:
        """Where this source gives ``name``, for messages."""
        return f"{self.prefix}{name}" if self.prefix else self.source


def load(*layers: Layer, tell: Callable[[str], object] = logger.warning) -> Settings:
    """The settings that ``layers`` give, weakest first, over the defaults.

    Scrapy's settings that trawl has under another name are renamed; those that have no effect here are ignored with a
    warning.

    Args:
        layers: The sources.
        tell: Is given each warning, a sentence; by default it is logged. Who loads them twice says it once.

    Raises:
        SettingsError: A name is unknown, or a value does not fit; one line that names the entry and its source.
    """
    own = declared((f"own_settings ({layer.source})", layer.own) for layer in layers)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in layers:
        for name, value in migration_hints().renamed(layer.values).items():
            definition = _definition(name, layer, own, tell)
            if definition is not None:
                values[name] = _value(value, definition, layer)
                sources[name] = layer.place(name)
    extra = {name: values.get(name, definition.default) for name, definition in own.items()}
    return Settings({section.value: _composed(section.value, values) for section in SECTIONS}, sources, extra)


def ambient(
    directory: Path | None = None, environ: Mapping[str, str] | None = None, *, spider: type | None = None
) -> tuple[Layer, ...]:
    """The sources around a program: the nearest pyproject.toml, then the environment.

    Args:
        directory: Where the search for pyproject.toml begins; the working directory if None.
        environ: The environment; the process's own if None.
        spider: The spider's class. The search begins beside its file; what is found there counts if it has a
            ``[tool.trawl]``, and the log says so where the working directory is not below it.

    Raises:
        SettingsError: pyproject.toml can't be read.
    """
    project = of_project(directory or Path.cwd())
    if (file := file_of(spider)) is not None:
        project = _nearer(of_project(file.parent), project)
    return (project, of_environment(os.environ if environ is None else environ))


def file_of(spider: type | None) -> Path | None:
    """The user's own file that a spider's class is in; None where it is in none: in a notebook, or installed."""
    file = getattr(sys.modules.get(getattr(spider, "__module__", "")), "__file__", None)
    return Path(file).resolve() if file and is_user_file(file) else None


def _nearer(beside: Layer, here: Layer) -> Layer:
    """The project's settings out of those beside the spider and those of the working directory."""
    if beside.source == here.source or not (beside.values or beside.own):
        return here
    if here.values or here.own:
        words = "settings come from %s, the nearest to the spider; %s, nearest to the working directory, is not used"
        logger.warning(words, beside.source, here.source)
    else:
        logger.info("settings come from %s, the nearest to the spider", beside.source)
    return beside


def of_project(directory: Path) -> Layer:
    """``[tool.trawl]`` of the nearest pyproject.toml in ``directory`` or above it; empty if there is none.

    Its table ``own`` declares settings of the project's own.
    """
    for folder in (directory, *directory.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            try:
                table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("trawl", {})
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise SettingsError(f"{path} can't be read: {error}") from error
            if not isinstance(table, dict):
                raise SettingsError(f"{path}: tool.trawl must be a table")
            values = {name: value for name, value in table.items() if name != "own"}
            return Layer(str(path), values, own=table.get("own", {}))
    return Layer("pyproject.toml", {})


def of_environment(environ: Mapping[str, str]) -> Layer:
    """The variables ``TRAWL_<NAME>`` of ``environ``."""
    named = {name[len(PREFIX) :]: value for name, value in environ.items() if name.startswith(PREFIX)}
    return Layer("the environment", named, is_text=True, prefix=PREFIX)


def of_spider(spider: object) -> Layer:
    """What a spider class, or spider, sets: ``custom_settings``, or what its ``update_settings`` writes.

    Its ``user_agent`` stands for ``USER_AGENT``, but is weaker.

    Raises:
        SettingsError: They are not a mapping.
        PartLoadError: ``update_settings`` failed.
    """
    custom = getattr(spider, "custom_settings", None) or {}
    if not isinstance(custom, Mapping):
        raise SettingsError(f"custom_settings must be a mapping, not {type(custom).__name__}", "custom_settings")
    kind = spider if isinstance(spider, type) else type(spider)
    if issubclass(kind, Spider) and kind.update_settings.__func__ is not Spider.update_settings.__func__:  # type: ignore[attr-defined]
        custom = CustomSettings()
        with user_code(f"update_settings() of {kind.__name__} failed"):
            kind.update_settings(custom)
    user_agent = getattr(spider, "user_agent", None)
    values = custom if user_agent is None else {"USER_AGENT": user_agent, **custom}
    return Layer("custom_settings", values, own=getattr(spider, "own_settings", None) or {})


def assignments(texts: Iterable[str], source: str = "-s") -> Layer:
    """A layer of texts ``NAME=VALUE``, as ``-s`` takes them; the last of a name counts.

    Raises:
        SettingsError: A text has no ``=``, or nothing before it.
    """
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{source} takes NAME=VALUE, not {text!r}", text)
        values[name.strip()] = value
    return Layer(source, values, is_text=True)


def _definition(
    name: object, layer: Layer, own: Mapping[str, Definition], tell: Callable[[str], object]
) -> Definition | None:
    """The definition of ``name``; None where it is passed over."""
    if isinstance(name, str) and name in own:
        return own[name]
    if isinstance(name, str) and name in known():
        return known()[name]
    if isinstance(name, str) and (reason := migration_hints().setting_advice(name)):
        tell(f"{name} (in {layer.place(name)}) is Scrapy's and has no effect: {reason}")
        return None
    written = f"{layer.prefix}{name}"
    close = nearest(str(name), [*known(), *own])
    hint = f"; did you mean {layer.prefix}{close}?" if close else f"; {HOW_TO_DECLARE}"
    if close and SequenceMatcher(None, str(name).upper(), close).ratio() < _TYPING_ERROR:
        hint += f" ({HOW_TO_DECLARE})"
    raise SettingsError(f"unknown setting {written} (in {layer.source}){hint}", str(name))


def _value(value: object, definition: Definition, layer: Layer) -> Any:
    try:
        if layer.is_text and isinstance(value, str):
            return from_text(value, definition.annotation, definition.name)
        return checked(value, definition.annotation, definition.name)
    except SettingsError as error:
        raise SettingsError(f"{error} (in {layer.place(definition.name)})", error.name) from error


def _composed(kind: type[msgspec.Struct], values: Mapping[str, Any]) -> msgspec.Struct:
    """One section out of the values that are given; what its fields say together is checked by itself."""
    own = {
        field.name: values[field.encode_name] for field in msgspec.structs.fields(kind) if field.encode_name in values
    }
    try:
        return kind(**own)
    except SettingsError:
        raise
    except (ValueError, TypeError) as error:
        raise SettingsError(str(error)) from error
