"""The exceptions for users to import. They are defined in :mod:`trawl.errors`. Only :mod:`trawl` imports this module.

Importing a name that only Scrapy's module has raises an error that says what to use instead.
"""

from typing import TYPE_CHECKING, Any

from trawl.errors import *  # noqa: F403  # its __all__ is the list
from trawl.errors import __all__ as __all__  # noqa: PLC0414  # re-exported

if not TYPE_CHECKING:  # a type checker should report a misspelled name

    def __getattr__(name: str) -> Any:
        from trawl.scrapy_names.names import MOVED, name_advice  # noqa: PLC0415  # only for unknown names

        moved = MOVED.get(f"exceptions.{name}")
        words = f"use {moved[1]}" if moved else "" if name.startswith("__") else name_advice(f"exceptions.{name}")
        if words:  # `from trawl.exceptions import ...` would lose the message of an AttributeError
            raise ImportError(f"there is no {name} here: {words}", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
