from __future__ import annotations

import codecs

import pytest

from trawl.http.encodings import REPLACEMENT, USER_DEFINED, codec_of


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("UTF-8", "utf-8"),
        (" utf8\n", "utf-8"),
        ("iso-8859-1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("gb2312", "gbk"),
        ("shift_jis", "cp932"),
        ("iso-8859-9", "cp1254"),
        ("utf-16", "utf-16-le"),
        ("hz-gb-2312", REPLACEMENT),
        ("x-user-defined", USER_DEFINED),
    ],
)
def test_a_label_means_what_browsers_take_it_for(label: str, codec: str) -> None:
    assert codec_of(label) == codec


@pytest.mark.parametrize("label", ["hex", "rot13", "utf-7", "idna", "unicode_escape", "utf_8", "utf-32", "zlib", ""])
def test_other_names_of_codecs_do_not_count(label: str) -> None:
    assert codec_of(label) is None


def test_every_codec_is_one_that_python_has() -> None:
    from trawl.http.encodings import _CODEC_OF_LABEL

    named = set(_CODEC_OF_LABEL.values()) - {REPLACEMENT, USER_DEFINED}
    assert {codec: codecs.lookup(codec)._is_text_encoding for codec in named} == dict.fromkeys(named, True)
    assert len(_CODEC_OF_LABEL) == 228  # as many labels as the standard has
