"""Which task runs which epochs, and what does a task do when it finds the run where it is?

A DAG's tasks are fixed before a run knows how many epochs it needs. So task i owns its epochs by position: whatever was
retried, cleared or skipped before, the same task always answers for the same epochs. In a run that began behind a
checkpoint these are its own ones: the chain's first task runs the first of them. The shape is a static chain; it is
decided here alone.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from iteration_lib.errors import UsageError
from iteration_lib.protocol.status import RunStatus

if TYPE_CHECKING:
    from iteration_lib.store.record import RunRecord
    from iteration_lib.store.seam import History

ADVISED_TASKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The epochs that one task owns: from `first_epoch` up to, but not with, `end_epoch`."""

    first_epoch: int
    end_epoch: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the store says that a run is, counted in epochs of its own.

    `last_durable_epoch` is -1 before the first; a person has it `is_stopped`.
    """

    last_durable_epoch: int
    is_terminated: bool
    is_stopped: bool = False

    @classmethod
    def of(cls, store: History, run: RunRecord) -> Self:
        """Return how far a run has come."""
        return cls(
            last_durable_epoch=run.last_durable_epoch - first_epoch_of(store, run),
            is_terminated=run.terminated_by is not None,
            is_stopped=run.status is RunStatus.STOPPED,
        )


def first_epoch_of(store: History, run: RunRecord) -> int:
    """Return the epoch that a run begins with: 0, or the one behind its origin's checkpoint."""
    branch = store.find_branch(run.run_id)
    return branch.first_epoch if branch is not None else 0


class Action(enum.Enum):
    """What a task has to do."""

    DRIVE = "drive"  # its epochs are not durable yet: it drives them, or waits for the task that does
    PASS = "pass"  # noqa: S105  (no password) - they are: on an earlier try, or before it was cleared
    STOP = "stop"  # they are, and the run has terminated: the tasks behind it have nothing to run
    SKIP = "skip"  # the run terminated before them
    HALT = "halt"  # a person has stopped the run before them: they wait until it is resumed, and the task cleared


def plan_chain(*, max_epochs: int, epochs_per_task: int) -> tuple[Slice, ...]:
    """Cut 0..max_epochs into tasks of `epochs_per_task` epochs, the last one filled up; names sort as they run."""
    for name, value in (("max_epochs", max_epochs), ("epochs_per_task", epochs_per_task)):
        if value < 1:
            raise UsageError(f"{name} is {value}; give a whole number of at least 1")
    tasks = math.ceil(max_epochs / epochs_per_task)
    digits = max(3, len(str((tasks - 1) * epochs_per_task)))
    return tuple(
        Slice(first_epoch=first, end_epoch=first + epochs_per_task, name=f"e{first:0{digits}d}")
        for first in range(0, tasks * epochs_per_task, epochs_per_task)
    )


def decide_action(progress: Progress, *, first_epoch: int, end_epoch: int) -> Action:
    """Return what the task that owns these epochs has to do; asked before it starts anything and again after."""
    if progress.is_terminated:
        if progress.last_durable_epoch >= end_epoch:
            return Action.PASS
        return Action.STOP if progress.last_durable_epoch >= first_epoch else Action.SKIP
    if progress.last_durable_epoch >= end_epoch - 1:
        return Action.PASS
    return Action.HALT if progress.is_stopped else Action.DRIVE
