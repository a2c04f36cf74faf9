"""How does a checkpoint of a run become a savepoint? It is copied to a folder of its own, which the user owns.

The copy is whole or none (see savepoint). It takes no lock and pins nothing: where retention lets the checkpoint go in
the meantime, a file is missing, the copy fails, and a newer checkpoint is copied instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from iteration_lib.errors import StateCorruptedError, UsageError
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.savepoint import Savepoint, checkpoint_of, write_savepoint
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import CheckpointRecord, RunRecord
from iteration_lib.store.seam import History

SAVEPOINTS = "savepoints"

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A savepoint that was written, and of which checkpoint."""

    savepoint: Savepoint
    checkpoint: CheckpointRecord


def save_run(
    store: History, run: RunRecord, *, uri: str | None = None, checkpoint_id: int | None = None, or_newest: bool = False
) -> Saved:
    """Copy a checkpoint of a run, its newest unless another one is named, to a folder; `uri` None for a new one.

    With `or_newest` the newest one takes the place of one that retention has let go.

    Repeating the call is harmless. Where the run's code has changed since, it makes another savepoint of the same
    checkpoint, which a folder that `uri` names does not take. Raises UsageError for that, and for a checkpoint that is
    not there, StateCorruptedError that names a bad file, StateLocationError.
    """
    for _ in range(_TRIES):
        checkpoint = _choose(store, run, checkpoint_id, or_newest=or_newest)
        try:
            return Saved(savepoint=_save(store, run, checkpoint, uri), checkpoint=checkpoint)
        except StateCorruptedError:
            if not _is_discarded(store, run, checkpoint):
                raise
    raise UsageError(
        f"run {run.run_key!r} lets its checkpoints go faster than they are copied; keep more with --retain-last"
    )


def _choose(store: History, run: RunRecord, checkpoint_id: int | None, *, or_newest: bool) -> CheckpointRecord:
    there = checkpoints_with_files(store, run)
    meant = [known for known in there if checkpoint_id in (None, known.checkpoint_id)] or (there if or_newest else [])
    return newest_of(meant, run, there, problem="has no such checkpoint, or has let it go")


def checkpoints_with_files(store: History, run: RunRecord) -> list[CheckpointRecord]:
    """Return the checkpoints of a run that something can start from, oldest first."""
    return [known for known in store.list_checkpoints(run.run_id) if known.has_files]


def newest_of(
    meant: Sequence[CheckpointRecord], run: RunRecord, there: Sequence[CheckpointRecord], *, problem: str
) -> CheckpointRecord:
    """Return the newest of the checkpoints that are meant; raises UsageError that lists those that are there."""
    if not meant:
        shown = ", ".join(f"{known.checkpoint_id} (epoch {known.epoch})" for known in there)
        said = f"{problem}; it has: {shown}" if there else "has no checkpoint with files yet, or none any more"
        raise UsageError(f"run {run.run_key!r} {said}")
    return meant[-1]


def _save(store: History, run: RunRecord, checkpoint: CheckpointRecord, uri: str | None) -> Savepoint:
    found = checkpoint_of(store, run, checkpoint)
    if uri is not None:
        return write_savepoint(found, StateLocation(uri))
    said = hashlib.sha256(found.to_bytes()).hexdigest()[:8]  # the run may say other things of a checkpoint later on
    own_folder = f"{SAVEPOINTS}/{run.run_id}-{checkpoint.checkpoint_id:06d}-{said}"
    return write_savepoint(found, StateLocation(run.state_uri).below(own_folder))


def _is_discarded(store: History, run: RunRecord, checkpoint: CheckpointRecord) -> bool:
    (found,) = store.list_checkpoints(run.run_id, [checkpoint.checkpoint_id])
    return found.status is CheckpointStatus.DISCARDED
