"""The settings of what a crawl tells about itself."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = ["LogLevel", "ObserveSettings"]

LogLevel = Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"]


class ObserveSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Logging and progress. Only the command sets logging up; a program that calls trawl keeps its own."""

    log_enabled: Annotated[bool, Meta(description="Whether the command writes a log at all.")] = True
    log_level: Annotated[
        LogLevel | int,
        Meta(description="The least severe log entries to write. Tracebacks of expected errors appear at DEBUG only."),
    ] = "INFO"
    log_file: Annotated[str | None, Meta(description="A file for the log; without one it goes to standard error.")] = (
        None
    )
    log_file_append: Annotated[
        bool, Meta(description="Whether an existing log file is continued; otherwise it is emptied first.")
    ] = True
    log_encoding: Annotated[str, Meta(description="The encoding of the log file.")] = "utf-8"
    log_format: Annotated[str, Meta(description="The shape of a log line, in `logging`'s percent style.")] = (
        "%(asctime)s [%(name)s] %(levelname)s: %(message)s"
    )
    log_dateformat: Annotated[str, Meta(description="The shape of the time in a log line, as `strftime` takes it.")] = (
        "%Y-%m-%d %H:%M:%S"
    )
    logstats_interval: Annotated[
        float,
        Meta(ge=0, title="s", description="How often progress is logged where there is no live panel; 0 is never."),
    ] = 60.0
