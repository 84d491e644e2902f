"""Advice on Scrapy's settings that trawl does not have.

A moved spider keeps its ``custom_settings``. If a setting has another name in trawl, it is renamed. Other Scrapy
settings are ignored, with a warning that names the replacement. Settings of trawl are never looked up here, and a name
that neither Scrapy nor trawl has is refused as a misspelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trawl.scrapy_names.moved import RENAMED
from trawl.scrapy_names.names import REPLACEMENTS

__all__ = ["UNSUPPORTED", "is_felt", "is_foreign_setting", "key_advice", "setting_advice"]

_PROJECTS = "there are no projects: `trawl crawl FILE.py` finds the spider, `trawl list` lists them"
_TRIO = "trawl runs on Trio"
_DNS = "DNS_RESOLVER looks names up, and results are cached"

UNSUPPORTED: Mapping[str, str] = {
    "ADDONS": "there are no add-ons: set what their update_settings() sets",
    **dict.fromkeys(("AJAXCRAWL_ENABLED", "AJAXCRAWL_MAXSIZE"), REPLACEMENTS["downloadermiddlewares.ajaxcrawl"]),
    "ASYNCIO_EVENT_LOOP": _TRIO,
    **dict.fromkeys(
        (
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION_NAME"),
            *("AWS_MAX_POOL_CONNECTIONS", "AWS_USE_SSL", "AWS_VERIFY", "GCS_PROJECT_ID"),
            *("FEED_STORAGES", "FEED_STORAGES_BASE", "FEED_STORAGE_FTP_ACTIVE", "FEED_STORAGE_GCS_ACL"),
            "FEED_STORAGE_S3_ACL",
        ),
        "set the store's options in the feed's entry of FEEDS; for files and images, in MEDIA_STORE_OPTIONS",
    ),
    **dict.fromkeys(
        ("FILES_STORE_GCS_ACL", "FILES_STORE_S3_ACL", "IMAGES_STORE_GCS_ACL", "IMAGES_STORE_S3_ACL"),
        "set the store's options in MEDIA_STORE_OPTIONS",
    ),
    "BOT_NAME": "there are no projects; USER_AGENT names the crawler",
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": "use CLOSESPIDER_TIMEOUT_NO_ITEM",
    "COMMANDS_MODULE": "commands are found by their entry points (trawl.commands)",
    "CONCURRENT_ITEMS": "CONCURRENT_CALLBACKS limits the number of running callbacks, including their items",
    "DEFAULT_DROPITEM_LOG_LEVEL": "dropped items are logged as INFO",
    "DEFAULT_ITEM_CLASS": "only Scrapy's shell uses it",
    "DEPTH_PRIORITY": "trawl always uses the order of 1 with FIFO queues; "
    "for another order, use DEPTH_FIRST or priorities",
    "DEPTH_STATS_VERBOSE": "there are no statistics by depth",
    **dict.fromkeys(("DNSCACHE_ENABLED", "DNSCACHE_SIZE", "TWISTED_DNS_RESOLVER"), _DNS),
    "DNS_TIMEOUT": "DOWNLOAD_CONNECT_TIMEOUT includes the DNS lookup",
    **dict.fromkeys(
        ("DOWNLOADER", "DOWNLOADER_HTTPCLIENTFACTORY", "ITEM_PROCESSOR", "STATS_CLASS"), REPLACEMENTS["core"]
    ),
    **dict.fromkeys(
        (
            *("DOWNLOADER_CLIENTCONTEXTFACTORY", "DOWNLOADER_CLIENT_TLS_CIPHERS", "DOWNLOADER_CLIENT_TLS_METHOD"),
            *("DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING", "DOWNLOAD_TLS_MAX_VERSION", "DOWNLOAD_TLS_MIN_VERSION"),
        ),
        "TLS uses Python's ssl module; `DOWNLOAD_VERIFY_CERTIFICATES` turns verification off",
    ),
    "DOWNLOADER_MIDDLEWARES_BASE": "`DOWNLOADER_MIDDLEWARES` changes the list of the built-in middleware",
    "DOWNLOADER_STATS": REPLACEMENTS["downloadermiddlewares.stats"],
    "DOWNLOAD_DELAY_JITTER": "give the scope a `jitter` in THROTTLING_SCOPES",
    **dict.fromkeys(("DOWNLOAD_HANDLERS", "DOWNLOAD_HANDLERS_BASE"), REPLACEMENTS["core.downloader"]),
    "DUPEFILTER_DEBUG": "a watcher that reads RequestDropped receives each one, with the reason",
    "EDITOR": "there is no `trawl edit`",
    "EXTENSIONS_BASE": "no extension is built in",
    "FEED_URI_PARAMS": "%(name)s and %(time)s are filled in",
    "FORCE_CRAWLER_PROCESS": "use `trawl.run` or `await trawl.crawl`",
    **dict.fromkeys(("FTP_PASSIVE_MODE", "FTP_PASSWORD", "FTP_USER"), "only http and https are fetched"),
    "HTTP2_MAX_FRAME_SIZE": "it can't be changed",
    "HTTPAUTH_DOMAIN": "use HTTP_AUTH",
    **dict.fromkeys(("HTTPAUTH_PASS", "HTTPAUTH_USER"), "use HTTP_AUTH, which binds credentials to a domain"),
    **dict.fromkeys(("HTTPCACHE_DBM_MODULE", "HTTPCACHE_STORAGE"), "the cache has one store, in HTTPCACHE_DIR"),
    "HTTPPROXY_AUTH_ENCODING": "the name and password of a proxy are sent as UTF-8",
    "HTTPX_HTTP2_ENABLED": "use HTTP2_ENABLED",
    "ITEM_PIPELINES_BASE": "no pipeline is built in",
    **dict.fromkeys(
        ("LOG_COLOR", "LOG_SHORT_NAMES", "LOG_STDOUT", "LOG_VERSIONS", "LOG_FORMATTER", "LOG_INSTALL_ROOT_HANDLER"),
        "LOG_FORMAT, LOG_DATEFORMAT and LOG_LEVEL control the log; only terminals get colors",
    ),
    **dict.fromkeys(
        (
            *("MAIL_FROM", "MAIL_HOST", "MAIL_PASS", "MAIL_PORT", "MAIL_SSL", "MAIL_TLS", "MAIL_USER"),
            *("MEMUSAGE_NOTIFY_MAIL", "STATSMAILER_RCPTS"),
        ),
        "no mail is sent: check `CrawlResult.reason` and the exit status",
    ),
    "LOG_UNSERIALIZABLE_REQUESTS": "if a job can't store a request, its page ends with an error",
    **dict.fromkeys(("MEMDEBUG_ENABLED", "MEMDEBUG_NOTIFY"), "use a memory profiler"),
    "MEMUSAGE_ENABLED": "MEMUSAGE_LIMIT_MB and MEMUSAGE_WARNING_MB turn it on",
    "META_COPY_WARN_SKIP_KEYS": "there is no such warning, because a copied meta does not include the crawl's own keys",
    "NEWSPIDER_MODULE": _PROJECTS,
    **dict.fromkeys(
        ("PERIODIC_LOG_DELTA", "PERIODIC_LOG_STATS", "PERIODIC_LOG_TIMING_ENABLED"),
        "LOGSTATS_INTERVAL logs the crawl's progress",
    ),
    "REACTOR_THREADPOOL_MAXSIZE": _TRIO,
    "REDIRECT_MAX_METAREFRESH_DELAY": "use METAREFRESH_MAXDELAY",
    "REFERRER_POLICIES": "REFERRER_POLICY accepts a function",
    **dict.fromkeys(
        (
            *("REMOTE_CONTROL_ENABLED", "REMOTE_CONTROL_JOBS_DIR", "REMOTE_CONTROL_OUTPUT_MAX_BYTES"),
            *("REMOTE_CONTROL_TIMEOUT_DEFAULT", "REMOTE_CONTROL_TIMEOUT_MAX", "REMOTE_CONTROL_TRACEBACK_MAX_BYTES"),
            *("WEBSERVICE_ENABLED", "WEBSERVICE_HOST", "WEBSERVICE_LOGFILE", "WEBSERVICE_PORT"),
        ),
        REPLACEMENTS["webservice"],
    ),
    "REQUEST_FINGERPRINTER_IMPLEMENTATION": "there is only one implementation",
    "REQUEST_HEADER_ORDER": "headers are sent in the order in which they were set",
    "RETRY_EXCEPTIONS": "each error class defines whether it is retried; RETRY_PREDICATE overrides it",
    "RETRY_GIVE_UP_LOG_LEVEL": "the errback receives the error of a request that is given up",
    "ROBOTSTXT_PARSER": "robots.txt is parsed according to RFC 9309",
    **dict.fromkeys(
        (
            *("SCHEDULER", "SCHEDULER_DEBUG", "SCHEDULER_DISK_QUEUE", "SCHEDULER_MEMORY_QUEUE"),
            *("SCHEDULER_PRIORITY_QUEUE", "SCHEDULER_START_DISK_QUEUE", "SCHEDULER_START_MEMORY_QUEUE"),
        ),
        REPLACEMENTS["pqueues"],
    ),
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": "CONCURRENT_CALLBACKS limits the number of running callbacks",
    **dict.fromkeys(("SPIDER_CONTRACTS", "SPIDER_CONTRACTS_BASE"), "use trawl.testing instead of contracts"),
    **dict.fromkeys(("SPIDER_LOADER_CLASS", "SPIDER_MANAGER_CLASS"), _PROJECTS),
    "SPIDER_LOADER_WARN_ONLY": _PROJECTS,
    "SPIDER_MIDDLEWARES_BASE": "no spider middleware is built in",
    "SPIDER_MODULES": _PROJECTS,
    "STATS_DUMP": "the command always ends with a summary",
    "STATS_ENABLED": REPLACEMENTS["downloadermiddlewares.stats"],
    "STICKY_META_KEYS": "copy meta yourself; its key `session` is kept",
    **dict.fromkeys(
        (
            *("TELNETCONSOLE_ENABLED", "TELNETCONSOLE_HOST", "TELNETCONSOLE_PASSWORD", "TELNETCONSOLE_PORT"),
            "TELNETCONSOLE_USERNAME",
        ),
        REPLACEMENTS["telnet"],
    ),
    "TEMPLATES_DIR": _PROJECTS,
    "TWISTED_REACTOR": _TRIO,
    "TWISTED_REACTOR_ENABLED": _TRIO,
    "WARN_ON_GENERATOR_RETURN_VALUE": "`trawl check` checks callbacks",
}
"""Advice by name of the setting."""

_UNFELT = re.compile(
    r"ASYNCIO_EVENT_LOOP|BOT_NAME|COMMANDS_MODULE|CONCURRENT_ITEMS|DEFAULT_\w+|DEPTH_PRIORITY|DEPTH_STATS_VERBOSE"
    r"|DNS\w+|DOWNLOADER_STATS|EDITOR|FORCE_CRAWLER_PROCESS|HTTP2_MAX_FRAME_SIZE|LOG_(?!FORMATTER)\w+|MAIL_\w+"
    r"|MEMDEBUG_\w+|MEMUSAGE_ENABLED|META_COPY_\w+|NEWSPIDER_MODULE|PERIODIC_LOG_\w+|REACTOR_\w+|REMOTE_CONTROL_\w+"
    r"|REQUEST_FINGERPRINTER_IMPLEMENTATION|RETRY_GIVE_UP_LOG_LEVEL|\w+_DEBUG|SCRAPER_SLOT_\w+|SPIDER_CONTRACTS\w*"
    r"|SPIDER_LOADER_WARN_ONLY|SPIDER_MODULES|STATS_DUMP|STATS_ENABLED|TELNETCONSOLE_\w+|TEMPLATES_DIR|TWISTED_\w+"
    r"|WARN_ON_GENERATOR_RETURN_VALUE|WEBSERVICE_\w+"
)
"""Settings that trawl ignores without any change to the records or the requests."""


def is_felt(name: str, value: object) -> bool:
    """Return whether a crawl may have other records or requests because trawl ignores a setting of Scrapy.

    Return False for a value that turns the setting off, or that names only Scrapy's own classes.
    """
    inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
    parts = [part for part in (inner if isinstance(inner, list | tuple) else [inner]) if not isinstance(part, int)]
    is_scrapys = bool(parts) and all(isinstance(part, str) and part.startswith("scrapy.") for part in parts)
    return bool(value) and bool(setting_advice(name)) and not _UNFELT.fullmatch(name) and not is_scrapys


_FEED_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("postprocessing", "gzip_compresslevel", "gzip_filename", "gzip_mtime", "bz2_compresslevel"),
            *("lzma_check", "lzma_filters", "lzma_format", "lzma_preset"),
        ),
        "a path that ends in .gz or .zst is compressed",
    ),
    "fields_to_export": "write `fields` in the feed's entry",
    "uri_params": "%(name)s, %(time)s, %(batch)05d and the names of the spider's attributes are filled in",
}
"""Advice on keys of an entry in Scrapy's FEEDS that trawl does not have."""


def setting_advice(name: str) -> str:
    """Return the replacement of the setting ``name``; "" if trawl does not ignore it."""
    return UNSUPPORTED.get(name, "")


def key_advice(path: str, key: object) -> str:
    """Return the replacement of a Scrapy key in the mapping at ``path`` (``FEEDS['a.json']``); "" if there is none."""
    return _FEED_KEYS.get(str(key), "") if path.startswith("FEEDS") else ""


def is_foreign_setting(name: str) -> bool:
    """Return whether ``name`` is a Scrapy setting that trawl does not have under this name."""
    return name in UNSUPPORTED or name in RENAMED
