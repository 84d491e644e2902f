"""Settings that a project or a spider declares: names of its own, with the values that they have unless set.

A name that nobody has declared is a typing error, here as everywhere. What a default says of the type holds for every
value: a number is not taken for a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trawl.errors import SettingsError
from trawl.settings.foreign import FOREIGN, TRANSLATED
from trawl.settings.sections import Definition, known
from trawl.settings.wording import type_words

__all__ = ["HOW_TO_DECLARE", "SECTION", "declared"]

SECTION = "Your own"
"""Under what ``trawl settings`` lists them."""

HOW_TO_DECLARE = "one of your own is declared in own_settings of the spider, or in [tool.trawl.own]"

_SHAPES: Mapping[type, Any] = {list: list[Any], tuple: list[Any], dict: dict[str, Any]}


def declared(sources: Iterable[tuple[str, object]]) -> dict[str, Definition]:
    """The definitions of all that ``sources`` declare, each a place for messages and a mapping of names to defaults.

    The default of a later source counts.

    Raises:
        SettingsError: What is declared is no mapping, no name of a setting, or a setting of trawl's or Scrapy's.
    """
    found: dict[str, Definition] = {}
    for place, names in sources:
        if not isinstance(names, Mapping):
            raise SettingsError(f"{place} must be a mapping of names to defaults, not {type(names).__name__}", place)
        for name, default in names.items():
            _check(name, place)
            found[name] = _definition(name, default)
    return found


def _check(name: object, place: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.upper() != name:
        raise SettingsError(f"{place}: {name!r} can't be the name of a setting: write it in upper case", str(name))
    if name in known():
        raise SettingsError(f"{place}: {name} is a setting of trawl's: set it, it need not be declared", name)
    if name in FOREIGN or name in TRANSLATED:
        raise SettingsError(f"{place}: {name} is a setting of Scrapy's: give yours another name", name)


def _definition(name: str, default: object) -> Definition:
    annotation: Any = Any if default is None else _SHAPES.get(type(default), type(default))
    if annotation not in (Any, bool, int, float, str) and type(default) not in _SHAPES:
        annotation = Any
    return Definition(
        name=name,
        default=default,
        unit="",
        type=type_words(annotation),
        range="",
        description="",
        section=SECTION,
        annotation=annotation,
    )
