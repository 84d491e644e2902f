"""Notices a Scrapy project whose ``settings.py`` nobody has moved: it is not read, and its pipelines would not run."""

from __future__ import annotations

import configparser
import logging
from pathlib import Path

from trawl.settings import of_project

__all__ = ["warn_of_unmoved"]

logger: logging.Logger = logging.getLogger("trawl.settings")


def warn_of_unmoved(directory: Path) -> None:
    """Log that a Scrapy project's settings are not read, where ``directory`` is in one and has no ``[tool.trawl]``."""
    folder = next((each for each in (directory, *directory.parents) if (each / "scrapy.cfg").is_file()), None)
    if folder is None:
        return
    layer = of_project(directory)
    if layer.values or layer.own:
        return
    parser = configparser.ConfigParser()
    try:
        parser.read(folder / "scrapy.cfg", "utf-8")
        module = parser.get("settings", "default", fallback="")
    except (configparser.Error, UnicodeDecodeError):
        return
    path = folder.joinpath(*module.split(".")).with_suffix(".py") if module else folder / "settings.py"
    if path.is_file():
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        logger.warning(
            "%s is not read: settings are in [tool.trawl] of pyproject.toml, and `trawl settings --move %s` prints what"
            " to write there",
            shown,
            shown,
        )
