"""What do all parts of one schedule share? The clock, the store, the disk, the faults, the oracle and the counters."""

from __future__ import annotations

from collections import Counter
from random import Random

from iteration_lib.protocol.state import RunId
from iteration_lib.state.location import StateLocation
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import NewRun
from tests.simulation.disk import ROOT, Disk, SimulatedFileSystem
from tests.simulation.oracle import Oracle
from tests.simulation.ports import SimulatedClock, SimulatedStore
from tests.simulation.programs import BUCKETS, Program
from tests.simulation.reference import reference
from tests.simulation.swarm import Swarm

RUN_ID = RunId("00000000-0000-4000-8000-000000000001")


class World:
    """Everything but the attempts of one schedule. One world at a time: its disk is the simulated file system's."""

    run_id = RUN_ID

    def __init__(self, random: Random, swarm: Swarm, program: Program, *, is_traced: bool = False) -> None:
        self.random = random
        self.swarm = swarm
        self.program = program
        self.is_traced = is_traced
        self.counters: Counter[str] = Counter()
        self.clock = SimulatedClock()
        self.store = MemoryStore(self.clock)
        self.store.add_run(new_run(program))
        self.disk = Disk()
        SimulatedFileSystem.disk = self.disk
        self.location = StateLocation(f"sim://{ROOT}")
        self.damages = 0
        self.oracle = Oracle(self, reference(program.name))
        self.ports = SimulatedStore(self)


def new_run(program: Program) -> NewRun:
    """Return a run of a program, about to be made."""
    return NewRun(
        run_id=RUN_ID,
        run_key=program.name,
        reference=f"tests.simulation.programs:{program.name}",
        definition=program.definition,
        params={},
        state_uri="sim://",
        max_buckets=BUCKETS,
        max_epochs=program.max_epochs,
    )
