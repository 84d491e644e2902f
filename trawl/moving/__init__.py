"""What takes the place of Scrapy's modules and names, for who moves a project over: told where their import fails."""

from trawl.moving.hints import Hint, hint, hint_of_file
from trawl.moving.imports import Change, changes
from trawl.moving.places import MOVED, place
from trawl.moving.table import ELSEWHERE, GUIDE, in_place_of, why_absent

__all__ = [
    "ELSEWHERE",
    "GUIDE",
    "MOVED",
    "Change",
    "Hint",
    "changes",
    "hint",
    "hint_of_file",
    "in_place_of",
    "place",
    "why_absent",
]
