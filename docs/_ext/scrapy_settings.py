"""The directive ``scrapy-settings`` lists Scrapy's settings with their meaning in trawl, generated from the code."""

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
    """Yield the names of Scrapy's settings with a short description."""
    known = {setting.name for setting in definitions()}
    for name in NAMES.read_text("utf-8").split():
        if name in known:
            yield f":setting:`{name}`", "the same name"
        elif name in RENAMED:
            yield f"``{name}``", f"read as :setting:`{RENAMED[name]}`"
        else:
            yield f"``{name}``", f"no effect, and a warning: {linked(UNSUPPORTED[name], known)}"


def linked(words: str, known: set[str]) -> str:
    """Return text with links for the names of settings, and backquoted parts as code."""
    words = re.sub(r"`([^`]+)`", lambda match: match[1] if match[1] in known else f"``{match[1]}``", words)
    for name in sorted(known & set(re.findall(r"[A-Z][A-Z_]+[A-Z]", words))):
        words = re.sub(rf"(?<![`\w]){name}(?![`\w=])", f":setting:`{name}`", words)
    return words


class ScrapySettings(SphinxDirective):
    """A table of Scrapy's settings."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
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
