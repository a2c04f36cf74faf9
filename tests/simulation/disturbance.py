"""What goes wrong between two steps, or is done by somebody else? One method per event of the swarm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.status import StopKind
from tests.simulation.change import live_attempts, of_status
from tests.simulation.echo import echo
from tests.simulation.errand import brancher, collector
from tests.simulation.fiber import Call, Fate
from tests.simulation.person import (
    abort_checkpoint,
    delete_run,
    discard_by_hand,
    pin_or_release,
    request_checkpoint,
    resume_run,
    stop_run,
)
from tests.simulation.ports import CheckedCoordinator
from tests.simulation.probe import probe
from tests.simulation.processes import RIGHTS, Processes
from tests.simulation.swarm import Event

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.run import SimulatedRun
    from tests.simulation.world import World

_GRACE_CALLS = (1, 5, 20, 60)
_JUMPS_SECONDS = (-3600, -60, -31, 31, 60, 3600)
_MOST_BRANCHES = 2
_BREAKS_TWO = 0.5  # how often the checkpoint before the newest one breaks as well
_POWER_CUT = 0.5  # how often that ends the attempts
_TOO_EARLY = 0.1  # how often somebody branches a run that has no completed checkpoint yet
_DELETES_THE_ORIGIN = 0.8
_RETURNS_WELL = 0.4  # how often what returns late goes well
_BYSTANDS = 0.7  # how often what comes from outside comes from a process that has looked at the run before
_COMES_LATE = 0.8  # how often it comes when the lease would have run out that it saw
_OVERTAKEN_STEPS = 250  # enough for another collection


class Disturbances:
    """Has events happen. What comes from outside of any attempt comes from a process of its own."""

    def __init__(self, world: World, processes: Processes) -> None:
        self._world = world
        self._random = world.random
        self._processes = processes
        self._bystander = CheckedCoordinator(world)
        self._happen: dict[Event, Callable[[], None]] = {
            Event.CRASH: self._crash,
            Event.PAUSE: self._pause,
            Event.RIVAL: self._rival,
            Event.CLOCK: self._clock,
            Event.ECHO: self._echo,
            Event.PROBE: self._probe,
            Event.DAMAGE: self._damage,
            Event.PREEMPT: self._preempt,
            Event.ABORT: partial(self._send, abort_checkpoint),
            Event.REQUEST: partial(self._send, request_checkpoint),
            Event.RECOVER: self._recover,
            Event.DISCARD: partial(self._send, discard_by_hand),
            Event.PIN: partial(self._send, pin_or_release),
            Event.COLLECT: self._collect,
            Event.BRANCH: self._branch,
            Event.DELETE: self._delete,
            Event.STOP: partial(self._send, partial(stop_run, kind=StopKind.STOP), asks_for_lease=True),
            Event.DRAIN: partial(self._send, partial(stop_run, kind=StopKind.DRAIN), asks_for_lease=True),
            Event.RESUME: partial(self._send, resume_run),
        }

    def happen(self, event: Event) -> None:
        """Have an event happen, if there is anything that it could happen to."""
        try:
            self._happen[event]()
        except Exception as err:  # noqa: BLE001 - a probe that the core cannot even refuse
            self._world.violate("errors", f"{err!r} instead of a refusal")

    def _crash(self) -> None:
        active = self._processes.active
        if active:
            self._processes.crash(self._random.choice(active))

    def _pause(self) -> None:
        active = self._processes.active
        if active:
            process = self._random.choice(active)
            process.paused_until = self._processes.step + self._random.randint(20, 400)
            self._world.counters["long pause"] += 1
            self._note(f"{process.name} is paused until step {process.paused_until}")

    def _rival(self) -> None:
        run = self._any_run()
        if self._processes.has_room(run):
            self._processes.start(self._random.choice(RIGHTS), run)

    def _clock(self) -> None:
        seconds = self._random.choice(_JUMPS_SECONDS)
        self._world.clock.store_seconds += seconds
        self._world.counters[f"clock jumped {'forwards' if seconds > 0 else 'back'}"] += 1
        self._note(f"the store's clock jumps by {seconds} s")

    def _echo(self) -> None:
        talkers = [attempt for attempt in self._processes.attempts if attempt.said]
        if talkers:
            attempt = self._random.choice(talkers)
            said = echo(self._world, attempt, self._coordinator(attempt.run, asks_for_lease=True))
            self._note(f"echo of attempt {attempt.number}: {said}")

    def _probe(self) -> None:
        run = self._any_run()
        self._note(f"probe that {probe(run, self._coordinator(run))}")

    def _damage(self) -> None:
        run = self._any_run()
        self._damage_one(run, run.disk.files)

    def _damage_one(self, run: SimulatedRun, paths: Iterable[str]) -> None:
        disk = run.disk
        whole = sorted(disk.files.keys() & set(paths) - disk.damaged.keys() - disk.torn.keys())
        if whole:
            path = self._random.choice(whole)
            disk.damage(path)
            self._world.damages += 1
            self._note(f"{path} is damaged")

    def break_newest(self, run: SimulatedRun) -> None:
        """Damage files of a run's newest checkpoint, and now and then of the one before, as a rule by a power cut."""
        there = sorted(row["checkpoint_id"] for row in of_status(run.rows.checkpoints, "COMPLETED", "SUBSUMED"))
        if len(there) < 2 or not run.goes_on:
            return
        breaks_two = len(there) > 2 and self._random.random() < _BREAKS_TWO
        for checkpoint_id in there[-2:] if breaks_two else there[-1:]:
            self._damage_one(run, run.oracle.files_of(checkpoint_id))
        for attempt in self._processes.active_attempts if self._random.random() < _POWER_CUT else ():
            self._processes.crash(attempt)

    def _preempt(self) -> None:
        """Tell any attempt to end."""
        told = [
            a
            for a in self._processes.active_attempts
            if a.grace_calls is None and a.main.waiting_for[0] is not Call.BEGIN
        ]
        if told:
            self.tell(self._random.choice(told))

    def tell(self, attempt: SimulatedAttempt) -> None:
        """Tell an attempt to end, and give it some calls for that."""
        self._world.counters["preempted"] += 1
        self._note(f"attempt {attempt.number} is told to end before: {attempt.main.waiting_for[0].value}")
        attempt.preempt(grace_calls=self._random.choice(_GRACE_CALLS))
        self._processes.settle(attempt)

    def _recover(self) -> None:
        """Have a call return that hung: it has gone well after all, or not."""
        hanging = [job for process in self._processes.active for job in process.jobs if job.is_hanging]
        if hanging:
            fiber = self._random.choice(hanging)
            fiber.is_hanging = False
            call, is_well = fiber.waiting_for[0], self._random.random() < _RETURNS_WELL
            fate = Fate.GO if is_well else Fate.FAIL if call in (Call.PUT, Call.SINK) else Fate.LOST
            self._note(f"{fiber.name}: {call.value} returns, and {fate.value}")
            fiber.switch(fate)
            self._processes.settle(fiber.process)

    def _collect(self) -> None:
        self._processes.send(collector, self._any_run())

    def _branch(self) -> None:
        """Have a run branched, as a rule where a checkpoint has been completed; also a branch, or a deleted run."""
        run = self._any_run()
        may_begin = [row for row in run.rows.checkpoints.values() if row["epoch"] < run.oracle.reference.last_epoch]
        is_early = all(row["manifest_path"] is None for row in may_begin) and self._random.random() > _TOO_EARLY
        if may_begin and not is_early and len(self._world.runs) <= _MOST_BRANCHES:
            self._processes.edit()
            self._processes.send(brancher, run)

    def _delete(self) -> None:
        """Delete a run, if there is another one, the origin as a rule, and have somebody collect what is left of it."""
        runs = self._world.runs
        if len(runs) > 1:
            run = runs[0] if self._random.random() < _DELETES_THE_ORIGIN else self._random.choice(runs)
            self._send(delete_run, run, asks_for_lease=True)
            if run.status == "DELETED":
                self._send(discard_by_hand, run)
                self._processes.send(collector, run)

    def _any_run(self) -> SimulatedRun:
        runs = self._world.runs
        return runs[0] if len(runs) == 1 else self._random.choice(runs)

    def overtake(self, process: SimulatedProcess) -> None:
        """Pause somebody; meanwhile a person discards what he is about to read, and somebody else collects it."""
        process.paused_until = self._processes.step + _OVERTAKEN_STEPS
        self._world.counters["collector overtaken"] += 1
        self._note(f"{process.name} is paused until step {process.paused_until}")
        self._send(partial(discard_by_hand, policy=CheckpointPolicy(retain_last=1)), process.run)
        self._processes.send(collector, process.run)

    def _send(
        self,
        send: Callable[[SimulatedRun, Coordinator], str],
        run: SimulatedRun | None = None,
        *,
        asks_for_lease: bool = False,
    ) -> None:
        """Have a person send something to a run, to any where none is named."""
        run = run or self._any_run()
        self._note(send(run, self._coordinator(run, asks_for_lease=asks_for_lease)))

    def _coordinator(self, run: SimulatedRun, *, asks_for_lease: bool = False) -> Coordinator:
        if self._random.random() >= _BYSTANDS:
            return CheckedCoordinator(self._world)
        if asks_for_lease and self._processes.is_disturbed:
            self._come_late(run)
        return self._bystander

    def _come_late(self, run: SimulatedRun) -> None:
        """Where a lease was renewed, and nothing else happened, come when the one that the bystander saw runs out."""
        cached, live = self._bystander._cache.get(run.run_id), live_attempts(run.rows)
        if cached is None or cached.state.attempt is None or cached.revision != run.rows.run["revision"] or not live:
            return
        late = cached.state.attempt.lease_expires_at + timedelta(seconds=1)
        if late < live[0]["lease_expires_at"] and self._random.random() < _COMES_LATE:
            self._world.clock.set_store_to(late)
            self._world.counters["lease renewed since somebody looked"] += 1
            self._note(f"the store's clock is set to {late}")

    def _note(self, line: str) -> None:
        self._processes.note(line)
