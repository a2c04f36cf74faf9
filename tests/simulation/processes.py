"""Which attempts are there, which of their fibers could go on, and what has been seen of them so far?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.attempt import SimulatedAttempt
from tests.simulation.background import Awaited
from tests.simulation.claims import Right
from tests.simulation.fiber import Call, Fiber

if TYPE_CHECKING:
    from tests.simulation.world import World

RIGHTS = tuple(Right)
_PATIENCE = 0.8  # how often whoever waits for a job lets it go on before its own time passes


class Processes:
    """The attempts of one schedule. `trace` has a line per step, if it was asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._swarm = world.swarm
        self.attempts: list[SimulatedAttempt] = []
        self._active: list[SimulatedAttempt] = []
        self.step = 0
        self.is_healed = False
        self.trace: list[str] = []

    @property
    def active(self) -> list[SimulatedAttempt]:
        """The attempts that may still do something."""
        return self._active

    @property
    def has_room(self) -> bool:
        """Whether one more may be started."""
        return len(self.attempts) < self._swarm.most_attempts

    def start(self, right: Right) -> SimulatedAttempt:
        """Start an attempt; some drive only a few epochs."""
        durable = self._world.oracle.rows.run["last_durable_epoch"]
        in_parts = not self.is_healed and self._swarm.drives_in_parts and self._random.random() < 0.7
        pace = self._random.choice(self._swarm.paces)
        attempt = SimulatedAttempt(
            self._world,
            len(self.attempts) + 1,
            right,
            until_epoch=durable + self._random.randint(2, 3) if in_parts else None,
            publishes=not in_parts or self._random.random() < 0.3,
            parallelism=self._random.randint(1, 3),
            pace=pace.patient() if self.is_healed else pace,
        )
        self.attempts.append(attempt)
        self._active.append(attempt)
        self.note(f"attempt {attempt.number} starts by {right.value}, {attempt.pace}")
        return attempt

    def crash(self, attempt: SimulatedAttempt, where: str = "") -> None:
        """End an attempt's process, as a power cut does."""
        call = attempt.main.waiting_for[0]
        self._world.counters[f"crash {where}" if where else f"crash before: {call.value}"] += 1
        self.note(f"attempt {attempt.number} crashes {where} before: {call.value}")
        self.end(attempt)

    def end(self, attempt: SimulatedAttempt) -> None:
        """End an attempt's process, if it has not ended."""
        attempt.kill()
        self._active = [known for known in self._active if known is not attempt]

    def ready(self) -> list[Fiber]:
        """Return the fibers that could go on."""
        ready: list[Fiber] = []
        for attempt in self._active:
            if attempt.paused_until > self.step:
                continue
            jobs = [job for job in attempt.jobs if not job.is_hanging]
            ready += jobs
            if attempt.beat is not None:
                ready.append(attempt.beat)
            if not self._waits(attempt, jobs):
                ready.append(attempt.main)
        return ready

    def stir(self) -> bool:
        """Start an attempt where nobody is ready, or wake one up; False when there is nothing more to do."""
        waiting = self.active
        if self.has_room and self._world.oracle.rows.run["status"] != "FINISHED":
            self.start(self._random.choice(RIGHTS))
            return True
        if waiting:
            self._random.choice(waiting).paused_until = 0
        return bool(waiting)

    def settle(self, attempt: SimulatedAttempt) -> None:
        """See what became of an attempt that has gone on: with its main fiber its process ends, jobs and all."""
        if attempt.is_over:
            if self._world.is_traced:
                self.note(f"attempt {attempt.number} ends: {attempt.error!r}\n{attempt.trace}")
            self.end(attempt)
        now = self._world.clock.local_seconds
        for other in self._active:
            due = other.next_beat_at
            if due is not None and due <= now and other.beat is None:
                other.begin_beat()
            other.begin_timers()

    def note(self, line: str) -> None:
        """Keep a line of the trace."""
        if self._world.is_traced:
            self.trace.append(f"{self.step:4d} {self._world.clock.store_seconds:9.2f} {line}")

    def _waits(self, attempt: SimulatedAttempt, jobs: list[Fiber]) -> bool:
        """Tell whether an attempt's main fiber waits for another of its fibers, and lets that one go on."""
        call, awaited = attempt.main.waiting_for
        if call is Call.JOIN:
            return attempt.beat is not None
        if isinstance(awaited, Awaited) and jobs and not awaited.is_done:
            return self._random.random() < _PATIENCE
        return False
