"""Cookies (RFC 6265): parsing, jars by session, and file formats. Pure: wall time is an argument."""

from trawl.cookies.cookie import (
    Cookie,
    RequestUrl,
    from_json,
    from_netscape,
    is_netscape,
    parse_set_cookie,
    to_json,
    to_netscape,
)
from trawl.cookies.jars import Jar, Jars, NowUtc, jar_name

__all__ = [
    "Cookie",
    "Jar",
    "Jars",
    "NowUtc",
    "RequestUrl",
    "from_json",
    "from_netscape",
    "is_netscape",
    "jar_name",
    "parse_set_cookie",
    "to_json",
    "to_netscape",
]
