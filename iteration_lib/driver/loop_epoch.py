"""What does the body of a loop see of its epoch? Its variables, as attributes that it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iteration_lib.driver.blame import in_epoch
from iteration_lib.errors import UsageError, VariableNotFoundError
from iteration_lib.model.loop import BODY
from iteration_lib.model.metrics import Metrics


@dataclass(slots=True, kw_only=True)
class Pass:
    """What is known of one pass of a loop. `read` gives a variable's value as the epoch begins with it.

    `values` holds those that the body has asked for or written, as they are now, changed in place or not; once the pass
    is over nobody looks at them any more.
    """

    number: int
    read: Mapping[str, Callable[[], object]]
    values: dict[str, object] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=lambda: Metrics(operator_id=BODY))
    is_stopped: bool = False
    is_over: bool = False


class LoopEpoch:
    """One epoch of a loop. What a variable is when the body is through is what the next epoch begins with."""

    __slots__ = ("_pass",)

    def __init__(self, found: Pass) -> None:
        """Show a pass to the body."""
        object.__setattr__(self, "_pass", found)  # a plain assignment is one to a variable

    @property
    def number(self) -> int:
        """Which epoch this is, from 0."""
        found: int = self._pass.number
        return found

    def metrics(self, **values: float) -> None:
        """Record finite numbers of this epoch, by name; raises MetricError for any other."""
        found = self._open()
        with in_epoch(found.number, [BODY]):
            for name, value in values.items():
                found.metrics.report(name, value)

    def stop(self) -> None:
        """Terminate the run after this epoch: the script's criteria are met."""
        self._open().is_stopped = True

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a variable's type is the script's business
        """Return a variable as it is now."""
        found = self._find(name)
        if name not in found.values:
            found.values[name] = found.read[name]()
        return found.values[name]

    def __setattr__(self, name: str, value: object) -> None:
        """Give a variable its next value."""
        self._find(name)
        self._open().values[name] = value

    def _open(self) -> Pass:
        """Return the pass; raises UsageError where it is over, since what it is given now would be lost."""
        found: Pass = self._pass
        if found.is_over:
            told = "give it variables, metrics and its stop in the loop's body, before the loop asks for its next epoch"
            raise UsageError(f"epoch {found.number} is over; {told}")
        return found

    def _find(self, variable: str) -> Pass:
        found: Pass = object.__getattribute__(self, "_pass")
        if variable not in found.read:
            raise VariableNotFoundError(variable, known=tuple(found.read))
        return found
