"""The addresses in an attribute: one, or the candidates of a ``srcset``."""

from __future__ import annotations

import re

__all__ = ["addresses_in"]

_CANDIDATE = re.compile(r"[\s,]*(\S*[^\s,])(?:\s[^,(]*(?:\([^)]*\)[^,]*)*)?(?:,|$)")
_LISTS = frozenset({"srcset", "imagesrcset", "data-srcset"})


def addresses_in(attribute: str, value: str) -> tuple[str, ...]:
    """Return the addresses that an attribute holds; several in ``srcset`` (HTML, 4.8.4.3.10).

    A candidate is an address up to white space, then, up to a comma, its width or density.
    """
    if attribute not in _LISTS:
        return (value,)
    return tuple(match[1] for match in _CANDIDATE.finditer(value))
