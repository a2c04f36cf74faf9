"""Which markers of a run, and what of a checkpoint, are in force, by the run's rows, read under one definition?

A part of a durable edge is in force while it is not voided and its epoch is not durable yet; that of an operator that
finishes for good, until the operator is marked as a whole. What a checkpoint holds of an operator is in force while the
run has had that operator ever since: one that was removed and added again is another one, whatever its id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from iteration_lib.protocol.edge import merge_ranges
from iteration_lib.protocol.legality import Markers
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.state.manifest import Manifest
from iteration_lib.store.record import BranchRecord, EpochRecord, OperatorRecord, PartRecord, RunRecord
from iteration_lib.store.seam import History

_Read = TypeVar("_Read")


def read_under_one_definition(store: History, run: RunRecord, read: Callable[[RunRecord], _Read]) -> _Read:
    """Return what is read of a run; read once more where an attempt has given it other operators meanwhile.

    Else what a definition names might be gone from the rows: a variable, say, whose state a person let drop.
    """
    while True:
        found, now = read(run), store.find_run(run.run_id)
        if now is None or now.definition == run.definition:
            return found
        run = now


def parts_in_force(
    run: RunRecord, operators: Iterable[OperatorRecord], parts: Iterable[PartRecord]
) -> tuple[PartRecord, ...]:
    """Return the parts that whoever drives the run next finds."""
    finished = finished_for_good(operators)
    return tuple(
        part
        for part in parts
        if part.voided_at is None
        and (part.epoch == run.last_durable_epoch + 1 or (part.epoch == NO_EPOCH and part.operator_id not in finished))
    )


def finished_for_good(operators: Iterable[OperatorRecord]) -> frozenset[str]:
    """Return the ids of the operators that are marked as finished for good."""
    return frozenset(operator.operator_id for operator in operators if operator.finished_epoch is not None)


def edges_of(parts: Iterable[PartRecord]) -> tuple[EdgeState, ...]:
    """Join parts to the edges that they are parts of."""
    found: dict[tuple[int, str], list[PartRecord]] = {}
    for part in parts:
        found.setdefault((part.epoch, part.operator_id), []).append(part)
    return tuple(
        EdgeState(
            epoch=epoch,
            operator_id=operator_id,
            total=known[0].total,
            finished=merge_ranges((part.first_bucket, part.end_bucket) for part in known),
        )
        for (epoch, operator_id), known in sorted(found.items())
    )


def markers_of(
    run: RunRecord,
    operators: Sequence[OperatorRecord],
    parts: Iterable[PartRecord],
    epochs: Iterable[EpochRecord],
) -> Markers:
    """Return the markers that whoever drives the run next finds."""
    epoch = run.last_durable_epoch + 1
    tried = (known for known in epochs if known.epoch == epoch)
    last = max(tried, key=attrgetter("fencing_token"), default=None)
    return Markers(
        epoch=epoch,
        finished=finished_for_good(operators),
        edges=edges_of(parts_in_force(run, operators, parts)),
        was_unaligned=last.unaligned_by is not None if last is not None else None,
    )


def there_since(operators: Iterable[OperatorRecord], fencing_token: int) -> frozenset[str]:
    """Return the operators that a run has kept ever since the attempt with a token, or since it began (0)."""
    return frozenset(known.operator_id for known in operators if known.added_under <= fencing_token)


def begun_with(operators: Iterable[OperatorRecord], branch: BranchRecord) -> frozenset[str]:
    """Return which of its operators a branch began with, of which it goes on with what they carried."""
    known = there_since(operators, fencing_token=0)
    return known if branch.carries is None else known.intersection(branch.carries)


def kept_in_force(operators: Iterable[OperatorRecord], branch: BranchRecord) -> frozenset[str]:
    """Return which of its operators a branch takes over: none that it has added itself, whatever its id."""
    return frozenset(branch.keeps) & there_since(operators, fencing_token=0)


def carried_in_force(operators: Iterable[OperatorRecord], manifest: Manifest) -> Manifest:
    """Return a checkpoint's manifest without what operators carried in it that its run has removed since."""
    return _carried_by(there_since(operators, manifest.fencing_token), manifest)


def held_in(manifest: Manifest, operator_ids: Sequence[str]) -> tuple[str, ...]:
    """Return of which operators a checkpoint holds what they carried; all where it does not name them by id."""
    if manifest.format_version == 1:
        return tuple(operator_ids)
    return tuple(known for known in operator_ids if known in {*manifest.variables, *manifest.states})


def carried_from_origin(operators: Iterable[OperatorRecord], branch: BranchRecord, manifest: Manifest) -> Manifest:
    """Return the manifest that a branch starts from without the variables and states that it does not go on with."""
    return _carried_by(begun_with(operators, branch), manifest)


def _carried_by(operator_ids: Collection[str], manifest: Manifest) -> Manifest:
    if manifest.format_version == 1:  # that version is older than operators that may be removed
        return manifest
    variables = {name: saved for name, saved in manifest.variables.items() if name in operator_ids}
    states = {name: saved for name, saved in manifest.states.items() if name in operator_ids}
    return replace(manifest, variables=variables, states=states)
