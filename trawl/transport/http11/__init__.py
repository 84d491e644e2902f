"""HTTP/1.1 on httptools and Trio, with a pool of connections."""

from trawl.transport.http11.connection import Connect
from trawl.transport.http11.transport import Http11Transport

__all__ = ["Connect", "Http11Transport"]
