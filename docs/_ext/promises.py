"""The directive ``promises`` shows every promise with the tests that name it.

Each promise is a target of the role ``promise``: :promise:`A08`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from docs._ext.promise_table import TABLE, groups, proofs


def entry(number: str, words: str, tests: list[tuple[str, str]]) -> Iterator[str]:
    """Yield lines of Markdown with a promise and its tests by file."""
    yield from (f"`````{{promise}} {number}", words, "")
    for file, names in groupby(tests, key=itemgetter(0)):
        yield f"- `{file}`: {', '.join(f'`{name}`' for _, name in names)}"
    yield from ("`````", "")


class Promises(SphinxDirective):
    """All promises, with a heading for each group."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        self.env.note_dependency(str(TABLE))
        tests = proofs()
        sections: list[nodes.Node] = []
        for title, promises in groups().items():
            section = nodes.section(ids=[nodes.make_id(f"promises-{title}")])
            section += nodes.title(text=title)
            lines = [line for number, words in promises.items() for line in entry(number, words, tests[number])]
            self.state.nested_parse(StringList(lines, source=f"promises: {title}"), 0, section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive and the kind of target."""
    app.add_object_type("promise", "promise", indextemplate="pair: %s; promise")
    app.add_directive("promises", Promises)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
