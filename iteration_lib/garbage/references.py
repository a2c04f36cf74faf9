"""Which files do the rows of a run need, read while attempts come, go and commit?

Rows are read one query after the other, without a lock, in an order in which no reference can slip through:

    0  the files          listed before 1, so that each was written by an attempt that 1 shows, or is nobody's
    1  the attempts       what an attempt that has ended here will ever name, it has named: its later events are refused
    2  parts of edges     a part may become an operator's output (4) or a variable in a manifest (6): read before both
    3  the run            what epoch is durable: once more, since it may have fallen back after it was read
    4  operators
    5  pins
    6  the checkpoints, then their manifests

Let f be a file of an attempt that has ended in 1, and let no row name it in 2 to 6. Then none ever will. A live attempt
names files of others only where it has them from rows: a part of the open epoch, an operator's output, a pin, the
completed checkpoint. Each such row holds until the one that takes its place is committed, in the same transaction or
before: a part is in force until its epoch is durable, which is when the manifest that names its files is completed; a
part of an operator that finishes for good stays in force. So at every moment from 2 on, a row names f; if it moved on
meanwhile, then to a kind that is read later. What is voided (edges at a takeover, those of other operators, operators
that are dropped) is voided before its attempt has read it.

A live attempt's own files go only when a row has named them and let go: a discarded checkpoint, which was subsumed or
given up, so that no attempt computes from it any more; parts of an epoch that is durable, whose tails the manifest
names: unless a hand-made checkpoint of that epoch is pending still, which a newer one of a later epoch outran, and
whose manifest will name them too. It is read as pending in 6, or as completed, and then its manifest is. An epoch that
is durable in 3 is so by a manifest that 6 reads, or by that of a later one; where the run falls back after 3, the parts
of 2 are voided, and those that take their place lie in files that were not listed. `finished` outputs and pins are
needed by rows of their own, whatever a discarded manifest says.

Two collectors at once, or one and whoever discards: what is discarded stays so, and removing twice is harmless. A
manifest that is gone belongs to a checkpoint that was discarded since its row was read, and then it is passed over;
if it was not, nothing can be said of any file, and StateCorruptedError is raised before one is touched.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from iteration_lib.driver.attempt import attempt_folder
from iteration_lib.driver.publish import POINTER
from iteration_lib.driver.restore import read_manifest
from iteration_lib.errors import StateCorruptedError
from iteration_lib.garbage.judgement import References
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.runner.pins import is_own, pinned_from_json
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    OperatorRecord,
    PartRecord,
    PinRecord,
    RunRecord,
)
from iteration_lib.store.seam import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was read of a run; `manifests` are those of `checkpoints` that could be read, by id."""

    run: RunRecord
    attempts: tuple[AttemptRecord, ...]
    parts: tuple[PartRecord, ...]
    operators: tuple[OperatorRecord, ...]
    pins: tuple[PinRecord, ...]
    checkpoints: tuple[CheckpointRecord, ...]
    manifests: Mapping[int, Manifest]


def read_references(
    store: History,
    run: RunRecord,
    location: StateLocation,
    listed: Iterable[str],
    *,
    is_deleted: bool = False,
    as_discarded: Container[int] = (),
) -> References:
    """Read which files a run needs; `listed` are those below its folder. How old the record `run` is does not matter.

    Checkpoints whose ids are in `as_discarded` count as discarded: a dry run asks what would be then.

    Raises StateCorruptedError for the manifest of a checkpoint that was not discarded.
    """
    attempts = store.list_attempts(run.run_id)
    parts = store.list_parts(run.run_id)
    run = store.find_run(run.run_id) or run
    operators = store.list_operators(run.run_id)
    pins = store.list_pins(run.run_id)
    checkpoints = tuple(
        replace(known, status=CheckpointStatus.DISCARDED) if known.checkpoint_id in as_discarded else known
        for known in store.list_checkpoints(run.run_id)
    )
    manifests = _read_manifests(store, run, location, checkpoints, frozenset(listed))
    rows = Rows(
        run=run,
        attempts=attempts,
        parts=parts,
        operators=operators,
        pins=pins,
        checkpoints=checkpoints,
        manifests=manifests,
    )
    return references_of(rows, is_deleted=is_deleted)


def references_of(rows: Rows, *, is_deleted: bool = False) -> References:
    """Return what rows say of a run's files.

    A run that is deleted goes on no more: only its checkpoints that are not discarded count, and with them its pins.
    """
    needed: dict[str, str] = {}
    let_go: dict[str, str] = {}
    for checkpoint in rows.checkpoints:
        _add_checkpoint(checkpoint, rows.manifests.get(checkpoint.checkpoint_id), needed=needed, let_go=let_go)
    if needed or not is_deleted:
        for pin in rows.pins:
            own = (file.path for file in pinned_from_json(pin.pin).files if is_own(file.path))
            needed.update(dict.fromkeys(own, f"data stream {pin.name!r} reads it"))
    if is_deleted:
        let_go[POINTER] = "the run was deleted"
    else:
        needed[POINTER] = "it says what is published"
        _add_parts(rows, needed=needed, let_go=let_go)
        for operator in rows.operators:
            if operator.output is not None:
                paths = _paths(SavedStream.from_json(operator.output))
                needed.update(dict.fromkeys(paths, f"operator {operator.operator_id!r} finished with it"))
    return References(
        attempts={
            attempt_folder(attempt.fencing_token, attempt.attempt_id): attempt.ended_at is not None
            for attempt in rows.attempts
        },
        needed=needed,
        let_go=let_go,
    )


def _add_checkpoint(
    checkpoint: CheckpointRecord, manifest: Manifest | None, *, needed: dict[str, str], let_go: dict[str, str]
) -> None:
    if manifest is None:
        return
    paths = [str(checkpoint.manifest_path), *(path for stream in manifest.streams for path in _paths(stream))]
    if checkpoint.status is CheckpointStatus.DISCARDED:
        let_go.update(dict.fromkeys(paths, f"checkpoint {checkpoint.checkpoint_id} was discarded"))
    else:
        needed.update(dict.fromkeys(paths, f"checkpoint {checkpoint.checkpoint_id} holds it"))


def _add_parts(rows: Rows, *, needed: dict[str, str], let_go: dict[str, str]) -> None:
    pending = {known.epoch for known in rows.checkpoints if known.status is CheckpointStatus.PENDING}
    for part in rows.parts:
        paths = _paths(SavedStream.from_json(part.output))
        if part.epoch in pending and part.voided_at is None:
            needed.update(dict.fromkeys(paths, f"edge of {part.operator_id!r} that a pending checkpoint may name"))
        elif 0 <= part.epoch <= rows.run.last_durable_epoch:
            let_go.update(dict.fromkeys(paths, f"edge of {part.operator_id!r} in epoch {part.epoch}, which is durable"))
        elif part.voided_at is None:
            needed.update(dict.fromkeys(paths, f"edge of {part.operator_id!r} that an attempt may go on behind"))


def _read_manifests(
    store: History,
    run: RunRecord,
    location: StateLocation,
    checkpoints: Iterable[CheckpointRecord],
    listed: frozenset[str],
) -> dict[int, Manifest]:
    """Read the manifests of all checkpoints that are not discarded, and of those that are as long as they are there."""
    manifests: dict[int, Manifest] = {}
    for checkpoint in checkpoints:
        is_discarded = checkpoint.status is CheckpointStatus.DISCARDED
        if checkpoint.manifest_path is None or (is_discarded and checkpoint.manifest_path not in listed):
            continue
        try:
            manifests[checkpoint.checkpoint_id] = read_manifest(location, checkpoint)
        except StateCorruptedError:
            if not is_discarded and not _is_discarded_now(store, run, checkpoint):
                raise
    return manifests


def _is_discarded_now(store: History, run: RunRecord, checkpoint: CheckpointRecord) -> bool:
    return any(
        known.checkpoint_id == checkpoint.checkpoint_id and known.status is CheckpointStatus.DISCARDED
        for known in store.list_checkpoints(run.run_id)
    )


def _paths(stream: SavedStream) -> list[str]:
    return [file.path for file in stream.files]
