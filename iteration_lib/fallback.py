"""Which older checkpoint does a run go on from, where its newest one is broken and a person lets it?

Every file that an attempt would read of the newest checkpoint is verified, and only where one is missing or changed
those of the older ones, newest first: what an attempt would find while it computes is found before. What belongs to no
epoch comes before them: where that is bad, an older checkpoint helps nothing. The step back is one transaction (I21).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.restore import carried_streams, read_manifest
from iteration_lib.errors import CheckpointNotFoundError, FallbackRefusedError, IterationError, StateCorruptedError
from iteration_lib.marker import carried_in_force
from iteration_lib.model.graph import Graph
from iteration_lib.protocol.status import CheckpointStatus, RunStatus
from iteration_lib.runner.pins import check_pinned, pinned_from_json
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import CheckpointRecord, RunRecord
from iteration_lib.store.seam import History, StoreWithHistory
from iteration_lib.verification import CheckedFile, verify_streams

_logger = logging.getLogger(__name__)


def fall_back(store: StoreWithHistory, context: RunContext) -> RunContext:
    """Return an attempt's context as it goes on: behind the newest checkpoint that can be verified.

    Where that is the run's newest nothing is changed. Raises FallbackRefusedError where there is none, and where
    somebody has had something of what would be given up; StateCorruptedError where nobody can tell which are broken;
    and what `check_lasting` raises.
    """
    opened, coordinator = context.attempt.opened, context.attempt.coordinator
    while True:
        newest = store.find_completed(opened.run_id)
        if opened.status is not RunStatus.RUNNING or newest is None:
            return context
        problem = problem_of(store, context.run, context.graph, newest)
        if problem is None:
            return context
        older = _older_than(store, context.run, context.graph, newest, problem)
        try:
            state = coordinator.fall_back(
                opened.run_id,
                context.attempt.attempt_id,
                context.attempt.fencing_token,
                checkpoint_id=older.checkpoint_id,
                reason=problem,
            )
        except CheckpointNotFoundError:  # it was discarded since it was verified: fewer are left to choose from
            _logger.info("event=fallback_begins_again run_id=%s discarded=%s", opened.run_id, older.checkpoint_id)
            continue
        _logger.warning(
            "event=fell_back run_id=%s from=%s to=%s reason=%s",
            opened.run_id,
            newest.checkpoint_id,
            older.checkpoint_id,
            problem,
        )
        return replace(context, attempt=replace(context.attempt, opened=state))


def advise(store: StoreWithHistory, run: RunRecord, graph: Graph) -> str | None:
    """Say how a run that a bad file has stopped goes on from an older checkpoint that is whole; None: it cannot."""
    newest = store.find_completed(run.run_id)
    if run.terminated_by is not None or newest is None:
        return None
    advice = "with --allow-fallback it goes on from an older checkpoint"
    try:
        problem = problem_of(store, run, graph, newest)
        if problem is None:
            return None
        older = _older_than(store, run, graph, newest, problem)
        Coordinator(store).check_fallback(run.run_id, older.checkpoint_id)
    except FallbackRefusedError as err:
        return f"{advice}, after {err.release}" if err.release else None
    except IterationError:
        return None
    return advice


def _older_than(
    store: History, run: RunRecord, graph: Graph, newest: CheckpointRecord, problem: str
) -> CheckpointRecord:
    """Return the checkpoint to go on from where the newest one has a problem; raises as `fall_back` does."""
    check_lasting(store, run, graph)
    older = newest_verified(store, run, graph, newest)
    if older is None:
        raise FallbackRefusedError(run.run_id, f"{problem}, and no older checkpoint is there whole", may_branch=False)
    return older


def check_lasting(store: History, run: RunRecord, graph: Graph) -> None:
    """Check what no older checkpoint brings back: what operators finished for good, and what data streams read.

    Raises StateCorruptedError or InputError that names the file.
    """
    location = StateLocation(run.state_uri).below(run.run_id)
    used = {operator.operator_id for operator in graph.operators}
    finished = [known for known in store.list_operators(run.run_id) if known.operator_id in used]
    outputs = [SavedStream.from_json(known.output) for known in finished if known.output is not None]
    for file in verify_streams(location, "finished", outputs):
        if file.problem is not None:
            raise StateCorruptedError(location.path(file.path), file.problem, way_out="nothing was given up for it")
    for pin in store.list_pins(run.run_id):
        if pin.name in used:
            check_pinned(location, pinned_from_json(pin.pin))


def newest_verified(store: History, run: RunRecord, graph: Graph, newest: CheckpointRecord) -> CheckpointRecord | None:
    """Return the newest checkpoint before one that has all the files that an attempt would read."""
    older = [
        known
        for known in store.list_checkpoints(run.run_id)
        if known.checkpoint_id < newest.checkpoint_id and known.status is CheckpointStatus.SUBSUMED
    ]
    return next((known for known in reversed(older) if problem_of(store, run, graph, known) is None), None)


def problem_of(store: History, run: RunRecord, graph: Graph, checkpoint: CheckpointRecord) -> str | None:
    """Say what is wrong with the files of a checkpoint that an attempt would read, None if nothing is.

    Raises StateCorruptedError where the worst of it is that files cannot be read: they may be whole.
    """
    bad = [file for file in _read_files(store, run, graph, checkpoint) if file.problem is not None]
    (now,) = store.list_checkpoints(run.run_id, [checkpoint.checkpoint_id])
    if not now.has_files:
        return f"checkpoint {checkpoint.checkpoint_id} was discarded meanwhile"
    if not bad:
        return None
    if all(file.is_unreadable for file in bad):
        raise StateCorruptedError(bad[0].path, str(bad[0].problem), way_out="nothing was given up for it")
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{bad[0].path} {bad[0].problem}{more}"


def _read_files(store: History, run: RunRecord, graph: Graph, checkpoint: CheckpointRecord) -> tuple[CheckedFile, ...]:
    """Verify a checkpoint's manifest, and the variables and states that an attempt would begin with."""
    location, owner = StateLocation(run.state_uri).below(run.run_id), f"checkpoint {checkpoint.checkpoint_id}"
    try:
        manifest = carried_in_force(store.list_operators(run.run_id), read_manifest(location, checkpoint))
    except StateCorruptedError as err:
        path, is_unreadable = str(checkpoint.manifest_path), err.is_unreadable
        return (CheckedFile(owner=owner, path=path, size_bytes=0, problem=err.problem, is_unreadable=is_unreadable),)
    return verify_streams(location, owner, carried_streams(graph, manifest))
