"""Where does a line lie that shows a metric over the epochs? Pure: numbers in, places on a drawing out.

The drawing is SVG in the page itself: it needs no script, nothing is loaded, and the page may be printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 24  # room for the labels
_TICKS = 5
_DIGITS = 4
_GREATEST = 1e300  # beyond it a sum of two may be infinite
_SAME = 1e-9  # of their size: values that differ by less are drawn as one


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a metric was in the epochs from `first_epoch` to `last_epoch`; one value where that is one epoch."""

    first_epoch: int
    last_epoch: int
    least: float
    greatest: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened before an epoch: an attempt began again with it, or the run fell back to it."""

    epoch: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label beside an axis, `at` so many units from the drawing's left or top."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A place that tells its value to whoever points at it."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series, as SVG paths. The `band` is from the least to the greatest; empty where points are single epochs."""

    name: str
    path: str
    band: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing of one metric, of one run or of several."""

    name: str
    lines: tuple[Line, ...]
    epochs: tuple[Tick, ...]
    values: tuple[Tick, ...]
    marks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def draw_chart(name: str, series: Mapping[str, Sequence[Point]], marks: Iterable[Mark] = ()) -> Chart | None:
    """Return the chart of a metric, a line per series; None where nothing finite was measured.

    A value that is not finite, or greater than 1e300, leaves a gap in its line: the metric was no number there to draw.
    """
    shown = {label: [point for point in points if _is_finite(point)] for label, points in series.items()}
    points = [point for found in shown.values() for point in found]
    if not points:
        return None
    epochs = _Scale(0, max(1, *(point.last_epoch for point in points)), start=_LEFT, end=WIDTH - _RIGHT)
    least, greatest = min(point.least for point in points), max(point.greatest for point in points)
    room = _room(least, greatest)
    values = _Scale(least - room, greatest + room, start=HEIGHT - _BOTTOM, end=_TOP)
    return Chart(
        name=name,
        lines=tuple(_line(label, series[label], epochs, values) for label in series),
        epochs=tuple(Tick(at=epochs(at), label=f"{at:,.0f}") for at in nice_steps(0, epochs.high, whole=True)),
        values=tuple(Tick(at=values(at), label=show_number(at)) for at in nice_steps(values.low, values.high)),
        marks=tuple(Tick(at=epochs(mark.epoch), label=mark.label) for mark in marks),
    )


def nice_steps(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return about five round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def show_number(value: float) -> str:
    """Return a number in a few digits."""
    return f"{value + 0.0:.{_DIGITS}g}"


class _Scale:
    """Takes numbers between `low` and `high` to places between `start` and `end`."""

    def __init__(self, low: float, high: float, *, start: float, end: float) -> None:
        self.low, self.high = low, high
        self._start, self._unit = start, (end - start) / (high - low)

    def __call__(self, number: float) -> float:
        return round(self._start + (number - self.low) * self._unit, 1)


def _room(least: float, greatest: float) -> float:
    """How much of the axis is above and below the values; they are in the middle where all are the same."""
    size = max(abs(least), abs(greatest))
    if size < 1 / _GREATEST:
        return 1.0
    return 0.05 * (greatest - least if greatest - least > _SAME * size else size)


def _is_finite(point: Point) -> bool:
    return all(abs(value) <= _GREATEST for value in (point.least, point.greatest, point.last))  # NaN is not


def _line(name: str, points: Sequence[Point], epochs: _Scale, values: _Scale) -> Line:
    path, above, below, dots = [], [], [], []
    is_drawing = False
    for point in points:
        if not _is_finite(point):
            is_drawing = False
            continue
        x, y = epochs(point.last_epoch), values(point.last)
        path.append(f"{'L' if is_drawing else 'M'}{x} {y}")
        is_drawing = True
        above.append(f"{x} {values(point.greatest)}")
        below.append(f"{x} {values(point.least)}")
        dots.append(Dot(x=x, y=y, title=_title(name, point)))
    is_wide = any(point.first_epoch < point.last_epoch for point in points)
    band = f"M{' L'.join([*above, *reversed(below)])} Z" if is_wide and len(above) > 1 else ""
    return Line(name=name, path=" ".join(path), band=band, dots=tuple(dots))


def _title(name: str, point: Point) -> str:
    if point.first_epoch == point.last_epoch:
        return f"{name}, epoch {point.last_epoch}: {point.last:.8g}"
    between = f"{point.least:.8g} to {point.greatest:.8g}, at last {point.last:.8g}"
    return f"{name}, epochs {point.first_epoch} to {point.last_epoch}: {between}"
