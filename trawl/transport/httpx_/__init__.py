"""HTTP/2 and proxies over httpcore, and our own HTTP/1.1 for httpx's clients."""

__all__ = ()
