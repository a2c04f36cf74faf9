"""What is one run of a simulated schedule? What it computes, its rows, its files, and who watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.protocol.state import RunId
from iteration_lib.state.location import StateLocation
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Row, origin_epoch
from tests.simulation.disk import STATE_URI, SimulatedFileSystem
from tests.simulation.fiber import current_fiber
from tests.simulation.lineage import Lineage
from tests.simulation.oracle import Oracle
from tests.simulation.programs import Program

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimulatedRun:
    """A run, or a branch of one; `origin` is the run that it started from. `attempts` counts those that began.

    `program` is the one that the run has now, `lineage` those that it had. `maker` made a branch.
    """

    def __init__(self, world: World, run_id: RunId, program: Program, *, origin: SimulatedRun | None = None) -> None:
        self.world = world
        self.run_id = run_id
        self.program = program
        self.origin = origin
        self.maker = current_fiber()
        self.attempts = 0
        self.name = f"branch {int(run_id[-12:]) - 1}" if origin is not None else "the run"
        self.disk = SimulatedFileSystem.disk_of(run_id)
        self.location = StateLocation(STATE_URI).below(run_id)
        self.lineage = Lineage(self)
        self.oracle = Oracle(self)

    @property
    def rows(self) -> MemoryRun:
        """The rows as they are."""
        return self.world.store._runs[self.run_id]

    @property
    def status(self) -> str:
        """The run's status."""
        return str(self.rows.run["status"])

    @property
    def goes_on(self) -> bool:
        """Whether there is something left to do for an attempt."""
        return self.status not in ("FINISHED", "DELETED")

    @property
    def origin_epoch(self) -> int:
        """The epoch of the checkpoint that the run started from."""
        return origin_epoch(self.rows)

    @property
    def branches(self) -> list[Row]:
        """The rows of the branches that started from this run's checkpoints."""
        rows = [run.rows.branch for run in self.world.runs if run.origin is self]
        return [row for row in rows if row is not None]

    @property
    def pinned(self) -> frozenset[int]:
        """The checkpoints that branches need."""
        return frozenset(branch["origin_checkpoint_id"] for branch in self.branches if branch["released_at"] is None)
