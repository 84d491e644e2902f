"""Helper functions at Scrapy's import paths: ``from trawl.utils.project import get_project_settings``.

This file contains the helpers of many Scrapy modules and creates modules with the same names (:data:`_MODULES`).
:data:`trawl.scrapy_names.names.REPLACEMENTS` says what to write instead of the missing helpers. Only users and
:mod:`trawl.crawler` import this module.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import webbrowser
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import ParseResult, urlparse

from w3lib.url import canonicalize_url

from trawl.compat.classes import set_fingerprinter
from trawl.http import Request, Response
from trawl.observe import ObserveSettings, Stats
from trawl.scrapy_names.settings import is_foreign_setting
from trawl.settings import DEFAULT, Layer, Settings, ambient, load, of_spider
from trawl.settings.values import known
from trawl.spiders import Spider
from trawl.spiders.crawler import Crawler, RequestFingerprinter, fingerprint, status_words

__all__ = [
    "RequestFingerprinter",
    "arg_to_iter",
    "build_from_crawler",
    "canonicalize_url",
    "configure_logging",
    "create_instance",
    "data_path",
    "fingerprint",
    "get_base_url",
    "get_crawler",
    "get_project_settings",
    "load_object",
    "open_in_browser",
    "request_fingerprint",
    "response_status_message",
    "to_bytes",
    "to_unicode",
    "urlparse_cached",
]


def get_project_settings() -> Settings:
    """Return changeable settings: ``[tool.trawl]`` of the nearest pyproject.toml, and the environment.

    Raises:
        SettingsError: If a name is unknown or a value does not fit.
    """
    loaded = load(*ambient())
    return Settings({name: loaded[name] for name in loaded if name in loaded.own or loaded.source(name) != DEFAULT})


def data_path(path: str | os.PathLike[str], createdir: bool = False) -> str:
    """Return a path below ``.scrapy`` in the folder of the nearest scrapy.cfg or pyproject.toml.

    Without such a file, the path is relative to the working directory. An absolute path is returned unchanged.

    Args:
        path: The path.
        createdir: Whether to create a folder at this path.
    """
    folders = (Path.cwd(), *Path.cwd().parents)
    found = [each for name in ("scrapy.cfg", "pyproject.toml") for each in folders if (each / name).is_file()]
    made = Path(*found[:1], ".scrapy", path)
    if createdir:
        made.mkdir(parents=True, exist_ok=True)
    return str(made)


def configure_logging(settings: Mapping[str, Any] | None = None, install_root_handler: bool | None = None) -> None:
    """Log to standard error with the project's settings, unless the program has configured logging.

    Args:
        settings: Settings that override the project's: ``LOG_LEVEL``, ``LOG_FORMAT``, ``LOG_DATEFORMAT``,
            ``LOG_ENABLED``.
        install_root_handler: False to do nothing.

    Raises:
        SettingsError: If a setting is unknown, or its value does not fit.
    """
    # Drop the warnings here, because the crawls load the settings again and log them.
    values = load(*ambient(), Layer("settings", settings or {}), tell=lambda warning: None).of(ObserveSettings)
    if install_root_handler is not False and values.log_enabled:
        logging.basicConfig(level=values.log_level, format=values.log_format, datefmt=values.log_dateformat)


def get_crawler(
    spidercls: type[Spider] | None = None,
    settings_dict: Mapping[str, Any] | None = None,
    prevent_warnings: bool = True,
) -> Crawler:
    """Return a crawl for creating a component in a test: ``Part.from_crawler(get_crawler(MySpider, {"X": 1}))``.

    The crawl counts as moved from Scrapy, and its settings can be changed.

    Args:
        spidercls: The spider's class; by default :class:`trawl.Spider`.
        settings_dict: Settings, which may be the component's own. The spider's ``custom_settings`` take precedence.
        prevent_warnings: Ignored.

    Raises:
        SettingsError: If a value does not fit, or ``REQUEST_FINGERPRINTER_CLASS`` can't be created.
    """
    spider, given = spidercls or Spider, {"SCRAPY_COMPAT": True, **(settings_dict or {})}
    layers = [Layer("settings", given), of_spider(spider)]
    names = [name for layer in layers for name in layer.values]
    own = {name: None for name in names if name not in known() and not is_foreign_setting(name)}
    settings = load(Layer("settings", {}, own=own), *layers, tell=lambda warning: None)
    found = {name: settings[name] for name in settings if settings.source(name) != DEFAULT}
    settings.is_changeable = True
    settings.update(found)  # an iteration and copy() of changeable settings have the values that were set
    crawler = Crawler(settings, Stats(), spider)
    set_fingerprinter(crawler)
    return crawler


def arg_to_iter(arg: Any) -> Iterable[Any]:
    """Return an iterable: empty for None, ``[arg]`` for a string, bytes, mapping or single value, otherwise ``arg``."""
    if arg is None:
        return ()
    return arg if hasattr(arg, "__iter__") and not isinstance(arg, str | bytes | Mapping) else [arg]


def load_object(path: Any) -> Any:
    """Return the object at an import path such as ``"shop.pipelines.Price"``. Classes and functions are returned as is.

    Raises:
        TypeError: If ``path`` is neither a string nor callable.
        ValueError: If the path has no dot.
        NameError: If the module has no such name.
    """
    if not isinstance(path, str):
        if callable(path):
            return path
        raise TypeError(f"load_object() takes an import path or a class, not {path!r}")
    module, _, name = path.rpartition(".")
    if not module:
        raise ValueError(f"load_object() takes the whole import path, not {path!r}")
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        raise NameError(f"module {module!r} has no {name!r}") from None


def build_from_crawler(objcls: type[Any], crawler: Crawler, /, *args: Any, **kwargs: Any) -> Any:
    """Return an instance, created with ``from_crawler`` if the class has it, or else with the constructor."""
    return objcls.from_crawler(crawler, *args, **kwargs) if hasattr(objcls, "from_crawler") else objcls(*args, **kwargs)


def create_instance(objcls: type[Any], settings: Any, crawler: Crawler | None, *args: Any, **kwargs: Any) -> Any:
    """Return an instance, created with ``from_crawler``, else ``from_settings``, else the constructor."""
    if crawler is not None and hasattr(objcls, "from_crawler"):
        return objcls.from_crawler(crawler, *args, **kwargs)
    if hasattr(objcls, "from_settings"):
        return objcls.from_settings(settings or (crawler and crawler.settings), *args, **kwargs)
    return objcls(*args, **kwargs)


def to_bytes(text: str | bytes, encoding: str | None = None, errors: str = "strict") -> bytes:
    """Return ``text`` as bytes, UTF-8 by default.

    Raises:
        TypeError: If ``text`` is neither str nor bytes.
    """
    if not isinstance(text, str | bytes):
        raise TypeError(f"to_bytes() and to_unicode() take a str or bytes, not {type(text).__name__}")
    return text if isinstance(text, bytes) else text.encode(encoding or "utf-8", errors)


def to_unicode(text: str | bytes, encoding: str | None = None, errors: str = "strict") -> str:
    """Return ``text`` as a str, read as UTF-8 by default.

    Raises:
        TypeError: If ``text`` is neither str nor bytes.
    """
    return text if isinstance(text, str) else to_bytes(text).decode(encoding or "utf-8", errors)


def request_fingerprint(request: Request) -> str:
    """Return the hexadecimal fingerprint of old versions of Scrapy, which did not have :func:`fingerprint`."""
    text = f"{request.method}{canonicalize_url(request.url)}".encode()
    return hashlib.sha1(text + request.body, usedforsecurity=False).hexdigest()


def get_base_url(response: Response) -> str:
    """Return the base URL of a page's links: the URL of its ``<base>``, or the page's own URL."""
    return response.base_url


def response_status_message(status: str | bytes | int) -> str:
    """Return a status code with its reason phrase: ``404 Not Found``."""
    return status_words(int(status))


def open_in_browser(response: Response) -> bool:
    """Show a response in a browser, from a temporary file. Returns whether a browser was found."""
    from trawl.cli.shell import view  # noqa: PLC0415 - loads the command

    return webbrowser.open(view(response).as_uri())


@lru_cache(maxsize=1000)
def _parsed(url: str) -> ParseResult:
    return urlparse(url)


def urlparse_cached(request_or_response: Request | Response) -> ParseResult:
    """Return the parts of a request's or response's URL."""
    return _parsed(request_or_response.url)


_MODULES: Mapping[str, tuple[str, ...]] = {
    "httpobj": ("urlparse_cached",),
    "log": ("configure_logging",),
    "misc": ("arg_to_iter", "build_from_crawler", "create_instance", "load_object"),
    "project": ("data_path", "get_project_settings"),
    "python": ("to_bytes", "to_unicode"),
    "request": ("RequestFingerprinter", "fingerprint", "request_fingerprint"),
    "response": ("get_base_url", "open_in_browser", "response_status_message"),
    "test": ("get_crawler",),
    "url": ("canonicalize_url",),
}
"""Names that each module of ``scrapy.utils`` has in trawl."""

__path__: list[str] = []  # makes this module a package, so that Python's import finds the modules below

for _name, _names in _MODULES.items():
    _module = ModuleType(f"{__name__}.{_name}", f"``scrapy.utils.{_name}`` as far as trawl has it.")
    vars(_module).update({name: globals()[name] for name in _names}, __all__=list(_names))
    sys.modules[_module.__name__] = globals()[_name] = _module
