"""What happens in which order? One seed's schedule: faults first, then healing, after which the run has to finish."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import SupersededError
from tests.simulation.attempt import SimulatedAttempt
from tests.simulation.claims import Right
from tests.simulation.echo import echo
from tests.simulation.fiber import Call, Fate, Fiber
from tests.simulation.probe import probe
from tests.simulation.programs import programs
from tests.simulation.rows import live_attempts
from tests.simulation.swarm import Event, Swarm, draw_swarm
from tests.simulation.world import World

_STEPS_TO_HEAL = 2_000  # an undisturbed run of the longest program takes about 300
_RIGHTS = tuple(Right)
_JUMPS_SECONDS = (-3600, -60, -31, 31, 60, 3600)
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


def run_schedule(seed: int, *, is_traced: bool = False, swarm: Swarm | None = None) -> Outcome:
    """Run one seed's schedule."""
    logging.disable(logging.CRITICAL)
    try:
        return Schedule(seed, is_traced=is_traced, swarm=swarm).run()
    finally:
        logging.disable(logging.NOTSET)


class Schedule:
    """Picks who goes on, by chance, and what goes wrong."""

    def __init__(self, seed: int, *, is_traced: bool, swarm: Swarm | None) -> None:
        self._seed = seed
        self._random = Random(seed)  # noqa: S311 - a schedule, no secret
        program = self._random.choice(programs())
        self._swarm = swarm if swarm is not None else draw_swarm(self._random)
        self._world = World(self._random, self._swarm, program, is_traced=is_traced)
        self._bystander = Coordinator(self._world.store)  # for echoes and probes: another process's
        self._attempts: list[SimulatedAttempt] = []
        self._last: Fiber | None = None
        self._step = 0
        self._is_healed = False
        self._trace: list[str] = []
        self._note(f"seed {seed}: program {program.name}, {self._swarm}")

    def run(self) -> Outcome:
        """Disturb, heal, and see what came out."""
        world = self._world
        try:
            self._disturb()
            if world.oracle.violation is None:
                self._heal()
            if world.oracle.violation is None:
                world.oracle.finished()
        finally:
            for attempt in self._attempts:
                attempt.kill()
        self._note(f"violation: {world.oracle.violation}")
        return Outcome(
            seed=self._seed,
            violation=world.oracle.violation,
            steps=self._step,
            counters=world.counters,
            trace=tuple(self._trace),
            digest=hashlib.sha256("\n".join(self._trace).encode()).hexdigest() if self._trace else "",
        )

    def _disturb(self) -> None:
        events = self._swarm.events
        most = events[-1][0] if events else 0.0
        while self._step < self._swarm.steps and self._world.oracle.violation is None:
            self._step += 1
            drawn = self._random.random()
            if drawn < most:
                try:
                    self._happen(next(event for bound, event in events if drawn < bound))
                except Exception as err:  # noqa: BLE001 - a probe that the core cannot even refuse
                    self._world.oracle.violate("errors", f"{err!r} instead of a refusal")
            elif not self._go_on():
                return

    def _heal(self) -> None:
        """End every fault; a fresh attempt has to finish the run, or, if a survivor took it over, one more."""
        self._is_healed = True
        self._note("healed")
        self._world.disk.mend()
        for attempt in self._attempts:
            attempt.paused_until = 0
            if not self._swarm.survivors_go_on:
                attempt.kill()
        fresh = self._finish_by_a_fresh_attempt()
        if isinstance(fresh.error, SupersededError) and self._world.oracle.violation is None:
            self._world.counters["survivor took the healed run"] += 1
            self._finish_by_a_fresh_attempt()

    def _finish_by_a_fresh_attempt(self) -> SimulatedAttempt:
        fresh = self._start(Right.WORD)
        last = self._step + _STEPS_TO_HEAL
        while any(attempt.is_active for attempt in self._attempts) and self._world.oracle.violation is None:
            self._step += 1
            if self._step > last:
                self._world.oracle.violate("liveness", "the attempts go on and on")
            self._go_on()
        return fresh

    def _go_on(self) -> bool:
        """Let a fiber go on; with none, start an attempt. False when there is nothing more to do."""
        ready = self._ready()
        if not ready:
            return self._stir()
        fiber = self._last
        if fiber not in ready or self._random.random() >= self._swarm.stickiness:
            fiber = self._random.choice(ready)
        self._last = fiber
        self._resume(fiber)
        return True

    def _ready(self) -> list[Fiber]:
        ready = []
        for attempt in self._attempts:
            if not attempt.is_active or attempt.paused_until > self._step:
                continue
            if attempt.beat is not None:
                ready.append(attempt.beat)
                if attempt.main.waiting_for[0] is Call.JOIN:
                    continue
            ready.append(attempt.main)
        return ready

    def _stir(self) -> bool:
        """Start an attempt where nobody is ready, or wake one up."""
        waiting = [attempt for attempt in self._attempts if attempt.is_active]
        if len(self._attempts) < self._swarm.most_attempts and self._world.oracle.rows.run["status"] != "FINISHED":
            self._start(self._random.choice(_RIGHTS))
            return True
        if waiting:
            self._random.choice(waiting).paused_until = 0
        return bool(waiting)

    def _start(self, right: Right) -> SimulatedAttempt:
        durable = self._world.oracle.rows.run["last_durable_epoch"]
        in_parts = not self._is_healed and self._swarm.drives_in_parts and self._random.random() < 0.7
        attempt = SimulatedAttempt(
            self._world,
            len(self._attempts) + 1,
            right,
            until_epoch=durable + self._random.randint(2, 3) if in_parts else None,
            publishes=not in_parts or self._random.random() < 0.3,
            parallelism=self._random.randint(1, 3),
        )
        self._attempts.append(attempt)
        self._note(f"attempt {attempt.number} starts by {right.value}")
        return attempt

    def _resume(self, fiber: Fiber) -> None:
        attempt, (call, what) = fiber.attempt, fiber.waiting_for
        fate = Fate.GO if self._is_healed else self._fate(call)
        if call is Call.DIE:
            self._crash(attempt, "in a torn write")
            return
        if call is Call.POINT and not self._is_healed and self._random.random() < self._swarm.crash_at_point:
            self._crash(attempt, f"at {what}")
            return
        if call is Call.TRANSACTION and attempt.right is Right.LEASE and len(attempt.said) <= 1:
            self._come_near_the_expiry()
        seconds = what if call is Call.WAIT and isinstance(what, float) else 1.0 if call is Call.RUN else 0.05
        self._world.clock.pass_seconds(seconds)
        if self._world.is_traced:
            self._note(f"{fiber.name}: {call.value}{f' {what}' if what is not None else ''}: {fate.value}")
        fiber.switch(fate)
        self._note_end(attempt)
        self._beat_where_due()

    def _fate(self, call: Call) -> Fate:
        fates = self._swarm.fates.get(call)
        if fates is None:
            return Fate.GO
        drawn = self._random.random()
        found = next((fate for bound, fate in fates if drawn < bound), Fate.GO)
        if found is not Fate.GO:
            self._world.counters[f"fate: {call.value}: {found.value}"] += 1
        return found

    def _beat_where_due(self) -> None:
        now = self._world.clock.local_seconds
        for attempt in self._attempts:
            due = attempt.next_beat_at
            if due is not None and due <= now and attempt.is_active and attempt.beat is None:
                attempt.begin_beat()

    def _come_near_the_expiry(self) -> None:
        """Set the store's clock to where the lease of the live attempt runs out, or just before."""
        for live in live_attempts(self._world.oracle.rows):
            self._world.clock.set_store_to(live["lease_expires_at"] + self._random.choice(_NEAR_EXPIRY))
            self._world.clock.store_seconds -= 0.05  # which is about to pass

    def _happen(self, event: Event) -> None:
        active = [attempt for attempt in self._attempts if attempt.is_active]
        if event is Event.RIVAL and len(self._attempts) < self._swarm.most_attempts:
            self._start(self._random.choice(_RIGHTS))
        elif event is Event.CRASH and active:
            self._crash(self._random.choice(active), "")
        elif event is Event.PAUSE and active:
            attempt = self._random.choice(active)
            attempt.paused_until = self._step + self._random.randint(20, 400)
            self._world.counters["long pause"] += 1
            self._note(f"attempt {attempt.number} is paused until step {attempt.paused_until}")
        elif event is Event.CLOCK:
            seconds = self._random.choice(_JUMPS_SECONDS)
            self._world.clock.store_seconds += seconds
            self._world.counters[f"clock jumped {'forwards' if seconds > 0 else 'back'}"] += 1
            self._note(f"the store's clock jumps by {seconds} s")
        elif event is Event.ECHO:
            self._echo()
        elif event is Event.PROBE:
            self._note(f"probe that {probe(self._world, self._any_coordinator())}")
        elif event is Event.DAMAGE:
            self._damage()

    def _crash(self, attempt: SimulatedAttempt, where: str) -> None:
        call = attempt.main.waiting_for[0]
        self._world.counters[f"crash {where}" if where else f"crash before: {call.value}"] += 1
        self._note(f"attempt {attempt.number} crashes {where} before: {call.value}")
        attempt.kill()

    def _echo(self) -> None:
        talkers = [attempt for attempt in self._attempts if attempt.said]
        if talkers:
            attempt = self._random.choice(talkers)
            self._note(f"echo of attempt {attempt.number}: {echo(self._world, attempt, self._any_coordinator())}")

    def _any_coordinator(self) -> Coordinator:
        return self._bystander if self._random.random() < 0.7 else Coordinator(self._world.store)

    def _damage(self) -> None:
        paths = sorted(self._world.disk.files.keys() - self._world.disk.damaged.keys() - self._world.disk.torn.keys())
        if paths:
            path = self._random.choice(paths)
            self._world.disk.damage(path)
            self._world.damages += 1
            self._note(f"{path} is damaged")

    def _note_end(self, attempt: SimulatedAttempt) -> None:
        if self._world.is_traced and attempt.is_over:
            self._note(f"attempt {attempt.number} ends: {attempt.error!r}\n{attempt.trace}")

    def _note(self, line: str) -> None:
        if self._world.is_traced:
            self._trace.append(f"{self._step:4d} {self._world.clock.store_seconds:9.2f} {line}")
