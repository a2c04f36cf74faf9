"""What does a page show of a run that has more epochs than it has room for? Some rows, and spans that are counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from iteration_lib.protocol.state import RunId
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord
from iteration_lib.store.row import Row, attempt_record, checkpoint_record, epoch_record


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpan:
    """What a metric was in the epochs of a span that measured it: its extremes, and its value in the last of them."""

    least: float
    greatest: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive epochs counted together.

    `durable`, `aligned`, `open` and `voided` are numbers of epochs, each under the attempt that had opened it;
    `seconds` is what those took that are not voided. The attempts are the first and the last that opened any.
    """

    first_epoch: int
    last_epoch: int
    durable: int
    aligned: int
    open: int
    voided: int
    seconds: float
    first_attempt: int
    last_attempt: int
    metrics: Mapping[str, MetricSpan]

    @classmethod
    def empty(cls, epoch: int) -> Self:
        """Return the span of one epoch that no attempt has opened."""
        return cls(
            first_epoch=epoch,
            last_epoch=epoch,
            durable=0,
            aligned=0,
            open=0,
            voided=0,
            seconds=0.0,
            first_attempt=0,
            last_attempt=0,
            metrics={},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSpan:
    """In how many epochs of a span an operator left a durable edge, in parts or `whole`.

    Of `restored` epochs the attempt that opened them found all parts there, of `restored_in_part` some. The span is the
    one that begins with `first_epoch`, whether or not the run has that epoch.
    """

    first_epoch: int
    operator_id: str
    edges: int
    whole: int
    restored: int
    restored_in_part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """The epochs that one attempt opened, from the first to the last; `durable` counts those that became so."""

    attempt: int
    first_epoch: int
    last_epoch: int
    durable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How many `attempts` began with an epoch of one span behind a loss, and the last of them with its first epoch.

    Something was lost where that attempt opened epochs again or fell back to a checkpoint, or where one between it and
    the one that opened epochs before it was cut short. The end of a task is no loss.
    """

    attempts: int
    attempt: int
    epoch: int
    to_checkpoint_id: int | None


def read_spans(store: PostgresStore, run_id: RunId, *, width: int) -> tuple[Span, ...]:
    """Return a run's epochs, `width` at a time from epoch 0 on; spans without any are left out."""
    return store.read("list_spans", _span, run_id=run_id, width=width)


def read_edge_spans(store: PostgresStore, run_id: RunId, *, width: int) -> tuple[EdgeSpan, ...]:
    """Return where a run's operators left durable edges, by span and operator."""
    return store.read("list_edge_spans", lambda row: EdgeSpan(**row), run_id=run_id, width=width)


def read_attempts(store: PostgresStore, run_id: RunId, attempts: range) -> tuple[AttemptRecord, ...]:
    """Return some attempts of a run, by token."""
    return store.read("list_attempts_between", attempt_record, run_id=run_id, **_between(attempts))


def read_attempt_spans(store: PostgresStore, run_id: RunId, attempts: range) -> tuple[AttemptSpan, ...]:
    """Return which epochs some attempts opened; one that opened none is left out."""
    return store.read("list_attempt_spans", lambda row: AttemptSpan(**row), run_id=run_id, **_between(attempts))


def read_restarts(store: PostgresStore, run_id: RunId, *, width: int) -> tuple[Restart, ...]:
    """Return where attempts of a run began again behind a loss, by their first epochs, `width` at a time."""
    return store.read("list_restarts", lambda row: Restart(**row), run_id=run_id, width=width)


def read_epochs(store: PostgresStore, run_id: RunId, epochs: range) -> tuple[EpochRecord, ...]:
    """Return some epochs of a run, voided ones too, by epoch and token."""
    return store.read(
        "list_epochs_between", epoch_record, run_id=run_id, first_epoch=epochs.start, last_epoch=epochs.stop - 1
    )


def read_needed_checkpoints(store: PostgresStore, run_id: RunId, *, outside: range) -> tuple[CheckpointRecord, ...]:
    """Return the checkpoints of a run, by id, that it needs itself, or a branch, or a person; but for some ids."""
    ids = {"first_id": outside.start, "last_id": outside.stop - 1}
    return store.read("list_needed_checkpoints", checkpoint_record, run_id=run_id, **ids)


def _between(attempts: range) -> dict[str, int]:
    return {"first_attempt": attempts.start, "last_attempt": attempts.stop - 1}


def _span(row: Row) -> Span:
    metrics = {
        name: MetricSpan(least=float(least), greatest=float(greatest), last=float(last))
        for name, (least, greatest, last) in row["metrics"].items()
    }
    return Span(**{**row, "metrics": metrics})
