"""The directive ``scrapy-settings``: what becomes of each of Scrapy's settings, from what the code itself does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from trawl.scrapy_names.moved import RENAMED
from trawl.scrapy_names.settings import UNSUPPORTED
from trawl.settings import definitions

NAMES = Path(__file__).with_name("scrapy-settings.txt")


def rows() -> Iterator[tuple[str, str]]:
    """The names of Scrapy's settings, and a few words on each."""
    known = {setting.name for setting in definitions()}
    for name in NAMES.read_text("utf-8").split():
        if name in known:
            yield f":setting:`{name}`", "the same name"
        elif name in RENAMED:
            yield f"``{name}``", f"read as :setting:`{RENAMED[name]}`"
        else:
            yield f"``{name}``", f"no effect, and a warning: {linked(UNSUPPORTED[name], known)}"


def linked(words: str, known: set[str]) -> str:
    """Words in which each name of a setting is a link to it, and what is in backquotes is code."""
    words = re.sub(r"`([^`]+)`", lambda match: match[1] if match[1] in known else f"``{match[1]}``", words)
    for name in sorted(known & set(re.findall(r"[A-Z][A-Z_]+[A-Z]", words))):
        words = re.sub(rf"(?<![`\w]){name}(?![`\w=])", f":setting:`{name}`", words)
    return words


class ScrapySettings(SphinxDirective):
    """A table of all of Scrapy's settings."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 40 60", "", "   * - Scrapy", "     - here"]
        for name, words in rows():
            lines += [f"   * - {name}", f"     - {words}"]
        holder = nodes.container()
        self.state.nested_parse(StringList(["```{eval-rst}", *lines, "```"], source="scrapy-settings"), 0, holder)
        return list(holder.children)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("scrapy-settings", ScrapySettings)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
