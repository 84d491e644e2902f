"""The sends of a run as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.testing import Send, Span
from trawl.testing.sends import merge_stretches
from trawl.testing.svg import BARS, SHADES, Scale, axis_marks, axis_step, draw, make_tracks

SVG = "{http://www.w3.org/2000/svg}"


def a_send(time: float, finished: float, slot: int = 1, status: int | None = 200, scope: str = "a.example") -> Send:
    return Send(
        time=time,
        finished=finished,
        url=f"http://{scope}/?a=1&b={time}",
        host=scope,
        slot=slot,
        scopes={scope: 1.0},
        slots={scope: slot} if slot else {},
        status=status,
    )


A08 = [a_send(0.0, 0.6), a_send(0.3, 0.9, 2), a_send(1.0, 1.6)]


def shapes(picture: str, kind: str, **attributes: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture)
    return [
        each for each in root.iter(SVG + kind) if all(each.get(name) == value for name, value in attributes.items())
    ]


def test_a08_a_bar_goes_from_the_send_to_the_end_in_the_row_of_its_slot() -> None:
    bars = shapes(draw(A08, title="A08"), "rect", stroke="#ffffff")
    assert len(bars) == 3
    x, y, width = ([float(bar.get(name, "")) for bar in bars] for name in ("x", "y", "width"))
    assert y[0] == y[2] < y[1]
    second = (x[2] - x[0]) / 1.0
    assert x[1] - x[0] == pytest.approx(0.3 * second, abs=0.01)
    assert width == pytest.approx([0.6 * second] * 3, abs=0.01)


def test_the_axis_is_labelled_and_so_are_scopes_and_slots() -> None:
    words = [each.text for each in shapes(draw(A08, title="A08"), "text")]
    assert words[0] == "A08"
    assert {"a.example", "slot 1", "slot 2", "seconds since the start of the crawl", "0.0", "1.0", "1.6"} <= set(words)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, "good"),
        (301, "moved"),
        (404, "failed"),
        (429, "refused"),
        (503, "refused"),
        (500, "failed"),
        (None, "error"),
    ],
)
def test_a_bar_has_the_colour_of_its_answer_and_the_legend_tells_which(status: int | None, kind: str) -> None:
    picture = draw([a_send(0, 1, status=status)])
    colour, words = BARS[kind]
    assert len(shapes(picture, "rect", fill=colour)) == 2  # the bar and the legend
    assert words in [each.text for each in shapes(picture, "text")]


@pytest.mark.parametrize("kind", list(SHADES))
def test_what_closed_a_scope_is_shaded_and_explained(kind: str) -> None:
    stretch = Span("a.example", 0.2, 0.7, kind, "configuration")
    picture = draw(A08, [stretch, Span("other.example", 0, 1, "quota")])
    colour, words = SHADES[stretch.kind]
    shaded = shapes(picture, "rect", fill=colour)
    assert len(shaded) == 2  # the legend and the shade
    tip = shaded[1].find(SVG + "title")
    assert tip is not None
    assert tip.text == f"{words}: 0.2 to 0.7 s\nconfiguration"


def test_a06_a_slot_that_rests_is_shaded_in_its_row_only() -> None:
    picture = draw(A08, [Span("a.example", 0.3, 1.3, "delay_per_slot", slot=2)])
    shade = shapes(picture, "rect", fill=SHADES["delay_per_slot"][0])[1]
    assert float(shade.get("height", "")) == 18.0


def test_a_part_of_the_run_and_of_the_scopes_can_be_drawn() -> None:
    sends = [*A08, a_send(50, 51, scope="b.example")]
    picture = draw(sends, start=0.2, end=1.0, scopes=["a.example"])
    words = [each.text for each in shapes(picture, "text")]
    assert "b.example" not in words
    assert "3 sends from 0.2 s to 1 s" in words


def test_many_scopes_and_slots_stay_one_picture() -> None:
    sends = [a_send(number, number + 1, scope=f"{number}.example") for number in range(50)]
    sends += [a_send(0, 1, slot) for slot in range(1, 101)]
    words = [each.text for each in shapes(draw(sends), "text")]
    assert "and 11 more scopes" in words
    assert sum(word is not None and word.startswith("slot") for word in words) < 70
    lanes, left_out = make_tracks(sends)
    assert (lanes[0].scope, lanes[0].rows, len(lanes), left_out) == ("a.example", 100, 40, 11)


def test_sends_without_a_slot_share_a_lane_of_rows_that_are_free() -> None:
    lanes, _ = make_tracks([a_send(0, 2, 0), a_send(1, 3, 0), a_send(2, 4, 0)])
    assert [(lane.label, [row for row, _ in lane.bars]) for lane in lanes] == [("(no scope)", [0, 1, 0])]


def test_names_from_pages_can_not_break_the_picture() -> None:
    hostile = a_send(0, 1, scope='<script>alert("x")</script>\x1b & more')
    picture = draw([hostile], [Span(hostile.host, 0, 1)], title="<b>&\x00")
    assert "<script>" not in picture
    assert len(shapes(picture, "title")) == 3  # of the picture, the shade and the bar


def test_no_sends_are_a_picture_too() -> None:
    assert "0 sends from 0 s to 1 s" in draw([])


def test_stretches_of_one_kind_that_overlap_are_one() -> None:
    first, second, apart = Span("a", 0, 2), Span("a", 1, 3), Span("a", 4, 5)
    slots = [Span("a", 0, 2, "delay_per_slot", slot=slot) for slot in (1, 2)]
    assert list(merge_stretches([apart, second, first, *slots])) == [*slots, Span("a", 0, 3), apart]


@given(start=st.floats(0, 1e5), span=st.floats(1e-3, 1e6), most=st.integers(2, 20))
def test_the_marks_of_the_axis_are_round_evenly_spaced_and_not_too_many(start: float, span: float, most: int) -> None:
    end = start + span
    step = axis_step(span, most)
    assert f"{step:e}"[0] in "125"
    found = axis_marks(start, end, most)
    assert len(found) <= most + 1
    assert all(start - step * 1e-6 <= at <= end + step * 1e-6 for at, _ in found)
    assert len({label for _, label in found}) == len(found)


def test_the_scale_puts_what_is_outside_on_the_edge() -> None:
    scale = Scale(10, 20, 100, 200)
    assert [scale.x(at) for at in (0, 10, 15, 20, 99)] == [100, 100, 150, 200, 200]
    assert scale.shows(5, 10)
    assert not scale.shows(5, 9)
