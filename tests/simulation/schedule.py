"""What happens in which order? One seed's schedule: a calm beginning, faults, healing; then the run has to finish."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from iteration_lib.crash_point import CrashPoint
from iteration_lib.errors import CheckpointFailedError, RunMismatchError, SupersededError
from tests.simulation.attempt import SimulatedAttempt
from tests.simulation.background import Awaited
from tests.simulation.change import is_held, live_attempts, of_status
from tests.simulation.claims import Right
from tests.simulation.disturbance import Disturbances
from tests.simulation.errand import collector
from tests.simulation.fiber import Call, Fate, Fiber
from tests.simulation.person import resume_run
from tests.simulation.ports import CheckedCoordinator
from tests.simulation.process import SimulatedProcess
from tests.simulation.processes import Processes
from tests.simulation.programs import programs
from tests.simulation.run import SimulatedRun
from tests.simulation.swarm import QUICK_SECONDS, Event, Swarm, draw_evolving_swarm, draw_swarm
from tests.simulation.versions import EvolvingProgram, UsersFile
from tests.simulation.world import World

_STEPS_TO_BE_HELD = 60
_STEPS_TO_HEAL = 2_000  # an undisturbed run of the longest program takes about 300
# How many times as often a process ends at one of these, which it seldom comes to; before no other call it does so.
_MORE_OFTEN: Mapping[object, float] = {
    **dict.fromkeys((Call.LIST, Call.REMOVE, Call.LISTEN), 1.0),
    Call.RENEW: 0.1,
    **dict.fromkeys((CrashPoint.MANIFEST_WRITTEN, CrashPoint.SINK_ABORTED, CrashPoint.SINK_PREPARED), 2.0),
    CrashPoint.STOP_REACHED: 60,
    CrashPoint.ORIGIN_KEPT: 8,
    **dict.fromkeys(
        (
            CrashPoint.CHECKPOINTS_DISCARDED,
            CrashPoint.LISTENER_CALLED,
            CrashPoint.LISTENER_NOTIFIED,
            CrashPoint.POINTER_WRITTEN,
            CrashPoint.RUN_FINISHED,
            CrashPoint.SINK_COMMITTED,
        ),
        4,
    ),
}
_BESIDE = 2.5  # the same of the fate of a file that is put beside the epochs: there are few
# How often the newest checkpoint breaks here, where any does: before and after anybody has had something of it, and
# when it is needed.
_BREAKS_AT = {
    CrashPoint.CHECKPOINT_COMPLETED: 0.5,
    CrashPoint.LISTENER_NOTIFIED: 0.5,
    CrashPoint.ATTEMPT_OPENED: 0.3,
}
# How often somebody begins to collect here, where anybody does: a checkpoint lets go, or will name what parts named.
_COLLECTED_AT, _COLLECTS_THEN = (CrashPoint.CHECKPOINT_COMPLETED, CrashPoint.EPOCH_ALIGNED), 0.15
# How often somebody sends what must be refused here, or while an attempt waits for its checkpoints, where anybody does:
# much of it is only possible then. The same of what happens while an epoch is held, or was until its attempt ended.
_PROBED_AT, _PROBES_THEN = (CrashPoint.ATTEMPT_OPENED, CrashPoint.EPOCH_ALIGNED, CrashPoint.CHECKPOINT_COMPLETED), 0.5
_PROBES_WHO_WAITS = 0.5
_WHILE_HELD = {Event.ABORT: 0.15, Event.PREEMPT: 0.3, Event.PROBE: 0.3, Event.RECOVER: 0.1}
_OVERTAKEN = 0.5  # how often what somebody is about to read, beside the attempts, is collected before, if it may be
_COLLECTS_BEFORE = 0.5  # how often somebody has come to collect before a checkpoint breaks, and may have read the run
_STAYS_AWAY = 0.5  # how often a store that is lost with the answer to what publishes a run stays away
_NEAR_EXPIRY = (timedelta(microseconds=-1), timedelta(0), timedelta(seconds=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed. `trace` is a line per step, if it was asked for; `digest` tells two schedules apart."""

    seed: int
    violation: str | None
    steps: int
    counters: Counter[str]
    trace: tuple[str, ...]
    digest: str


def run_schedule(
    seed: int, *, is_traced: bool = False, swarm: Swarm | None = None, is_evolving: bool = False
) -> Outcome:
    """Run one seed's schedule, of a program that stays as it is, or of one that a person edits on the way."""
    logging.disable(logging.CRITICAL)
    try:
        return Schedule(seed, is_traced=is_traced, swarm=swarm, is_evolving=is_evolving).run()
    finally:
        logging.disable(logging.NOTSET)


class Schedule:
    """Picks who goes on, by chance, and with which fate."""

    def __init__(self, seed: int, *, is_traced: bool, swarm: Swarm | None, is_evolving: bool) -> None:
        self._seed = seed
        self._random = Random(seed)  # noqa: S311 - a schedule, no secret
        file = UsersFile(self._random) if is_evolving else None
        program = file.program if file is not None else self._random.choice(programs())
        draw = draw_evolving_swarm if is_evolving else draw_swarm
        self._swarm = swarm if swarm is not None else draw(self._random)
        self._world = World(self._random, self._swarm, program, is_traced=is_traced, file=file)
        self._processes = Processes(self._world)
        self._disturbances = Disturbances(self._world, self._processes)
        self._last: Fiber | None = None
        self._excused: set[tuple[str, str]] = set()
        self._processes.note(f"seed {seed}: program {program.name}, {self._swarm}")

    def run(self) -> Outcome:
        """Disturb, heal, and see what came out."""
        world, processes = self._world, self._processes
        try:
            self._begin_calmly()
            self._disturb()
            if world.violation is None:
                self._heal()
            for run in world.runs if world.violation is None else ():
                run.oracle.finished()
            if self._swarm.collects and world.violation is None:
                self._collect()
        finally:
            for process in processes.all:
                process.kill()
        processes.note(f"violation: {world.violation}")
        return Outcome(
            seed=self._seed,
            violation=world.violation,
            steps=processes.step,
            counters=world.counters,
            trace=tuple(processes.trace),
            digest=hashlib.sha256("\n".join(processes.trace).encode()).hexdigest() if processes.trace else "",
        )

    def _begin_calmly(self) -> None:
        """Let some epochs become durable; the last one is left to the faults.

        Where some do, and checkpoints are aborted or attempts told to end, an epoch is held when that begins, if any
        soon is.
        """
        run = self._world.runs[0]
        calm = min(self._swarm.calm_epochs, run.oracle.reference.last_epoch)
        last = _STEPS_TO_HEAL
        self._processes.is_calm = True
        while self._processes.step < last:
            if run.rows.run["last_durable_epoch"] + 1 >= calm:
                last = min(last, self._processes.step + _STEPS_TO_BE_HELD)
                if calm == 0 or is_held(run.rows) or not {Event.ABORT, Event.PREEMPT} & self._swarm.kinds:
                    break
            self._processes.step += 1
            if self._world.violation is not None or not self._go_on():
                break
        self._processes.is_calm = False
        self._processes.note("disturbed")

    def _disturb(self) -> None:
        events = self._swarm.events
        most = events[-1][0] if events else 0.0
        last = self._processes.step + self._swarm.steps
        while self._processes.step < last and self._world.violation is None:
            self._processes.step += 1
            drawn = self._random.random()
            if drawn < most:
                self._disturbances.happen(next(event for bound, event in events if drawn < bound))
            elif not self._go_on():
                return

    def _heal(self) -> None:
        """End every fault; a fresh attempt has to finish each run, or one more after what is no fault of its own."""
        self._processes.is_healed = True
        self._processes.note("healed")
        for run in self._world.runs:
            run.disk.mend()
        for process in self._processes.all:
            process.paused_until = 0
            for job in process.jobs:
                job.is_hanging = False
            if not self._swarm.survivors_go_on:
                self._processes.end(process)
        for run in self._world.runs:  # grows by a branch that somebody was about to make
            self._processes.edit()
            fresh = self._finish_by_a_fresh_attempt(run)
            while self._may_need_another(fresh):
                fresh = self._finish_by_a_fresh_attempt(run)

    def _collect(self) -> None:
        """Collect the garbage of every run that has ended: nothing is left that nobody needs."""
        for run in self._world.runs:
            self._processes.send(collector, run)
            self._go_on_to_the_end()
            if self._world.violation is None:
                run.oracle.collected()

    def _may_need_another(self, fresh: SimulatedAttempt) -> bool:
        """Tell whether a healthy attempt did not finish the run through no fault of its own, at most once each."""
        if fresh.run.status == "STOPPED" and self._world.violation is None:
            return True  # it was asked to before
        reason = {
            SupersededError: "survivor took the healed run",
            CheckpointFailedError: "person had aborted the last checkpoint of the healed run",
            RunMismatchError: "the file of the healed run was refused",
        }.get(type(fresh.error))
        if reason is None or (fresh.run.name, reason) in self._excused or self._world.violation is not None:
            return False
        self._excused.add((fresh.run.name, reason))
        if self._world.file is not None and isinstance(fresh.run.program, EvolvingProgram):
            self._world.file.revert(fresh.run.program)
        self._world.counters[reason] += 1
        return True

    def _finish_by_a_fresh_attempt(self, run: SimulatedRun) -> SimulatedAttempt:
        if run.status == "STOPPED":
            self._processes.note(resume_run(run, CheckedCoordinator(self._world)))
        fresh = self._processes.start(Right.WORD, run)
        self._go_on_to_the_end()
        return fresh

    def _go_on_to_the_end(self) -> None:
        last = self._processes.step + _STEPS_TO_HEAL
        while self._processes.active and self._world.violation is None:
            self._processes.step += 1
            if self._processes.step > last:
                self._world.violate("liveness", "the attempts go on and on")
            self._go_on()

    def _go_on(self) -> bool:
        """Let a fiber go on; with none, start an attempt. False when there is nothing more to do."""
        ready = self._processes.ready()
        if not ready:
            return self._processes.stir()
        fiber = self._last
        if fiber not in ready or self._random.random() >= self._swarm.stickiness:
            fiber = self._random.choice(ready)
        self._last = fiber
        self._resume(fiber)
        return True

    def _resume(self, fiber: Fiber) -> None:
        process, attempt, waiting = fiber.process, fiber.process.attempt, fiber.waiting_for
        call, what = waiting
        end = self._end_before(process, call, what)
        if end is not None:
            self._processes.crash(process, end)
            return
        is_late = what is CrashPoint.EPOCH_WRITTEN or (call is Call.PUT and fiber.is_beside)
        if attempt is not None and is_late and self._is_told_late(attempt):
            self._disturbances.tell(attempt)
            return
        self._meet_others(process, waiting)
        if not process.is_active or fiber.waiting_for is not waiting or process.paused_until > self._processes.step:
            return
        fate = self._fate(fiber)
        if fate is Fate.HANG:
            fiber.is_hanging = True
            self._processes.note(f"{fiber.name}: {call.value} {what}: {fate.value}")
            return
        if call is Call.TRANSACTION and attempt is not None and attempt.right is Right.LEASE and len(attempt.said) <= 1:
            self._come_near_the_expiry(attempt.run)
        self._world.clock.pass_seconds(self._seconds(call, what))
        if self._world.is_traced:
            self._processes.note(f"{fiber.name}: {call.value}{f' {what}' if what is not None else ''}: {fate.value}")
        fiber.switch(fate)
        self._processes.settle(process)

    def _meet_others(self, process: SimulatedProcess, waiting: tuple[Call, object]) -> None:
        """Have others come at a moment when they find what they seldom find."""
        call, what = waiting
        if call is Call.GET and process.attempt is None and self._is_overtaken(process.run, what):
            self._disturbances.overtake(process)
        if what in _COLLECTED_AT and self._is_collected_now():
            self._processes.send(collector, process.run)
        if isinstance(what, CrashPoint) and self._is_broken_at(what):
            if self._random.random() < _COLLECTS_BEFORE:
                self._processes.send(collector, process.run)
            self._disturbances.break_newest(process.run)
        waits = isinstance(process.main.waiting_for[1], Awaited)
        self._may_happen(Event.PROBE, _PROBES_THEN if what in _PROBED_AT else _PROBES_WHO_WAITS if waits else 0.0)
        if is_held(process.run.rows):
            for event, rate in _WHILE_HELD.items():
                self._may_happen(event, rate)

    def _may_happen(self, event: Event, rate: float) -> None:
        """Have an event happen, where it may, beside those that come whenever they like; a probe disturbs nothing."""
        may_be = event in self._swarm.kinds and (self._processes.is_disturbed or event is Event.PROBE)
        if rate and may_be and self._random.random() < rate:
            self._disturbances.happen(event)

    def _end_before(self, process: SimulatedProcess, call: Call, what: object) -> str | None:
        """Return where the process ends before this call, None if it does not."""
        if call is Call.DIE:
            return "in a torn write"
        place = what if call is Call.POINT else call
        if (call is Call.POINT or call in _MORE_OFTEN) and self._processes.is_disturbed:
            rate = self._swarm.crash_at_point * _MORE_OFTEN.get(place, 1)
            if self._random.random() < rate:
                return f"at {what}" if call is Call.POINT else f"before: {call.value}"
        if process.grace_calls is None:
            return None
        process.grace_calls -= 1
        return "after its grace" if process.grace_calls < 0 else None

    def _is_told_late(self, attempt: SimulatedAttempt) -> bool:
        """Tell whether the process is told to end here: an epoch is computed, or a checkpoint being written."""
        return (
            self._processes.is_disturbed
            and attempt.grace_calls is None
            and self._random.random() < self._swarm.told_late
        )

    def _is_collected_now(self) -> bool:
        """Tell whether somebody comes for what a checkpoint lets go: older ones may be pending still."""
        may_be = self._swarm.collects and self._processes.is_disturbed
        return may_be and self._random.random() < _COLLECTS_THEN

    def _is_overtaken(self, run: SimulatedRun, path: object) -> bool:
        """Tell whether somebody who is about to read a manifest, beside the attempts, finds it collected."""
        may_be = self._swarm.collects and self._processes.is_disturbed
        may_go = (row for row in of_status(run.rows.checkpoints, "SUBSUMED") if row["manifest_path"] == path)
        return may_be and any(may_go) and self._random.random() < _OVERTAKEN

    def _is_broken_at(self, point: CrashPoint) -> bool:
        """Tell whether files of the newest checkpoint break: there are few epochs to wait for that in."""
        may_be = self._swarm.falls_back > 0 and self._processes.is_disturbed
        return may_be and self._random.random() < _BREAKS_AT.get(point, 0.0)

    def _fate(self, fiber: Fiber) -> Fate:
        call, said = fiber.waiting_for[0], fiber.saying
        fates = self._swarm.fates.get(call)
        if fates is None or not self._processes.is_disturbed:
            return Fate.GO
        if call is Call.COMMITTED and said is not None and said.stays_unheard:
            return Fate.LOST
        drawn = self._random.random() / (_BESIDE if fiber.is_beside and call is Call.PUT else 1)
        found = next((fate for bound, fate in fates if drawn < bound), Fate.GO)
        if found is Fate.HANG and not fiber.is_beside:
            return Fate.GO  # an attempt that hangs is one that is paused
        if found is Fate.LOST and call is Call.COMMITTED and said is not None and said.publishes:
            said.stays_unheard = self._random.random() < _STAYS_AWAY
        if found is not Fate.GO:
            self._world.counters[f"fate: {call.value}: {found.value}"] += 1
        return found

    def _seconds(self, call: Call, what: object) -> float:
        """Return how long a call takes."""
        if isinstance(what, Awaited):
            left = what.deadline_seconds - self._world.clock.local_seconds
            return QUICK_SECONDS if what.is_done else max(left, QUICK_SECONDS)
        if call is Call.WAIT and isinstance(what, float):
            return what
        if call is Call.PUT and self._processes.is_disturbed:
            return self._swarm.put_seconds
        return 1.0 if call is Call.RUN else QUICK_SECONDS

    def _come_near_the_expiry(self, run: SimulatedRun) -> None:
        """Set the store's clock to where the lease of the live attempt runs out, or just before."""
        for live in live_attempts(run.rows):
            self._world.clock.set_store_to(live["lease_expires_at"] + self._random.choice(_NEAR_EXPIRY))
            self._world.clock.store_seconds -= QUICK_SECONDS  # which is about to pass
