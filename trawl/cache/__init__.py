"""HTTP cache on disk. It serves stored responses (by RFC 9111, or always) before the throttle is involved."""

from trawl.cache.settings import CacheSettings, open_cache

__all__ = ["CacheSettings", "open_cache"]
