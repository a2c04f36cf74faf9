"""How does one attempt live? It drives the run with the production driver, in a fiber that the scheduler may end.

What iteration_lib/launch.py puts together for a real process, this puts together for a simulated one.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, cast

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.attempt import Claim, open_attempt
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.drive import drive_epochs
from iteration_lib.driver.publish import publish_outputs
from iteration_lib.heartbeat import Heartbeat
from iteration_lib.protocol.state import AttemptId, Holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory
from tests.simulation.background import SimulatedBackground
from tests.simulation.claims import LEASE_SECONDS, Right
from tests.simulation.fiber import Fiber, Killed
from tests.simulation.ports import Said, SimulatedCoordinator, SimulatedCrashPlan, SimulatedHeartbeat
from tests.simulation.runner import SimulatedRunner
from tests.simulation.swarm import Pace

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimulatedAttempt:
    """One process that drives the run, or wants to.

    `hurt` names the ports that failed it, so that the oracle can tell whether an error that it ends with is due. One
    that was told to end has `grace_calls` left before it is killed.
    """

    def __init__(
        self,
        world: World,
        number: int,
        right: Right,
        *,
        until_epoch: int | None = None,
        publishes: bool = True,
        parallelism: int = 1,
        pace: Pace | None = None,
    ) -> None:
        self.world = world
        self.number = number
        self.right = right
        self.until_epoch = until_epoch
        self.publishes = publishes
        self.parallelism = parallelism
        self.pace = pace or Pace()
        self.attempt_id = AttemptId(f"{number:08x}-0000-4000-8000-000000000000")
        self.holder = Holder(host="here", pid=number, process_started=f"{number}.00")
        self.claim: Claim | None = None
        self.coordinator = SimulatedCoordinator(world)
        self.main = Fiber(self, f"attempt {number}", self._live)
        self.beat: Fiber | None = None
        self.jobs: list[Fiber] = []
        self.timers: list[tuple[float, Fiber]] = []  # when each is due, on the machines' clock
        self.next_beat_at: float | None = None
        self.said: list[Said] = []
        self.hurt: set[str] = set()
        self.is_killed = False
        self.is_over = False
        self.paused_until = 0
        self.grace_calls: int | None = None
        self.was_cancelled = False
        self.looks = 0  # transactions of its main fiber
        self.error: BaseException | None = None
        self.trace = ""
        self._heartbeat: Heartbeat | None = None
        self._beat_seconds = 0.0

    @property
    def is_active(self) -> bool:
        """Tell whether it may still do something."""
        return not (self.is_killed or self.is_over)

    def kill(self) -> None:
        """End the process: nothing of it reaches a port any more, not even from its handlers."""
        self.is_killed = True
        for fiber in (self.main, self.beat, *self.jobs):  # one that has ended is left as it is
            if fiber is not None:
                fiber.throw(Killed)
        self.beat = None
        self.jobs.clear()
        self.timers.clear()

    def preempt(self, *, grace_calls: int) -> None:
        """Tell the process to end, as SIGTERM does: whatever it is about to do, it gets an exception instead."""
        self.grace_calls = grace_calls
        self.hurt.add("told to end")
        self.main.throw(SystemExit(143))

    def start_beating(self, heartbeat: Heartbeat, *, interval_seconds: float) -> None:
        """Have the heartbeat beat at an interval."""
        self._heartbeat, self._beat_seconds = heartbeat, interval_seconds
        self.next_beat_at = self.world.clock.local_seconds + interval_seconds

    def stop_beating(self) -> None:
        """Start no beat any more."""
        self.next_beat_at = None

    def begin_beat(self) -> None:
        """Start the beat that is due."""
        self.next_beat_at = None
        self.beat = Fiber(self, f"heartbeat of {self.number}", self._beat)

    def begin_timers(self) -> None:
        """Let the fibers begin whose time has come."""
        due = [timer for timer in self.timers if timer[0] <= self.world.clock.local_seconds]
        self.timers = [timer for timer in self.timers if timer not in due]
        self.jobs += [fiber for _, fiber in due]

    def _beat(self) -> None:
        heartbeat = cast("Heartbeat", self._heartbeat)
        try:
            goes_on = heartbeat.beat()
        except Killed:
            return
        except BaseException as err:  # noqa: BLE001 - whatever it raises is for the oracle
            self._note_error(err)
            goes_on = False
        if goes_on and not heartbeat._stopped.is_set():
            self.next_beat_at = self.world.clock.local_seconds + self._beat_seconds
        if heartbeat.is_superseded:
            self.world.counters["superseded heard by the heartbeat"] += 1
        self.beat = None

    def _live(self) -> None:
        try:
            self._drive()
        except Killed:
            return
        except BaseException as err:  # noqa: BLE001 - whatever it raises is for the oracle
            if self.is_killed:
                return
            self._note_error(err)
        self.is_over = True
        self.world.oracle.attempt_ended(self)

    def _note_error(self, err: BaseException) -> None:
        self.error = err
        self.trace = "".join(traceback.format_exception(err)) if self.world.is_traced else ""

    def _drive(self) -> None:
        world = self.world
        store = cast("StoreWithHistory", world.ports)  # it lacks only what a driver never asks
        run = cast("RunRecord", store.find_run(world.run_id))
        if run.status is RunStatus.FINISHED:
            return
        self.claim = self._claim(store)
        with open_attempt(
            store, self.coordinator, world.run_id, self.claim, heartbeat_class=SimulatedHeartbeat
        ) as attempt:
            world.oracle.attempt_opened(self, attempt)
            runner = SimulatedRunner(world, self, world.location)
            attempt.heartbeat.when_superseded(runner.cancel)
            plan = SimulatedCrashPlan()
            plan.reach(CrashPoint.ATTEMPT_OPENED)
            context = RunContext(
                run=run,
                attempt=attempt,
                graph=world.program.graph,
                params=None,
                runner=runner,
                store=store,
                location=world.location,
                clock=world.clock,
                parallelism=self.parallelism,
                alignment_timeout_seconds=self.pace.alignment_timeout_seconds,
                background=SimulatedBackground(self, world.clock),
                observer=world.oracle.observer(self),
                crash_plan=plan,
            )
            driven = drive_epochs(context, until_epoch=self.until_epoch)
            if self.publishes:
                publish_outputs(context, driven)

    def _claim(self, store: StoreWithHistory) -> Claim:
        """Claim the run, naming its live attempt as gone where that is this attempt's right."""
        live = [found for found in store.list_attempts(self.world.run_id) if found.ended_at is None]
        gone = live[0].attempt_id if live and self.right is Right.PROOF else None
        return Claim(
            attempt_id=self.attempt_id,
            holder=self.holder,
            gone_attempt_id=gone,
            takeover=self.right is Right.WORD,
            ignore_edges=self.pace.ignore_edges,
            lease_ttl_seconds=LEASE_SECONDS,
            policy=self.pace.policy,
        )
