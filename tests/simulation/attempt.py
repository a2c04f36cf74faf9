"""How does one attempt live? It drives the run with the production driver, in a fiber that the scheduler may end.

What iteration_lib/launch.py puts together for a real process, this puts together for a simulated one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from iteration_lib.continuation import Continuation, check_continuation, read_continuation
from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.attempt import Claim, open_attempt
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.drive import drive_epochs
from iteration_lib.driver.publish import publish_outputs
from iteration_lib.driver.sinks import OpenSink
from iteration_lib.errors import FallbackRefusedError
from iteration_lib.fallback import fall_back
from iteration_lib.heartbeat import Heartbeat
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.protocol.state import AttemptId, Holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory
from tests.simulation.background import SimulatedBackground
from tests.simulation.change import Row, of_status
from tests.simulation.claims import LEASE_SECONDS, Right
from tests.simulation.fiber import Call, Fiber, Killed
from tests.simulation.planned import Run, runs_by
from tests.simulation.ports import Said, SimulatedCoordinator, SimulatedCrashPlan, SimulatedHeartbeat
from tests.simulation.process import SimulatedProcess
from tests.simulation.runner import SimulatedRunner
from tests.simulation.sinking import SimulatedSink
from tests.simulation.swarm import Pace

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun


class SimulatedAttempt(SimulatedProcess):
    """One process that drives a run, or wants to."""

    def __init__(
        self,
        run: SimulatedRun,
        number: int,
        right: Right,
        *,
        until_epoch: int | None = None,
        publishes: bool = True,
        parallelism: int = 1,
        pace: Pace | None = None,
        allows_fallback: bool = False,
        allows_drop: bool = False,
    ) -> None:
        super().__init__(run, number, f"attempt {number}")
        self.right = right
        self.until_epoch = until_epoch
        self.publishes = publishes
        self.parallelism = parallelism
        self.pace = pace or Pace()
        self.allows_fallback = allows_fallback
        self.allows_drop = allows_drop
        self.program = run.program
        self.asked_at = 0  # the run's revision when it was asked whether it may go on with the program
        self.foreseen: tuple[int, Collection[Run]] = (-1, ())  # at which revision, and what it would run
        self.damages_before = 0  # of files, when it began to verify some
        self.verifies = False
        self.refusal: FallbackRefusedError | None = None  # of a fallback
        in_folder = f"{number // 2:08x}"  # what their folders carry of their ids, two attempts share
        self.attempt_id = AttemptId(f"{in_folder}-0000-4000-8000-{number:012x}")
        self.holder = Holder(host="here", pid=number, process_started=f"{number}.00")
        self.claim: Claim | None = None
        self.coordinator = SimulatedCoordinator(self.world)
        self.said: list[Said] = []
        self.was_cancelled = False
        self.looks = 0  # transactions of its main fiber
        self.hurts_when_told = 0
        self.had_failed_when_told = False  # the store had, for good
        self.pending_when_told: list[Row] = []
        self.began_seconds: dict[int, float] = {}  # by checkpoint, when it began to write it, on the machines' clock
        self.has_failed = False  # as the last of them found it: by too many checkpoints
        self._heartbeat: Heartbeat | None = None
        self._beat_seconds = 0.0

    @property
    def attempt(self) -> SimulatedAttempt:
        """See SimulatedProcess."""
        return self

    def preempt(self, *, grace_calls: int) -> None:
        """Tell the process to end, as SIGTERM does: whatever it is about to do, it gets an exception instead."""
        self.grace_calls = grace_calls
        self.fail("told to end")
        self.hurts_when_told = self.hurts
        is_joining = self.main.waiting_for[0] is Call.JOIN
        self.had_failed_when_told = "store" in self.hurt and (is_joining or self.main.has_lost_the_store)
        self.pending_when_told = of_status(self.run.rows.checkpoints, "PENDING")
        self.main.throw(ToldToEnd())

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

    def _ended(self) -> None:
        self.run.oracle.attempt_ended(self)

    def _work(self) -> None:
        world, run_id = self.world, self.run.run_id
        store = cast("StoreWithHistory", world.ports)  # it lacks only what a driver never asks
        run = cast("RunRecord", store.find_run(run_id))
        if run.status is RunStatus.FINISHED:
            return
        if world.file is not None:
            self.program = world.file.program
            continuation = self._continuation(store, run)  # a refusal must not supersede a live attempt
            self.foreseen = self.asked_at, runs_by(self.program, continuation.kept)
        self.claim = self._claim(store)
        with open_attempt(store, self.coordinator, run_id, self.claim, heartbeat_class=SimulatedHeartbeat) as attempt:
            self.run.oracle.attempt_opened(self, attempt)
            runner = SimulatedRunner(self.run, self)
            attempt.heartbeat.when_superseded(runner.cancel)
            plan = SimulatedCrashPlan()
            plan.reach(CrashPoint.ATTEMPT_OPENED)
            context = RunContext(
                run=run,
                attempt=attempt,
                graph=self.program.graph,
                params=None,
                runner=runner,
                store=store,
                location=self.run.location,
                clock=world.clock,
                parallelism=self.parallelism,
                alignment_timeout_seconds=self.pace.alignment_timeout_seconds,
                termination_grace_seconds=self.pace.termination_grace_seconds,
                background=SimulatedBackground(self, world.clock),
                sinks={output: OpenSink(sink=SimulatedSink(self.run)) for output in self.program.graph.sinks},
                observer=self.run.oracle.observer(self),
                crash_plan=plan,
            )
            if self.allows_fallback:
                context = self._fall_back(store, context)
            if world.file is not None:
                self._evolve(store, context)
            driven = drive_epochs(context, until_epoch=self.until_epoch)
            if self.publishes:
                publish_outputs(context, driven)

    def _fall_back(self, store: StoreWithHistory, context: RunContext) -> RunContext:
        self.damages_before, self.verifies = self.world.damages, True
        try:
            context = fall_back(store, context)
        except FallbackRefusedError as err:
            self.refusal = err
            self.run.oracle.fallback_was_refused(self, err)
            raise
        self.verifies = False
        return context

    def _continuation(self, store: StoreWithHistory, run: RunRecord) -> Continuation:
        """Return how the run goes on with the program; raises what refuses that."""
        self.asked_at = self.run.rows.run["revision"]
        continuation = read_continuation(store, run, self.program.graph, ignore_edges=self.pace.ignore_edges)
        check_continuation(continuation, allow_dropped_state=self.allows_drop)
        return continuation

    def _evolve(self, store: StoreWithHistory, context: RunContext) -> None:
        """Go on with the operators as the file has them."""
        continuation = self._continuation(store, cast("RunRecord", store.find_run(self.run.run_id)))
        if continuation.has_changed and context.attempt.opened.status is RunStatus.RUNNING:
            context.attempt.apply(continuation.change(context.attempt.guard))
        if context.attempt.opened.status is RunStatus.RUNNING:
            self.run.oracle.went_on(self)

    def _claim(self, store: StoreWithHistory) -> Claim:
        """Claim the run, naming its live attempt as gone where that is this attempt's right."""
        live = [found for found in store.list_attempts(self.run.run_id) if found.ended_at is None]
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
