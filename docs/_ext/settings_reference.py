"""The directives ``settings`` and ``setting-keys`` show every setting, generated from the definitions in the code.

Each setting is a target of the role ``setting``: :setting:`DOWNLOAD_DELAY`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from trawl.settings import SettingInfo, definitions


def shown(value: object) -> str:
    """Return a default as on the command line, as JSON if possible."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, frozenset | set | tuple):
        value = sorted(value) if isinstance(value, frozenset | set) else list(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return repr(value)


def kind(setting: SettingInfo) -> str:
    """Return the type, unit and range of a setting, in words."""
    unit = f" ({setting.unit})" if setting.unit else ""
    return f"{setting.type}{unit}{f', {setting.range}' if setting.range else ''}"


def linked(words: str) -> str:
    """Return text with links for the names of settings."""
    names = {setting.name for setting in definitions()}
    return " ".join(f":setting:`{word}`" if word in names else word for word in words.split())


def keys(setting: SettingInfo, indent: str) -> Iterator[str]:
    """Yield a list of the keys of a mapping, and of the mappings in it."""
    for key in setting.keys:
        absent = f" *If missing:* {linked(key.absent)}." if key.absent else ""
        yield f"{indent}- ``{key.name}``: {kind(key)}. {key.description}{absent}"
        if key.keys:
            yield ""
            yield from keys(key, f"{indent}  ")
    yield ""


def entry(setting: SettingInfo) -> Iterator[str]:
    """Yield lines of reStructuredText for a setting."""
    unit = f" {setting.unit}" if setting.unit else ""
    limits = f", {setting.range}" if setting.range else ""
    yield from (f".. setting:: {setting.name}", "", f"   {setting.description}", "")
    yield from (f"   *Default:* ``{shown(setting.default)}``{unit}. *Type:* {setting.type}{limits}.", "")
    if setting.keys:
        yield from ("   *Keys:*", "", *keys(setting, "   "))


def table(setting: SettingInfo, path: str) -> Iterator[str]:
    """Yield tables of the keys of a mapping, one for each mapping in it."""
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 18 26 26 30", "")
    yield from ("   * - Key", "     - Type, unit, range", "     - If missing", "     - Meaning")
    for key in setting.keys:
        yield from (f"   * - ``{key.name}``", f"     - {kind(key)}", f"     - {linked(key.absent)}")
        yield f"     - {key.description}"
    yield ""
    for key in setting.keys:
        if key.keys:
            yield from (f"The keys of ``{path}[{key.name!r}]``:", "", *table(key, f"{path}[{key.name!r}]"))


class SettingKeys(SphinxDirective):
    """Tables of the keys of a setting that maps names to mappings. The argument is the setting's name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        name = self.arguments[0]
        setting = next(setting for setting in definitions() if setting.name == name)
        holder = nodes.container()
        lines = ["```{eval-rst}", *table(setting, f"{name}[id]"), "```"]
        self.state.nested_parse(StringList(lines, source=f"keys of {name}"), 0, holder)
        return list(holder.children)


class Settings(SphinxDirective):
    """All settings, with a heading for each section."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        sections: list[nodes.Node] = []
        for title, members in groupby(definitions(), key=lambda setting: setting.section):
            section = nodes.section(ids=[nodes.make_id(f"settings-{title}")])
            section += nodes.title(text=title)
            lines = ["```{eval-rst}", *(line for setting in members for line in entry(setting)), "```"]
            self.state.nested_parse(StringList(lines, source=f"settings: {title}"), 0, section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive and the kind of target."""
    app.add_object_type("setting", "setting", indextemplate="pair: %s; setting")
    app.add_directive("settings", Settings)
    app.add_directive("setting-keys", SettingKeys)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
