"""Does a branch take over from its origin what it keeps, as copies of its own, and nothing else?

What it has removed, and added again, is its own; and what its origin has lost since may be there in time, or not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Checks, Violate

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun


class OriginOracle(Checks):
    """Looks at what a run pins and finishes for good; `kept` is what a branch had to keep when it was made."""

    def __init__(self, run: SimulatedRun, violate: Violate) -> None:
        super().__init__(violate)
        self._run = run
        self._finished = finished_by_origin(run)
        self.kept = self._may_be_kept()

    def check(self, before: MemoryRun, after: MemoryRun) -> None:
        """Check what a commit pins, or marks as finished for good."""
        named = {name: pin["pin"]["files"] for name, pin in after.pins.items() if name not in before.pins}
        for name, operator in after.operators.items():
            if operator["output"] is not None and before.operators[name]["output"] is None:
                named[name] = operator["output"]["files"]
        for name, files in named.items():
            is_copy = all(file["path"].split("/")[1] == "origin" for file in files)
            may_be = name in self._may_be_kept() and self.is_as_it_was(name)
            self._require(may_be or not is_copy, "branches", "{} is taken over from the origin", name)
            self._require(is_copy or name not in self.taken(), "branches", "{} is not taken over from the origin", name)

    def _may_be_kept(self) -> frozenset[str]:
        """Return what a branch may take over: what its origin has pinned by now, or had finished for good."""
        branch, origin = self._run.rows.branch, self._run.origin
        return frozenset(branch["keeps"]) & {*self._finished, *origin.rows.pins} if branch and origin else frozenset()

    def taken(self) -> frozenset[str]:
        """Return what a branch takes over for sure: its origin has it still, and so has the branch."""
        origin = self._run.origin
        lost = origin.lineage.dropped if origin is not None else set()
        return frozenset(name for name in self.kept - lost if self.is_as_it_was(name))

    def is_as_it_was(self, name: str) -> bool:
        """Tell whether an operator is the one that the run began with."""
        return self._run.world.file is None or self._run.lineage.born.get(name) == 0


def finished_by_origin(run: SimulatedRun) -> Mapping[str, Any]:  # Any: JSON
    """Return what had finished for good in the checkpoint that a branch starts from, with what each left."""
    if run.rows.branch is None or run.origin is None:
        return {}
    manifest = run.origin.disk.whole(run.rows.branch["manifest_path"])
    return cast("Mapping[str, Any]", json.loads(manifest)["finished"]) if manifest is not None else {}
