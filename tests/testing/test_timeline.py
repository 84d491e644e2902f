"""The sends of a run as text."""

from __future__ import annotations

from trawl.testing import Send
from trawl.testing.sends import rounded, timeline

FIRST = Send(time=0.0, finished=0.1, url="http://a.example/", host="a.example", scopes={"a.example": 1.0})
SECOND = Send(
    time=12.3,
    finished=13.0,
    url="http://a.example/\x1b[2J",
    host="a.example",
    slot=0,
    scopes={"api": 2.5, "cost": 1.0},
    slots={"api": 3, "cost": 7},
    method="POST",
    status=None,
    error="ReadTimeout",
)


def test_a08_one_line_a_send_in_columns() -> None:
    assert timeline([FIRST, SECOND]).splitlines() == [
        "  time  finished  slot       status  scopes        url",
        " 0.000     0.100     1          200  a.example     http://a.example/",
        "12.300    13.000   3,7  ReadTimeout  api=2.5 cost  POST http://a.example/\\x1b[2J",
    ]


def test_what_has_no_scope_and_what_is_cut_off_is_told() -> None:
    send = Send(time=0, finished=1, url="http://a.example/" + "x" * 200, host="a.example", slot=0, status=None)
    line = timeline([send]).splitlines()[1]
    assert line.split()[:5] == ["0.000", "1.000", "-", "cut", "off"]
    assert line.endswith("x…")
    assert len(line) < 150


def test_a_long_run_is_cut_and_an_empty_one_said_to_be() -> None:
    assert timeline([FIRST] * 5, most=2).splitlines()[-1] == "... and 3 more"
    assert timeline([]) == "no sends"


def test_binary_fractions_add_nothing_to_a_time() -> None:
    assert rounded(0.1 + 0.2) == 0.3
    assert str(rounded(-1e-17)) == "0.0"
