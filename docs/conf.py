"""The configuration of Sphinx. ``nox -s docs`` builds the documentation, and any warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

import trawl

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.append(str(Path(__file__).parents[1]))  # for docs._ext, which a test imports as well

project = "trawl"
author = "The trawl developers"
release = version = trawl.__version__
copyright = "the trawl developers"

extensions = [
    "api_reference",
    "api_text",
    "built",
    "myst_parser",
    "promises",
    "scrapy_settings",
    "settings_reference",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "timeline",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"trawl {version}"
html_search_scorer = str(Path(__file__).parent / "_ext" / "scorer.js")

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autoclass_content = "both"  # include the arguments in the docstring of __init__
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"ignore-module-all": True, "members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name for name in ("AddressOf", "Amounts", "Fetch", "LaneKey", "Middleware", "Patterns", "SortKey", "Texts")
}
python_display_short_literal_types = True
python_maximum_signature_line_length = 130  # a longer one has a line for each parameter
autodoc_use_type_comments = False  # there are none, and searching takes seconds
napoleon_google_docstring = True
napoleon_use_ivar = True

nitpick_ignore_regex = [
    ("py:.*", r"(?!trawl\.).*"),  # other projects; their pages are not fetched, so that a build needs no network
    ("py:.*", r"trawl\.([\w.]+\.)?(_\w+|[A-Z][a-z]?|ItemT|EventT)"),  # private names, type variables
]
suppress_warnings = ["ref.python"]  # two modules define a bare name in a signature; either is right
