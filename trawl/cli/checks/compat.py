"""Checks of a project that was written for Scrapy: code and settings that behave differently in trawl.

Length: one visitor has a method for each kind of code, with the sentences that it reports.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from w3lib.url import safe_url_string

from trawl.address_guard import AddressGuard
from trawl.cli.checks.scrapy_only import (
    Finding,
    asyncio_uses,
    by_position,
    foreign_names,
    is_bytes,
    is_of_headers,
    last_name,
    own_nodes,
    plugin_meta_uses,
    urls_of,
    wrong_calls,
)
from trawl.cli.checks.source import REQUESTS, CheckMessage, SpiderSource
from trawl.errors import PartLoadError, SettingsError
from trawl.http.url import lacks_path, normalize_url, without_fragment
from trawl.scrapy_names import Unsupported
from trawl.scrapy_names.imports import Edit, changes, project_files
from trawl.scrapy_names.names import GUIDE, MOVED, name_advice
from trawl.settings import DEFAULT, Settings, line_of
from trawl.settings.load import PART_LISTS
from trawl.spiders import Spider
from trawl.spiders.crawler import Crawler, CrawlerEngine
from trawl.throttling.configuration import load_object

__all__ = ["check_compat", "check_file", "check_text"]

_CLASSES = ("DUPEFILTER_CLASS", "REQUEST_FINGERPRINTER_CLASS")

_HTTP = ("http://", "https://")

_EXACT = "the crawl ends exactly at this count; in Scrapy requests in flight finish, and count too"

_ORDER = "the order is breadth-first (DEPTH_FIRST: depth-first); in Scrapy the newest goes first, so other pages may"

_SETTINGS: Mapping[str, str] = {
    "CLOSESPIDER_ERRORCOUNT": f"{_ORDER} be fetched before the end",
    "CLOSESPIDER_ITEMCOUNT": f"{_EXACT}; {_ORDER} be fetched",
    "CLOSESPIDER_PAGECOUNT": f"{_EXACT}; {_ORDER} be fetched",
    "DEPTH_LIMIT": f"{_ORDER} be too deep: in trawl, depth is the shortest path to a page",
    "ROBOTSTXT_OBEY": "nothing is sent to a site whose robots.txt can't be read (5xx, no connection); Scrapy continues",
}
"""Settings that behave differently in trawl, with the difference."""

_STRICTER: Mapping[str, str] = {
    "DOWNLOAD_VERIFY_CERTIFICATES": "trawl fetches nothing from https sites whose certificate is not valid",
    "ROBOTSTXT_OBEY": "trawl skips pages that robots.txt disallows, and sites whose robots.txt can't be read",
}
"""Settings that are true by default and false in Scrapy, so that trawl may fetch fewer pages."""

_DEFAULTS: Mapping[str, object] = {
    "CONCURRENTREQUESTS_PER_DOMAIN": 8,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_VERIFY_CERTIFICATES": False,
    "FILES_STORE": None,
    "HTTPCACHE_DIR": "httpcache",
    "HTTPCACHE_POLICY": "scrapy.extensions.httpcache.DummyPolicy",
    "IMAGES_STORE": None,
    "LOG_LEVEL": "DEBUG",
    "ROBOTSTXT_OBEY": False,
    "USER_AGENT": "Scrapy/VERSION (+https://scrapy.org)",
}
"""Defaults of Scrapy 2.19 that differ from trawl's, for settings whose value may change what the user's code does."""

_TEXT = "header values are str, which equal their bytes; this needs real bytes: write .encode() after the value"
_NO_B = "header values are str, not bytes; remove the b before the quotes"
_TRIES = (
    "retry_times does not count retries after a refusal (429, 502, 503, 504, 52x, a timeout), so the request is not "
    "given up; with BACKOFF_HTTP_CODES = [] and BACKOFF_EXCEPTIONS = [], they count as in Scrapy"
)
_OWN_REQUEST = "a job can't store a request of this class, so its page fails: use Request with meta or cb_kwargs"
_NEVER = "handle_referer() is never called: REFERRER_POLICY sets the Referer of a redirect's target"

_ONE_VALUE = "dict(headers) has one value for each name; use dict(headers.items()) for lists of values"

_STATISTICS = (
    *("downloader/request_bytes", "downloader/request_method_count/", "item_dropped_reasons_count/"),
    *("retry/reason_count/", "scheduler/dequeued", "scheduler/enqueued", "scheduler/unserializable"),
)
"""Prefixes of Scrapy's statistics that trawl does not keep."""

_ALL_STATISTICS = "get_stats() has trawl's names; get_value() also accepts Scrapy's names"

_UNUSED_META = frozenset(
    (
        *("cache_timestamp", "cached_response", "depth_reset", "ftp_local_filename", "ftp_passive", "ftp_password"),
        *("ftp_user", "give_up_log_level", "http_auth_domain", "http_pass", "http_user", "priority_adjust"),
        *("redirect_ttl", "verbatim_url"),
    )
)
"""Scrapy's keys of ``meta`` that trawl neither reads nor sets."""

_NO_ERRBACK = (
    "errbacks are not called for requests that are not allowed ({why}): these are counted, and watchers receive "
    "RequestDropped; in Scrapy errbacks get IgnoreRequest"
)
_NO_COOKIE = "the sent Cookie is in response.sent_headers; response.request.headers has only a Cookie that you set"
_LEFT_COOKIE = (
    "a Cookie header is not sent after a redirect from http to https or to another port; Scrapy sends it: use cookies="
)
_NOT_JOINED = (
    "handle_httpstatus_list in meta overrides the spider's for redirects too: redirects that only the spider lists "
    "are followed; in Scrapy they are not"
)
_WHOLE_PROXY = "meta['proxy'] keeps its password; Scrapy removes the password"
_IS_REQUEST = "response.request equals the request that was yielded, but may be another object: compare with =="
_ONE_CLASS = "all responses have one class: isinstance(response, HtmlResponse) checks the content, this does not"
_ALL_RESPONSES = "response_received_count counts all responses, including redirects and retries"

_OWN_NETWORK = (
    "{url} is in your own network: requests to it are refused unless a start URL is there, or "
    "ALLOW_PRIVATE_ADDRESSES is true; Scrapy sends them"
)
_NO_VALUE_ERROR = (
    "Request() raises no ValueError for mailto:, javascript: or tel:, which are dropped and counted; follow() does"
)
_NOT_OFFSITE = "download() also fetches from sites outside allowed_domains; in Scrapy it raises IgnoreRequest"
_NAME_OF_ERROR = "errors have other names and messages in trawl: for example, CannotResolveHostError is NameNotResolved"

_SETTERS: Mapping[str, int] = {"set": 2, "setdict": 1, "update": 1}
"""Methods of settings with the position of ``priority``."""

_PRIORITY = (
    "priority={priority!r} is ignored in update_settings(): the value takes precedence over pyproject.toml, but not "
    "over -s"
)
_ONE_ITEM = (
    "{name} may be yielded several times with new values: each record has its own values; in Scrapy, later values may "
    "replace those of earlier records. Create the item inside the loop"
)

_HOOKS = ("from_crawler", "parse", "process_", "spider_opened", "start")
_GIVEN = (
    "engine.crawl() is for receivers of spider_idle, and raises RuntimeError elsewhere: yield or return the request"
)
_NOT_SENT = "close_spider() in process_request ends the crawl before this request is sent; in Scrapy it is still sent"
_FIXED = "settings do not change during a crawl, so set() raises TypeError: use custom_settings or update_settings()"

_MATCHES = frozenset({"findall", "finditer", "fullmatch", "match", "search", "split", "sub"})
_OF_BYTES = frozenset({"BytesIO", "b64decode", "b64encode", "crc32", "md5", "sha1", "sha256", "unpack"})


def check_compat(spider: type[Spider], settings: Settings) -> Iterator[CheckMessage]:
    """Report the code and settings of a spider's project that behave differently than in Scrapy."""
    yield from _differing_settings(spider, settings)
    forbidding = {"robots.txt": settings["ROBOTSTXT_OBEY"], "allowed_domains": spider.allowed_domains}
    forbids = ", ".join([name for name, is_on in forbidding.items() if is_on])
    statuses: Any = spider.handle_httpstatus_list
    lists_redirects = any(300 <= status < 400 for status in statuses if isinstance(status, int))
    guards = _guards(spider, settings)
    if guards:
        yield from _own_network(settings)
    for path in project_files(spider, _parts(settings)):
        yield from check_file(path, settings, forbids, lists_redirects=lists_redirects, guards=guards)


def check_file(
    path: str, settings: Settings, forbids: str = "", *, lists_redirects: bool = False, guards: bool = False
) -> Iterator[CheckMessage]:
    """Report the code of one file that behaves differently than in Scrapy. A file that can't be read is skipped.

    ``forbids`` says what may forbid a request: ``robots.txt``, ``allowed_domains``. ``lists_redirects`` is for a spider
    that lists redirects in ``handle_httpstatus_list``. With ``guards``, requests to the user's own network are refused.
    """
    try:
        text = Path(path).read_text("utf-8")
        imports = changes(text)
        found = check_text(text, settings, forbids, lists_redirects=lists_redirects, guards=guards)
    except (OSError, SyntaxError, ValueError):
        return
    yield from (CheckMessage(path, change.line, str(change)) for change in imports)
    yield from (CheckMessage(path, *each) for each in found)


def check_text(
    text: str, settings: Settings, forbids: str = "", *, lists_redirects: bool = False, guards: bool = False
) -> list[Finding]:
    """Return the findings of :func:`check_file` in the text of a file, without its imports."""
    tree = ast.parse(text)
    reader = _Reader(tree, settings, forbids, lists_redirects=lists_redirects, guards=guards)
    reader.visit(tree)
    return [*((*each, True, ()) for each in asyncio_uses(tree)), *plugin_meta_uses(tree), *reader.found]


def _parts(settings: Settings) -> Iterator[Any]:
    """Load the classes and functions that the settings name, as the crawl will do."""
    named = [
        (entry, setting) for setting in PART_LISTS for entry, order in settings[setting].items() if order is not None
    ]
    for entry, setting in [*named, *((settings[setting], setting) for setting in _CLASSES)]:
        if entry and not (isinstance(entry, str) and ("." not in entry or entry.startswith("scrapy."))):
            with suppress(SettingsError, PartLoadError):  # the crawl reports the error
                yield load_object(entry, setting)


def _differing_settings(spider: type[Spider], settings: Settings) -> Iterator[CheckMessage]:
    for name, words in _SETTINGS.items():
        if settings[name] and settings.source(name) != DEFAULT:
            yield CheckMessage(*line_of(name, settings.source(name), spider), f"{name}: {words}", is_wrong=False)
    for name, effect in _STRICTER.items():
        if settings.source(name) == DEFAULT:
            words = (
                f"{name} is true by default, and false in Scrapy: {effect}; set it in custom_settings or pyproject.toml"
            )
            yield CheckMessage(*SpiderSource(spider).home(), words, is_wrong=False)


def _guards(spider: type[Spider], settings: Settings) -> bool:
    """Return whether requests to the user's own network are refused, according to settings and start URLs."""
    guard = AddressGuard(settings["ALLOW_PRIVATE_ADDRESSES"])
    given = spider.start_urls
    return not guard.is_open and not any(
        _opens(guard, url) for url in (given if isinstance(given, list | tuple) else ())
    )


def _opens(guard: AddressGuard, url: object) -> bool:
    """Return whether a crawl with this start URL may connect to the user's own network."""
    try:
        return isinstance(url, str) and url.startswith(_HTTP) and guard.note_start(normalize_url(url))
    except ValueError:
        return False


def _own_network(settings: Settings) -> Iterator[CheckMessage]:
    """Report the project's own settings whose value is an address in the user's network."""
    for name, value in settings.own.items():
        if _opens(AddressGuard(), value):
            place = line_of(name, settings.source("SCRAPY_COMPAT"))
            yield CheckMessage(*place, f"{name}: {_OWN_NETWORK.format(url=value)}", is_wrong=False)


class _Reader(ast.NodeVisitor):
    """Reads one file, and collects the lines to report in ``found``."""

    def __init__(self, tree: ast.AST, settings: Settings, forbids: str, *, lists_redirects: bool, guards: bool) -> None:
        self.found: list[Finding] = []
        self._guards = guards
        self._settings = settings
        self._forbids = forbids
        self._has_domains = "allowed_domains" in forbids
        self._lists_redirects = lists_redirects
        nodes = list(ast.walk(tree))
        self._faces = {
            alias.asname
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "trawl" and alias.asname
        }
        self._foreign = foreign_names(nodes)
        self._patterns = _assigned(nodes, _is_pattern_of_bytes)
        self._requests = {"request"} | _assigned(nodes, _is_request)
        self._proxies = set(map(id, _proxies(nodes)))
        self._cookies = set(map(id, _cookie_headers(nodes))) if _requests_http(nodes) else set()
        self._values: set[str] = set()
        self._function = ""
        self._hears_idle = any(getattr(node, "attr", getattr(node, "value", "")) == "spider_idle" for node in nodes)
        self._settings_names = _assigned(nodes, lambda value: _dotted(value)[-2:] == ["crawler", "settings"])

    def _tell(self, node: Any, words: str, *, is_wrong: bool = False, edits: tuple[Edit, ...] = ()) -> None:
        self.found.append((node.lineno, words, is_wrong, edits))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Check a function, after collecting its variables that hold header values."""
        if node.name == "handle_referer":
            self._tell(node, _NEVER, is_wrong=True)
        outside = self._values, self._function
        self._values, self._function = self._values | _assigned(ast.walk(node), is_of_headers), node.name
        self.generic_visit(node)
        self._values, self._function = outside

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Look for the project's own request classes, which a job can't store."""
        if self._settings["JOB_DIR"] and any(last_name(base) in REQUESTS for base in node.bases):
            self._tell(node, _OWN_REQUEST)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Look for names of meta keys and statistics that trawl does not count as Scrapy does."""
        if node.value == "retry_times" and _repeats_refusals(self._settings):
            self._tell(node, _TRIES)
        if not isinstance(node.value, str):
            return
        if node.value.startswith(_STATISTICS):
            self._tell(node, f"the statistic {node.value} is not kept, so reading it returns None")
        elif node.value == "response_received_count":
            self._tell(node, _ALL_RESPONSES)
        elif self._guards and id(node) not in self._proxies and _opens(AddressGuard(), node.value):
            self._tell(node, _OWN_NETWORK.format(url=node.value))

    def visit_Try(self, node: ast.Try) -> None:
        """Look for code that expects Request() to raise ValueError for URLs that can't be fetched."""
        types = [handler.type for handler in node.handlers if handler.type is not None]
        caught = {last_name(each) for kind in types for each in ast.walk(kind)}
        calls = [each for part in node.body for each in ast.walk(part) if isinstance(each, ast.Call)]
        if "ValueError" in caught and (made := [each for each in calls if last_name(each.func) in REQUESTS]):
            self._tell(made[0], _NO_VALUE_ERROR)
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """Look for one item that a loop changes and yields several times."""
        names = [each for each in own_nodes(node) if isinstance(each, ast.Name)]
        nodes = list(own_nodes(ast.Module(node.body, [])))
        bound = {each.id for each in names if isinstance(each.ctx, ast.Store)} | self._requests
        changed = {name for each in nodes if (name := _changed(each))} - bound
        last = {id(each) for part in (ast.Module(node.body, []), *nodes) for each in _last_yields(part)}
        for each in nodes:
            if id(each) in last:
                continue
            if isinstance(each, ast.Yield) and isinstance(each.value, ast.Name) and each.value.id in changed:
                finding = (each.lineno, _ONE_ITEM.format(name=each.value.id), False, ())
                if finding not in self.found:  # an outer loop may have reported it
                    self.found.append(finding)
        self.generic_visit(node)

    visit_AsyncFor = visit_For
    visit_While = visit_For

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(last_name(target) == "start_urls" for target in node.targets):
            for each in getattr(node.value, "elts", ()):
                self._url(each)
        self.generic_visit(node)

    def _url(self, node: ast.expr) -> None:
        """Report a URL that trawl normalizes differently than Scrapy."""
        is_url = isinstance(node, ast.Constant) and str(node.value).startswith(_HTTP)
        if is_url and (words := _other_form(str(getattr(node, "value", "")))):
            self._tell(node, words)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg == "errback" and self._forbids and not _is_none(node.value):
            self._tell(node.value, _NO_ERRBACK.format(why=self._forbids))
            self._forbids = ""  # report this once per file
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Look for keys of ``meta`` and a ``Cookie`` header in each dict, which often is created before its request."""
        for key in node.keys:
            self._key_of_meta(key)
            if id(key) in self._cookies:
                self._tell(key, _LEFT_COOKIE)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Look for requests that are compared by identity."""
        sides = [node.left, *node.comparators]
        is_same = any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
        if is_same and not any(map(_is_none, sides)) and any(_dotted(side)[-1:] == ["request"] for side in sides):
            self._tell(node, _IS_REQUEST)
        self.generic_visit(node)

    def _key_of_meta(self, key: ast.expr | None, holder: ast.expr | None = None) -> None:
        """Report a key of ``meta`` that has no effect. The key is set in a dict, or read from ``holder``."""
        name = key.value if isinstance(key, ast.Constant) else None
        if name in _UNUSED_META:
            self._tell(key, f"the key {name!r} of meta has no effect")
        elif name == "handle_httpstatus_list" and self._lists_redirects:
            self._tell(key, _NOT_JOINED)
        elif name == "proxy" and holder is not None and last_name(getattr(holder, "value", None)) == "response":
            self._tell(key, _WHOLE_PROXY)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Look for settings that the code reads but the project does not set."""
        if last_name(node.value) == "settings":
            self._read(node.slice)
        if last_name(node.value) == "meta":
            self._key_of_meta(node.slice, node.value)
        self._cookie(node.value, node.slice)
        self.generic_visit(node)

    def _cookie(self, holder: ast.expr, key: ast.expr) -> None:
        """Report code that reads the Cookie from ``response.request.headers``."""
        name = key.value if isinstance(key, ast.Constant) else ""
        name = name.decode("latin-1") if isinstance(name, bytes) else name
        if _dotted(holder)[-3:] == ["response", "request", "headers"] and str(name).lower() == "cookie":
            self._tell(key, _NO_COOKIE)

    def visit_Call(self, node: ast.Call) -> None:
        """Look for calls that read settings, and for header values that are used as real bytes."""
        function, name, first = node.func, last_name(node.func), node.args[0] if node.args else None
        has_value = any(map(self._is_value, node.args))
        if isinstance(function, ast.Attribute):
            holder = last_name(function.value)
            if name.startswith("get") and holder == "settings" and len(node.args) == 1:
                self._read(node.args[0])
            if name in {"get", "getlist", "pop", "setdefault"} and first is not None:
                self._cookie(function.value, first)
                if holder == "meta":
                    self._key_of_meta(first, function.value)
            by_pattern = holder in self._patterns or _is_pattern_of_bytes(function.value)
            of_bytes = holder == "re" and first is not None and is_bytes(first)
            is_search = name in _MATCHES and (by_pattern or of_bytes)
            if has_value and (is_search or (name == "join" and is_bytes(function.value))):
                self._tell(node, _NO_B, is_wrong=True)
            self._of_the_crawl(node, function)
            if name == "get_stats" and holder == "stats":
                self._tell(node, _ALL_STATISTICS)
            if name == "follow" and holder == "response":
                self.found.extend(by_position(node, "follow"))
        self.found.extend(wrong_calls(node, self._foreign))
        if name in REQUESTS | {"follow"}:
            for each in urls_of(node):
                self._url(each)
        if name == "type" and len(node.args) == 1 and last_name(first) == "response":
            self._tell(node, _ONE_CLASS, is_wrong=True)
        if name in _OF_BYTES and has_value:
            self._tell(node, _TEXT, is_wrong=True)
        is_of_message = isinstance(first, ast.Attribute) and last_name(first.value) != "self"  # exclude self.headers
        if name == "dict" and is_of_message and last_name(first) == "headers":
            end = Edit.of(first, "").end
            self._tell(node, _ONE_VALUE, is_wrong=True, edits=(Edit(end, end, ".items()"),))
        self.generic_visit(node)

    def _of_the_crawl(self, node: ast.Call, function: ast.Attribute) -> None:
        """Report calls that change the running crawl or its settings."""
        if function.attr in _SETTERS and self._function == "update_settings":
            given = [*node.args[_SETTERS[function.attr] :], *(each.value for each in node.keywords)]
            others = [each.value for each in given if isinstance(each, ast.Constant) and each.value != "spider"]
            for priority in others:
                self._tell(node, _PRIORITY.format(priority=priority))
        holder = _dotted(function.value)
        if holder[-1:] == ["engine"]:
            if function.attr == "crawl" and (self._function.startswith(_HOOKS) or not self._hears_idle):
                self._tell(node, _GIVEN, is_wrong=True)
            if function.attr == "close_spider" and self._function == "process_request":
                self._tell(node, _NOT_SENT)
        is_loaded = holder[-2:] in (["crawler", "settings"], ["self", "settings"], ["spider", "settings"])
        is_loaded = is_loaded or (bool(holder) and holder[-1] in self._settings_names)
        if is_loaded and function.attr in {"set", "setdict", "setmodule"} and self._function != "update_settings":
            self._tell(node, _FIXED, is_wrong=True)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Look for Scrapy's names that trawl does not have, such as ``scrapy.shell.inspect_response``."""
        dotted = _dotted(node)
        if dotted and dotted[0] in self._faces:
            if words := _absent(dotted[1:]):
                self._tell(node, words, is_wrong=True)
            return
        holder = last_name(node.value)
        if node.attr == "__class__" and holder == "response":
            self._tell(node, _ONE_CLASS, is_wrong=True)
        if holder == "failure" and node.attr in {"type", "getErrorMessage"}:
            self._tell(node, _NAME_OF_ERROR)
        if holder == "engine" and node.attr in {"download", "download_async"} and self._has_domains:
            self._tell(node, _NOT_OFFSITE)
        kind: Any = {"crawler": Crawler, "engine": CrawlerEngine}.get(holder)
        if isinstance(absent := vars(kind).get(node.attr) if kind else None, Unsupported):
            self._tell(node, f"{holder}.{node.attr} is not here: {absent.words}", is_wrong=True)
        self.generic_visit(node)

    def _read(self, node: ast.expr) -> None:
        name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if name in _DEFAULTS and self._settings.source(name) == DEFAULT:
            ours, scrapys = self._settings[name], _DEFAULTS[name]
            self._tell(node, f"{name} is {ours!r} by default; Scrapy's default is {scrapys!r}")

    def _is_value(self, node: ast.expr) -> bool:
        if isinstance(node, ast.List | ast.Tuple):
            return any(map(self._is_value, node.elts))
        return last_name(node) in self._values if isinstance(node, ast.Name) else is_of_headers(node)


def _repeats_refusals(settings: Settings) -> bool:
    """Return False if the project's own retry middleware counts every attempt, or if nothing counts as a refusal."""
    names = ("retry", "scrapy.downloadermiddlewares.retry.RetryMiddleware")
    is_replaced = any(settings["DOWNLOADER_MIDDLEWARES"].get(name, 0) is None for name in names)
    return bool(settings["BACKOFF_HTTP_CODES"] or settings["BACKOFF_EXCEPTIONS"]) and not is_replaced


def _other_form(url: str) -> str:
    """Return a sentence if trawl normalizes a URL differently than Scrapy; otherwise, or for a template, ""."""
    if "%" in url or "{" in url:  # a template for format() or the % operator
        return ""
    try:
        here, there = without_fragment(normalize_url(url)), without_fragment(safe_url_string(url))
    except ValueError:
        return ""
    if lacks_path(url):  # in this case, response.url lacks the slash too
        here = here[:-1]
    if here == there or safe_url_string(here) == there:
        return ""
    return f"the URL is {here} here, also in response.url; in Scrapy {there}"


def _proxies(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the values of keys ``proxy``. Such an address is never the target of a request."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            yield from (value for key, value in zip(node.keys, node.values, strict=True) if _is_text(key, "proxy"))
        elif isinstance(node, ast.Assign):
            yield from (
                node.value for each in node.targets if isinstance(each, ast.Subscript) and _is_text(each.slice, "proxy")
            )


def _cookie_headers(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the keys ``Cookie`` of dicts that are assigned or given to a name like ``headers``."""
    given: list[tuple[object, ast.AST]] = []
    for node in nodes:
        if isinstance(node, ast.keyword):
            given.append((node.arg, node.value))
        elif isinstance(node, ast.Assign):
            given += [(last_name(target), node.value) for target in node.targets]
        elif isinstance(node, ast.Dict):
            given += [(getattr(key, "value", ""), value) for key, value in zip(node.keys, node.values, strict=True)]
    for name, value in given:
        for each in ast.walk(value) if str(name).lower().endswith("headers") else ():
            if isinstance(each, ast.Dict):
                yield from (key for key in each.keys if key and str(getattr(key, "value", "")).lower() == "cookie")


def _requests_http(nodes: Sequence[ast.AST]) -> bool:
    """Return whether the URL of a request, or a start URL, contains an ``http`` URL or a variable with one."""
    variables = _assigned(nodes, _has_http)
    urls: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.Assign) and any(last_name(target) == "start_urls" for target in node.targets):
            urls.append(node.value)
        elif isinstance(node, ast.Call) and last_name(node.func) in REQUESTS | {"follow"}:
            urls += urls_of(node)
    return any(_has_http(url) or any(last_name(each) in variables for each in ast.walk(url)) for url in urls)


def _has_http(node: ast.AST) -> bool:
    return any(str(getattr(each, "value", "")).startswith("http://") for each in ast.walk(node))


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _changed(node: ast.AST) -> str:
    """Return the name of the variable whose key or attribute the node sets, or whose ``update`` it names; or ""."""
    if not isinstance(node, ast.Subscript | ast.Attribute) or not isinstance(node.value, ast.Name):
        return ""
    is_changed = isinstance(node.ctx, ast.Store) or (isinstance(node, ast.Attribute) and node.attr == "update")
    return node.value.id if is_changed else ""


def _last_yields(node: ast.AST) -> Iterator[ast.expr]:
    """Yield each expression statement of a block that is directly before a ``return`` or a ``break``."""
    for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
        for each, after in pairwise(block if isinstance(block, list) else ()):
            if isinstance(each, ast.Expr) and isinstance(after, ast.Return | ast.Break):
                yield each.value


def _is_request(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in REQUESTS | {"follow", "replace"}


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _assigned(nodes: Iterable[ast.AST], is_it: Callable[[ast.expr], bool]) -> set[str]:
    """Return the names of the variables whose assigned value ``is_it`` accepts."""
    found = [node for node in nodes if isinstance(node, ast.Assign) and is_it(node.value)]
    return {target.id for node in found for target in node.targets if isinstance(target, ast.Name)}


def _is_pattern_of_bytes(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and last_name(node.func) == "compile" and bool(node.args) and is_bytes(node.args[0])
    )


def _dotted(node: ast.expr) -> list[str]:
    """Return the names of ``a.b.c``; an empty list if the expression does not start with a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def _absent(names: list[str]) -> str:
    """Return what to write instead of a name below ``scrapy``; "" if trawl has the name."""
    found: Any = import_module("trawl")
    for number, name in enumerate(names):
        try:
            found = getattr(found, name)
            continue
        except AttributeError as error:
            if not isinstance(found, ModuleType):
                return str(error) if isinstance(found, type) else ""
        except ImportError:  # the error's message is advice for a name of Scrapy
            pass
        try:
            found = import_module(f"{found.__name__}.{name}")
        except ImportError:
            for end in range(number + 1, len(names) + 1):
                if place := MOVED.get(".".join(names[:end])):
                    return f"scrapy.{'.'.join(names[:end])} is {place[1]} of {place[0]} here"
            whole = ".".join(names)
            return f"scrapy.{whole} is not here: {name_advice(whole) or GUIDE}"
    return ""
