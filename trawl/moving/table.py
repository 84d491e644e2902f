"""Scrapy's modules and names that trawl does not have: what to use in place of each.

A key is a dotted name without ``scrapy.``; what is said of a module holds for all below it that are not named
themselves. A name that trawl has, wherever, is never looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ELSEWHERE", "GUIDE", "in_place_of", "why_absent"]

GUIDE = "the guide 'Coming from Scrapy' tells more"

_RUN = "`trawl.run(Spider, settings, **arguments)` runs a spider; inside a Trio program `await trawl.crawl(Spider)`"
_TRIO = "trawl runs on Trio: callbacks may be async and await what is Trio's"
_PLAIN = "derive from nothing: a plain class with the methods does, its place given in"
_MIDDLEWARE = f"{_PLAIN} DOWNLOADER_MIDDLEWARES"
_HOOK = f"{_PLAIN} SPIDER_MIDDLEWARES"
_STANDARD = "take it from the standard library or w3lib"
_NO_PART = "it is no part that can be replaced"
_COMMAND = "the command is `trawl`; a program calls `trawl.cli.main(['crawl', 'FILE.py'])`"
_QUEUES = "there is one scheduler: DEPTH_FIRST says which order, JOB_DIR that it is stored"
_STOPPED = "meta `download_maxsize` ends a download that is too long"

ELSEWHERE: Mapping[str, str] = {
    "addons": "there are no add-ons: packages add to trawl by entry points",
    "cmdline": _COMMAND,
    "commands": f"{_COMMAND}; words are added by the entry point trawl.commands",
    "contracts": "write tests on `trawl.testing.SimulatedWeb` in place of contracts",
    "core": _NO_PART,
    "core.downloader": "write a transport, or a middleware that answers",
    "crawler.AsyncCrawlerRunner": _RUN,
    "crawler.CrawlerRunner": _RUN,
    "downloadermiddlewares": _MIDDLEWARE,
    "downloadermiddlewares.ajaxcrawl": "nobody offers pages for #! in another form any more",
    "downloadermiddlewares.cookies": "COOKIES_ENABLED and meta `cookiejar` as ever, or `self.session(name)`",
    "downloadermiddlewares.defaultheaders": "set DEFAULT_REQUEST_HEADERS",
    "downloadermiddlewares.downloadtimeout": "set DOWNLOAD_TIMEOUT, or meta `download_timeout`",
    "downloadermiddlewares.httpauth": "set HTTP_AUTH",
    "downloadermiddlewares.httpcache": "set HTTPCACHE_ENABLED",
    "downloadermiddlewares.httpcompression": "the transport decompresses by itself",
    "downloadermiddlewares.httpproxy": f"set ROTATING_PROXY_LIST, or meta `proxy`; or {_MIDDLEWARE}",
    "downloadermiddlewares.offsite": "allowed_domains and meta `allow_offsite` as ever",
    "downloadermiddlewares.redirect": f"set REDIRECT_MAX_TIMES, or meta `dont_redirect`; or {_MIDDLEWARE}",
    "downloadermiddlewares.retry": "set RETRY_PREDICATE, RETRY_HTTP_CODES, or call trawl.middleware.get_retry_request",
    "downloadermiddlewares.robotstxt": "set ROBOTSTXT_OBEY, or meta `dont_obey_robotstxt`",
    "downloadermiddlewares.stats": "statistics are always kept",
    "downloadermiddlewares.useragent": "set USER_AGENT; to change it, a plain class whose process_request sets "
    "request.headers['User-Agent'], its place given in DOWNLOADER_MIDDLEWARES",
    "dupefilters": "there is one filter; `dont_filter` passes it",
    "exceptions.ContractFail": "there are no contracts: write tests on `trawl.testing.SimulatedWeb`",
    "exceptions.NotSupported": "each response has css() and xpath(), which find nothing in what is no text, and raise "
    "ValueError for JSON",
    "exceptions.ScrapyDeprecationWarning": "catch or raise DeprecationWarning",
    "exceptions.StopDownload": f"nobody is asked while a body comes: {_STOPPED}",
    "exporters": "FEEDS writes items, each feed with its `fields`, `indent`, `overwrite` and `item_classes`; a format "
    "of your own is an entry point (trawl.feeds)",
    "extension": "derive from nothing: a plain class with from_crawler does, its place given in EXTENSIONS",
    "extensions": "write a plain class with from_crawler, its place given in EXTENSIONS; or WATCHERS",
    "extensions.closespider": "CLOSESPIDER_ITEMCOUNT and its like as ever",
    "extensions.corestats": "statistics are always kept",
    "extensions.debug": "`spider.crawl.why(url)` and `--log-level DEBUG` tell what the crawl does",
    "extensions.feedexport": "set FEEDS, or give `-o FILE`",
    "extensions.httpcache": "set HTTPCACHE_ENABLED; HTTPCACHE_POLICY says which answers are believed",
    "extensions.logstats": "LOGSTATS_INTERVAL as ever",
    "extensions.memusage": "set MEMUSAGE_LIMIT_MB and MEMUSAGE_WARNING_MB",
    "extensions.spiderstate": "what the spider must remember is in its requests' meta and cb_kwargs, kept with JOB_DIR",
    "extensions.statsmailer": "watch the exit status, or `CrawlResult.stats`",
    "extensions.throttle": "set AUTOTHROTTLE_ENABLED",
    "http.XmlRpcRequest": "make the body with xmlrpc.client.dumps, and send it as a Request with method POST",
    "http.cookies": "trawl.cookies has the jars",
    "http.request.NO_CALLBACK": "leave it out: what `await spider.fetch(request)` answers goes to no callback",
    "http.request.rpc": "make the body with xmlrpc.client.dumps, and send it as a Request with method POST",
    "interfaces": "no interfaces are declared: what has the methods will do",
    "loader": "trawl.loader has ItemLoader; processors are in itemloaders.processors",
    "log": "use the logging module, or `self.logger`",
    "logformatter": "the log is as LOG_FORMAT, LOG_DATEFORMAT and LOG_LEVEL say",
    "mail": "use smtplib, or a watcher that asks for help (WATCHERS)",
    "middleware": _MIDDLEWARE,
    "pipelines.files": "derive from trawl.pipelines.FilesPipeline; FILES_STORE takes the stores of fsspec",
    "pqueues": _QUEUES,
    "resolver": "DNS_RESOLVER says how names are looked up",
    "responsetypes": "a crawl makes one class of response; `isinstance` with those of trawl.http looks at its content",
    "robotstxt": "robots.txt is read as RFC 9309 has it",
    "settings.default_settings": "`trawl settings` shows what holds; trawl.settings.definitions() has the defaults",
    "shell": "`trawl shell URL --spider FILE.py`, or `breakpoint()` in the callback, with --quiet",
    "signalmanager": "`crawler.signals.connect` takes most of the signals; watchers (WATCHERS) hear of more",
    "spiderloader": "`trawl list` finds spiders",
    "spidermiddlewares": _HOOK,
    "spidermiddlewares.depth": "set DEPTH_LIMIT",
    "spidermiddlewares.httperror": "handle_httpstatus_list and HTTPERROR_ALLOWED_CODES as ever",
    "spidermiddlewares.offsite": "allowed_domains and meta `allow_offsite` as ever",
    "spidermiddlewares.referer": "set REFERRER_POLICY",
    "spidermiddlewares.start": _HOOK,
    "spidermiddlewares.urllength": "set URLLENGTH_LIMIT",
    "spiders.init": "begin with start(): `await self.fetch(request)` logs in before the first request is given",
    "squeues": _QUEUES,
    "statscollectors": "`crawler.stats` is there by itself",
    "telnet": "there is no telnet console: `spider.crawl` answers what it told",
    "throttler": "THROTTLING_MANAGER names a manager of your own",
    "utils": _STANDARD,
    "utils.asyncio": _TRIO,
    "utils.conf": "trawl.run() and the command read [tool.trawl] of pyproject.toml by themselves",
    "utils.curl": "use Request.from_curl",
    "utils.defer": _TRIO,
    "utils.gz": "use the gzip module",
    "utils.iterators": "derive from XMLFeedSpider or CSVFeedSpider",
    "utils.job": "JOB_DIR names the job's directory",
    "utils.log": "the log is set up by itself, as LOG_LEVEL says; in a program of your own by logging.basicConfig()",
    "utils.markup": "take it from w3lib.html",
    "utils.misc.arg_to_iter": "write `x if isinstance(x, list) else [x]`",
    "utils.misc.load_object": "use pkgutil.resolve_name('a.b:C')",
    "utils.misc.walk_modules": "use pkgutil.walk_packages",
    "utils.project": "leave it out: trawl.run() and the command read [tool.trawl] of pyproject.toml by themselves",
    "utils.python.to_bytes": "use str.encode()",
    "utils.python.to_unicode": "use bytes.decode()",
    "utils.reactor": _TRIO,
    "utils.reactorless": _TRIO,
    "utils.request": "trawl.http.request tells one request from another",
    "utils.request.request_from_dict": "JOB_DIR has a job keep its requests by itself",
    "utils.response.get_base_url": "response.urljoin(url) joins with the page's base",
    "utils.response.get_meta_refresh": "METAREFRESH_ENABLED has them followed",
    "utils.response.open_in_browser": "`view()` in `trawl shell URL`",
    "utils.response.response_status_message": "use http.HTTPStatus(response.status).phrase",
    "utils.sitemap": "derive from SitemapSpider",
    "utils.spider": "`trawl list` finds spiders",
    "utils.test": "use trawl.testing",
    "utils.trackref": "use a memory profiler",
    "utils.url": "take it from w3lib.url",
    "version_info": "use trawl.__version__",
    "webservice": "there is no remote control: `spider.crawl` answers what it told",
}
"""Dotted name to what takes its place."""


def why_absent(name: str) -> str:
    """What to use in place of a dotted name of Scrapy's, ``utils.log.configure_logging`` say; "" for one that is none.

    Args:
        name: Without ``scrapy.``, or ``trawl.``, before it.
    """
    while name:
        if name in ELSEWHERE:
            return ELSEWHERE[name]
        name = name.rpartition(".")[0]
    return ""


def in_place_of(path: str) -> str:
    """What to use in place of a class of Scrapy's that a setting names by its import path; "" where that is not known.

    Args:
        path: ``scrapy.downloadermiddlewares.offsite.OffsiteMiddleware``, say. Only its module is looked at.
    """
    root, _, module = path.rpartition(".")[0].partition(".")
    return ELSEWHERE.get(module, "") if root == "scrapy" else ""
