"""Responses kept on disk (RFC 9111, or always), and answered from there before the throttle is asked."""

from trawl.cache.cache import open_cache
from trawl.cache.policy import CacheResult, DummyPolicy, Policy, make_policy
from trawl.cache.settings import CacheSettings
from trawl.cache.store import CacheEntry

__all__ = ["DummyPolicy", "CacheSettings", "CacheResult", "Policy", "CacheEntry", "open_cache", "make_policy"]
