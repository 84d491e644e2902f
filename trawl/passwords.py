"""Masking of passwords in URLs, so that they never appear in a message, a log or a ``repr``."""

from __future__ import annotations

import re

__all__ = ["MASK", "SECRET_NAME", "without_passwords"]

MASK = "***"
"""The text printed instead of a password."""

# A password ends at the last @ of the authority. An unencoded password may contain a slash, and then ends at the last @
# of the word. A number before a slash, a space or the end is a port, not a password.
_PASSWORD_IN_URL = re.compile(
    r"(//[^\s\"/@:\[]*):(?!\d*(?:[/?#\s\"',;)\]}>]|$))(?:[^\s\"/?#]*@|[^\s\"]*@)",
)


_PASSWORD_IN_QUERY = re.compile(r"([?&][^=&\s]*passw(?:or)?d=)[^&\s\"'#]+", re.IGNORECASE)

SECRET_NAME = re.compile(r"passw(?:or)?d|secret|token|authorization|^cookie$", re.IGNORECASE)
"""Matches the names of settings, keys and headers whose values are not printed."""


def without_passwords(text: str) -> str:
    """Return ``text`` with the password of each URL replaced by :data:`MASK`, as in ``redis://user:***@host/job``."""
    if "assw" in text:
        text = _PASSWORD_IN_QUERY.sub(rf"\1{MASK}", text)
    return _PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text) if "@" in text else text
