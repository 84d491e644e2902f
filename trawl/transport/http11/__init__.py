"""HTTP/1.1 on httptools and Trio, with a pool of connections."""

from trawl.transport.http11.connection import Connect
from trawl.transport.http11.pool import Connector, Pool, room_for_idle
from trawl.transport.http11.request_head import Failure, Question, StreamsError, Timeouts
from trawl.transport.http11.streaming import Answer, Streams
from trawl.transport.http11.transport import Http11Transport

__all__ = [
    "Answer",
    "Connect",
    "Connector",
    "Failure",
    "Http11Transport",
    "Pool",
    "Question",
    "Streams",
    "StreamsError",
    "Timeouts",
    "room_for_idle",
]
