"""Which group of a robots.txt is ours: names, not substrings."""

from __future__ import annotations

import re

__all__ = ["product_token"]

_TOKEN = re.compile(r"[A-Za-z_-]+")  # RFC 9309, 2.2.1
_COMPATIBLE = re.compile(r"\(compatible;\s*([A-Za-z_-]+)", re.IGNORECASE)


def product_token(user_agent: str) -> str:
    """The name that a robots.txt knows a crawler by, in lower case: ``trawl`` for ``trawl/1.0 (+https://...)``.

    It is the first product of the ``User-Agent`` (RFC 9309, 2.2.1), or what follows ``compatible;`` where a crawler
    introduces itself behind a browser's name, as ``Mozilla/5.0 (compatible; Foobot/2.1)`` does. Empty if there is none.
    """
    found = _COMPATIBLE.search(user_agent)
    if found is not None:
        return found[1].lower()
    token = _TOKEN.match(user_agent.strip())
    return token[0].lower() if token is not None else ""
