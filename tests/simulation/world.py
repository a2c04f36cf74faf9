"""What do all parts of one schedule share? The clock, the store, the faults, the runs and the counters."""

from __future__ import annotations

from collections import Counter
from random import Random

from iteration_lib.protocol.state import RunId
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import NewRun
from tests.simulation.disk import STATE_URI, SimulatedFileSystem
from tests.simulation.ports import SimulatedClock, SimulatedStore
from tests.simulation.programs import BUCKETS, Program
from tests.simulation.run import SimulatedRun
from tests.simulation.swarm import Swarm
from tests.simulation.versions import UsersFile

RUN_ID = RunId("00000000-0000-4000-8000-000000000001")


class World:
    """Everything but the processes of one schedule. One world at a time: its disks are the simulated file system's.

    `runs` are the first one and its branches, in the order in which they were made. `let_go` are the paths of files
    that were removed because nobody needed them any more. `file` is what attempts load, where a person edits it.
    """

    def __init__(
        self,
        random: Random,
        swarm: Swarm,
        program: Program,
        *,
        is_traced: bool = False,
        file: UsersFile | None = None,
    ) -> None:
        self.random = random
        self.swarm = swarm
        self.is_traced = is_traced
        self.counters: Counter[str] = Counter()
        self.violation: str | None = None
        self.clock = SimulatedClock()
        self.store = MemoryStore(self.clock)
        self.store.add_run(new_run(program))
        SimulatedFileSystem.disks.clear()
        self.damages = 0
        self.let_go: set[str] = set()
        self.file = file
        self.ports = SimulatedStore(self)
        self.first = SimulatedRun(self, RUN_ID, program)
        self.runs = [self.first]

    def violate(self, rule: str, text: str) -> None:
        """Note a violation; the first one counts."""
        if self.violation is None:
            self.violation = f"{rule}: {text}"

    def run_of(self, run_id: str) -> SimulatedRun:
        """Return a run by its id."""
        return next(run for run in self.runs if run.run_id == run_id)

    def next_run_id(self) -> RunId:
        """Return the id of the run that is made next: by chance it would be another one in every replay."""
        return RunId(f"00000000-0000-4000-8000-{len(self.runs) + 1:012d}")

    def branched(self, new: NewRun, origin: SimulatedRun) -> None:
        """Watch a branch from now on."""
        program = self.file.made(new.definition) if self.file is not None else origin.program
        self.runs.append(SimulatedRun(self, new.run_id, program, origin=origin))


def new_run(program: Program) -> NewRun:
    """Return a run of a program, about to be made."""
    return NewRun(
        run_id=RUN_ID,
        run_key=program.name,
        reference=program.reference,
        definition=program.definition,
        params={"max_epochs": program.max_epochs},
        state_uri=STATE_URI,
        max_buckets=BUCKETS,
        max_epochs=program.max_epochs,
    )
