"""Passwords in URLs, which are never printed: neither in a message, nor in a log, nor in a ``repr``."""

from __future__ import annotations

import re

__all__ = ["MASK", "SECRET_NAME", "without_passwords"]

MASK = "***"
"""What is printed in place of a password."""

# It ends at the last @ of the authority; one that was not encoded may have a slash, and ends at the last @ of its word.
# A number before a slash, a blank or the end is a port.
_PASSWORD_IN_URL = re.compile(
    r"(//[^\s\"/@:\[]*):(?!\d*(?:[/?#\s\"',;)\]}>]|$))(?:[^\s\"/?#]*@|[^\s\"]*@)",
)


_PASSWORD_IN_QUERY = re.compile(r"([?&][^=&\s]*passw(?:or)?d=)[^&\s\"'#]+", re.IGNORECASE)

SECRET_NAME = re.compile(r"passw(?:or)?d|secret|token|authorization|^cookie$", re.IGNORECASE)
"""Found in the names of settings, keys and headers whose values are not printed."""


def without_passwords(text: str) -> str:
    """Return ``text`` with :data:`MASK` for the password of each URL in it, as in ``redis://user:***@host/job``."""
    if "assw" in text:
        text = _PASSWORD_IN_QUERY.sub(rf"\1{MASK}", text)
    return _PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text) if "@" in text else text
