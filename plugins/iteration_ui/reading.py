"""What is read of a run for its tab? Some of its rows, what is needed of it, and all epochs counted together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iteration_lib.store.overview import (
    AttemptSpan,
    EdgeSpan,
    Restart,
    Span,
    read_attempt_spans,
    read_attempts,
    read_edge_spans,
    read_epochs,
    read_needed_checkpoints,
    read_restarts,
    read_spans,
)
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    EpochRecord,
    OperatorRecord,
    RunRecord,
    StopRecord,
)
from iteration_ui.grid import width_for
from iteration_ui.paging import NEWEST, NO_ROWS, TableQuery, Window, window_of

RATED_EPOCHS = 20  # the newest, by which the rate is told


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """A run as it was read; a span has `width` epochs.

    `epochs`, `attempts` and `checkpoints` are those of a window; `newest` are the epochs that tell how fast it goes,
    `newest_attempt` is the last one, and `needed_elsewhere` are the checkpoints outside of the window that its run, a
    branch or a person needs.
    """

    run: RunRecord
    query: TableQuery = NEWEST
    epoch_window: Window = NO_ROWS
    attempt_window: Window = NO_ROWS
    checkpoint_window: Window = NO_ROWS
    epochs: Sequence[EpochRecord] = ()
    newest: Sequence[EpochRecord] = ()
    attempts: Sequence[AttemptRecord] = ()
    newest_attempt: AttemptRecord | None = None
    checkpoints: Sequence[CheckpointRecord] = ()
    needed_elsewhere: Sequence[CheckpointRecord] = ()
    operators: Sequence[OperatorRecord] = ()
    stops: Sequence[StopRecord] = ()
    branch: BranchRecord | None = None
    width: int = 1
    spans: Sequence[Span] = ()
    edge_spans: Sequence[EdgeSpan] = ()
    attempt_spans: Sequence[AttemptSpan] = ()
    restarts: Sequence[Restart] = ()


def read_run(store: PostgresStore, run: RunRecord, query: TableQuery = NEWEST) -> RunReading:
    """Read what the page of a run shows."""
    width = width_for(run.last_durable_epoch + 2)
    spans = read_spans(store, run.run_id, width=width)
    reached = (spans[0].first_epoch, spans[-1].last_epoch) if spans else (0, -1)
    epochs = window_of(*reached, query.epochs_to)
    attempts = window_of(1, run.fencing_token, query.attempts_to)
    checkpoints = window_of(1, run.last_checkpoint_id, query.checkpoints_to)
    return RunReading(
        run=run,
        query=query,
        epoch_window=epochs,
        attempt_window=attempts,
        checkpoint_window=checkpoints,
        epochs=read_epochs(store, run.run_id, epochs.numbers),
        newest=store.list_epochs(run.run_id, run.last_durable_epoch + 1 - RATED_EPOCHS),
        attempts=read_attempts(store, run.run_id, attempts.numbers),
        newest_attempt=next(
            iter(read_attempts(store, run.run_id, range(run.fencing_token, run.fencing_token + 1))), None
        ),
        checkpoints=store.list_checkpoints(run.run_id, checkpoints.numbers),
        needed_elsewhere=read_needed_checkpoints(store, run.run_id, outside=checkpoints.numbers),
        operators=store.list_operators(run.run_id),
        stops=store.list_stops(run.run_id),
        branch=store.find_branch(run.run_id),
        width=width,
        spans=spans,
        edge_spans=read_edge_spans(store, run.run_id, width=width),
        attempt_spans=read_attempt_spans(store, run.run_id, attempts.numbers),
        restarts=read_restarts(store, run.run_id, width=width),
    )
