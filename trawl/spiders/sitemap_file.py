"""A sitemap as its protocol has it (sitemaps.org): pages, or further sitemaps."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

from trawl.spiders.xml_pieces import Unpacked, XmlPieces, local_name

__all__ = ["Sitemap", "latest_of", "sitemaps_in_robots"]

ROBOTS_CHARACTERS = 512_000
"""How much of a robots.txt is looked at; RFC 9309, 2.5 asks for 500 KiB."""

_KINDS = frozenset({"urlset", "sitemapindex"})
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?")


class Sitemap:
    """The entries of one file, read as they are asked for, once.

    An entry is a dictionary: ``loc``, and where the file has them ``lastmod``, ``changefreq``, ``priority`` and
    ``alternate``, a list of the addresses of the page in other languages.

    Attributes:
        type: ``urlset`` (of pages), ``sitemapindex`` (of sitemaps), or "" for what is no sitemap.
        is_cut: The file has more than the limits allow; known when it has been read.
        is_broken: It ended in the middle of packed data; known when it has been read.
    """

    def __init__(self, body: bytes, *, most_bytes: int, most_entries: int, is_text: bool = False) -> None:
        """Begin to read a file.

        Args:
            body: As it was sent; gzip is unpacked.
            most_bytes: How much of it is read, unpacked.
            most_entries: How many entries are given.
            is_text: It may be one address a line, in place of XML.
        """
        self._unpacked = Unpacked(body, most_bytes)
        self._most_entries = most_entries
        self._has_too_many = False
        self._is_text = is_text and not body.lstrip().startswith((b"<", b"\x1f\x8b", b"\xef\xbb\xbf<"))
        self._xml = None if self._is_text else XmlPieces(self._unpacked, frozenset({"url", "sitemap"}))
        root = "urlset" if self._xml is None else self._xml.root
        self.type: str = root if root in _KINDS else ""

    @property
    def is_cut(self) -> bool:
        """Whether the file has more than the limits allow."""
        return self._has_too_many or self._unpacked.is_cut

    @property
    def is_broken(self) -> bool:
        """Whether packed data ended too early."""
        return self._unpacked.is_broken

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self.type:
            return
        entries = self._lines() if self._xml is None else self._elements(self._xml)
        for count, entry in enumerate(entries):
            if count >= self._most_entries:
                self._has_too_many = True
                return
            yield entry

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in b"".join(self._unpacked).decode("utf-8", "replace").lstrip("\ufeff").splitlines():
            if line.strip():
                yield {"loc": line.strip()}

    def _elements(self, xml: XmlPieces) -> Iterator[dict[str, Any]]:
        for element in xml:
            entry: dict[str, Any] = {}
            for part in element:
                name = local_name(part)
                if name == "link":
                    if href := part.get("href"):
                        entry.setdefault("alternate", []).append(href.strip())
                elif name and not len(part):
                    entry[name] = (part.text or "").strip()
            if entry.get("loc"):
                yield entry


def sitemaps_in_robots(text: str) -> Iterator[str]:
    """The addresses in the ``Sitemap`` lines of a robots.txt, as they are written."""
    for line in text[:ROBOTS_CHARACTERS].splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lstrip("\ufeff").lower() == "sitemap" and (address := value.split("#")[0].strip()):
            yield address


def latest_of(written: str | date) -> datetime | None:
    """The last instant that a date in W3C's format may mean, aware; None if it is none.

    ``2024-05`` may mean any day of that May: who asks "changed since?" must not miss one.
    """
    if isinstance(written, date) and not isinstance(written, datetime):
        written = written.isoformat()
    if isinstance(written, str):
        try:
            day = _DATE.fullmatch(written.strip())
            if day is None:
                written = datetime.fromisoformat(written.strip())
            else:
                year, month = int(day[1]), int(day[2] or 12)
                last = int(day[3] or calendar.monthrange(year, month)[1])
                written = datetime(year, month, last, 23, 59, 59, 999_999, tzinfo=UTC)
        except (ValueError, calendar.IllegalMonthError):
            return None
    return written if written.tzinfo is not None else written.replace(tzinfo=UTC)
