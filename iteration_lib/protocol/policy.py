"""How does an attempt pace its checkpoints, and what does it put up with? What makes no sense is refused."""

from __future__ import annotations

from dataclasses import dataclass

from iteration_lib.errors import ParameterError

_LARGEST = 2**31 - 1
_LONGEST_SECONDS = 366 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """How an attempt paces its checkpoints, and what it puts up with.

    A checkpoint is due `every_epochs` epochs after the last one, and not before `min_pause_seconds` after the last was
    completed; at most `max_pending` are being written at once, each for at most `timeout_seconds`. After more than
    `tolerable_failures` failures in a row the attempt stops.

    A checkpoint that a newer one has subsumed is kept if it is among the last `retain_last` (the newest one counts), or
    among the `retain_best` whose epochs have the best `retain_metric`: the least with `retain_mode` "min", the greatest
    with "max". Without either every one is kept.

    Raises ParameterError that names the field.
    """

    every_epochs: int = 1
    min_pause_seconds: float = 0.0
    max_pending: int = 1
    timeout_seconds: float = 600.0
    tolerable_failures: int = 0
    retain_last: int | None = None
    retain_best: int = 0
    retain_metric: str | None = None
    retain_mode: str = "min"

    def __post_init__(self) -> None:
        _check_count("every_epochs", self.every_epochs, least=1)
        _check_count("max_pending", self.max_pending, least=1)
        _check_count("tolerable_failures", self.tolerable_failures, least=0)
        check_seconds("min_pause_seconds", self.min_pause_seconds)
        check_seconds("timeout_seconds", self.timeout_seconds)
        if self.timeout_seconds == 0:
            raise _refused("timeout_seconds", self.timeout_seconds, "more than 0, or every checkpoint fails")
        self._check_retention()

    @property
    def discards(self) -> bool:
        """Whether it lets any checkpoint go."""
        return self.retain_last is not None or self.retain_best > 0

    def _check_retention(self) -> None:
        if self.retain_last is not None:
            _check_count("retain_last", self.retain_last, least=1)
        _check_count("retain_best", self.retain_best, least=0)
        if self.retain_mode not in ("min", "max"):
            raise _refused("retain_mode", self.retain_mode, '"min" or "max"')
        if (self.retain_best > 0) != (self.retain_metric is not None):
            raise _refused("retain_metric", self.retain_metric, "it together with retain_best, or neither")
        if self.retain_metric is not None and not self.retain_metric.isprintable():  # as the names of metrics are
            raise _refused("retain_metric", self.retain_metric, "a text that can be printed")


def check_seconds(name: str, value: object) -> None:
    """Raise ParameterError for what is no length of time, negative, or too long."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_SECONDS:
        raise _refused(name, value, f"a number of seconds from 0 to {_LONGEST_SECONDS:.0f} (366 days)")


def _check_count(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise _refused(name, value, f"a whole number from {least} to {_LARGEST}")


def _refused(name: str, value: object, wanted: str) -> ParameterError:
    return ParameterError(f"Checkpointing({name}={value!r}): give {wanted}", name=name)
