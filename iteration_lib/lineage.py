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
    return tuple(_descend(store, first, 0))


def _origin(store: History, run: RunRecord) -> RunRecord | None:
    branch = store.find_branch(run.run_id)
    if branch is None or branch.origin_run_id is None:
        return None
    return store.find_run(branch.origin_run_id)


def _descend(store: History, run: RunRecord, depth: int) -> list[Descent]:
    found = [Descent(run=run, branch=store.find_branch(run.run_id), depth=depth)]
    for branch in store.list_branches(run.run_id):
        child = store.find_run(branch.run_id)
        if child is not None:
            found += _descend(store, child, depth + 1)
    return found
