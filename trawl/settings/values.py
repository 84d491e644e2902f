"""The list of all settings, the immutable values of the settings in one crawl, and the user's own settings.

A package defines its settings next to the code that uses them, as a frozen ``msgspec.Struct``. Each field has a type,
limits and a unit (``title``), and the section ``Attributes`` of the class's docstring describes it. A name belongs to
exactly one section.

A project or spider may declare its own settings. Such a setting has the type of its default, so a number does not
become a string. An undeclared name is an error.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import msgspec

from trawl import scrapy_names
from trawl.browser import BrowserSettings
from trawl.cache import CacheSettings
from trawl.engine import EngineSettings
from trawl.errors import SettingsError
from trawl.feeds import FeedsSettings
from trawl.frontier import JobSettings
from trawl.middleware import MiddlewareSettings
from trawl.observe import ObserveSettings
from trawl.pipelines import PipelinesSettings
from trawl.robots import RobotsSettings
from trawl.scheduler import SchedulerSettings
from trawl.scrapy_names import Unsupported
from trawl.settings.check import from_json, members_of, nearest, range_words, type_words, without_meta
from trawl.spiders import SpidersSettings
from trawl.throttling import ThrottlingSettings
from trawl.transport import TransportSettings

__all__ = [
    "DEFAULT",
    "HOW_TO_DECLARE",
    "MOVED_DEFAULT",
    "OWN",
    "SECTIONS",
    "Section",
    "SettingInfo",
    "Settings",
    "UnknownSetting",
    "declared",
    "definitions",
    "digests",
    "known",
]

OWN = "Your own"  # the heading of user settings in `trawl settings`
HOW_TO_DECLARE = "declare your own settings in own_settings of the spider, or in [tool.trawl.own]"

# The first line of a field's description in a docstring without its indentation.
_DESCRIBED = re.compile(r" {4}(\w+): (.*)")

# The types of user settings, by the type of their defaults. Any other setting may have any type.
_SHAPES: Mapping[type, Any] = {
    list: list[Any], tuple: list[Any], dict: dict[str, Any], bool: bool, int: int, float: float, str: str
}  # fmt: skip


@attrs.frozen
class Section:
    """The heading of one package in the reference, and the class of its settings with their defaults."""

    title: str
    value: type[msgspec.Struct]


SECTIONS: tuple[Section, ...] = (
    Section("Crawl", EngineSettings),
    Section("Admission and order", SchedulerSettings),
    Section("Jobs", JobSettings),
    Section("Throttling", ThrottlingSettings),
    Section("Transport", TransportSettings),
    Section("Middleware", MiddlewareSettings),
    Section("Browser", BrowserSettings),
    Section("Cache", CacheSettings),
    Section("robots.txt", RobotsSettings),
    Section("Spiders", SpidersSettings),
    Section("Pipelines", PipelinesSettings),
    Section("Feeds", FeedsSettings),
    Section("Log and progress", ObserveSettings),
)
"""All sections in the order of the reference."""


@attrs.frozen
class SettingInfo:
    """One setting, as the reference shows it.

    Attributes:
        name: Upper-case name.
        default: Default value.
        unit: Unit of the value (``"s"``, ``"bytes"``); "" if it has no unit.
        type: Type in words.
        range: Limits in words; "" if there are none.
        section: Title of the section; "" for a key.
        annotation: The type itself, with its limits.
        keys: Typed keys of a mapping, such as a scope or a feed. They have no defaults.
        absent: The meaning of a missing key in words, often the name of a setting; "" if not documented.
    """

    name: str
    default: object
    unit: str
    type: str
    range: str
    description: str
    section: str
    annotation: Any = attrs.field(repr=False, eq=False)
    keys: tuple[SettingInfo, ...] = attrs.field(default=(), repr=False)
    absent: str = ""


def definitions() -> Iterator[SettingInfo]:
    """Yield every setting, section by section."""
    for section in SECTIONS:
        described = _descriptions(section.value)
        for field in msgspec.structs.fields(section.value):
            words = described.get(field.name, "")
            yield _defined(field.encode_name, field.type, words, default=_default(field), section=section.title)


@cache
def _descriptions(kind: type) -> Mapping[str, str]:
    """Return the description of each field of a class, from its docstring."""
    found: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[2].splitlines():
        if (start := _DESCRIBED.match(line)) is not None:
            name, found[start[1]] = start[1], start[2]
        elif name:
            found[name] += f" {line.strip()}"
    return found


def _defined(name: str, annotation: Any, words: str, *, default: object = None, section: str = "") -> SettingInfo:
    """Return the definition of a setting. Its keys are those of typed mappings inside its type."""
    _, notes = without_meta(annotation)
    extra = {key: value for note in notes for key, value in (note.extra or {}).items()}
    ranges = [range_words(annotation), extra.get("range", "")]
    return SettingInfo(
        name=name,
        default=default,
        unit=next((note.title for note in notes if note.title), ""),
        type=type_words(annotation),
        range=", ".join(words for words in ranges if words),
        description=words,
        section=section,
        annotation=annotation,
        keys=tuple(_keys(extra.get("keys", annotation))),
        absent=extra.get("absent", ""),
    )


def _keys(annotation: Any) -> Iterator[SettingInfo]:
    """Yield the keys of typed mappings inside a type: the type itself, a union's member or a mapping's values."""
    for member in members_of(annotation):
        inner, _ = without_meta(member)
        if is_typeddict(inner):
            described = _descriptions(inner)
            for name, kind in get_type_hints(inner, include_extras=True).items():
                yield _defined(name, kind, described.get(name, ""))
        elif get_origin(inner) is dict:
            yield from _keys(get_args(inner)[1])


@cache
def known() -> Mapping[str, SettingInfo]:
    """Return every setting by name."""
    return {definition.name: definition for definition in definitions()}


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def declared(sources: Iterable[tuple[str, object]], *, is_moved: bool = False) -> dict[str, SettingInfo]:
    """Return the definitions of user settings, and check their names.

    Each source is a location, for messages, and a mapping of names to defaults. Later defaults take precedence. If
    ``is_moved``, Scrapy's settings without effect in trawl may be declared, for code that reads them.
    """
    found: dict[str, SettingInfo] = {}
    for place, names in sources:
        if not isinstance(names, Mapping):
            raise SettingsError(f"{place} must be a mapping of names to defaults, not {type(names).__name__}", place)
        for name, default in names.items():
            is_scrapys = bool(scrapy_names.settings.setting_advice(name))
            if not (is_moved and is_scrapys):
                _check(name, place)
            # custom_settings may give a setting of Scrapy's any type.
            annotation = Any if is_scrapys else _SHAPES.get(type(default), Any)
            found[name] = _defined(name, annotation, "", default=default, section=OWN)
    return found


def _check(name: object, place: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.upper() != name:
        raise SettingsError(f"{place}: {name!r} can't be the name of a setting; write it in upper case", str(name))
    if name in known():
        raise SettingsError(f"{place}: {name} is a setting of trawl's; set it without declaring it", name)
    if scrapy_names.settings.is_foreign_setting(name):
        raise SettingsError(f"{place}: {name} is a setting of Scrapy's; choose another name", name)


DEFAULT = "default"
"""The source of a value that is not set."""

MOVED_DEFAULT = "moved from Scrapy"
"""The source of an unset value whose default is different in crawls that were moved from Scrapy."""

S = TypeVar("S", bound=msgspec.Struct)

_ABSENT: Any = object()
_NO = ("", "0", "false", "no", "off", "none")
_FIXED = "settings do not change during a crawl; set them in the spider's custom_settings or update_settings()"
_SOURCES = "`trawl settings` shows where each value comes from"


class UnknownSetting(SettingsError, KeyError):
    """There is no setting with this name. The message names the most similar setting, or says how to declare it."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show the repr of its message


class Settings(Mapping[str, Any]):
    """All settings by name with typed values, defaults included.

    trawl's own components read their section (:meth:`of`). Spiders read by name, also with Scrapy's accessors, which
    convert values. An unknown name raises :class:`UnknownSetting`, a ``KeyError``, unless a default is given, for
    example to ``get``. In a crawl that was moved from Scrapy (``SCRAPY_COMPAT``), an unknown name gives None, as in
    Scrapy.

    ``Settings(values)`` makes changeable settings, as in Scrapy, for tests and scripts. Its values are checked when a
    crawl loads them, and an iteration has only the values that were set.

    Attributes:
        is_changeable: Whether these settings can be changed. The settings of a crawl can't.

    >>> from trawl.settings import Layer, load
    >>> settings = load(Layer("settings", {"DOWNLOAD_DELAY": 0.5}))
    >>> settings["DOWNLOAD_DELAY"], settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"), settings.get("MY_OWN", "none")
    (0.5, 1, 'none')
    """

    __slots__ = ("_answers_none", "_own", "_sections", "_sources", "_values", "is_changeable")
    if not TYPE_CHECKING:
        attributes = Unsupported(_SOURCES)
        getpriority = Unsupported(_SOURCES)
        getwithbase = Unsupported("`settings[NAME]` has your values, without the built-in values")
        setmodule = Unsupported(_FIXED)
        add_to_list = Unsupported(_FIXED)
        freeze = Unsupported("they never change")
        frozencopy = Unsupported("they never change, and need no copy")

    def __init__(
        self,
        sections: Mapping[Any, Any] | None = None,
        sources: Mapping[str, str] | str | int = "project",
        own: Mapping[str, Any] | None = None,
        *,
        priority: str | int = "project",
    ) -> None:
        self.is_changeable: bool = isinstance(sources, str | int)
        if isinstance(sources, str | int):  # Settings(values, priority), as in Scrapy
            own, sources = sections or {}, {}
            sections = {section.value: section.value() for section in SECTIONS}
        self._sections: dict[type[msgspec.Struct], msgspec.Struct] = dict(sections or {})
        self._sources = dict(sources)
        self._values = {
            name: getattr(section, field)
            for kind, section in self._sections.items()
            for field, name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        }
        self._own: dict[str, Any] = dict(own or {})
        self._values.update(self._own)
        self._answers_none = self.is_changeable or bool(self._values.get("SCRAPY_COMPAT"))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            if self._answers_none:
                return None
            raise self._unknown(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value; ``default`` for an unknown name."""
        return self._values.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._own if self.is_changeable else self._values)

    def __len__(self) -> int:
        return len(self._own if self.is_changeable else self._values)

    def of(self, kind: type[S]) -> S:
        """Return the section of this class.

        Raises:
            KeyError: If ``kind`` is not the class of a section.
        """
        section = self._sections[kind]
        assert isinstance(section, kind)
        return section

    @property
    def own(self) -> Mapping[str, Any]:
        """The settings that the project or the spider declares, with values."""
        return self._own

    def source(self, name: str) -> str:
        """Return the source of a value: ``"default"``, ``"custom_settings"``, ``"-s"`` and so on.

        Raises:
            UnknownSetting: If there is no such setting.
        """
        if name not in self._values:
            raise self._unknown(name)
        return self._sources.get(name, DEFAULT)

    # Scrapy's accessors.

    def set(self, name: str, value: Any, priority: str | int = "project") -> None:
        """Set a value of changeable settings.

        Raises:
            TypeError: For the settings of a crawl, which never change.
        """
        if not self.is_changeable:
            raise TypeError(_FIXED)
        self._values[name] = self._own[name] = value

    __setitem__ = set

    def copy(self) -> Settings:
        """Return changeable settings with the same values."""
        return Settings(dict(self))

    def setdict(self, values: Mapping[str, Any], priority: str | int = "project") -> None:
        """Set several values, like :meth:`set`."""
        for name, value in values.items():
            self.set(name, value)

    update = setdict

    def getbool(self, name: str, default: Any = _ABSENT) -> bool:
        """Return the value as a bool; the strings "0", "false", "no", "off", "none" and "" are False."""
        value = self._found(name, default, False)
        return value.strip().lower() not in _NO if isinstance(value, str) else bool(value)

    def getint(self, name: str, default: Any = _ABSENT) -> int:
        """Return the value as an int. Raises ValueError or TypeError if it can't be converted."""
        return int(self._found(name, default, 0))

    def getfloat(self, name: str, default: Any = _ABSENT) -> float:
        """Return the value as a float. Raises ValueError or TypeError if it can't be converted."""
        return float(self._found(name, default, 0.0))

    def getlist(self, name: str, default: Any = _ABSENT) -> list[Any]:
        """Return a copy of the value as a list; a string is split at commas, None gives an empty list."""
        value = self._found(name, default, None)
        if isinstance(value, str):
            return value.split(",") if value else []
        return [] if value is None else list(value)

    def getdict(self, name: str, default: Any = _ABSENT) -> dict[str, Any]:
        """Return a copy of the value as a dict; a string is read as JSON, None gives an empty dict."""
        value = self._found(name, default, None)
        if isinstance(value, str):
            value = from_json(value)
        return {} if value is None else dict(value)

    def _found(self, name: str, default: Any, empty: Any) -> Any:
        """Return the value, or the default, or ``empty`` if the name is a Scrapy setting or the crawl is moved."""
        if default is _ABSENT and name not in self._values:
            if self._answers_none or scrapy_names.settings.setting_advice(name):
                return empty
            raise self._unknown(name)
        return self._values.get(name, empty if default is _ABSENT else default)

    def _unknown(self, name: str) -> UnknownSetting:
        close = nearest(str(name), self._values)
        hint = f"did you mean {close}?" if close else HOW_TO_DECLARE
        return UnknownSetting(f"unknown setting {name}; {hint}", str(name))

    def copy_to_dict(self) -> dict[str, Any]:
        """Return a dict of all names and values."""
        return dict(self._values)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={self._values[name]!r}" for name in sorted(self._sources))
        return f"Settings({given})"


OF_A_PROCESS = (
    *("CLOSESPIDER_", "COOKIES_DEBUG", "COOKIES_FILE", "DNS_", "DOWNLOAD_BIND_ADDRESS", "FEED", "HTTPCACHE_"),
    *("JOB_", "LOG", "MEMUSAGE_", "SHUTDOWN_TIMEOUT", "WARC_", "WATCHERS"),
)
"""Prefixes of settings that may differ between processes, because they change neither the requests nor their times."""

CODE, ARGUMENT = "the spider's code", "-a "


def digests(settings: Settings, spider: type, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return digests, by name, of everything that must be equal in two processes of one job.

    There is a digest for each setting that is not the default, for the spider's module and for the arguments of its
    constructor. The digests are compared by name, so that a refused process can report the differences. Values may be
    passwords, so only digests are exchanged.
    """
    found = {
        name: _short(_text(value).encode(errors="backslashreplace"))
        for name, value in settings.items()
        if not name.startswith(OF_A_PROCESS) and settings.source(name) != DEFAULT
    }
    file = getattr(sys.modules.get(spider.__module__), "__file__", None)
    found[CODE] = ""
    with suppress(OSError):  # for example, the module is in an archive
        found[CODE] = _short(Path(file).read_bytes()) if file else ""
    for name, value in arguments.items():
        found[f"{ARGUMENT}{name}"] = _short(_text(value).encode(errors="replace"))
    return found


def _short(value: bytes) -> str:
    return hashlib.blake2b(value, digest_size=6).hexdigest()


def _text(value: object) -> str:
    """Return a string for a value. The string is the same in every process."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_text(key)}: {_text(each)}' for key, each in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if inspect.isclass(value) or inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    shown = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in shown else shown
