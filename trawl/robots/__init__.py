"""robots.txt: settings, parsing, matching and cache (RFC 9309). Pure, because the engine fetches the file."""

from trawl.robots.file import (
    MAX_PARSED_BYTES,
    RobotsCache,
    RobotsEntry,
    RobotsFile,
    RobotsSettings,
    RobotsVerdict,
    as_utf8,
    at_once,
    product_token,
)
from trawl.robots.rules import MAX_STEPS, STEP_BYTES

__all__ = [
    "MAX_PARSED_BYTES",
    "MAX_STEPS",
    "STEP_BYTES",
    "RobotsCache",
    "RobotsEntry",
    "RobotsFile",
    "RobotsSettings",
    "RobotsVerdict",
    "as_utf8",
    "at_once",
    "product_token",
]
