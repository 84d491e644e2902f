"""The directive ``timeline``: Python code that simulates a crawl, shown with the picture of what it sent.

The code has to leave a simulation under the name ``sim``. It is run when the documentation is built, so that the
picture is always that of the code above it.
"""

from __future__ import annotations

import contextlib
import io
import logging
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

WIDTH = 900.0


class Timeline(SphinxDirective):
    """A block of code and its picture."""

    has_content = True
    option_spec = {"start": float, "end": float, "alt": directives.unchanged}  # noqa: RUF012  # docutils has it so

    def run(self) -> list[nodes.Node]:
        """The code, and the picture where the output can have one."""
        code = "\n".join(self.content)
        picture = drawn(code, float(self.options.get("start", 0.0)), self.options.get("end"))
        shown = nodes.literal_block(code, code, language="python")
        figure = nodes.raw("", f'<div class="timeline">{picture}</div>', format="html")
        return [shown, figure]


def drawn(code: str, start: float, end: float | None) -> str:
    """The picture of the simulation that a piece of code makes."""
    namespace: dict[str, Any] = {"__name__": "timeline"}
    logging.disable(logging.WARNING)  # a crawl that is made to be refused says so
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "<timeline>", "exec"), namespace)
            picture: str = namespace["sim"].to_svg(width=WIDTH, start=start, end=end)
    finally:
        logging.disable(logging.NOTSET)
    fixed = f'width="{WIDTH:g}" height='
    head, _, rest = picture.partition(fixed)
    return f'{head}style="max-width: 100%; height: auto" width="{WIDTH:g}" height={rest}' if rest else picture


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("timeline", Timeline)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
