"""An item that is not what it should be, with why and from where."""

from __future__ import annotations

import attrs

__all__ = ["InvalidItem"]


@attrs.frozen
class InvalidItem:
    """An item that was refused; it goes only to feeds whose ``item_classes`` name this class.

    Attributes:
        url: The page that it was found on; "" for one of ``start()``.
        error: What is wrong with it, and where in it.
        type: The name of the type that it should be of.
        item: Its fields, as they are.
    """

    url: str
    error: str
    type: str
    item: dict[str, object]
