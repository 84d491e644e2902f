"""The rates of a run as figures and as a picture."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.testing.test_simulation import a_run
from tests.testing.test_svg import shapes
from trawl.testing import Rate, RateLimit, Send, Simulation
from trawl.testing.rates import MAX_WINDOWS, count_rates, window_for
from trawl.testing.svg import BARS, DARK, LETTER, SHADES

SVG = "{http://www.w3.org/2000/svg}"
GOOD, REFUSED = BARS["good"][0], BARS["refused"][0]


def a_send(time: float, status: int | None = 200, scope: str = "a.example", host: str = "a.example") -> Send:
    url = f"http://{host}/"
    return Send(
        time=time, finished=time + 0.5, url=url, host=host, scopes={scope: 1.0}, slots={scope: 1}, status=status
    )


def a_simulation(sends: Sequence[Send], **limits: Sequence[RateLimit]) -> Simulation:
    named = {f"{host}.example": limit for host, limit in limits.items()}
    return Simulation(sends=tuple(sends), items=[], stats={}, reason="finished", elapsed=10.0, limits=named)


TWO_A_SECOND = [a_send(place / 2, 429 if place == 7 else 200) for place in range(20)]


def test_the_rate_of_a_scope_is_told_window_by_window() -> None:
    rates = a_simulation(TWO_A_SECOND).rates("a.example", window=2.5)
    assert rates == [
        Rate(0.0, 2.5, 2.0, 0.0),
        Rate(2.5, 5.0, 2.0, 0.4),
        Rate(5.0, 7.5, 2.0, 0.0),
        Rate(7.5, 10.0, 2.0, 0.0),
    ]


def test_without_a_window_each_has_five_sends_or_more_on_average() -> None:
    rates = a_simulation(TWO_A_SECOND).rates("a.example")
    assert [(rate.start, rate.end) for rate in rates] == [(0.0, 5.0), (5.0, 10.0)]
    assert window_for(1000.0, 10**6) == 5.0
    assert window_for(1000.0, 0) == 1000.0


def test_a_scope_without_a_send_has_a_rate_of_0() -> None:
    assert [rate.rate for rate in a_simulation(TWO_A_SECOND).rates("b.example")] == [0.0]
    assert [rate.rate for rate in a_simulation([]).rates("b.example")] == [0.0]


@pytest.mark.parametrize("window", [0.0, -1.0, float("nan")])
def test_a_window_of_no_time_is_refused(window: float) -> None:
    with pytest.raises(ValueError, match="window must be more than 0 seconds, not"):
        a_simulation(TWO_A_SECOND).rates("a.example", window)


@given(
    times=st.lists(st.floats(0, 1e4), min_size=1).map(sorted),
    after=st.floats(0, 100),
    window=st.none() | st.floats(1.0, 1e3),
)
def test_each_send_is_in_one_window(times: list[float], after: float, window: float | None) -> None:
    end = times[-1] + after + 0.01
    seconds = window_for(end, len(times)) if window is None else window
    rates = count_rates(times, times[::2], 0.0, end, seconds)
    assert sum(rate.rate * (rate.end - rate.start) for rate in rates) == pytest.approx(len(times))
    assert sum(rate.refused * (rate.end - rate.start) for rate in rates) == pytest.approx(len(times[::2]))
    assert (rates[0].start, rates[-1].end) == (0.0, end)
    assert all(earlier.end == later.start for earlier, later in pairwise(rates))
    assert len(rates) == 1 or rates[-1].end - rates[-1].start >= seconds * 0.49
    if window is None:
        assert len(rates) <= MAX_WINDOWS + 1


MOVED = RateLimit(rate=5, changes=[(60.0, 1.0), (90.0, 8.0)])


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ([MOVED], [(0.0, 5.0), (60.0, 1.0), (90.0, 8.0)]),
        ([MOVED, RateLimit(rate=4)], [(0.0, 4.0), (60.0, 1.0), (90.0, 4.0)]),
        ([RateLimit(rate=1), RateLimit(rate=4, changes=[(3.0, 2.0)])], [(0.0, 1.0)]),
        ([], []),
    ],
)
def test_the_limit_of_a_server_is_the_lowest_of_its_own_over_time(
    limits: Sequence[RateLimit], steps: list[tuple[float, float]]
) -> None:
    assert a_simulation(TWO_A_SECOND, a=limits).limit("a.example") == steps


def test_a_scope_of_several_servers_has_no_limit_of_one() -> None:
    both = [a_send(0.0, scope="both"), a_send(1.0, scope="both", host="b.example")]
    assert a_simulation(both, a=[MOVED], b=[MOVED]).limit("both") == []


def test_a_run_knows_the_limits_of_its_web() -> None:
    assert a_run({}, {"limit": MOVED}).limit("a.example")[1] == (60.0, 1.0)
    assert a_run({}).limit("a.example") == []


def test_the_busiest_scope_is_the_first() -> None:
    sends = [a_send(0.0, scope="once"), *TWO_A_SECOND, Send(time=1.0, finished=1.0, url="http://c/", host="c")]
    assert a_simulation(sends).scopes == ["a.example", "c", "once"]


def test_a_bar_is_as_high_as_its_rate_and_ends_red_where_requests_were_refused() -> None:
    sim = a_simulation(TWO_A_SECOND, a=[RateLimit(rate=1.6)])
    picture = sim.plot(window=2.5)
    bars = shapes(picture, "rect", fill=GOOD)[1:]  # the first is the legend's
    (red,) = shapes(picture, "rect", fill=REFUSED)[1:]
    heights = [float(bar.get("height", "")) for bar in bars]
    assert heights == pytest.approx([heights[0], heights[0] * 0.8, heights[0], heights[0]], abs=0.02)
    assert float(red.get("height", "")) == pytest.approx(heights[0] * 0.2, abs=0.02)
    tip = red.find(SVG + "title")
    assert tip is not None
    assert tip.text == "2.5 to 5 s: 2 requests/s, 0.4 of them refused"


def test_the_limit_is_a_dashed_line_at_its_rate_and_follows_its_changes() -> None:
    sim = a_simulation(TWO_A_SECOND, a=[RateLimit(rate=2, changes=[(5.0, 1.0)])])
    picture = sim.plot(window=2.5)
    first, second = shapes(picture, "line", **{"stroke-dasharray": "6 4"})[1:]
    floor = max(float(each.get("y1", "")) for each in shapes(picture, "line", stroke="#6b7280"))
    top = float(shapes(picture, "rect", fill=GOOD)[1].get("y", ""))
    assert float(first.get("y1", "")) == pytest.approx(top, abs=0.02)  # the bars are of 2 a second
    assert floor - float(second.get("y1", "")) == pytest.approx((floor - top) / 2, abs=0.02)
    assert first.get("x2") == second.get("x1")


def test_each_refusal_is_marked_at_its_time_and_at_most_one_a_pixel() -> None:
    few = [a_send(0.0), a_send(5.0, 429), a_send(9.5, 503), a_send(10.0)]
    (marks,) = shapes(a_simulation(few).plot(start=0.0, end=10.0, width=1084.0), "path")  # a thousand pixels for 10 s
    assert re.findall(r"M(\d+) ", marks.get("d", "")) == ["564", "1014"]
    sends = [a_send(place / 1000, 503) for place in range(5000)]
    (many,) = shapes(a_simulation(sends).plot(width=400.0), "path")
    assert 200 < many.get("d", "").count("M") < 400
    assert shapes(a_simulation([a_send(0)]).plot(), "path") == []


def test_what_is_drawn_is_labelled_with_its_units() -> None:
    words = [each.text for each in shapes(a_simulation(TWO_A_SECOND, a=[MOVED]).plot(title="Two"), "text")]
    assert words[:4] == [
        "Two",
        "requests a second in each 5 s",
        "refused (429 or 503); a mark below the axis for each",
        "the server's limit",
    ]
    assert {"a.example: 20 sends, 1 of them refused", "requests/s", "0 s", "10 s"} <= set(words)


def test_a_legend_that_is_too_long_for_a_narrow_picture_goes_on_in_the_next_row() -> None:
    sim = a_simulation(TWO_A_SECOND, a=[MOVED])
    rows = {}
    for width in (900.0, 600.0, 440.0):
        words = shapes(sim.plot(width=width), "text")[1:4]
        rows[width] = [float(each.get("y", "")) for each in words]
        assert all(float(e.get("x", "")) + LETTER * len(e.text or "") <= width for e in words), width
    assert rows == {900.0: [56.0, 56.0, 56.0], 600.0: [56.0, 74.0, 74.0], 440.0: [56.0, 74.0, 92.0]}


def test_a_graph_is_as_high_as_it_is_asked_to_be() -> None:
    sim = a_simulation(TWO_A_SECOND)
    whole = {height: ElementTree.fromstring(sim.plot(height=height)).get("height") for height in (116.0, 60.0)}
    assert whole == {116.0: "300", 60.0: "244"}
    bars = {height: float(shapes(sim.plot(height=height), "rect", fill=GOOD)[1].get("height", "")) for height in whole}
    assert bars[60.0] / bars[116.0] == pytest.approx(60.0 / 116.0, rel=0.01)


def test_only_the_busiest_of_many_scopes_are_drawn_and_the_others_counted() -> None:
    sends = [a_send(0.0, scope=f"{place}.example") for place in range(40)] + TWO_A_SECOND
    words = [each.text or "" for each in shapes(a_simulation(sends).plot(), "text")]
    assert sum(" sends" in word for word in words) == 12
    assert "and 29 more scopes: these are the 12 busiest" in words
    asked = [each.text or "" for each in shapes(a_simulation(sends).plot(scopes=["39.example"]), "text")]
    assert [word for word in asked if " sends" in word or " more scopes" in word] == ["39.example: 1 sends"]


def test_a_part_of_the_run_can_be_drawn() -> None:
    words = [each.text for each in shapes(a_simulation(TWO_A_SECOND).plot(start=4.0, end=8.0), "text")]
    assert "a.example: 9 sends" in words
    assert {"4.0 s", "8.0 s"} <= set(words)
    assert "9 s" not in words


@pytest.mark.parametrize("sends", [[], [a_send(0.0)]])
def test_a_run_with_next_to_nothing_is_a_picture_too(sends: list[Send]) -> None:
    ElementTree.fromstring(a_simulation(sends).plot())


def test_names_from_pages_can_not_break_the_picture() -> None:
    picture = a_simulation([a_send(0, scope="<script>\x1b & more")]).plot(title="<b>\x00")
    ElementTree.fromstring(picture)
    assert "<script>" not in picture


def luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.2)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_all_that_is_drawn_can_be_read_on_a_light_and_on_a_dark_screen() -> None:
    plot = a_simulation(TWO_A_SECOND, a=[MOVED]).plot()
    colours = {colour for colour, _ in [*BARS.values(), *SHADES.values()]}
    used = colours.union(re.findall(r'(?:fill|stroke)="(#\w+)"', plot + a_simulation(TWO_A_SECOND).to_svg()))
    assert used <= {*DARK}
    written = set(re.findall(r'<text[^>]* fill="(#\w+)"', plot))
    assert written
    for colour in {*written, GOOD, REFUSED}:
        assert contrast(colour, "#ffffff") >= (4.5 if colour in written else 3.0)  # WCAG 2.2, 1.4.3 and 1.4.11
        assert contrast(DARK[colour], DARK["#ffffff"]) >= (4.5 if colour in written else 3.0)


@pytest.mark.parametrize("name", ["rates.svg", "rates.SVG"])
def test_the_picture_is_written_as_svg(tmp_path: Path, name: str) -> None:
    picture = a_simulation(TWO_A_SECOND).plot(tmp_path / name)
    assert (tmp_path / name).read_text() == picture


def test_the_picture_is_written_as_png(tmp_path: Path) -> None:
    a_simulation(TWO_A_SECOND).plot(tmp_path / "rates.png", width=600.0)
    content = (tmp_path / "rates.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", content[16:20]) == (1200,)


@pytest.mark.parametrize("name", ["rates.jpg", "rates", "rates.svg.gz"])
def test_another_kind_of_picture_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"give a name that ends in \.svg or \.png"):
        a_simulation(TWO_A_SECOND).plot(tmp_path / name)
    assert [*tmp_path.iterdir()] == []


def test_a_png_without_the_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ImportError, match=r"pip install 'trawl-crawler\[png\]'"):
        a_simulation(TWO_A_SECOND).plot(tmp_path / "rates.png")
    a_simulation(TWO_A_SECOND).plot(tmp_path / "rates.svg")
