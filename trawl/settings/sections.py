"""All settings there are: each package's own frozen value, composed here and nowhere else.

A package defines its settings beside the code that obeys them, as a ``msgspec.Struct`` whose fields carry type, limits,
unit (``title``) and description. A name belongs to exactly one section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import attrs
import msgspec

from trawl.settings.wording import range_words, type_words, without_meta

__all__ = ["SECTIONS", "Definition", "Section", "definitions", "known"]


@attrs.frozen
class Section:
    """The settings of one package.

    Attributes:
        title: The heading in the reference.
        value: The package's settings value; its defaults are the settings' defaults.
    """

    title: str
    value: type[msgspec.Struct]


def _landed() -> Iterator[Section]:
    for title, module, name in (
        ("Crawl", "trawl.engine.settings", "EngineSettings"),
        ("Spiders and admission", "trawl.scheduler.settings", "SchedulerSettings"),
        ("Throttling", "trawl.throttling.settings", "ThrottlingSettings"),
        ("Transport", "trawl.transport.settings", "TransportSettings"),
        ("Middleware", "trawl.middleware.settings", "MiddlewareSettings"),
        ("robots.txt", "trawl.robots.settings", "RobotsSettings"),
        ("Pipelines", "trawl.pipelines.settings", "PipelinesSettings"),
        ("Feeds", "trawl.feeds.settings", "FeedsSettings"),
        ("Log and progress", "trawl.observe.settings", "ObserveSettings"),
    ):
        try:
            yield Section(title, getattr(import_module(module), name))
        except (ImportError, AttributeError):
            continue


SECTIONS: tuple[Section, ...] = tuple(_landed())
"""In the order of the reference."""


@attrs.frozen
class Definition:
    """One setting, as the reference tells it.

    Attributes:
        name: Its upper-case name.
        default: Its value where nobody says otherwise.
        unit: The unit of the value (``"s"``, ``"bytes"``), "" without one.
        type: What may be given, in words.
        range: The limits on it in words, "" without any.
        description: One or two sentences.
        section: The title of its section.
        annotation: The type itself, with its limits.
    """

    name: str
    default: object
    unit: str
    type: str
    range: str
    description: str
    section: str
    annotation: Any = attrs.field(repr=False, eq=False)


def definitions() -> Iterator[Definition]:
    """Every setting, section by section, in the order of its package."""
    for section in SECTIONS:
        for field in msgspec.structs.fields(section.value):
            _, notes = without_meta(field.type)
            yield Definition(
                name=field.encode_name,
                default=_default(field),
                unit=next((note.title for note in notes if note.title), ""),
                type=type_words(field.type),
                range=range_words(field.type),
                description=next((note.description for note in notes if note.description), ""),
                section=section.title,
                annotation=field.type,
            )


@cache
def known() -> Mapping[str, Definition]:
    """Every setting by name."""
    return {definition.name: definition for definition in definitions()}


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default
