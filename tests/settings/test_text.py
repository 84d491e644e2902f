from __future__ import annotations

from typing import Any

import pytest

from trawl.errors import SettingsError
from trawl.settings.check import from_json, from_text


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("0.5", float, 0.5),
        ("true", bool, True),
        ("True", bool, True),
        ("FALSE", bool, False),
        ("1", bool, True),
        ("0", bool | None, False),
        ("1", bool | float, 1.0),
        ("null", str | None, None),
        ("5", str, "5"),
        ("my bot (me@a.example)", str, "my bot (me@a.example)"),
        ("[500, 502]", list[int], [500, 502]),
        ("500,502", list[int], [500, 502]),
        ("500", list[int], [500]),
        ("a, b", list[str], ["a", "b"]),
        ("1,2", tuple[str, ...], ("1", "2")),
        ('{"a": 1}', dict[str, int], {"a": 1}),
        ("[-0.1, 0.3]", bool | float | list[float], [-0.1, 0.3]),
    ],
)
def test_a_text_is_read_as_json_where_it_can_be(text: str, annotation: Any, value: object) -> None:
    assert from_text(text, annotation, "NAME") == value


@pytest.mark.parametrize(
    ("text", "annotation", "sentence"),
    [
        ("abc", float, "NAME must be a number, not 'abc'"),
        ("", float, "NAME must be a number, not ''"),
        ("1e999", float, "NAME must be a number, not '1e999'"),
        ("yes", bool, "NAME must be true or false, not 'yes'"),
        (
            "{'a': 1}",
            dict[str, int],
            "NAME must be a mapping of strings to whole numbers, not \"{'a': 1}\", which is not JSON: Expecting"
            " property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        (
            "[NaN]",
            list[int],
            "NAME must be a list of whole numbers, not '[NaN]', which is not JSON: it has no such values",
        ),
        (
            "[1",
            dict[Any, str],
            "NAME must be a mapping whose values are strings, not '[1', which is not JSON: Expecting ',' delimiter:"
            " line 1 column 3 (char 2)",
        ),
    ],
)
def test_a_text_that_fits_in_no_reading_is_refused(text: str, annotation: Any, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_text(text, annotation, "NAME")
    assert str(caught.value) == sentence


def test_text_that_is_no_json_stays_itself() -> None:
    assert from_json("{not json") == "{not json"
    assert from_json("\udcff") == "\udcff"
