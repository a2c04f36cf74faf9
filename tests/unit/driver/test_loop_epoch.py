"""What does the body of a loop see, and what does it leave?"""

from __future__ import annotations

import pytest

from iteration_lib.driver.loop_epoch import LoopEpoch, Pass
from iteration_lib.errors import MetricError, UsageError, VariableNotFoundError


def passed(**values: object) -> Pass:
    """Return a pass that begins with these values."""
    return Pass(number=3, read={name: lambda value=value: value for name, value in values.items()})


def test_variable_is_read_once_and_is_what_was_assigned_last() -> None:
    reads: list[str] = []
    found = Pass(number=3, read={"level": lambda: reads.append("read") or 1})
    epoch = LoopEpoch(found)

    seen = [epoch.level, epoch.level]
    epoch.level = 2

    assert ([1, 1], ["read"], 2) == (seen, reads, epoch.level)
    assert {"level": 2} == found.values


def test_value_that_is_changed_in_place_is_what_the_body_leaves() -> None:
    found = passed(model={"t": 1}, other=2)

    LoopEpoch(found).model["t"] = 5

    assert {"model": {"t": 5}} == found.values


def test_epoch_says_its_number_and_takes_metrics_and_the_end() -> None:
    found = passed(level=1)
    epoch = LoopEpoch(found)

    epoch.metrics(shift=0.5, size=3)
    epoch.stop()

    assert (3, {"shift": 0.5, "size": 3.0}, True) == (epoch.number, found.metrics.values(), found.is_stopped)


def test_metric_that_is_no_finite_number_is_refused() -> None:
    with pytest.raises(MetricError, match="reported the metric 'shift' as nan") as caught:
        LoopEpoch(passed(level=1)).metrics(shift=float("nan"))

    assert 3 == caught.value.epoch


def test_variable_that_is_not_there_is_named_with_those_that_are() -> None:
    epoch = LoopEpoch(passed(level=1, best=2))

    with pytest.raises(VariableNotFoundError, match=r"no variable 'leve'; there are: level, best\. Give"):
        epoch.leve = 3
    with pytest.raises(VariableNotFoundError, match="no variable 'leve'"):
        epoch.leve  # noqa: B018 - to ask is the test
    assert not hasattr(epoch, "leve")


def test_epoch_that_is_over_takes_nothing_more_but_may_be_read() -> None:
    found = passed(level=1)
    epoch = LoopEpoch(found)
    found.is_over = True

    for late in (lambda: setattr(epoch, "level", 2), lambda: epoch.metrics(shift=1), epoch.stop):
        with pytest.raises(UsageError, match=r"epoch 3 is over; .* before the loop asks for its next epoch"):
            late()

    assert (1, {}, False) == (epoch.level, found.metrics.values(), found.is_stopped)
