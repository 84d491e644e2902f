"""Loads settings from their sources, weakest first: defaults, pyproject.toml, environment, spider, command line.

Every value is checked before anything starts, even if it is overridden. So a misspelled name is always an error.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path, PurePath
from typing import Any

import attrs
import msgspec

from trawl import scrapy_names
from trawl.errors import SettingsError
from trawl.settings.check import checked, from_json, from_text, nearest
from trawl.settings.values import HOW_TO_DECLARE, MOVED_DEFAULT, SECTIONS, SettingInfo, Settings, declared, known
from trawl.spiders import CustomSettings, Spider
from trawl.tracebacks import user_code
from trawl.user_files import is_user_file

__all__ = [
    "PART_LISTS",
    "Layer",
    "ambient",
    "assignments",
    "file_of",
    "is_moved_crawl",
    "line_of",
    "load",
    "of_environment",
    "of_project",
    "of_spider",
]

logger: logging.Logger = logging.getLogger("trawl.settings")

PREFIX = "TRAWL_"

PART_LISTS = ("DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "ITEM_PIPELINES", "SPIDER_MIDDLEWARES")
"""Settings that map components to their order, or to None."""

_TYPING_ERROR = 0.85
"""Minimum similarity (difflib's ratio) at which an unknown name counts as misspelled, and not as a user setting."""


@attrs.frozen
class Layer:
    """The settings from one source.

    Attributes:
        source: The name of the source in messages: ``"custom_settings"``, ``"-s"``, ``"/a/pyproject.toml"``.
        values: Values by upper-case name.
        is_text: True if the values are strings, which are read as JSON if they are JSON.
        prefix: The prefix of each name in the source (``"TRAWL_"`` in the environment).
        own: User settings that the layer declares, with their defaults.
        is_moved: True for the settings of a spider whose imports are Scrapy's.
        spider: The class of the spider that has these settings; None for other sources.
        is_beside: True if, in a moved crawl, mappings of this layer are merged with the mappings of other layers except
            the spider's. Entries of this layer take precedence.
    """

    source: str
    values: Mapping[str, object]
    is_text: bool = False
    prefix: str = ""
    own: object = attrs.field(factory=dict)
    is_moved: bool = False
    spider: type | None = None
    is_beside: bool = False

    def location(self, name: str) -> str:
        """Return the location of ``name`` in this source, for messages."""
        return f"{self.prefix}{name}" if self.prefix else self.source


def load(*layers: Layer, tell: Callable[[str], object] = logger.warning) -> Settings:
    """Return the settings from ``layers``, weakest first, over the defaults.

    Scrapy's settings that have another name in trawl are renamed. Scrapy's settings without effect are ignored with a
    warning. In the lists of components (such as ``ITEM_PIPELINES``), false turns a component off like None, because
    TOML has no None. For a spider that was written for Scrapy (``SCRAPY_COMPAT``), some defaults differ, and settings
    without effect can be read.

    Args:
        layers: The sources.
        tell: Function that is called with each warning; logs it by default. Pass another function to avoid repeated
            warnings.

    Raises:
        SettingsError: If a name is unknown or a value does not fit. The message names the entry and its source.
    """
    is_moved = is_moved_crawl(*layers)
    own = declared([(f"own_settings ({layer.source})", layer.own) for layer in layers], is_moved=is_moved)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    around: dict[str, Any] = {}
    unused = {name: (value, MOVED_DEFAULT) for name, value in scrapy_names.moved.MOVED_UNUSED.items()}
    for layer in layers:
        _check_unused(layer, tell)
        for name, value in scrapy_names.moved.renamed(_with_none(layer.values), from_json).items():
            definition = _definition(name, layer, own, tell)
            if definition is None:
                _check_plugins(name, value, layer)
                unused[name] = (value, layer.location(name))
                continue
            values[name] = (
                _feeds(value, definition, layer, tell)
                if name == "FEEDS" and is_moved
                else _value(value, definition, layer)
            )
            if layer.is_beside and is_moved:
                values[name] = {**values[name], **around.get(name, {})}
            if layer.spider is None:
                around[name] = values[name]
            sources[name] = layer.location(name)
    _add_old_feed(layers, values, sources, None if is_moved else tell)
    for name, (off, parts) in scrapy_names.moved.disabled_by(values).items():
        values[name], sources[name] = off, sources[parts]
    if values.get("SCRAPY_COMPAT") is None:
        values.pop("SCRAPY_COMPAT", None)
    if is_moved:
        defaults = Layer(MOVED_DEFAULT, scrapy_names.moved.MOVED_DEFAULTS)
        for name, value in defaults.values.items():
            if name not in values:
                values[name], sources[name] = _value(value, known()[name], defaults), MOVED_DEFAULT
    extra = {name: values.get(name, definition.default) for name, definition in own.items()}
    if is_moved:
        for name in unused.keys() - extra.keys():
            extra[name], sources[name] = unused[name]
    return Settings({section.value: _composed(section.value, values) for section in SECTIONS}, sources, extra)


def _add_old_feed(
    layers: Iterable[Layer], values: dict[str, Any], sources: dict[str, str], tell: Callable[[str], object] | None
) -> None:
    """Add the feed of Scrapy's ``FEED_URI`` and ``FEED_FORMAT`` to ``FEEDS``, which takes precedence.

    Each of the two comes from the last source that sets it. ``tell`` is called with a warning if the format is unused.
    """
    names = ("FEED_FORMAT", "FEED_URI")
    said = {name: (layer.values[name], layer) for layer in layers for name in names if name in layer.values}
    path, layer = said.get("FEED_URI", (None, None))
    form, of_form = said.get("FEED_FORMAT", (None, None))
    if path and layer is not None:
        feed = _value({str(path): {"format": form or "jsonlines"}}, known()["FEEDS"], layer)
        values["FEEDS"] = {**feed, **values.get("FEEDS", {})}
        sources.setdefault("FEEDS", layer.location("FEED_URI"))
    elif form and of_form is not None and tell is not None:
        words = "has no effect without FEED_URI: set `format` in the feed's entry of FEEDS"
        tell(f"FEED_FORMAT (in {_spot('FEED_FORMAT', of_form)}) {words}")


def _with_none(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return ``values`` with each False in the lists of components replaced by None."""
    said = {
        name: {entry: None if order is False else order for entry, order in parts.items()}
        for name in PART_LISTS
        if isinstance(parts := values.get(name), Mapping)
    }
    return {**values, **said} if said else values


def is_moved_crawl(*layers: Layer) -> bool:
    """Return whether a crawl with the settings of ``layers``, weakest first, runs a spider written for Scrapy.

    The last layer that sets ``SCRAPY_COMPAT`` decides. If no layer sets it or its value is None, the spider's imports
    decide.

    Raises:
        SettingsError: If ``SCRAPY_COMPAT`` is neither true, false nor None.
    """
    chosen: bool | None = None
    for layer in layers:
        if "SCRAPY_COMPAT" in layer.values:
            chosen = _value(layer.values["SCRAPY_COMPAT"], known()["SCRAPY_COMPAT"], layer)
    return any(layer.is_moved for layer in layers) if chosen is None else chosen


def ambient(
    directory: Path | None = None, environ: Mapping[str, str] | None = None, *, spider: type | None = None
) -> tuple[Layer, ...]:
    """Return the layers around a program: the nearest pyproject.toml, then the environment.

    Args:
        directory: The folder where the search for pyproject.toml starts; by default the working directory.
        environ: The environment; by default that of the process.
        spider: The spider's class. If the pyproject.toml nearest to the spider's file has ``[tool.trawl]``, it takes
            precedence. A warning is logged if the working directory has another pyproject.toml with settings, or if the
            used file belongs to another user.

    Raises:
        SettingsError: If pyproject.toml can't be read.
    """
    project = of_project(directory or Path.cwd())
    if (file := file_of(spider)) is not None:
        project = _nearer(of_project(file.parent), project)
    if (project.values or project.own) and (owner := _other_owner(Path(project.source))) is not None:
        words = "%s belongs to another user (uid %d), who decides with its settings what this crawl runs: make it yours"
        logger.warning(words, project.source, owner)
    return (project, of_environment(os.environ if environ is None else environ))


def file_of(spider: type | None) -> Path | None:
    """Return the user's file that defines a spider's class; None for a notebook or an installed package."""
    file = getattr(sys.modules.get(getattr(spider, "__module__", "")), "__file__", None)
    return Path(file).resolve() if file and is_user_file(file) else None


def _other_owner(path: Path) -> int | None:
    """Return the user id of the owner of a file, or of a link to it; None if the owner is this user or root."""
    if not hasattr(os, "geteuid"):
        return None
    with suppress(FileNotFoundError):
        owners = (path.lstat().st_uid, path.stat().st_uid)
        return next((owner for owner in owners if owner not in (0, os.geteuid())), None)
    return None


def _nearer(beside: Layer, here: Layer) -> Layer:
    """Return the settings of the spider's project if there are any, otherwise those of the working directory."""
    if beside.source == here.source or not (beside.values or beside.own):
        return here
    if here.values or here.own:
        words = "settings come from %s, the nearest to the spider; %s, nearest to the working directory, is not used"
        logger.warning(words, beside.source, here.source)
    else:
        logger.info("settings come from %s, the nearest to the spider", beside.source)
    return beside


def of_project(directory: Path) -> Layer:
    """Return ``[tool.trawl]`` of the nearest pyproject.toml in ``directory`` or above; an empty layer without one.

    Its table ``own`` declares the project's own settings.
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
    """Return the variables ``TRAWL_<NAME>`` of ``environ`` as a layer."""
    named = {name[len(PREFIX) :]: value for name, value in environ.items() if name.startswith(PREFIX)}
    return Layer("the environment", named, is_text=True, prefix=PREFIX)


def of_spider(spider: object) -> Layer:
    """Return the settings of a spider or its class: ``custom_settings``, or the result of ``update_settings``.

    The attribute ``user_agent`` is used for ``USER_AGENT`` if that setting is not set.

    Raises:
        SettingsError: If ``custom_settings`` is not a mapping.
        PartLoadError: If ``update_settings`` failed.
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
    own = getattr(spider, "own_settings", None) or {}
    return Layer("custom_settings", values, own=own, is_moved=scrapy_names.moved.is_moved(kind), spider=kind)


def assignments(texts: Iterable[str], source: str = "-s") -> Layer:
    """Return a layer from ``-s NAME=VALUE`` options. If a name is repeated, its last value counts.

    Raises:
        SettingsError: If a string has no ``=``, or nothing before it.
    """
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{source} takes NAME=VALUE, not {text!r}", text)
        values[name.strip()] = value
    return Layer(source, values, is_text=True)


def _definition(
    name: object, layer: Layer, own: Mapping[str, SettingInfo], tell: Callable[[str], object]
) -> SettingInfo | None:
    """Return the definition of ``name``; None if the setting is ignored."""
    if isinstance(name, str) and name in known():
        return known()[name]
    if isinstance(name, str) and scrapy_names.settings.setting_advice(name):
        tell(_no_effect(name, layer))
        return own.get(name)
    if isinstance(name, str) and name in own:
        return own[name]
    written = f"{layer.prefix}{name}"
    close = nearest(str(name), [*known(), *own])
    hint = f"; did you mean {layer.prefix}{close}?" if close else f"; {HOW_TO_DECLARE}"
    if close and SequenceMatcher(None, str(name).upper(), close).ratio() < _TYPING_ERROR:
        hint += f" ({HOW_TO_DECLARE})"
    raise SettingsError(f"unknown setting {written} (in {layer.source}){hint}", str(name))


def _check_unused(layer: Layer, tell: Callable[[str], object]) -> None:
    """Warn of each declared Scrapy setting without effect, if its value would change the records in Scrapy."""
    for name, value in layer.own.items() if isinstance(layer.own, Mapping) else ():
        if name not in layer.values and scrapy_names.settings.setting_advice(name):
            _check_plugins(name, value, layer)
            if scrapy_names.settings.is_felt(name, value):
                tell(_no_effect(name, layer))


def _no_effect(name: str, layer: Layer) -> str:
    reason = scrapy_names.settings.setting_advice(name)
    return f"{name} (in {_spot(name, layer)}) is Scrapy's and has no effect: {reason}"


def _feeds(value: object, definition: SettingInfo, layer: Layer, tell: Callable[[str], object]) -> Any:
    """Return the feeds of a moved crawl. Keys that only the project's own classes read are kept, with a warning."""
    if not isinstance(value, Mapping):
        return _value(value, definition, layer)
    known_keys = {key.name for key in definition.keys}
    plain, own = dict(value), {}
    for path, entry in value.items():
        place = f"FEEDS[{path!r}]"
        own[path] = {
            key: part
            for key, part in (entry.items() if isinstance(entry, Mapping) else ())
            if key not in known_keys
            and not scrapy_names.settings.key_advice(place, key)
            and not nearest(str(key), known_keys)
        }
        for key in own[path]:
            tell(f"{place} (in {_spot('FEEDS', layer)}) has your own key {key!r}: only the feed's item_filter gets it")
        if own[path]:
            plain[path] = {key: part for key, part in entry.items() if key not in own[path]}
    return {path: {**entry, **own.get(path, {})} for path, entry in _value(plain, definition, layer).items()}


def _check_plugins(name: str, value: object, layer: Layer) -> None:
    """Refuse a setting without effect that names a component of a Scrapy plugin, because pages depend on it."""
    inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
    for each in inner if isinstance(inner, list | tuple) else [inner]:
        if isinstance(each, str) and (why := scrapy_names.names.plugin_advice(each)):
            raise SettingsError(f"{name} (in {_spot(name, layer)}): {each} does not run here: {why}", name)


def _spot(name: str, layer: Layer) -> str:
    """Return the location of a setting, with file and line if a file sets it."""
    path, line = line_of(name, layer.source, layer.spider)
    location = layer.location(name)
    return location if not line else f"{path}:{line}" if path == location else f"{location}, {path}:{line}"


def line_of(name: str, source: str, spider: type | None = None) -> tuple[str, int]:
    """Return the file and the line that set a setting; the source and 0 if no file sets it.

    Args:
        name: The setting.
        source: The source, as returned by :meth:`Settings.source`.
        spider: The spider's class. ``custom_settings`` is looked up in the files of the class and its bases.
    """
    kinds: Iterable[type] = spider.__mro__ if spider is not None and source == "custom_settings" else ()
    entry = re.compile(rf"""^[^#\n]*?(["']?)\b{re.escape(name)}\1\s*[=:\]]""", re.MULTILINE)
    for path in [*filter(None, map(file_of, kinds)), *([] if spider is not None and kinds else [Path(source)])]:
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_text("utf-8")
            if found := entry.search(text):
                return str(path), text.count("\n", 0, found.start(1)) + 1
    return source, 0


def _value(value: object, definition: SettingInfo, layer: Layer) -> Any:
    try:
        if layer.is_text and isinstance(value, str):
            return from_text(value, definition.annotation, definition.name)
        value = str(value) if isinstance(value, PurePath) else value
        return checked(value, definition.annotation, definition.name)
    except SettingsError as error:
        raise SettingsError(f"{error} (in {layer.location(definition.name)})", error.name) from error


def _composed(kind: type[msgspec.Struct], values: Mapping[str, Any]) -> msgspec.Struct:
    """Return one section with the given values. Its class checks combinations of fields."""
    # Avoid msgspec.structs.fields(): it evaluates annotations, which takes half a millisecond per section at each load.
    fields = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    own = {field: values[name] for field, name in fields if name in values}
    try:
        return kind(**own)
    except SettingsError:
        raise
    except (ValueError, TypeError) as error:
        raise SettingsError(str(error)) from error
