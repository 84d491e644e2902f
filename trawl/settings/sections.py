"""The list of all settings, from the sections that the packages define.

A package defines its settings beside the code that uses them, as a frozen ``msgspec.Struct`` whose fields carry type,
limits, unit (``title``) and description. A name belongs to exactly one section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import msgspec

from trawl.cache import CacheSettings
from trawl.engine import EngineSettings
from trawl.feeds import FeedsSettings
from trawl.frontier import JobSettings
from trawl.middleware import MiddlewareSettings
from trawl.observe import ObserveSettings
from trawl.pipelines import PipelinesSettings
from trawl.robots import RobotsSettings
from trawl.scheduler import SchedulerSettings
from trawl.settings.check import members_of, range_words, type_words, without_meta
from trawl.spiders import SpidersSettings
from trawl.throttling import ThrottlingSettings
from trawl.transport import TransportSettings

__all__ = ["SECTIONS", "Section", "SettingInfo", "definitions", "known"]


@attrs.frozen
class Section:
    """The settings of one package.

    Attributes:
        title: The heading in the reference.
        value: The package's class of settings, with their defaults.
    """

    title: str
    value: type[msgspec.Struct]


SECTIONS: tuple[Section, ...] = (
    Section("Crawl", EngineSettings),
    Section("Admission and order", SchedulerSettings),
    Section("Jobs", JobSettings),
    Section("Throttling", ThrottlingSettings),
    Section("Transport", TransportSettings),
    Section("Middleware", MiddlewareSettings),
    Section("Cache", CacheSettings),
    Section("robots.txt", RobotsSettings),
    Section("Spiders", SpidersSettings),
    Section("Pipelines", PipelinesSettings),
    Section("Feeds", FeedsSettings),
    Section("Log and progress", ObserveSettings),
)
"""In the order of the reference."""


@attrs.frozen
class SettingInfo:
    """One setting, as the reference shows it.

    Attributes:
        name: Its upper-case name.
        default: Its default.
        unit: The unit of the value (``"s"``, ``"bytes"``); "" without one.
        type: The type in words.
        range: The limits in words; "" without any.
        description: One or two sentences.
        section: The title of its section; "" for a key.
        annotation: The type itself, with its limits.
        keys: The keys of a mapping that have types of their own (a scope's, a feed's), without defaults.
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
        for field in msgspec.structs.fields(section.value):
            yield _defined(field.encode_name, field.type, default=_default(field), section=section.title)


def _defined(name: str, annotation: Any, *, default: object = None, section: str = "") -> SettingInfo:
    _, notes = without_meta(annotation)
    extra = {key: value for note in notes for key, value in (note.extra or {}).items()}
    ranges = [range_words(annotation), extra.get("range", "")]
    return SettingInfo(
        name=name,
        default=default,
        unit=next((note.title for note in notes if note.title), ""),
        type=type_words(annotation),
        range=", ".join(words for words in ranges if words),
        description=next((note.description for note in notes if note.description), ""),
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
            for name, kind in get_type_hints(inner, include_extras=True).items():
                yield _defined(name, kind)
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
