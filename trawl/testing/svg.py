"""The few shapes that a picture is made of, as SVG text (SVG 1.1)."""

from __future__ import annotations

from html import escape

from trawl.observe import printable

__all__ = ["document", "group", "line", "number", "rectangle", "text"]

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"


def number(value: float) -> str:
    """A coordinate with as many digits as can be seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _attributes(pairs: dict[str, str | float]) -> str:
    return "".join(
        f' {name.replace("_", "-")}="{number(value) if isinstance(value, int | float) else escape(value)}"'
        for name, value in pairs.items()
    )


def rectangle(x: float, y: float, width: float, height: float, *, tip: str = "", **style: str | float) -> str:
    """A rectangle, with a text that shows when it is pointed at."""
    shape = {"x": x, "y": y, "width": width, "height": height, **style}
    if not tip:
        return f"<rect{_attributes(shape)}/>"
    return f"<rect{_attributes(shape)}><title>{escape(printable(tip, keeps_lines=True))}</title></rect>"


def line(x1: float, y1: float, x2: float, y2: float, **style: str | float) -> str:
    """A straight line."""
    return f"<line{_attributes({'x1': x1, 'y1': y1, 'x2': x2, 'y2': y2, **style})}/>"


def text(x: float, y: float, words: str, **style: str | float) -> str:
    """Words that begin (or, with ``text_anchor``, end or centre) at a point of the base line."""
    return f"<text{_attributes({'x': x, 'y': y, **style})}>{escape(printable(words))}</text>"


def group(shapes: list[str], **style: str | float) -> str:
    """Shapes that share a style."""
    inside = "\n".join(shapes)
    return f"<g{_attributes(style)}>\n{inside}\n</g>"


def document(width: float, height: float, shapes: list[str], title: str) -> str:
    """A whole picture on white, that scales with the page it is put on."""
    inside = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" '
        f'viewBox="0 0 {number(width)} {number(height)}" role="img" font-family="{FONT}" font-size="12">\n'
        f"<title>{escape(printable(title))}</title>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )
