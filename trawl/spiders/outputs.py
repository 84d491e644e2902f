"""The types of what callbacks give, generic in the spider's items."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from trawl.http import Request

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default: `Spider` alone is a spider of any items

    ItemT = TypeVar("ItemT", default=Any)
else:
    from typing import TypeVar

    ItemT = TypeVar("ItemT")

__all__ = ["ItemT", "Output", "Outputs"]

Output: TypeAlias = Request | ItemT | None
"""One thing that a callback gives."""

Outputs: TypeAlias = (
    Request
    | ItemT
    | Iterable[Request | ItemT | None]
    | AsyncIterable[Request | ItemT | None]
    | Awaitable[Request | ItemT | Iterable[Request | ItemT | None] | None]
    | None
)
"""What a callback returns: one thing, many, or either later."""
