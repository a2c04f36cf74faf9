"""What did an operator report in this epoch?"""

from __future__ import annotations

import math

from iteration_lib.errors import MetricError, OperatorResultError


class Metrics:
    """Collects one operator's metrics of one epoch; an operator that takes `metrics` gets its own."""

    def __init__(self, *, operator_id: str) -> None:
        """Start empty, for the operator `operator_id`."""
        self._operator_id = operator_id
        self._values: dict[str, float] = {}

    def report(self, name: str, value: float) -> None:
        """Report the finite number `value` under `name`; a later report replaces an earlier one.

        Raises MetricError for anything that is not a finite number, OperatorResultError for a name that is no text.
        """
        if type(name) is not str or not name or not name.isprintable():
            raise OperatorResultError(
                operator_id=self._operator_id, problem=f"named a metric {name!r}; a name is a text that can be printed"
            )
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError) as err:
            raise MetricError(name=name, value=value, operator_id=self._operator_id) from err
        if not math.isfinite(number):
            raise MetricError(name=name, value=value, operator_id=self._operator_id)
        self._values[name] = number

    def values(self) -> dict[str, float]:
        """Return what was reported, by name."""
        return dict(self._values)
