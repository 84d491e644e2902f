from __future__ import annotations

import gzip
import importlib
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from trawl.errors import BodyTooLarge, ResponseBroken
from trawl.transport.body import Body
from trawl.transport.content_encoding import accept_encoding, codings_of

brotli: Any = importlib.import_module("brotli")


def raw_deflate(data: bytes) -> bytes:
    codec = zlib.compressobj(wbits=-15)
    return codec.compress(data) + codec.flush()


ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


ENCODE_FAST: dict[str, Callable[[bytes], bytes]] = {
    **ENCODE,
    "br": partial(brotli.compress, quality=3),
    "gzip": partial(gzip.compress, compresslevel=1),
}

MOST_A_PIECE = {"gzip": 65_536, "deflate": 65_536, "br": 262_144, "zstd": 9_000_000}


def feed(body: Body, data: bytes) -> None:
    for piece in body.decoded(data):
        body.keep(piece)


def decode(codings: Sequence[str], data: bytes, step: int = 7, max_bytes: int = 0) -> bytes:
    body = Body(codings, max_bytes)
    for start in range(0, len(data), step):
        feed(body, data[start : start + step])
    loss = body.loss()
    if loss is not None:
        raise loss
    return body.finish()


@settings(max_examples=50, deadline=None)  # the first use of a codec loads it
@given(st.binary(max_size=600), st.lists(st.sampled_from(sorted(ENCODE)), max_size=2), st.integers(1, 200))
def test_what_was_encoded_is_decoded_however_it_is_cut(data: bytes, codings: list[str], step: int) -> None:
    sent = data
    for coding in codings:
        sent = ENCODE[coding](sent)
    assert decode(codings, sent, step) == data


@pytest.mark.parametrize("coding", sorted(ENCODE))
def test_a_large_body_comes_whole_in_small_pieces(coding: str) -> None:
    text = b"".join(b"%d " % number for number in range(100_000)) + bytes(1_000_000)
    pieces: list[int] = []
    body = Body([coding], 0)
    sent = ENCODE_FAST[coding](text)
    for start in range(0, len(sent), 65536):
        pieces += [len(piece) for piece in body.decoded(sent[start : start + 65536])]
    assert sum(pieces) == len(text)
    assert body.loss() is None
    assert max(pieces) <= MOST_A_PIECE[coding]


@settings(max_examples=50)
@given(st.binary(max_size=300), st.integers(1, 50))
def test_bare_deflate_is_told_from_zlibs(data: bytes, step: int) -> None:
    assert decode(["deflate"], raw_deflate(data), step) == data


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_several_members_make_one_body(coding: str) -> None:
    assert decode([coding], ENCODE[coding](b"one ") + ENCODE[coding](b"two")) == b"one two"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_rubbish_after_the_end_is_ignored(coding: str) -> None:
    sent = ENCODE[coding](b"body")
    body = Body([coding], 0)
    feed(body, sent)
    feed(body, b"\0\0rubbish")
    assert body.loss() is None
    assert body.finish() == b"body"


@pytest.mark.parametrize("coding", sorted(ENCODE))
def test_data_that_ends_early_is_told_and_kept_as_far_as_it_goes(coding: str) -> None:
    text = bytes(range(256)) * 40
    body = Body([coding], 0)
    feed(body, ENCODE[coding](text)[:-3])
    loss = body.loss()
    assert isinstance(loss, ResponseBroken)
    assert str(loss) == f"its {coding} data ends early"
    assert text.startswith(body.finish())


@pytest.mark.parametrize("coding", sorted(ENCODE))
def test_data_that_is_broken_is_an_error_that_names_its_coding(coding: str) -> None:
    with pytest.raises(ResponseBroken, match=f"its {coding} data is broken"):
        decode([coding], b"\xff\xfe<html>this was never compressed</html>" * 20, 5000)


@pytest.mark.parametrize("coding", sorted(ENCODE))
def test_a_body_of_nothing_is_whole_whatever_its_coding(coding: str) -> None:
    assert decode([coding], b"") == b""


@pytest.mark.parametrize("coding", sorted(ENCODE))
def test_a_bomb_is_refused_before_it_has_grown_far_above_the_limit_c8(coding: str) -> None:
    bomb = ENCODE_FAST[coding](bytes(8_000_000))
    body = Body([coding], 100_000)
    with pytest.raises(BodyTooLarge, match="passes 100000 bytes once decompressed"):
        feed(body, bomb)
    assert body._counts[0] <= 100_000  # before decompression
    assert sum(body._counts) < 100_000 + MOST_A_PIECE[coding] * 2


def test_a_bomb_inside_a_bomb_is_refused_at_the_step_that_grows_c8() -> None:
    inner = gzip.compress(gzip.compress(bytes(8_000_000)))
    with pytest.raises(BodyTooLarge):
        decode(["gzip", "gzip"], inner, max_bytes=100_000)


def test_a_body_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    assert decode([], b"a" * 50, max_bytes=50) == b"a" * 50
    with pytest.raises(BodyTooLarge, match=r"its body passes 50 bytes$"):
        decode([], b"a" * 51, max_bytes=50)


def test_a_limit_of_0_is_none() -> None:
    assert len(decode(["gzip"], gzip.compress(bytes(1_000_000)), 65536)) == 1_000_000


def test_an_unknown_coding_leaves_the_body_as_it_is_under_it() -> None:
    assert decode(["compress"], b"as it is") == b"as it is"
    assert decode(["compress", "gzip"], gzip.compress(b"as it is")) == b"as it is"
    sent = gzip.compress(b"x")
    assert decode(["gzip", "compress"], sent) == sent


def test_nobody_compresses_a_body_six_times() -> None:
    with pytest.raises(ResponseBroken, match="compressed 6 times"):
        Body(["gzip"] * 6, 0)


@pytest.mark.parametrize(
    ("fields", "codings"),
    [
        ([], []),
        (["gzip"], ["gzip"]),
        (["GZIP, br", "x-gzip"], ["gzip", "br", "gzip"]),
        (["identity", " , "], []),
    ],
)
def test_the_codings_are_read_from_all_fields_in_order(fields: list[str], codings: list[str]) -> None:
    assert codings_of(fields) == codings


def test_only_what_can_be_decoded_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accept_encoding() == "gzip, deflate, br, zstd"

    def nothing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", nothing)
    assert accept_encoding() == "gzip, deflate"


def test_a_body_in_crumbs_takes_no_more_memory_than_its_bytes_c8() -> None:
    crumbs = [bytes([number % 7, number % 11]) for number in range(100_000)]
    body = Body((), 0)
    tracemalloc.start()
    try:
        for crumb in crumbs:
            feed(body, bytes(bytearray(crumb)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 600_000
    assert body.finish() == b"".join(crumbs)
