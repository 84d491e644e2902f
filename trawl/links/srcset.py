"""The addresses in an attribute: one, or the candidates of a ``srcset``."""

from __future__ import annotations

import re

__all__ = ["addresses_in"]

# Every repetition is possessive: a page chooses this text, and going back over it would take time by its square.
_ADDRESS = re.compile(r"[ \t\n\f\r,]*+([^ \t\n\f\r]++)")
_DESCRIPTORS = re.compile(r"(?:[^,(]++|\([^)]*+\)?+)*+,?+")
_LISTS = frozenset({"srcset", "imagesrcset", "data-srcset"})


def addresses_in(attribute: str, value: str) -> tuple[str, ...]:
    """Return the addresses that an attribute holds; several in ``srcset`` (HTML, 4.8.4.3.10).

    A candidate is an address up to white space, then, up to a comma that is in no parentheses, its width or density. An
    address that ends in a comma has neither.
    """
    if attribute not in _LISTS:
        return (value,)
    found: list[str] = []
    candidate = _ADDRESS.match(value)
    while candidate is not None:
        address, at = candidate[1], candidate.end()
        found.append(address.rstrip(","))
        if address[-1] != "," and (rest := _DESCRIPTORS.match(value, at)) is not None:
            at = rest.end()
        candidate = _ADDRESS.match(value, at)
    return tuple(found)
