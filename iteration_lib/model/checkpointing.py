"""How often are an iteration's checkpoints taken, and what is put up with when one fails?

None of it changes what a run computes: it is no part of the definition, and may differ between two attempts of a run.
"""

from __future__ import annotations

from dataclasses import dataclass

from iteration_lib.errors import ParameterError

_LARGEST = 2**31 - 1
_LONGEST_SECONDS = 366 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """When checkpoints are taken, how long they may take, and how many may fail.

    `every_epochs` is how many epochs one checkpoint covers, `min_pause_seconds` the least time from the completion of
    one to the next; the last epoch of a run or of an attempt always gets one. While `max_pending` are being written,
    the next epoch may compute but not align. One that takes longer than `timeout_seconds` has failed; after more than
    `tolerable_failures` in a row the attempt stops. That is for what is written beside the next epoch: where executors
    cannot write what they hold, the epoch has failed, and the attempt ends, as in Flink.

    With `alignment_timeout_seconds` an epoch that takes longer keeps what its operators finish as they finish it, so
    that a retry goes on inside the epoch; 0 keeps it from the start, None only when the process is told to end.

    Raises ParameterError that names the field.
    """

    every_epochs: int = 1
    min_pause_seconds: float = 0.0
    max_pending: int = 1
    timeout_seconds: float = 600.0
    tolerable_failures: int = 0
    alignment_timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        _check_count("every_epochs", self.every_epochs, least=1)
        _check_count("max_pending", self.max_pending, least=1)
        _check_count("tolerable_failures", self.tolerable_failures, least=0)
        _check_seconds("min_pause_seconds", self.min_pause_seconds)
        _check_seconds("timeout_seconds", self.timeout_seconds)
        if self.timeout_seconds == 0:
            raise _refused("timeout_seconds", self.timeout_seconds, "more than 0, or every checkpoint fails")
        if self.alignment_timeout_seconds is not None:
            _check_seconds("alignment_timeout_seconds", self.alignment_timeout_seconds)


def _check_count(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise _refused(name, value, f"a whole number from {least} to {_LARGEST}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_SECONDS:
        raise _refused(name, value, f"a number of seconds from 0 to {_LONGEST_SECONDS:.0f} (366 days)")


def _refused(name: str, value: object, wanted: str) -> ParameterError:
    return ParameterError(f"Checkpointing({name}={value!r}): give {wanted}", name=name)
