"""How often are an iteration's checkpoints taken, and what is put up with when one fails?

None of it changes what a run computes: it is no part of the definition, and may differ between two attempts of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from iteration_lib.protocol.policy import CheckpointPolicy, check_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing(CheckpointPolicy):
    """When checkpoints are taken, how long they may take, and how many may fail.

    `every_epochs` is how many epochs one checkpoint covers, `min_pause_seconds` the least time from the completion of
    one to the next; the last epoch of a run or of an attempt always gets one. While `max_pending` are being written,
    the next epoch may compute but not align. One that takes longer than `timeout_seconds` has failed; after more than
    `tolerable_failures` in a row the attempt stops. That is for what is written beside the next epoch: where executors
    cannot write what they hold, the epoch has failed, and the attempt ends, as in Flink.

    With `alignment_timeout_seconds` an epoch that takes longer keeps what its operators finish as they finish it, so
    that a retry goes on inside the epoch; 0 keeps it from the start, None only when the process is told to end. It is
    kept behind an epoch that a checkpoint holds, or is about to: with `every_epochs=N` one of N.

    Raises ParameterError that names the field.
    """

    alignment_timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        CheckpointPolicy.__post_init__(self)
        if self.alignment_timeout_seconds is not None:
            check_seconds("alignment_timeout_seconds", self.alignment_timeout_seconds)

    def but(self, given: Mapping[str, object]) -> Checkpointing:
        """Return it with some fields as they are given; raises ParameterError that names one that cannot be so."""
        return dataclasses.replace(self, **given)  # type: ignore[arg-type]  # it checks them

    @property
    def policy(self) -> CheckpointPolicy:
        """What an attempt keeps of it."""
        shared = dataclasses.fields(CheckpointPolicy)
        return CheckpointPolicy(**{field.name: getattr(self, field.name) for field in shared})
