"""What did an operator report in this epoch?"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from iteration_lib.errors import MetricError, OperatorResultError
from iteration_lib.model.metrics import Metrics


def test_last_report_of_a_name_counts() -> None:
    metrics = Metrics(operator_id="moved")

    metrics.report("shift", 2)
    metrics.report("loss", np.float64(0.25))
    metrics.report("shift", 0.5)

    assert {"shift": 0.5, "loss": 0.25} == metrics.values()
    assert {float} == {type(value) for value in metrics.values().values()}


def test_values_are_a_copy() -> None:
    metrics = Metrics(operator_id="moved")

    metrics.values()["shift"] = 1.0

    assert {} == metrics.values()


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, Decimal("NaN"), "much", None, [1.0], 10**400],
    ids=["nan", "inf", "-inf", "decimal nan", "text", "none", "list", "above every float"],
)
def test_metric_that_is_no_finite_number_is_refused_by_its_name_and_operator(value: Any) -> None:
    metrics = Metrics(operator_id="moved")
    metrics.report("shift", 1.0)

    with pytest.raises(MetricError) as caught:
        metrics.report("shift", value)

    assert (
        f"operator 'moved' reported the metric 'shift' as {value!r}; a metric is a finite number, so check the input "
        "for NaN and the operator for overflow"
    ) == str(caught.value)
    assert {"shift": 1.0} == metrics.values()


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", 3])
def test_metric_with_a_name_that_no_store_can_keep_is_refused(name: Any) -> None:
    with pytest.raises(OperatorResultError) as caught:
        Metrics(operator_id="moved").report(name, 1.0)

    assert f"operator 'moved' named a metric {name!r}; a name is a text that can be printed" == str(caught.value)
