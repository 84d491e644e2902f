"""The directive ``settings``: every setting, from the definitions that the code itself obeys.

Each becomes a target of the role ``setting``: :setting:`DOWNLOAD_DELAY`.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from itertools import groupby

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from trawl.settings import Definition, definitions


def shown(value: object) -> str:
    """A default as it is written on the command line: JSON where it can be."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, frozenset | set | tuple):
        value = sorted(value) if isinstance(value, frozenset | set) else list(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return repr(value)


def facts(setting: Definition) -> Iterator[tuple[str, str]]:
    """What is known of a setting, a heading and its text each."""
    yield "Default", f"``{html.unescape(shown(setting.default))}``"
    if setting.unit:
        yield "Unit", setting.unit
    yield "Type", setting.type
    if setting.range:
        yield "Range", setting.range


class Settings(SphinxDirective):
    """All settings, under a heading for each part of the crawler."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        sections: list[nodes.Node] = []
        for title, members in groupby(definitions(), key=lambda setting: setting.section):
            section = nodes.section(ids=[nodes.make_id(f"settings-{title}")])
            section += nodes.title(text=title)
            lines = ["```{eval-rst}"]
            for setting in members:
                lines += [f".. setting:: {setting.name}", "", f"   {setting.description}", ""]
                lines += [f"   :{heading}: {text}" for heading, text in facts(setting)] + [""]
            self.state.nested_parse(StringList([*lines, "```"], source=f"settings: {title}"), 0, section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive and the kind of target."""
    app.add_object_type("setting", "setting", indextemplate="pair: %s; setting")
    app.add_directive("settings", Settings)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
