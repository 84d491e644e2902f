"""C7: whatever the instant a crawl is killed at, its files hold whole records, and the next run continues them."""

from __future__ import annotations

import csv
import io
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.feeds.fakes import READERS, ROWS, opened, states_of, write_all
from trawl.errors import FeedError
from trawl.feeds import FeedOptions
from trawl.feeds.base import FeedState, FormatConflict
from trawl.feeds.exporter_format import make_format
from trawl.feeds.formats import CsvTable

FORMATS = list(READERS)


def flushes(name: str, indent: int = 0) -> list[tuple[bytes, int, bytes]]:
    """What a file holds before each flush of one row, the position of the flush, and what it writes."""
    style = make_format(FeedOptions(uri="out", format=name, indent=indent)).settled(ROWS[0])
    content = style.opening + style.closing if name in ("json", "xml") else b""
    position, found = 0, []
    for row in ROWS:
        body = (style.separator if position else style.opening + style.first) + style.record(row)
        found.append((content, position, body + style.closing))
        position += len(body)
        content = content[: position - len(body)] + body + style.closing
    return found


@pytest.mark.parametrize("indent", [0, 2])
@pytest.mark.parametrize("name", FORMATS)
def test_killed_at_any_byte_of_any_flush_a_feed_keeps_its_whole_records_c7(name: str, indent: int) -> None:
    style = make_format(FeedOptions(uri="out", format=name, indent=indent)).settled(ROWS[0])
    for written, (before, position, content) in enumerate(flushes(name, indent)):
        for cut in range(len(content) + 1):
            found = before[:position] + content[:cut] + before[position + cut :]
            end = style.end_of(io.BytesIO(found))
            kept = READERS[name](found[: end.position] + end.mend + style.closing) if end.position else []
            is_whole = cut >= len(content) - len(style.closing)
            assert kept == ROWS[: written + is_whole] or kept == ROWS[: written + 1]


@pytest.mark.parametrize("name", FORMATS)
def test_a_feed_cut_at_any_byte_ends_after_a_whole_record_c7(name: str) -> None:
    style = make_format(FeedOptions(uri="out", format=name)).settled(ROWS[0])
    content = style.opening + style.first + style.separator.join(map(style.record, ROWS)) + style.closing
    kept: list[dict[str, str]] = []
    for cut in range(len(content) + 1):
        end = style.end_of(io.BytesIO(content[:cut]))
        before, kept = kept, READERS[name](content[: end.position] + end.mend + style.closing) if end.position else []
        assert before == kept[: len(before)]  # it never gets less
        assert kept == ROWS[: len(kept)]
    assert kept == ROWS


@pytest.mark.parametrize("name", FORMATS)
async def test_a_feed_that_was_cut_off_is_continued_c7(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{name}"
    await write_all(await opened(path), ROWS)
    content = path.read_bytes()
    for cut in range(0, len(content), 17):
        path.write_bytes(content[:cut])
        await write_all(await opened(path), ROWS[:2])
        found = READERS[name](path.read_bytes())
        assert found[-2:] == ROWS[:2]
        assert found[:-2] == ROWS[: len(found) - 2]


@pytest.mark.parametrize("name", FORMATS)
async def test_a_feed_cut_back_to_a_recorded_position_holds_each_record_once_c7(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{name}"
    feeds = await opened(path)
    await write_all(feeds, ROWS[:2])
    recorded = states_of(feeds)
    await write_all(await opened(path), ROWS[2:])  # lost to the record: the run was killed before it was kept
    again = await opened(path, states=recorded, overwrite=True)
    await write_all(again, ROWS[2:])
    assert READERS[name](path.read_bytes()) == ROWS


@pytest.mark.parametrize("name", FORMATS)
async def test_a_recorded_position_of_zero_begins_the_file_anew_c7(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{name}"
    await write_all(await opened(path), ROWS[:1])
    await write_all(await opened(path, states={str(path): FeedState(0)}), ROWS[1:])
    assert READERS[name](path.read_bytes()) == ROWS[1:]


async def test_a_file_shorter_than_its_recorded_position_is_refused_c7(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"a":1}\n')
    with pytest.raises(FeedError, match="it has 8 bytes, not the 20 that were written to it"):
        await opened(path, states={str(path): FeedState(20)})
    assert path.read_bytes() == b'{"a":1}\n'


@pytest.mark.parametrize(("before", "after"), [("jsonl", "csv"), ("json", "csv"), ("csv", "xml"), ("xml", "jsonl")])
async def test_a_job_goes_on_with_no_file_in_another_format(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    feeds = await opened(path, format=before)
    await write_all(feeds, ROWS[:1])
    states, content = states_of(feeds), path.read_bytes()
    with pytest.raises(FeedError, match=f"has written it as {before}, but FEEDS has {after}: restore its format"):
        await opened(path, states=states, format=after)
    assert path.read_bytes() == content
    await write_all(await opened(path, states=states, format=before), ROWS[1:])
    assert READERS[before](path.read_bytes()) == ROWS


async def test_a_last_line_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}')
    await write_all(await opened(path), [{"a": "3"}])
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"a":"3"}\n'


async def test_what_is_cut_off_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"a":1}\n{"a"')
    with caplog.at_level(logging.WARNING, "trawl.feeds"):
        await write_all(await opened(path), [])
    assert caplog.messages == [f"feed {path}: removed 4 bytes after its last whole record"]
    caplog.clear()
    await write_all(await opened(path), [])
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("content", "after"),
    [
        (b'[{"a": 1}, {"a": [2, "]"]}]', b'[{"a": 1}, {"a": [2, "]"]},\n{"b":"x"}\n]\n'),
        (b'\xef\xbb\xbf[\n  {"a": 1}\n]\n\n', b'\xef\xbb\xbf[\n  {"a": 1},\n{"b":"x"}\n]\n'),
        (b'[{"a": [[1], {}]}, ["b"]]', b'[{"a": [[1], {}]}, ["b"],\n{"b":"x"}\n]\n'),
        (b"[ ]", b'[\n{"b":"x"}\n]\n'),
        (b"", b'[\n{"b":"x"}\n]\n'),
    ],
)
async def test_an_array_that_another_program_wrote_is_continued(content: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(content)
    await write_all(await opened(path), [{"b": "x"}])
    assert path.read_bytes() == after


async def test_a_document_that_another_program_wrote_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "out.xml"
    path.write_bytes(b"<items><!-- <item/> --><item a='>'>1</item ><item b='>'/></items>")
    await write_all(await opened(path), [{"b": "x"}])
    assert path.read_bytes() == (
        b"<items><!-- <item/> --><item a='>'>1</item ><item b='>'/>\n<item><b>x</b></item>\n</items>\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("out.json", b'{"a": 1}\n', "it contains no array"),
        ("out.json", b"[1, 2]", "its array contains values that are not objects"),
        ("out.json", b'["a"]', "its array contains values that are not objects"),
        ("out.json", b'[1, {"a": 1}, 2', "its array contains values that are not objects"),
        ("out.json", b"[1, 2", "its array contains values that are not objects"),
        ("out.json", b'{"a": 1', "it contains no array"),
        ("out.json", b"not json at all", "it contains no array"),
        ("out.json", b"[]x", "something follows its array"),
        ("out.csv", b"\xff\xfe,\n1,2\n", "its header can't be read"),
        ("out.json", b"[{}] [{}]", "something follows its array"),
        ("out.xml", b"<feed><item/></feed>", "its root is <feed>, not <items>"),
        (
            "out.xml",
            b"a,b\n1,2\n3,4\n5,6\n7,8\n9,10\n11,12\n13,14\n15,16\n17,18\n",
            "it is not an XML document of items",
        ),
        ("out.xml", b"<items><item></b></item>" + b"<item/>" * 9 + b"</items>", "it is not well-formed at byte"),
        (
            "out.xml",
            b'<?xml version="1.0" encoding="latin-1"?><items><item/></items>',
            "it is in latin-1, not in utf-8",
        ),
    ],
)
async def test_a_file_in_another_form_is_refused_and_left_as_it_was(
    name: str, content: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FeedError, match=f"feed .*{name}: the file can't be continued: {why}") as caught:
        await opened(path)
    assert caught.value.uri == str(path)
    assert path.read_bytes() == content


async def test_a_table_is_continued_under_its_own_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"\xef\xbb\xbfb,a\n1,2\n")
    await write_all(await opened(path), [{"a": "3", "c": "4", "b": "5"}])
    assert path.read_bytes() == b"\xef\xbb\xbfb,a\n1,2\n5,3\r\n"
    assert "field 'c' has no column" in caplog.text


async def test_a_table_with_other_columns_than_the_wanted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(FeedError, match="its columns are a,b, not b"):
        await opened(path, fields=["b"])
    await write_all(await opened(path, fields=["b"], overwrite=True), [{"a": "3", "b": "4"}])
    assert path.read_bytes() == b"b\r\n4\r\n"


async def test_a_table_without_a_header_is_continued_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"1,2\n")
    await write_all(await opened(path, item_export_kwargs={"include_headers_line": False}), [{"a": "3", "b": "4"}])
    assert path.read_bytes() == b"1,2\n3,4\r\n"


@pytest.mark.parametrize("name", ["jsonl", "json", "xml"])
async def test_ends_are_found_in_files_of_many_chunks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.feeds.formats.CHUNK_BYTES", 64)
    path = tmp_path / f"out.{name}"
    long = [{"name": "[\"'<&éxxxxxxxxxxx" * 100, "note": "x\n" * 100}, {"name": "y", "note": "z"}]
    await write_all(await opened(path), long)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 12])
    await write_all(await opened(path), ROWS[:1])
    assert READERS[name](path.read_bytes()) == [long[0], ROWS[0]]


def test_a_tag_without_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trawl.feeds.formats.CHUNK_BYTES", 64)
    content = b"<items><item a='" + b"x" * 100 + b"'/></items>"
    with pytest.raises(FormatConflict, match="the tag at byte 7 is too long"):
        make_format(FeedOptions(uri="out", format="xml")).end_of(io.BytesIO(content))


TEXTS = st.text(st.sampled_from('",\n\r\\]}<>a é'), max_size=6)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40)
@given(rows=st.lists(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS}), min_size=1, max_size=3), part=st.floats(0, 1))
def test_the_end_is_after_the_last_whole_record_of_any_text_c7(
    name: str, rows: list[dict[str, str]], part: float
) -> None:
    style = make_format(FeedOptions(uri="out", format=name)).settled(rows[0])
    ends, content = [0, len(style.opening)] if name == "csv" else [0], b""
    for row in rows:
        content += (style.separator if content else style.opening + style.first) + style.record(row)
        ends.append(len(content))
    cut = round(part * len(content))
    end = style.end_of(io.BytesIO(content[:cut]))
    assert end.position + len(end.mend) == max(place for place in ends if place <= cut + len(end.mend))


ELEMENTS = st.lists(
    st.recursive(
        st.integers() | st.booleans() | st.none() | st.text(st.sampled_from('",[]{}\\é'), max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab]", max_size=2), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: {"v": value}),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40)
@given(elements=ELEMENTS, indent=st.sampled_from([None, 0, 1]), part=st.floats(0, 1), chunk_bytes=st.integers(1, 9))
def test_the_end_of_any_array_is_found_however_it_was_laid_out_and_is_read_c7(
    elements: list[dict[str, object]], indent: int | None, part: float, chunk_bytes: int
) -> None:
    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(chunk_bytes)

    content = json.dumps(elements, indent=indent, ensure_ascii=False).encode()
    cut = round(part * len(content))
    end = make_format(FeedOptions(uri="out", format="json")).end_of(Dribble(content[:cut]))
    kept = json.loads(content[: end.position] + b"]") if end.position else []
    assert kept == elements[: len(kept)]
    if cut == len(content):
        assert kept == elements
    whole = json.dumps(elements[: len(kept) + 1], indent=indent, ensure_ascii=False).encode().rstrip(b"]\n")
    assert len(kept) == len(elements) or cut < len(whole)


LINES = st.lists(st.sampled_from(["a,b\n", '"a\n', 'b"\n', '"a""b",c\r\n', '5" x,y\n', ',""\n', '"",x"\n', '"x"y,"\n']))


@settings(max_examples=60)
@given(LINES)
def test_a_quote_opens_a_field_only_at_its_start(lines: list[str]) -> None:
    content = "".join(lines)
    ends, position = [0], 0
    for line in io.StringIO(content, newline=""):
        position += len(line)
        if not is_open(content[:position]):
            ends.append(position)
    assert CsvTable().end_of(io.BytesIO(content.encode())).position == ends[-1]


def is_open(text: str) -> bool:
    """Whether a field is open at the end of ``text``, which ends with a line, as Python's own reader sees it."""
    *_, last = csv.reader(io.StringIO(text + "Z", newline=""))
    return last != ["Z"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("jsonl", b"a,b\r\n1,2\r\n"),
        ("jsonl", b'[\n{"a":1}\n]\n'),
        ("jsonl", b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n</items>\n'),
        ("csv", b'{"a":1,"b":2}\n{"a":3}\n'),
        ("csv", b'[\n{"a":1}\n]\n'),
        ("csv", b"[\n]\n"),
        ("csv", b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n</items>\n'),
    ],
)
async def test_a_file_of_another_format_is_left_as_it_is(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / f"out.{name}"
    path.write_bytes(content)
    with pytest.raises(FeedError, match=r"the file can't be continued: it"):
        await opened(path)
    assert path.read_bytes() == content


async def test_a_field_that_looks_like_another_format_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    for _ in range(2):
        await write_all(await opened(path), [{'{"': "1", "[": "2", "<x>": "3"}])
    assert len(path.read_bytes().splitlines()) == 3
