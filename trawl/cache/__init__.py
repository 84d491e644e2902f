"""Responses kept on disk (RFC 9111, or always), and answered from there before the throttle is asked."""

from trawl.cache.cache import open_cache
from trawl.cache.policy import Always, Choice, Policy, policy_named
from trawl.cache.settings import CacheSettings
from trawl.cache.store import Stored

__all__ = ["Always", "CacheSettings", "Choice", "Policy", "Stored", "open_cache", "policy_named"]
