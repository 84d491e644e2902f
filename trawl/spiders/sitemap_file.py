"""A sitemap as its protocol has it (sitemaps.org): pages, or further sitemaps."""

from __future__ import annotations

import calendar
import codecs
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

from trawl.spiders.xml_pieces import Unpacked, XmlPieces, local_name

__all__ = ["Sitemap", "latest_of", "sitemaps_in_robots"]

ROBOTS_CHARACTERS = 512_000
"""How much of a robots.txt is looked at; RFC 9309, 2.5 asks for 500 KiB."""

_MOST_PARTS = 10_000
"""Children of one entry that are looked at."""

_LONGEST_LINE = 65_536
"""Characters of one line that are kept; no URL is as long."""

_MOST_BLANK = 1_048_576
"""Bytes without a line that says anything, in a file of lines; what has more counts as longer than the limit."""

_LINE = re.compile("[^\\s\ufeff][^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")  # as str.splitlines() ends them

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
        self._pieces = 0
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

    @property
    def pieces(self) -> int:
        """How much has been read, in pieces: where it grows, it is time to let others run."""
        return self._pieces if self._xml is None else self._xml.pieces

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
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        held, blank = "", 0
        for piece in self._unpacked:
            self._pieces += 1
            blank += len(piece)
            if blank > _MOST_BLANK:
                self._unpacked.is_cut = True
                return
            text = held + decode(piece)
            held = ""
            for line in _LINE.finditer(text):
                if line.end() == len(text):  # it may go on
                    held = line[0][:_LONGEST_LINE]
                    break
                blank = 0
                yield {"loc": line[0].rstrip()}
        if held.strip():
            yield {"loc": held.strip()}

    def _elements(self, xml: XmlPieces) -> Iterator[dict[str, Any]]:
        for element in xml:
            entry: dict[str, Any] = {}
            for part in islice(element, _MOST_PARTS):
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
