"""Which faults does a seed have? Each schedule has a part of them, at rates of its own.

A mix of everything at once hides what a single fault would show: attempts that crash all the time never get far enough
to meet a torn pointer. Long pauses are a fault of their own, because picking fibers by chance does not make them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from random import Random
from typing import TypeVar

from iteration_lib.protocol.policy import CheckpointPolicy
from tests.simulation.fiber import Call, Fate

T = TypeVar("T")


class Event(enum.Enum):
    """What the scheduler may do instead of letting a fiber go on."""

    CRASH = "crash"
    PAUSE = "pause"
    RIVAL = "rival"
    CLOCK = "clock"
    ECHO = "echo"
    PROBE = "probe"
    DAMAGE = "damage"
    PREEMPT = "preempt"
    ABORT = "a person aborts a checkpoint"
    REQUEST = "a person asks for a checkpoint"
    RECOVER = "a call that hangs returns"
    DISCARD = "a person discards checkpoints"
    PIN = "a person pins a checkpoint, or releases one"
    COLLECT = "somebody collects garbage"
    BRANCH = "a person branches a run"
    DELETE = "a person deletes a run"
    STOP = "a person stops a run"
    DRAIN = "a person drains a run"
    RESUME = "a person resumes a run"

    __hash__ = object.__hash__


# How often, per step, an event or a fate comes where it is enabled: one of these, by seed.
_EVENT_RATES: Mapping[Event, tuple[float, ...]] = {
    Event.CRASH: (0.002, 0.006, 0.02),
    Event.PAUSE: (0.004, 0.015, 0.04),
    Event.RIVAL: (0.002, 0.008, 0.03),
    Event.CLOCK: (0.004, 0.02),
    Event.ECHO: (0.01, 0.04, 0.1),
    Event.PROBE: (0.03, 0.1),
    Event.DAMAGE: (0.001, 0.004),
    Event.PREEMPT: (0.003, 0.01, 0.03),
    Event.ABORT: (0.003, 0.01, 0.03),
    Event.REQUEST: (0.01, 0.04),
}
FATE_RATES: Mapping[tuple[Fate, tuple[Call, ...]], tuple[float, ...]] = {
    (Fate.LOST, (Call.TRANSACTION,)): (0.02, 0.1, 0.4, 0.8),
    (Fate.LOST, (Call.COMMITTED,)): (0.02, 0.1, 0.4, 0.8),
    (Fate.LOST, (Call.READ_ROWS,)): (0.01, 0.05),
    (Fate.LOST, (Call.RENEW, Call.RENEWED)): (0.1, 0.5),
    (Fate.FAIL, (Call.PUT,)): (0.005, 0.03, 0.1),
    (Fate.HANG, (Call.PUT, Call.PUT_DONE)): (0.2, 0.5),
    (Fate.TEAR, (Call.PUT,)): (0.005, 0.03),
    (Fate.TEAR_UNSEEN, (Call.PUT,)): (0.005, 0.03),
    (Fate.TEAR_AND_DIE, (Call.PUT,)): (0.005, 0.03),
    (Fate.STRAY, (Call.PUT,)): (0.02, 0.1),
    (Fate.LOST, (Call.PUT_DONE,)): (0.005, 0.03),
    (Fate.FAIL, (Call.GET,)): (0.01, 0.05),
    (Fate.FAIL, (Call.LIST,)): (0.02, 0.2),
    (Fate.FAIL, (Call.REMOVE,)): (0.02, 0.2),
    (Fate.LOST, (Call.REMOVE,)): (0.02, 0.2),
    (Fate.FAIL, (Call.RUN,)): (0.005, 0.02),
    (Fate.LOST, (Call.RUN,)): (0.005, 0.02),
    (Fate.FAIL, (Call.LISTEN,)): (0.02, 0.2),
    (Fate.FAIL, (Call.SINK,)): (0.02, 0.2),
    (Fate.LOST, (Call.SINK_DONE,)): (0.02, 0.2),
    (Fate.HANG, (Call.SINK, Call.SINK_DONE)): (0.05, 0.2),
    (Fate.FORGET, (Call.TRANSACTION,)): (0.3, 0.9),
}
_ENABLED = 0.35  # how likely a fault is part of a seed's
_ENABLED_IF_LONG = 0.15
_OFTEN_ENABLED = 0.6
_CRASH_AT_POINT_RATES = (0.0, 0.0, 0.02, 0.08)
# The same, for seeds whose runs let things go; only of those that are branched one is deleted.
_LETTING_GO_RATES: Mapping[Event, tuple[float, ...]] = {
    Event.DISCARD: (0.01, 0.04),
    Event.COLLECT: (0.01, 0.04),
    Event.PIN: (0.01, 0.04),
    Event.DELETE: (0.02, 0.06),
    Event.REQUEST: (0.01, 0.04),  # an older checkpoint that is still pending may name what is let go else
}
_BRANCH_RATES = (0.02, 0.06)
_STOP_RATES, _RESUME_RATE = (0.01, 0.03), 0.05
_STOPS = 0.15  # how likely a seed has persons who stop and resume runs
_DRAINS = 0.06  # how likely a seed has persons who drain runs, after which little is left to happen
_BREAKS = 0.1  # how likely a seed has checkpoints that break, and attempts that may fall back behind them
_STEPS_TO_BREAK = (300, 500, 700)  # it takes two checkpoints, and another attempt after them
_BRANCHES_TO_BREAK = 0.4  # the same of branches where checkpoints break: they pin some
_LETS_GO, _BRANCHES = 0.2, 0.15  # how likely a seed has any of these
_EVOLVING_BRANCHES, _EVOLVING_BREAKS = 0.3, 0.08  # the same of a seed whose file changes
_EVOLVES_IN_PARTS = 0.8  # how often its attempts drive some epochs each
_MEASURED = ("loss", "loss", "loss", "weight", "behind")  # metrics of some of the programs
_HOLDS = 0.08  # how likely a seed that is not long has nothing but what keeps epochs held, and those who come meanwhile
_HELD_BY = {Call.PUT: {Fate.HANG: 1.0}}
_COME_WHILE_HELD = {Event.PREEMPT: 0.003, Event.ABORT: 0.003, Event.PROBE: 0.1}  # more often while one is: schedule.py
_UNREADABLE = 0.4  # how likely files cannot be read now and then, where checkpoints break: is it broken, or is it that?
_TOLD_LATE_RATES = (0.0, 0.0, 0.0, 0.1, 0.3)
QUICK_SECONDS = 0.05  # a call of a port
_PUT_SECONDS = (QUICK_SECONDS, QUICK_SECONDS, 1.5)
LONG_GRACE_SECONDS = 120.0  # more than what is pending takes
_RECOVERY_RATE = 0.02  # of calls that hang
_CALM_EPOCHS = (0, 0, 0, 1, 1, 2, 2, 3, 5)  # else nearly every fault would come before the first durable epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How an attempt takes checkpoints, and after what time it leaves durable edges."""

    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    alignment_timeout_seconds: float | None = None
    ignore_edges: bool = False
    termination_grace_seconds: float = 3.0
    fuses: bool = False  # are its operators on buckets computed inside what takes them

    def patient(self) -> Pace:
        """Return a pace that no slowness of a healthy world is too slow for; it leaves no edges, only finds them."""
        return Pace(policy=replace(self.policy, timeout_seconds=1e6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The faults of one seed. `events` and `fates` are cumulative: the first bound above a random number counts."""

    events: tuple[tuple[float, Event], ...]
    fates: Mapping[Call, tuple[tuple[float, Fate], ...]]
    crash_at_point: float
    told_late: float  # how likely a process is told to end just before an epoch aligns, or a checkpoint writes a file
    stickiness: float  # how likely a fiber that has just gone on goes on again
    splits: float  # how likely reports come in parts
    put_seconds: float  # how long a file takes to be put
    calm_epochs: int  # how many epochs become durable, if there are as many, before the first fault
    steps: int  # with faults
    most_attempts: int
    paces: tuple[Pace, ...]  # each attempt has one of them
    survivors_go_on: bool  # after the healing, or are they ended by it
    drives_in_parts: bool  # as Airflow's tasks do, some epochs each
    falls_back: float  # how likely an attempt may fall back to an older checkpoint
    collects: bool  # is garbage collected once every run has ended

    @property
    def kinds(self) -> frozenset[Event]:
        """What the scheduler may do."""
        return frozenset(event for _, event in self.events)


def draw_swarm(random: Random, *, branching: float = _BRANCHES, breaking: float = _BREAKS) -> Swarm:
    """Draw the faults of one seed. Where it takes checkpoints, to branch or to fall back, there are fewer."""
    breaks = random.random() < breaking
    branches = random.random() < (_BRANCHES_TO_BREAK if breaks else branching)
    is_long = branches or breaks
    holds = not is_long and random.random() < _HOLDS
    lets_go = branches or (not holds and random.random() < _LETS_GO)
    enabled = _ENABLED_IF_LONG if is_long else _ENABLED
    likely = {**dict.fromkeys(_EVENT_RATES, enabled), Event.PROBE: _OFTEN_ENABLED}  # a probe hides no other fault
    events = {event: random.choice(rates) for event, rates in _EVENT_RATES.items() if random.random() < likely[event]}
    if branches:
        events[Event.BRANCH] = random.choice(_BRANCH_RATES)
    for event, choices in _LETTING_GO_RATES.items() if lets_go else ():
        if random.random() < _OFTEN_ENABLED:
            events[event] = random.choice(choices)
    if random.random() < _STOPS:
        events |= {Event.STOP: random.choice(_STOP_RATES), Event.RESUME: _RESUME_RATE}
    if random.random() < _DRAINS:
        events[Event.DRAIN] = random.choice(_STOP_RATES)
    fates = _draw_fates(random, enabled)
    if breaks and random.random() < _UNREADABLE:
        fates.setdefault(Call.GET, {})[Fate.FAIL] = 0.05
    if holds:
        events, fates = {**_COME_WHILE_HELD}, {**_HELD_BY}
    elif any(Fate.HANG in rates for rates in fates.values()):
        events[Event.RECOVER] = _RECOVERY_RATE
    told_late = 0.0 if holds else random.choice(_TOLD_LATE_RATES)
    draw_pace = partial(_draw_pace, random, is_told_late=told_late > 0, lets_go=lets_go, breaks=breaks)
    paces = tuple(draw_pace() for _ in range(random.choice((1, 1, 2))))
    return Swarm(
        events=_cumulative(events),
        fates={call: _cumulative(rates) for call, rates in fates.items()},
        crash_at_point=0.0 if holds else random.choice(_CRASH_AT_POINT_RATES),
        told_late=told_late,
        stickiness=random.choice((0.0, 0.5, 0.9)),
        splits=random.choice((0.0, 0.0, 0.3)),
        put_seconds=random.choice(_PUT_SECONDS),
        calm_epochs=random.choice(_CALM_EPOCHS),
        steps=random.choice(_STEPS_TO_BREAK if breaks else (120, 200, 300) if branches else (60, 120, 200, 300)),
        most_attempts=random.choice((5, 8) if breaks else (2, 3, 5, 8)),
        paces=tuple(map(_to_hold, paces)) if holds else paces,
        survivors_go_on=random.random() < 0.5,
        drives_in_parts=random.random() < 0.3,
        collects=lets_go,
        falls_back=random.choice((0.5, 0.9)) if breaks else 0.0,
    )


def draw_evolving_swarm(random: Random) -> Swarm:
    """Draw the faults of a seed whose file changes: there are more attempts, and each has time for some epochs."""
    swarm = draw_swarm(random, branching=_EVOLVING_BRANCHES, breaking=_EVOLVING_BREAKS)
    is_long = swarm.falls_back > 0 or Event.BRANCH in swarm.kinds
    return replace(
        swarm,
        steps=random.choice((250, 400, 550) if is_long else (120, 200, 300)),
        most_attempts=random.choice((5, 8)),
        drives_in_parts=random.random() < _EVOLVES_IN_PARTS,
    )


def undisturbed() -> Swarm:
    """Return a swarm without faults."""
    return Swarm(
        events=(),
        fates={},
        crash_at_point=0.0,
        told_late=0.0,
        stickiness=1.0,
        splits=0.0,
        put_seconds=QUICK_SECONDS,
        calm_epochs=0,
        steps=0,
        most_attempts=1,
        paces=(Pace(),),
        survivors_go_on=True,
        drives_in_parts=False,
        collects=True,
        falls_back=0.0,
    )


def draw_retention(random: Random) -> CheckpointPolicy:
    """Draw which checkpoints are kept: the last ones, the best ones, or both."""
    last = random.choice((1, 1, 2, 3, None))
    best = random.choice((0, 1, 1, 2)) if last is not None else 1
    return CheckpointPolicy(
        retain_last=last,
        retain_best=best,
        retain_metric=random.choice(_MEASURED) if best else None,
        retain_mode=random.choice(("min", "max")),
    )


def _draw_fates(random: Random, enabled: float) -> dict[Call, dict[Fate, float]]:
    fates: dict[Call, dict[Fate, float]] = {}
    for (fate, calls), rates in FATE_RATES.items():
        if random.random() < enabled:
            rate = random.choice(rates)
            for call in calls:
                fates.setdefault(call, {})[fate] = rate
    return fates


def _draw_pace(random: Random, *, is_told_late: bool, lets_go: bool, breaks: bool) -> Pace:
    """Draw a pace; who is told late has left nothing before, as a rule."""
    timeouts = (None, None, None, None, 0.0) if is_told_late else (None, None, 0.0, 0.0, 3.0)
    policy = draw_retention(random) if lets_go and random.random() < 0.7 else CheckpointPolicy()
    return Pace(
        policy=replace(
            policy,
            every_epochs=1 if breaks else random.choice((1, 1, 1, 2, 3, 4)),
            min_pause_seconds=0.0 if breaks else random.choice((0.0, 0.0, 0.0, 4.0, 60.0)),
            max_pending=random.choice((1, 2, 3)),
            timeout_seconds=random.choice((1.0, 4.0, 600.0, 600.0)),
            tolerable_failures=random.choice((0, 0, 1, 3)),
        ),
        alignment_timeout_seconds=random.choice(timeouts),
        ignore_edges=random.random() < 0.1,
        termination_grace_seconds=random.choice((3.0, LONG_GRACE_SECONDS, LONG_GRACE_SECONDS)),
        fuses=random.random() < 0.5,
    )


def _to_hold(pace: Pace) -> Pace:
    """Return a pace at which an epoch is held as soon as a checkpoint takes long, and ends held if that is longer."""
    policy = replace(pace.policy, every_epochs=1, min_pause_seconds=0.0, max_pending=1, timeout_seconds=600.0)
    return replace(pace, policy=policy, termination_grace_seconds=3.0)


def _cumulative(rates: Mapping[T, float]) -> tuple[tuple[float, T], ...]:
    return tuple(zip(accumulate(rates.values()), rates, strict=True))
