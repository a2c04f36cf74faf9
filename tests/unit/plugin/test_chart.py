"""Where does a line lie that shows a metric over the epochs?"""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iteration_ui.chart import HEIGHT, WIDTH, Chart, Mark, Point, draw_chart, nice_steps, show_number

finite = st.floats(-1e300, 1e300)


def point(epoch: int, value: float) -> Point:
    return Point(first_epoch=epoch, last_epoch=epoch, least=value, greatest=value, last=value)


def drawn(*points: Point, marks: tuple[Mark, ...] = ()) -> Chart:
    chart = draw_chart("cost", {"run": points}, marks)
    assert chart is not None
    return chart


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


def test_metric_that_nothing_measured_has_no_chart() -> None:
    assert draw_chart("cost", {"run": []}) is None
    assert draw_chart("cost", {"run": [point(0, math.nan), point(1, math.inf)]}) is None


def test_line_goes_from_left_to_right_and_greater_values_lie_higher() -> None:
    chart = drawn(point(0, 3.0), point(1, 1.0), point(2, 2.0))

    (first, second, third) = places(chart.lines[0].path)
    assert (chart.left, chart.right) == (first[0], third[0])
    assert (first[0] + third[0]) / 2 == second[0]
    assert chart.top < first[1] < third[1] < second[1] < chart.bottom


def test_value_that_is_not_finite_leaves_a_gap() -> None:
    chart = drawn(point(0, 3.0), point(1, math.nan), point(2, 2.0), point(3, 1.0))

    assert ["M", "M", "L"] == re.findall("[ML]", chart.lines[0].path)
    assert [0, 2, 3] == [int(re.findall(r"epoch (\d+)", dot.title)[0]) for dot in chart.lines[0].dots]


def test_spans_of_epochs_have_a_band_and_single_epochs_have_none() -> None:
    spans = [
        Point(first_epoch=0, last_epoch=9, least=1.0, greatest=5.0, last=2.0),
        Point(first_epoch=10, last_epoch=19, least=0.5, greatest=2.0, last=1.0),
    ]

    chart = drawn(*spans)

    assert 4 == len(places(chart.lines[0].band))
    assert "run, epochs 10 to 19: 0.5 to 2, at last 1" == chart.lines[0].dots[1].title
    assert "" == drawn(point(0, 1.0), point(1, 2.0)).lines[0].band


def test_series_that_stays_the_same_is_in_the_middle() -> None:
    chart = drawn(point(0, 7.0), point(1, 7.0))

    assert {(chart.top + chart.bottom) / 2} == {y for _, y in places(chart.lines[0].path)}


def test_mark_lies_at_its_epoch() -> None:
    chart = drawn(point(0, 1.0), point(4, 2.0), marks=(Mark(epoch=2, label="attempt 2"),))

    (mark,) = chart.marks
    assert ((chart.left + chart.right) / 2, "attempt 2") == (mark.at, mark.label)


def test_several_runs_share_their_axes() -> None:
    chart = draw_chart("cost", {"a": [point(0, 1.0), point(1, 2.0)], "b": [point(0, 10.0), point(9, 20.0)]})

    assert chart is not None
    ends = {line.name: places(line.path)[-1] for line in chart.lines}
    assert ends["a"][0] < ends["b"][0] == chart.right
    assert ends["b"][1] < ends["a"][1]


@example([(0.0, 2.225073858507e-311)])
@example([(-1e300, 1e300)])
@example([(1e12, math.nextafter(1e12, 2e12))])
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=20))
def test_everything_lies_inside_the_drawing(values: list[tuple[float, float]]) -> None:
    spans = [
        Point(first_epoch=10 * at, last_epoch=10 * at + 9, least=min(pair), greatest=max(pair), last=pair[0])
        for at, pair in enumerate(values)
    ]

    chart = drawn(*spans)

    line = chart.lines[0]
    for x, y in (*places(line.path), *places(line.band)):
        assert chart.left <= x <= chart.right <= WIDTH
        assert chart.top <= y <= chart.bottom <= HEIGHT
    assert all(chart.top <= tick.at <= chart.bottom for tick in chart.values)


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12))
def test_steps_are_few_round_and_inside(low: float, length: float) -> None:
    high = low + length
    if not high - low > 1e-6 * max(abs(low), abs(high)):  # what a page tells apart
        return

    steps = nice_steps(low, high)

    assert 2 <= len(steps) <= 7
    assert low - length * 1e-6 <= steps[0] <= steps[-1] <= high + length * 1e-6
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-3)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (-0.0, "0"), (1234567.0, "1.235e+06"), (0.25, "0.25"), (-3.0, "-3")]
)
def test_number_is_shown_in_few_digits(value: float, shown: str) -> None:
    assert shown == show_number(value)
