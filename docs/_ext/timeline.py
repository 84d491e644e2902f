"""The directive ``timeline`` shows Python code that simulates a crawl, with a picture of its sends.

The code must assign a simulation to the name ``sim``. It runs when the documentation is built, so that the picture
always belongs to the code above it.
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
    """A block of code and the picture of its simulation."""

    has_content = True
    option_spec = {"start": float, "end": float, "alt": directives.unchanged}  # noqa: RUF012  # required by docutils

    def run(self) -> list[nodes.Node]:
        """Return the code, and the picture if the output format supports it."""
        code = "\n".join(self.content)
        picture = drawn(code, float(self.options.get("start", 0.0)), self.options.get("end"))
        shown = nodes.literal_block(code, code, language="python")
        figure = nodes.raw("", f'<div class="timeline">{picture}</div>', format="html")
        return [shown, figure]


def drawn(code: str, start: float, end: float | None) -> str:
    """Return the picture of the simulation in a piece of code."""
    namespace: dict[str, Any] = {"__name__": "timeline"}
    logging.disable(logging.WARNING)  # crawls with refusals would log warnings
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
