"""A web out of WARC files: what was written down once, answered again on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

from trawl.http import Request, host_scope, normalize_url
from trawl.testing.responses import SimulatedResponse

__all__ = ["Answers", "answers_of", "replaying"]

Answers = dict[str, dict[tuple[str, str, bytes], SimulatedResponse]]
"""The answers of each host, by method, URL and body of the request."""

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
_NOT_THERE = SimulatedResponse(404, "it is not in the WARC file", {"Content-Type": "text/plain; charset=utf-8"})


def answers_of(paths: Iterable[str | PathLike[str]]) -> Answers:
    """What the exchanges in WARC files say; of several for one request the last.

    Raises:
        ImportError: warcio is not installed: it is the extra ``warc``.
        OSError: A file can't be read.
        ValueError: A file is no WARC file.
    """
    from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from warcio.exceptions import ArchiveLoadFailed  # type: ignore[import-untyped]  # noqa: PLC0415

    answers: Answers = {}
    for path in paths:
        responses: dict[str, tuple[str, SimulatedResponse]] = {}
        requests: dict[str, tuple[str, bytes]] = {}
        try:
            with open(path, "rb") as file:
                for record in ArchiveIterator(file):
                    _read(record, requests, responses)
        except ArchiveLoadFailed as error:
            raise ValueError(f"{path} is no WARC file: {error}") from error
        for number, (url, answer) in responses.items():
            method, body = requests.get(number, ("GET", b""))
            answers.setdefault(host_scope(url), {})[method, url, body] = answer
    return answers


def replaying(answers: Mapping[tuple[str, str, bytes], SimulatedResponse]) -> Callable[[Request], SimulatedResponse]:
    """What a host answers whose answers these are; 404 where there is none."""

    def answer(request: Request) -> SimulatedResponse:
        return answers.get((request.method, request.url.partition("#")[0], bytes(request.body or b"")), _NOT_THERE)

    return answer


def _read(
    record: Any, requests: dict[str, tuple[str, bytes]], responses: dict[str, tuple[str, SimulatedResponse]]
) -> None:
    head = record.http_headers
    if record.rec_type not in ("request", "response") or head is None:
        return
    body = record.content_stream().read()
    if record.rec_type == "request":
        requests[record.rec_headers.get_header("WARC-Concurrent-To")] = (head.protocol, body)
        return
    url = normalize_url(record.rec_headers.get_header("WARC-Target-URI"))
    fields: dict[str, list[str]] = {}
    for name, value in head.headers:
        if name.lower() not in _OF_THE_WIRE and not name.lower().startswith("x-archive-orig-"):
            fields.setdefault(name, []).append(value)
    number = record.rec_headers.get_header("WARC-Record-ID")
    responses[number] = (url, SimulatedResponse(int(head.get_statuscode()), body, fields))
