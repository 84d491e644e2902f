"""Scrapy's names: their places in trawl, and advice on names that trawl does not have.

===============================  =======================================================================================
module                           content
===============================  =======================================================================================
``trawl.scrapy_names.names``     places of Scrapy's names in trawl, and advice on missing names
``trawl.scrapy_names.imports``   changes to the imports of a file
``trawl.scrapy_names.moved``     which spiders are moved, the defaults of their crawls, and renamed settings
``trawl.scrapy_names.settings``  advice on Scrapy's settings that are ignored
===============================  =======================================================================================

The package contains tables and messages for every package that encounters such a name. Its modules are loaded on first
use. Importing a native spider loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from trawl.scrapy_names.imports import Change, Edit, Hint, changes, edited, hint, hint_of_file, project_files
    from trawl.scrapy_names.moved import (
        MOVED_DEFAULTS,
        MOVED_UNUSED,
        disabled_by,
        is_disabled,
        is_moved,
        is_moved_file,
        is_moved_text,
        renamed,
    )
    from trawl.scrapy_names.names import (
        GUIDE,
        MOVED,
        PLUGIN_META,
        REPLACEMENTS,
        class_advice,
        name_advice,
        place,
        plugin_advice,
    )
    from trawl.scrapy_names.settings import is_felt, is_foreign_setting, key_advice, setting_advice
else:
    _HOMES = {
        **dict.fromkeys(
            ("Change", "Edit", "Hint", "changes", "edited", "hint", "hint_of_file", "project_files"), "imports"
        ),
        **dict.fromkeys(("GUIDE", "MOVED", "REPLACEMENTS", "class_advice", "name_advice", "place"), "names"),
        "PLUGIN_META": "names",
        "plugin_advice": "names",
        **dict.fromkeys(("is_felt", "is_foreign_setting", "key_advice", "setting_advice"), "settings"),
    }

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'moved')}"), name)


__all__ = [
    "GUIDE",
    "MOVED",
    "MOVED_DEFAULTS",
    "MOVED_UNUSED",
    "PLUGIN_META",
    "REPLACEMENTS",
    "Change",
    "Edit",
    "Hint",
    "Unsupported",
    "changes",
    "class_advice",
    "disabled_by",
    "edited",
    "hint",
    "hint_of_file",
    "is_disabled",
    "is_felt",
    "is_foreign_setting",
    "is_moved",
    "is_moved_file",
    "is_moved_text",
    "key_advice",
    "name_advice",
    "place",
    "plugin_advice",
    "project_files",
    "renamed",
    "setting_advice",
    "submodule",
]


def submodule(module: str, name: str) -> Any:
    """Return :func:`trawl.scrapy_names.names.submodule`, for a module's ``__getattr__``. Private names load no tables.

    Raises:
        AttributeError: If the name does not exist.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return import_module("trawl.scrapy_names.names").submodule(module, name)


class Unsupported:
    """An attribute that only Scrapy's class has. Reading the attribute raises an error that names a replacement.

    The object is a class attribute with the name of the missing attribute. ``hasattr`` returns False, and an instance
    or a subclass may have an attribute of this name. Classes define it inside ``if not TYPE_CHECKING``, so that type
    checkers report the name.

    Args:
        words: The replacement, as the end of a sentence.
    """

    __slots__ = ("_name", "words")

    def __init__(self, words: str) -> None:
        self.words: str = words
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}, which is Scrapy's: {self.words}")
