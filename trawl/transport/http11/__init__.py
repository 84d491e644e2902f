"""HTTP/1.1 on httptools and Trio, with a pool of connections."""

from trawl.transport.http11.connection import Connect
from trawl.transport.http11.pool import Connector, Pool, room_for_idle
from trawl.transport.http11.request_head import Failure, StreamedRequest, StreamError, Timeouts
from trawl.transport.http11.streams import StreamClient, StreamedResponse
from trawl.transport.http11.transport import Http11Transport

__all__ = [
    "StreamedResponse",
    "Connect",
    "Connector",
    "Failure",
    "Http11Transport",
    "Pool",
    "StreamedRequest",
    "StreamClient",
    "StreamError",
    "Timeouts",
    "room_for_idle",
]
