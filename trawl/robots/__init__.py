"""What a robots.txt allows, and how long it is believed. Pure: the engine fetches, this decides."""

from trawl.robots.agent import product_token
from trawl.robots.file import MAX_PARSED_BYTES, RobotsFile
from trawl.robots.kept import Answers, KeptAnswer
from trawl.robots.settings import RobotsSettings

__all__ = ["MAX_PARSED_BYTES", "Answers", "KeptAnswer", "RobotsFile", "RobotsSettings", "product_token"]
