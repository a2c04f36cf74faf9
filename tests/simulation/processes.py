"""Which processes are there, which of their fibers could go on, and what has been seen of them so far?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.attempt import SimulatedAttempt
from tests.simulation.background import Awaited
from tests.simulation.claims import Right
from tests.simulation.errand import OTHER_RUNS
from tests.simulation.evolution_rules import begun_to_finish
from tests.simulation.fiber import Call, Fiber

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.errand import Errand
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.run import SimulatedRun
    from tests.simulation.world import World

RIGHTS = tuple(Right)
_EDITS = 0.6  # how often the file has changed when somebody comes to load it
_DROPS = 0.85  # how often state may be dropped
_MOST_ERRANDS = 2  # at once
_DAWDLES = 0.25  # how often somebody on an errand takes his time before the next call
_PATIENCE = 0.8  # how often whoever waits for a job lets it go on before its own time passes


class Processes:
    """The processes of one schedule. `trace` has a line per step, if it was asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._swarm = world.swarm
        self.all: list[SimulatedProcess] = []
        self._active: list[SimulatedProcess] = []
        self.step = 0
        self.is_calm = False  # before the first fault
        self.is_healed = False  # after the last one
        self.trace: list[str] = []

    @property
    def attempts(self) -> list[SimulatedAttempt]:
        """The attempts that there ever were."""
        return [process.attempt for process in self.all if process.attempt is not None]

    @property
    def active(self) -> list[SimulatedProcess]:
        """The processes that may still do something."""
        return self._active

    @property
    def active_attempts(self) -> list[SimulatedAttempt]:
        """The attempts that may still do something."""
        return [process.attempt for process in self._active if process.attempt is not None]

    @property
    def is_disturbed(self) -> bool:
        """Whether this is the time of faults."""
        return not (self.is_calm or self.is_healed)

    def has_room(self, run: SimulatedRun) -> bool:
        """Tell whether one more attempt of a run may be started."""
        return run.attempts < self._swarm.most_attempts

    def start(self, right: Right, run: SimulatedRun) -> SimulatedAttempt:
        """Start an attempt of a run; some drive only a few epochs."""
        durable = run.rows.run["last_durable_epoch"]
        in_parts = not self.is_healed and self._swarm.drives_in_parts and self._random.random() < 0.7
        pace = self._random.choice(self._swarm.paces)
        if not self.is_healed:
            self.edit(run)
        attempt = SimulatedAttempt(
            run,
            len(self.all) + 1,
            right,
            until_epoch=durable + self._random.randint(self._least_part, 3) if in_parts else None,
            publishes=not in_parts or self._random.random() < 0.3,
            parallelism=self._random.randint(1, 3),
            pace=pace.patient() if self.is_healed else pace,
            allows_fallback=self._swarm.falls_back > 0 and self._random.random() < self._swarm.falls_back,
            allows_drop=self._world.file is None or self.is_healed or self._random.random() < _DROPS,
        )
        run.attempts += 1
        self.note(f"attempt {attempt.number} of {run.name} starts by {right.value}, {attempt.pace}")
        self._begin(attempt)
        return attempt

    @property
    def _least_part(self) -> int:
        """The fewest epochs of a part, and one: where the file changes, an attempt may do nothing but go on with it."""
        return 2 if self._world.file is None else 1

    def edit(self, run: SimulatedRun | None = None) -> None:
        """Have a person change the file, where there is one, perhaps where a run has begun to finish an operator."""
        file = self._world.file
        if file is not None and self._random.random() < _EDITS:
            file.edit(sorted(begun_to_finish(run.rows)) if run is not None else ())
            self.note(f"the file says {file.versions[-1]}")

    def send(self, make: Callable[[SimulatedRun, int], Errand], run: SimulatedRun) -> None:
        """Start somebody's errand about a run, unless others are under way."""
        if len(self._active) - len(self.active_attempts) < _MOST_ERRANDS:
            errand = make(run, len(self.all) + 1)
            self.note(f"{errand.name} starts")
            self._begin(errand)

    def _begin(self, process: SimulatedProcess) -> None:
        self.all.append(process)
        self._active.append(process)

    def crash(self, process: SimulatedProcess, where: str = "") -> None:
        """End a process, as a power cut does."""
        calls = [fiber.waiting_for[0].value for fiber in process.fibers]
        kind = "crash" if process.attempt is not None else "errand cut short"
        self._world.counters.update([f"{kind} {where}"] if where else [f"{kind} before: {call}" for call in calls])
        self.note(f"{process.name} crashes {where} before: {', '.join(calls)}")
        self.end(process)

    def end(self, process: SimulatedProcess) -> None:
        """End a process, if it has not ended."""
        process.kill()
        self._active = [known for known in self._active if known is not process]

    def ready(self) -> list[Fiber]:
        """Return the fibers that could go on."""
        ready: list[Fiber] = []
        for process in self._active:
            if process.paused_until > self.step:
                continue
            jobs = [job for job in process.jobs if not job.is_hanging]
            ready += jobs
            if process.beat is not None:
                ready.append(process.beat)
            if not self._waits(process, jobs):
                ready.append(process.main)
        return ready

    def stir(self) -> bool:
        """Start an attempt where nobody is ready, or wake one up; False when there is nothing more to do."""
        waiting = self.active
        unfinished = [run for run in self._world.runs if run.goes_on and self.has_room(run)]
        if unfinished:
            self.start(self._random.choice(RIGHTS), self._random.choice(unfinished))
            return True
        if waiting:
            self._random.choice(waiting).paused_until = 0
        return bool(waiting)

    def settle(self, process: SimulatedProcess) -> None:
        """See what became of a process that has gone on: with its main fiber it ends, jobs and all."""
        if process.is_over:
            if self._world.is_traced:
                self.note(f"{process.name} ends: {process.error!r}\n{process.trace}")
            self.end(process)
        elif process.attempt is None and self.is_disturbed:
            if process.main.waiting_for[1] == OTHER_RUNS:
                process.paused_until = self.step + self._random.randint(50, 400)
            elif self._random.random() < _DAWDLES:
                process.paused_until = self.step + self._random.randint(5, 100)
        now = self._world.clock.local_seconds
        for other in self._active:
            due = other.next_beat_at
            if due is not None and due <= now and other.beat is None:
                other.begin_beat()
            if other.timers:
                other.begin_timers()

    def note(self, line: str) -> None:
        """Keep a line of the trace."""
        if self._world.is_traced:
            self.trace.append(f"{self.step:4d} {self._world.clock.store_seconds:9.2f} {line}")

    def _waits(self, process: SimulatedProcess, jobs: list[Fiber]) -> bool:
        """Tell whether a process's main fiber waits for another of its fibers, and lets that one go on."""
        call, awaited = process.main.waiting_for
        if call is Call.JOIN:
            return process.beat is not None
        if isinstance(awaited, Awaited) and jobs and not awaited.is_done:
            return self._random.random() < _PATIENCE
        return False
