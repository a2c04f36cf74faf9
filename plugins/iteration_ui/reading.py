"""What is read of a run for its tab? Its newest rows, and all of its epochs counted together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iteration_lib.store.overview import (
    AttemptSpan,
    EdgeSpan,
    Span,
    read_attempt_spans,
    read_edge_spans,
    read_spans,
)
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    EpochRecord,
    FallbackRecord,
    OperatorRecord,
    RunRecord,
)
from iteration_ui.grid import width_for

ROWS_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """A run as it was read; `epochs` and `checkpoints` are the newest ones, a span has `width` epochs."""

    run: RunRecord
    epochs: Sequence[EpochRecord] = ()
    attempts: Sequence[AttemptRecord] = ()
    checkpoints: Sequence[CheckpointRecord] = ()
    operators: Sequence[OperatorRecord] = ()
    fallbacks: Sequence[FallbackRecord] = ()
    branch: BranchRecord | None = None
    width: int = 1
    spans: Sequence[Span] = ()
    edge_spans: Sequence[EdgeSpan] = ()
    attempt_spans: Sequence[AttemptSpan] = ()


def read_run(store: PostgresStore, run: RunRecord) -> RunReading:
    """Read what the page of a run shows."""
    width, newest = width_for(run.last_durable_epoch + 2), run.last_checkpoint_id
    return RunReading(
        run=run,
        epochs=store.list_epochs(run.run_id, max(0, run.last_durable_epoch + 1 - ROWS_SHOWN)),
        attempts=store.list_attempts(run.run_id),
        checkpoints=store.list_checkpoints(run.run_id, range(max(1, newest - ROWS_SHOWN + 1), newest + 1)),
        operators=store.list_operators(run.run_id),
        fallbacks=store.list_fallbacks(run.run_id),
        branch=store.find_branch(run.run_id),
        width=width,
        spans=read_spans(store, run.run_id, width=width),
        edge_spans=read_edge_spans(store, run.run_id, width=width),
        attempt_spans=read_attempt_spans(store, run.run_id),
    )
