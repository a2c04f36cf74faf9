"""What is a process of a simulated schedule? Fibers that the scheduler lets go on, pauses, or ends in the middle.

An attempt is one, and so is whoever does something beside the attempts that takes more than one call: see errand.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.simulation.fiber import Fiber, Killed

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.run import SimulatedRun


class SimulatedProcess(ABC):
    """One process that is about a run. `main` does its work, with its end the process ends.

    `hurt` names the ports that failed it, so that the oracle can tell whether an error that it ends with is due, and
    `hurts` counts how often. One that was told to end has `grace_calls` left before it is killed.
    """

    def __init__(self, run: SimulatedRun, number: int, name: str) -> None:
        self.run = run
        self.world = run.world
        self.number = number
        self.name = name
        self.main = Fiber(self, name, self._live)
        self.beat: Fiber | None = None
        self.jobs: list[Fiber] = []
        self.timers: list[tuple[float, Fiber]] = []  # when each is due, on the machines' clock
        self.next_beat_at: float | None = None
        self.hurt: set[str] = set()
        self.hurts = 0
        self.is_killed = False
        self.is_over = False
        self.paused_until = 0
        self.grace_calls: int | None = None
        self.error: BaseException | None = None
        self.trace = ""

    @property
    def attempt(self) -> SimulatedAttempt | None:
        """The attempt that this process is, if it is one."""
        return None

    @property
    def fibers(self) -> list[Fiber]:
        """Its threads."""
        return [fiber for fiber in (self.main, self.beat, *self.jobs) if fiber is not None]

    @property
    def is_active(self) -> bool:
        """Tell whether it may still do something."""
        return not (self.is_killed or self.is_over)

    def fail(self, port: str) -> None:
        """Note that a port fails it."""
        self.hurt.add(port)
        self.hurts += 1

    def kill(self) -> None:
        """End the process: nothing of it reaches a port any more, not even from its handlers."""
        self.is_killed = True
        for fiber in self.fibers:  # one that has ended is left as it is
            fiber.throw(Killed)
        self.beat = None
        self.jobs.clear()
        self.timers.clear()

    def begin_beat(self) -> None:
        """Start the beat that is due; only an attempt has a heartbeat."""
        raise NotImplementedError

    def begin_timers(self) -> None:
        """Let the fibers begin whose time has come."""
        due = [timer for timer in self.timers if timer[0] <= self.world.clock.local_seconds]
        self.timers = [timer for timer in self.timers if timer not in due]
        self.jobs += [fiber for _, fiber in due]

    @abstractmethod
    def _work(self) -> None: ...

    @abstractmethod
    def _ended(self) -> None:
        """Have the oracle look at how it ended."""

    def _live(self) -> None:
        try:
            self._work()
        except Killed:
            return
        except BaseException as err:  # noqa: BLE001 - whatever it raises is for the oracle
            if self.is_killed:
                return
            self._note_error(err)
        self.is_over = True
        self._ended()

    def _note_error(self, err: BaseException) -> None:
        self.error = err
        self.trace = "".join(traceback.format_exception(err)) if self.world.is_traced else ""
