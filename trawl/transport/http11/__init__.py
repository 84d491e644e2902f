"""HTTP/1.1 on httptools and Trio, with a pool of connections."""

from trawl.transport.http11.transport import Connect, Http11Transport

__all__ = ["Connect", "Http11Transport"]
