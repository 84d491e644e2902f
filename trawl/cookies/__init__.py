"""Cookies (RFC 6265): read, kept by session, sent where they belong. Pure: wall time is handed in."""

from trawl.cookies.cookie import Cookie, Place, parse_set_cookie
from trawl.cookies.jar import Jar
from trawl.cookies.jars import Jars, NowUtc

__all__ = ["Cookie", "Jar", "Jars", "NowUtc", "Place", "parse_set_cookie"]
