from __future__ import annotations

import codecs

import pytest

from trawl.http.encodings import REPLACEMENT, USER_DEFINED, codec_of, label_of


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


@pytest.mark.parametrize(
    ("encoding", "label"),
    [
        *(
            (same, same)
            for same in ("utf-8", "UTF-8", "utf8", "gbk", "gb2312", "iso-8859-1", "windows-1252", "nonsense")
        ),
        (" utf-8\n", "utf-8"),
        ("utf_8", "utf-8"),
        ("cp936", "gbk"),
        ("cp932", "shift_jis"),
        ("cp949", "euc-kr"),
        ("utf-16-be", "utf-16be"),
        ("mac-roman", "macintosh"),
        ("cp874", "windows-874"),
        ("iso2022_jp_ext", "iso-2022-jp"),
        ("latin-1", "iso8859-1"),
    ],
)
def test_a_label_stays_and_a_codec_gets_the_name_of_the_standard(encoding: str, label: str) -> None:
    assert label_of(encoding) == label


def test_the_first_label_of_each_codec_is_the_name_of_the_encoding_in_the_standard() -> None:
    from trawl.http.encodings import _LABELS_OF_CODEC

    names = """
        UTF-8 IBM866 ISO-8859-2 ISO-8859-3 ISO-8859-4 ISO-8859-5 ISO-8859-6 ISO-8859-7 ISO-8859-8 ISO-8859-10
        ISO-8859-13 ISO-8859-14 ISO-8859-15 ISO-8859-16 KOI8-R KOI8-U macintosh windows-874 windows-1250 windows-1251
        windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258 x-mac-cyrillic GBK
        gb18030 Big5 EUC-JP ISO-2022-JP Shift_JIS EUC-KR replacement UTF-16BE UTF-16LE x-user-defined
    """.lower().split()
    assert [labels[0] for labels in _LABELS_OF_CODEC.values()] == names
