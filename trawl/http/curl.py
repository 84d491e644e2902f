"""Conversion of a curl command, copied from a browser's developer tools, to the arguments of a request."""

from __future__ import annotations

import argparse
import re
import shlex
import warnings
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, NoReturn
from urllib.parse import quote_plus

__all__ = ["options_of_curl"]

_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.S)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*://")
_FLAGS = """
-s --silent -S --show-error -v --verbose -# --progress-bar -L --location -i --include -f --fail -g --globoff --http1.1
--http2 --compressed
"""
"""Options that are ignored without a warning, because they do not change the request. trawl always decompresses."""


def options_of_curl(command: str, *, ignore_unknown_options: bool = True) -> dict[str, Any]:
    """Return a curl command, from ``Copy as cURL`` for a POSIX shell, as the arguments of a request.

    Raises ValueError if it is not a curl command, or has an unknown option that must not be ignored.
    """
    words = shlex.split(_ANSI_C.sub(_plain, command.replace("\\\n", " ").replace("\\\r\n", " ")))
    if words[:1] != ["curl"]:
        raise ValueError(f"a curl command starts with 'curl', not {command[:40]!r}")
    given, unknown = _parser().parse_known_args(words[1:])
    if unknown:
        if not ignore_unknown_options:
            raise ValueError(f"unknown options of curl: {' '.join(unknown)}")
        warnings.warn(f"ignored options of curl: {' '.join(unknown)}", stacklevel=3)
    url = given.url if _SCHEME.match(given.url) else f"http://{given.url}"
    body = _body(given)
    if given.get and body:
        url, body = f"{url}{'&' if '?' in url else '?'}{body}", ""
    method = given.method or ("HEAD" if given.head else "POST" if body else "GET")
    options: dict[str, Any] = {"url": url, "method": method.upper()}
    headers, cookies = _headers(given), _cookies(given)
    if headers:
        options["headers"] = headers
    if cookies:
        options["cookies"] = cookies
    if body:
        options["body"] = body
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"the curl command can't be read: {message}")


def _parser() -> _Parser:
    parser = _Parser(prog="curl", add_help=False, allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-H", "--header", dest="headers", action="append", default=[])
    parser.add_argument("-X", "--request", dest="method")
    parser.add_argument("-b", "--cookie", dest="cookies", action="append", default=[])
    data = ("-d", "--data", "--data-ascii", "--data-raw", "--data-binary")
    parser.add_argument(*data, dest="body", action="append", default=[])
    parser.add_argument("--data-urlencode", dest="body", action="append", type=_encoded)
    parser.add_argument("--json", dest="json", action="append", default=[])
    parser.add_argument("-G", "--get", action="store_true")
    parser.add_argument("-I", "--head", action="store_true")
    parser.add_argument("-u", "--user")
    parser.add_argument("-A", "--user-agent")
    parser.add_argument("-e", "--referer")
    parser.add_argument(*_FLAGS.split(), dest="nothing", action="store_true")
    return parser


def _plain(match: re.Match[str]) -> str:
    """Return bash's ``$'...'`` as a word that every shell understands."""
    return shlex.quote(re.sub(r"\\(u[0-9a-fA-F]{1,4}|x[0-9a-fA-F]{1,2}|.)", _unescaped, match[1], flags=re.S))


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "r": "\r", "t": "\t"}.get(escape, escape)


def _encoded(text: str) -> str:
    name, mark, value = text.partition("=")
    return f"{name}={quote_plus(value)}" if mark and name else quote_plus(value if mark else text)


def _body(given: argparse.Namespace) -> str:
    return "".join(given.json) if given.json else "&".join(given.body)


def _headers(given: argparse.Namespace) -> list[tuple[str, str]]:
    headers = [pair for pair in _named(given.headers) if pair[0].lower() != "cookie"]
    names = {name.lower() for name, _ in headers}
    if given.user is not None:
        user = given.user if ":" in given.user else f"{given.user}:"
        headers.append(("Authorization", f"Basic {b64encode(user.encode()).decode()}"))
    if given.user_agent is not None and "user-agent" not in names:
        headers.append(("User-Agent", given.user_agent))
    if given.referer is not None and "referer" not in names:
        headers.append(("Referer", given.referer))
    if given.json and "content-type" not in names:
        headers.append(("Content-Type", "application/json"))
    elif given.body and not given.json and not given.get and "content-type" not in names:
        headers.append(("Content-Type", "application/x-www-form-urlencoded"))
    return headers


def _named(texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield headers by curl's rules: ``Name: value``, or ``Name;`` for an empty header. ``Name:`` is ignored."""
    for text in texts:
        name, colon, value = text.partition(":")
        if colon and value.strip():
            yield name.strip(), value.strip()
        elif not colon and text.rstrip().endswith(";"):
            yield text.rstrip()[:-1].strip(), ""


def _cookies(given: argparse.Namespace) -> dict[str, str]:
    """Return the cookies of ``-b`` and of ``Cookie`` headers. Cookie files are not read."""
    texts = [value for name, value in _named(given.headers) if name.lower() == "cookie"]
    pairs = [pair.partition("=") for text in [*texts, *given.cookies] for pair in text.split(";") if "=" in pair]
    return {name.strip(): value.strip() for name, _, value in pairs}
