"""Scrapy's names: their places in trawl, and the advice for names that trawl does not have.

Keys are dotted names without ``scrapy.``. Most names are in a module of the same name in trawl, and :data:`MOVED` lists
the other names. :data:`REPLACEMENTS` has advice on names that trawl does not have. Advice on a module applies to
everything below it that does not have its own entry. Names that trawl has are never looked up in this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from trawl.user_files import is_user_file

__all__ = [
    "GUIDE",
    "MOVED",
    "PLUGINS",
    "PLUGIN_META",
    "REPLACEMENTS",
    "TWISTED",
    "TWISTED_WAYS",
    "Place",
    "as_written",
    "class_advice",
    "name_advice",
    "place",
    "place_of_twisteds",
    "plugin_advice",
    "submodule",
    "twisted_way",
]

Place = tuple[str, str]
"""A module and a name in it."""

MOVED: Mapping[str, Place] = {
    "exceptions.CannotResolveHostError": ("trawl.exceptions", "NameNotResolved"),
    "exceptions.DownloadCancelledError": ("trawl.exceptions", "BodyTooLarge"),
    "exceptions.DownloadConnectionRefusedError": ("trawl.exceptions", "ConnectFailed"),
    "exceptions.DownloadFailedError": ("trawl.exceptions", "DownloadError"),
    "exceptions.DownloadTimeoutError": ("trawl.exceptions", "DownloadTimeout"),
    "exceptions.ResponseDataLossError": ("trawl.exceptions", "ResponseBroken"),
    "exceptions.ScrapyDeprecationWarning": ("builtins", "DeprecationWarning"),
    "exceptions.UnsupportedURLSchemeError": ("trawl.exceptions", "UnsupportedScheme"),
    "dupefilters.BaseDupeFilter": ("trawl.compat", "BaseDupeFilter"),
    "dupefilters.RFPDupeFilter": ("trawl.compat", "RFPDupeFilter"),
    "downloadermiddlewares.retry.get_retry_request": ("trawl.middleware", "get_retry_request"),
    **{
        f"downloadermiddlewares.{name}": ("trawl.compat", name.rpartition(".")[2])
        for name in (
            *("httpproxy.HttpProxyMiddleware", "redirect.BaseRedirectMiddleware", "redirect.MetaRefreshMiddleware"),
            *("redirect.RedirectMiddleware", "retry.RetryMiddleware", "useragent.UserAgentMiddleware"),
        )
    },
    "http.headers.Headers": ("trawl.http", "Headers"),
    "http.request.form.FormRequest": ("trawl.http", "FormRequest"),
    "http.request.json_request.JsonRequest": ("trawl.http", "JsonRequest"),
    "http.response.html.HtmlResponse": ("trawl.http", "HtmlResponse"),
    "http.response.json.JsonResponse": ("trawl.http", "JsonResponse"),
    "http.response.text.TextResponse": ("trawl.http", "TextResponse"),
    "http.response.xml.XmlResponse": ("trawl.http", "XmlResponse"),
    "linkextractors.lxmlhtml.LxmlLinkExtractor": ("trawl.linkextractors", "LxmlLinkExtractor"),
    "linkextractors.sgml.SgmlLinkExtractor": ("trawl.linkextractors", "LinkExtractor"),
    **{
        f"loader.processors.{name}": ("itemloaders.processors", name)
        for name in ("Compose", "Identity", "Join", "MapCompose", "SelectJmes", "TakeFirst")
    },
    "loader.common.wrap_loader_context": ("itemloaders.common", "wrap_loader_context"),
    "pipelines.files.FileException": ("trawl.pipelines", "FileError"),
    "pipelines.images.ImageException": ("trawl.pipelines", "FileError"),
    "selector.unified.Selector": ("trawl.selector", "Selector"),
    "selector.unified.SelectorList": ("trawl.selector", "SelectorList"),
    "settings.BaseSettings": ("trawl.spiders", "CustomSettings"),
    "spidermiddlewares.httperror.HttpError": ("trawl.exceptions", "HttpError"),
    "spiders.crawl.CrawlSpider": ("trawl.spiders", "CrawlSpider"),
    "spiders.crawl.Rule": ("trawl.spiders", "Rule"),
    "spiders.feed.CSVFeedSpider": ("trawl.spiders", "CSVFeedSpider"),
    "spiders.feed.XMLFeedSpider": ("trawl.spiders", "XMLFeedSpider"),
    "spiders.sitemap.SitemapSpider": ("trawl.spiders", "SitemapSpider"),
    "statscollectors.StatsCollector": ("trawl.observe", "Stats"),
}
"""Dotted names without ``scrapy.`` that are in another module of trawl, with their place."""

TWISTED: Mapping[str, str] = {
    "internet.error.ConnectError": "ConnectFailed",
    "internet.error.ConnectionDone": "ResponseBroken",
    "internet.error.ConnectionLost": "ResponseBroken",
    "internet.error.ConnectionRefusedError": "ConnectFailed",
    "internet.error.DNSLookupError": "NameNotResolved",
    "internet.error.TCPTimedOutError": "ConnectTimeout",
    "internet.error.TimeoutError": "DownloadTimeout",
    "web.client.ResponseFailed": "ResponseBroken",
    "web._newclient.ResponseFailed": "ResponseBroken",
    "web._newclient.ResponseNeverReceived": "ResponseBroken",
}
"""Twisted's errors that Scrapy errbacks check, without ``twisted.``, with the name in ``trawl.exceptions``."""

_ASYNC = "write `async def`, and `await` instead of `yield`; return the value"
_THREAD = "`await trio.to_thread.run_sync(function, *arguments)` in an async def"
_TASKS = "start each as a task of `async with trio.open_nursery() as nursery`, which waits for all"
_LATER = "`await trio.sleep(seconds)` in an async def"

TWISTED_WAYS: Mapping[str, str] = {
    "": "trawl runs on Trio, without Twisted: callbacks may be async and await Trio functions",
    "enterprise": f"in an async process_item, {_THREAD}, with a function that uses the database's own driver",
    "internet.asyncioreactor": "leave it out: trawl runs on Trio",
    "internet.defer": "await an async def directly; a trio.Event waits for a later event",
    "internet.defer.DeferredList": _TASKS,
    "internet.defer.gatherResults": _TASKS,
    "internet.defer.inlineCallbacks": _ASYNC,
    "internet.defer.returnValue": _ASYNC,
    "internet.error": "errbacks receive the errors of trawl.exceptions",
    "internet.reactor": f"for callLater, {_LATER}; for callInThread, {_THREAD}; to run spiders from a script, "
    "`trawl.run(Spider)`, which returns at the end",
    "internet.ssl": "TLS uses Python's ssl module; DOWNLOAD_VERIFY_CERTIFICATES turns verification off",
    "internet.task": f"for deferLater, {_LATER}; for LoopingCall, a watcher (WATCHERS) that loops",
    "internet.threads": _THREAD,
    "python.failure": "an errback's argument still has `value` and `check()`; errors are raised unchanged",
    "python.log": "use the logging module",
    "web": "`await self.fetch(request)` in a callback or start() returns the response",
}
"""Twisted's names without ``twisted.``, with the replacement on Trio. An entry applies to everything below the name."""

GUIDE = "see the guide 'Coming from Scrapy'"
_RUN = "`trawl.run(Spider, settings, **arguments)` runs a spider; inside a Trio program `await trawl.crawl(Spider)`"
_TRIO = "trawl runs on Trio: callbacks may be async and await Trio functions"
_PLAIN = "derive from nothing: use a plain class with these methods, listed in"
_MIDDLEWARE = f"{_PLAIN} DOWNLOADER_MIDDLEWARES"
_HOOK = f"{_PLAIN} SPIDER_MIDDLEWARES"
_INSTEAD = "a plain class in DOWNLOADER_MIDDLEWARES whose process_request"
_BESIDE = "a plain class in SPIDER_MIDDLEWARES whose process_spider_output"
_COMMAND = "the command is `trawl`; a program calls `trawl.cli.main(['crawl', 'FILE.py'])`"
_QUEUES = "there is one scheduler: DEPTH_FIRST sets its order, and JOB_DIR stores it"
_KEPT = "a job (JOB_DIR) stores its requests itself"
_TELNET = "there is no telnet console: `spider.crawl` has the same information"

REPLACEMENTS: Mapping[str, str] = {
    "addons": "there are no add-ons: packages extend trawl through entry points",
    "cmdline": _COMMAND,
    "commands": f"{_COMMAND}; the entry point group trawl.commands adds commands",
    "contracts": "write tests on `trawl.testing.SimulatedWeb` instead of contracts",
    "core": "this component can't be replaced",
    "core.downloader": "write a transport, or a middleware that returns the response",
    "crawler.AsyncCrawlerRunner": _RUN,
    "crawler.CrawlerRunner": _RUN,
    "downloadermiddlewares": _MIDDLEWARE,
    "downloadermiddlewares.ajaxcrawl": "sites no longer offer a separate form of pages with #!",
    "downloadermiddlewares.cookies": "use COOKIES_ENABLED, meta `cookiejar` or `self.session(name)`; instead "
    f"of a subclass, {_INSTEAD} sets request.cookies",
    "downloadermiddlewares.defaultheaders": f"set DEFAULT_REQUEST_HEADERS; instead of a subclass, {_INSTEAD} calls "
    "request.headers.setdefault(name, value)",
    "downloadermiddlewares.downloadtimeout": "set DOWNLOAD_TIMEOUT, or meta `download_timeout`; instead of a subclass, "
    f"{_INSTEAD} sets that meta",
    "downloadermiddlewares.httpauth": f"set HTTP_AUTH; instead of a subclass, {_INSTEAD} sets "
    "request.headers['Authorization']",
    "downloadermiddlewares.httpcache": "set HTTPCACHE_ENABLED",
    "downloadermiddlewares.httpcompression": "the transport decompresses by itself",
    "downloadermiddlewares.httpproxy": f"set ROTATING_PROXY_LIST, or meta `proxy`; or {_MIDDLEWARE}",
    "downloadermiddlewares.offsite": "use allowed_domains and meta `allow_offsite`; instead of a subclass, "
    f"{_INSTEAD} raises IgnoreRequest",
    "downloadermiddlewares.redirect": f"set REDIRECT_MAX_TIMES, or meta `dont_redirect`; or {_MIDDLEWARE}",
    "downloadermiddlewares.retry": "set RETRY_PREDICATE, RETRY_HTTP_CODES, or call trawl.middleware.get_retry_request",
    "downloadermiddlewares.robotstxt": "set ROBOTSTXT_OBEY, or meta `dont_obey_robotstxt`",
    **dict.fromkeys(("downloadermiddlewares.stats", "extensions.corestats"), "statistics are always kept"),
    "downloadermiddlewares.useragent": "set USER_AGENT; to change it, a plain class whose process_request sets "
    "request.headers['User-Agent'], listed in DOWNLOADER_MIDDLEWARES",
    "exceptions.ContractFail": "there are no contracts: write tests on `trawl.testing.SimulatedWeb`",
    "exceptions.NotSupported": "catch AttributeError, which css() and xpath() raise in a moved spider for content "
    "that is not text; for JSON they raise ValueError",
    "exceptions.StopDownload": "no code runs while a body arrives: "
    "meta `download_maxsize` ends a download that is too large",
    "extension": "derive from nothing: use a plain class with from_crawler, listed in EXTENSIONS",
    "extensions": "write a plain class with from_crawler, listed in EXTENSIONS; or use WATCHERS",
    "extensions.closespider": "use CLOSESPIDER_ITEMCOUNT and the similar settings",
    "extensions.debug": "`spider.crawl.why(url)` and `--log-level DEBUG` show what the crawl does",
    "extensions.feedexport": "set FEEDS, or give `-o FILE`",
    "extensions.feedexport.ItemFilter": "derive from nothing: `item_filter` of a feed is any class with accepts(item)",
    "extensions.httpcache": "set HTTPCACHE_ENABLED; HTTPCACHE_POLICY selects the responses to reuse",
    "extensions.logstats": "use LOGSTATS_INTERVAL",
    "extensions.memusage": "set MEMUSAGE_LIMIT_MB and MEMUSAGE_WARNING_MB",
    "extensions.spiderstate": "keep state in the meta and cb_kwargs of requests, which JOB_DIR stores",
    "extensions.statsmailer": "check the exit status or `CrawlResult.stats`",
    "extensions.throttle": "set AUTOTHROTTLE_ENABLED",
    "http.XmlRpcRequest": "create the body with xmlrpc.client.dumps, and send it as a Request with method POST",
    "http.cookies": "trawl.cookies has the jars",
    "http.request.rpc": "create the body with xmlrpc.client.dumps, and send it as a Request with method POST",
    "interfaces": "there are no interfaces: any object with the methods works",
    "loader": "trawl.loader has ItemLoader; processors are in itemloaders.processors",
    "log": "use the logging module, or `self.logger`",
    "logformatter": "LOG_FORMAT, LOG_DATEFORMAT and LOG_LEVEL control the log",
    "mail": "use smtplib, or a watcher that sends alerts (WATCHERS)",
    "middleware": _MIDDLEWARE,
    "pipelines.files": "derive from trawl.pipelines.FilesPipeline; FILES_STORE accepts the stores of fsspec",
    "pqueues": _QUEUES,
    "resolver": "DNS_RESOLVER selects how names are looked up",
    "responsetypes": "all responses have one class; `isinstance` with a class of trawl.http checks the content",
    "robotstxt": "robots.txt is parsed according to RFC 9309",
    "settings.default_settings": "`trawl settings` shows the values; trawl.settings.definitions() has the defaults",
    "shell": "`trawl shell URL --spider FILE.py`, or `breakpoint()` in the callback, with --quiet",
    "signalmanager": "use `crawler.signals.connect` for most signals; watchers (WATCHERS) receive more events",
    **dict.fromkeys(("spiderloader", "utils.spider"), "`trawl list` finds spiders"),
    "spidermiddlewares": _HOOK,
    "spidermiddlewares.depth": f"set DEPTH_LIMIT; instead of a subclass, {_BESIDE} reads response.meta['depth']",
    "spidermiddlewares.httperror": "use handle_httpstatus_list and HTTPERROR_ALLOWED_CODES; instead of a subclass, "
    "an errback, whose HttpError has the response",
    "spidermiddlewares.offsite": "use allowed_domains and meta `allow_offsite`",
    "spidermiddlewares.referer": f"set REFERRER_POLICY; instead of a subclass, {_BESIDE} sets "
    "request.headers['Referer']",
    "spidermiddlewares.start": _HOOK,
    "spidermiddlewares.urllength": f"set URLLENGTH_LIMIT; instead of a subclass, {_BESIDE} drops requests",
    "spiders.init": "override start(): `await self.fetch(request)` logs in before the first yielded request",
    "squeues": _QUEUES,
    "statscollectors": "`crawler.stats` always exists",
    "extensions.telnet": _TELNET,
    "telnet": _TELNET,
    "throttler": "THROTTLING_MANAGER names your own manager",
    "utils": "take it from the standard library or w3lib",
    "utils.asyncio": _TRIO,
    "utils.conf": "trawl.run() and the command read [tool.trawl] of pyproject.toml automatically",
    "utils.curl": "use Request.from_curl",
    "utils.defer": "callbacks may be async: `await self.fetch(request)` and Trio functions, without a Deferred",
    "utils.gz": "use the gzip module",
    "utils.iterators": "derive from XMLFeedSpider or CSVFeedSpider",
    "utils.job": "JOB_DIR names the job's directory",
    "utils.log": "the command sets up the log (LOG_LEVEL); in your own program, call configure_logging() of "
    "trawl.utils.log",
    "utils.markup": "take it from w3lib.html",
    "utils.misc.walk_modules": "use pkgutil.walk_packages",
    "utils.project": "trawl.run() and the command read [tool.trawl] of pyproject.toml automatically",
    "utils.reactor": _TRIO,
    "utils.reactorless": _TRIO,
    "utils.reqser": _KEPT,
    "utils.request": "trawl.http.request has the fingerprint of a request",
    "utils.request.request_from_dict": _KEPT,
    "utils.request.request_to_dict": _KEPT,
    "utils.response.get_meta_refresh": "METAREFRESH_ENABLED follows them",
    "utils.sitemap": "derive from SitemapSpider",
    "utils.test": "use trawl.testing",
    "utils.trackref": "use a memory profiler",
    "utils.url": "take it from w3lib.url",
    "utils.url.add_http_if_no_scheme": "write `url if '://' in url else f'http://{url}'`",
    "version_info": "use trawl.__version__",
    "xlib.pydispatch": "install PyDispatcher, and write `from pydispatch import dispatcher`",
    "webservice": "there is no remote control: `spider.crawl` has the same information",
}
"""Advice on missing names, by dotted name without ``scrapy.``."""

_COPIED = "copy its middleware into the project, and change its imports as `trawl check` reports"
_RENDERED = "render pages with meta browser (guide: Pages that need a browser), or request the page's own API"

PLUGINS: Mapping[str, str] = {
    "rotating_proxies": "remove its two middlewares: ROTATING_PROXY_LIST rotates proxies",
    "scrapy_crawl_once": _COPIED,
    "scrapy_deltafetch": _COPIED,
    "scrapy_fake_useragent": "set USER_AGENT to `fake_useragent.UserAgent().random`, or write a middleware class "
    "that sets request.headers['User-Agent'] for each request",
    "scrapy_playwright": _RENDERED,
    "scrapy_poet.Addon": "there are no add-ons: add scrapy_poet.InjectionMiddleware with 543 to DOWNLOADER_MIDDLEWARES "
    "and scrapy_poet.RetryMiddleware with 275 to SPIDER_MIDDLEWARES",
    "scrapy_playwright.page": "instead of PageMethod objects, meta `browser` with trawl.Page(wait_for=..., "
    "run='METHOD'): the method of the spider acts on the page (guide: Coming from Scrapy, Pages from a browser)",
    "scrapy_proxies": "remove its middleware: ROTATING_PROXY_LIST rotates proxies",
    "scrapy_redis": "set JOB_DIR to redis://HOST/NAME instead of its scheduler: all processes with this setting share "
    "the crawl; for a RedisSpider copy its spiders.py, connection.py, defaults.py and utils.py into the project",
    "scrapy_selenium": _RENDERED,
    "scrapy_splash": "call Splash's HTTP API: JsonRequest('http://SPLASH:8050/render.html', "
    "data={'url': url, 'wait': 1})",
}
"""Advice on packages that extend Scrapy and do not run on trawl, by the name of the package's module.

A path is a single class of a package whose other classes run.
"""

PLUGIN_META: Mapping[str, str] = {
    "playwright": "write meta `browser`: True",
    "playwright_context": "write meta `session`: NAME, for cookies and storage",
    "playwright_context_kwargs": "set USER_AGENT, meta `proxy` or trawl.Page(viewport=...)",
    "playwright_include_page": "write trawl.Page(run='METHOD'), which gets the page, or use self.crawl.open_page()",
    "playwright_page_event_handlers": "read response.page.requests and response.page.console",
    "playwright_page_goto_kwargs": "write trawl.Page(settle=..., timeout=...)",
    "playwright_page_init_callback": "set BROWSER_BLOCK, or write trawl.Page(run='METHOD')",
    "playwright_page_methods": "write trawl.Page(wait_for=..., screenshot=..., pdf=..., run='METHOD')",
}
"""Replacements of the meta keys of scrapy-playwright."""


def plugin_advice(path: str) -> str:
    """Return the replacement of a path in a package (not a user file) that extends Scrapy; "" for any other path."""
    root = path.partition(".")[0]
    advice = PLUGINS.get(".".join(path.split(".")[:2])) or PLUGINS.get(root, "")
    found = find_spec(root) if advice else None
    return "" if found is not None and is_user_file(found.origin or "") else advice


def place_of_twisteds(module: str, name: str) -> Place | None:
    """Return the place of a Twisted name in trawl, as :func:`place` does."""
    ours = TWISTED.get(f"{module}.{name}")
    return None if ours is None else ("trawl.exceptions", ours)


def twisted_way(name: str) -> str:
    """Return the Trio replacement of a Twisted name, such as ``internet.defer.inlineCallbacks``."""
    while name not in TWISTED_WAYS:
        name = name.rpartition(".")[0]
    return TWISTED_WAYS[name]


def place(module: str, name: str) -> Place | None:
    """Return the place of ``from scrapy.MODULE import NAME`` in trawl, or of the module if NAME is ""; None if none."""
    whole = f"{module}.{name}".strip(".")
    return MOVED[whole] if whole in MOVED else as_written(module, name)


def as_written(module: str, name: str) -> Place | None:
    """Return the place of ``from trawl.MODULE import NAME`` if this import works; otherwise None."""
    ours = f"trawl.{module}".rstrip(".")
    try:
        found = import_module(ours)
        if not name or hasattr(found, name):
            return ours, name
        import_module(f"{ours}.{name}")
    except ImportError:
        return None
    return ours, name


def submodule(module: str, name: str) -> ModuleType:
    """Return Scrapy's submodule ``name`` of a module in trawl, for annotations (``http.response.html.HtmlResponse``).

    Raises AttributeError if Scrapy has no such module, or trawl has none of its names.
    """
    path = f"{module.removeprefix('trawl.')}.{name}."
    found = {each.removeprefix(path): place for each, place in MOVED.items() if each.startswith(path)}
    if not found:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    made = ModuleType(f"{module}.{name}")
    vars(made).update({each: getattr(import_module(home), ours) for each, (home, ours) in found.items()})
    return made


def name_advice(name: str) -> str:
    """Return the replacement of a Scrapy name, such as ``utils.log.configure_logging``; "" if there is no advice."""
    while name:
        if name in REPLACEMENTS:
            return REPLACEMENTS[name]
        name = name.rpartition(".")[0]
    return ""


def class_advice(path: str) -> str:
    """Return the replacement of a Scrapy class named in a setting, by its module; "" if there is no advice."""
    root, _, module = path.rpartition(".")[0].partition(".")
    return REPLACEMENTS.get(module, "") if root == "scrapy" else ""
