"""The fenced blocks of a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

__all__ = ["Block", "blocks_of"]

FENCE = re.compile(r"^(?P<mark>`{3,}|:{3,})(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=mark)$", re.M | re.S)
SAVED = re.compile(r"\b(?:[Ss]ave this as|at the end of)\s`(?P<name>[\w./-]+)`[^`]*\Z")
FILE = re.compile(r"`(?P<name>[\w/-]+\.(?:py|toml))`")


@attrs.frozen
class Block:
    """One fenced block.

    Attributes:
        line: Its line in the page.
        language: The text after the opening fence.
        text: The content.
        follows: Whether only a blank line separates the block from the previous block.
        file: The file that the previous paragraph names for the block ("Save this as `NAME`" or "at the end of
            `NAME`"), or that a diff changes; "" if there is none.
        is_whole: Whether the block is the complete file.
    """

    line: int
    language: str
    text: str
    follows: bool
    file: str = ""
    is_whole: bool = False

    @property
    def first(self) -> str:
        """The first line."""
        return self.text.partition("\n")[0]

    @property
    def is_of_a_file(self) -> bool:
        """Whether the block belongs to a file and is not run directly. An indented block belongs to a class."""
        return bool(self.file) or (self.language == "python" and self.text.startswith("    "))


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    end = 0
    for match in FENCE.finditer(text):
        between = text[end : match.start()]
        line = text.count("\n", 0, match.start()) + 1
        language, paragraph = match["language"].strip(), between.rstrip().rpartition("\n\n")[2] + "\n"
        named = (FILE if language == "diff" else SAVED).search(paragraph)
        file, is_whole = (named["name"], "ave this" in named[0]) if named else ("", False)
        yield Block(line, language, match["text"], not between.strip(), file, is_whole)
        end = match.end()
