"""The addresses in an attribute."""

from __future__ import annotations

import pytest

from trawl.links import addresses_in


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ()),
        (" , ,", ()),
        ("a.jpg", ("a.jpg",)),
        ("a.jpg 1x, b.jpg 2x", ("a.jpg", "b.jpg")),
        ("a.jpg 480w,\n b,c.jpg 800w ", ("a.jpg", "b,c.jpg")),
        ("a.jpg, b.jpg", ("a.jpg", "b.jpg")),
        ("data:image/png;base64,AA== 1x, /b 2x", ("data:image/png;base64,AA==", "/b")),
        ("a.jpg calc(1px, 2px) , b.jpg", ("a.jpg", "b.jpg")),
        ("a.jpg,, b.jpg,c.jpg,", ("a.jpg", "b.jpg,c.jpg")),
        ("a.jpg (1x, b.jpg 2x", ("a.jpg",)),
        ("a.jpg 1x) 2x, b.jpg", ("a.jpg", "b.jpg")),
        ("a\u00a0b.jpg 1x", ("a\u00a0b.jpg",)),
    ],
)
def test_a_srcset_has_several(value: str, expected: tuple[str, ...]) -> None:
    assert addresses_in("srcset", value) == expected


@pytest.mark.parametrize(
    ("value", "count"),
    [("," * 200_000, 0), ("a" * 200_000 + " (b", 1), ("a (" + "b)(" * 100_000, 1), ("a " + "(" * 200_000, 1)],
)
def test_no_srcset_takes_longer_than_it_is_long(value: str, count: int) -> None:
    assert len(addresses_in("srcset", value)) == count  # by going back over it: hours


def test_another_attribute_has_one() -> None:
    assert addresses_in("href", "a, b") == ("a, b",)
