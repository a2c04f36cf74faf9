"""Where does a run come from, and which runs started from it? By rows alone; deleted runs are told of too."""

from __future__ import annotations

from dataclasses import dataclass

from iteration_lib.store.record import BranchRecord, RunRecord
from iteration_lib.store.seam import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """A run in a lineage: `branch` says which checkpoint it started from, None for one that started from nothing.

    `depth` is how far it is from the first of the lineage.
    """

    run: RunRecord
    branch: BranchRecord | None
    depth: int


def lineage_of(store: History, run: RunRecord) -> tuple[Descent, ...]:
    """Return the whole lineage of a run: its origins, itself and every branch, each behind the run it started from."""
    first = run
    while (origin := _origin(store, first)) is not None:
        first = origin
    lineage, waiting = [], [(first, 0)]  # no calls in calls: there may be more generations than Python nests
    while waiting:
        known, depth = waiting.pop()
        lineage.append(Descent(run=known, branch=store.find_branch(known.run_id), depth=depth))
        children = [store.find_run(branch.run_id) for branch in store.list_branches(known.run_id)]
        waiting += [(child, depth + 1) for child in reversed(children) if child is not None]
    return tuple(lineage)


def _origin(store: History, run: RunRecord) -> RunRecord | None:
    branch = store.find_branch(run.run_id)
    if branch is None or branch.origin_run_id is None:
        return None
    return store.find_run(branch.origin_run_id)
