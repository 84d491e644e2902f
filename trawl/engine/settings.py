"""What a user may set about the engine itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["EngineSettings"]


class EngineSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The run as a whole."""

    shutdown_timeout: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="How long the first Ctrl-C, or CloseSpider, waits for what is in flight before cancelling it.",
        ),
    ] = 30.0
    concurrent_callbacks: Annotated[
        int,
        Meta(
            ge=1,
            title="callbacks",
            description="Callbacks that run at once; at this many no further page is sent, direct fetches are.",
        ),
    ] = 100
    httperror_allow_all: Annotated[
        bool, Meta(description="Every response goes to the callback, whatever its status.")
    ] = False
    httperror_allowed_codes: Annotated[
        tuple[int, ...], Meta(description="Statuses outside 2xx that go to the callback in place of the errback.")
    ] = ()
