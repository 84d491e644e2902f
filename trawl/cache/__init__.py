"""HTTP cache: responses kept on disk (RFC 9111, or always), and answered from there before the throttle is asked."""

from trawl.cache.settings import CacheSettings, open_cache

__all__ = ["CacheSettings", "open_cache"]
