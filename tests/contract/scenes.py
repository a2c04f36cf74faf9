"""Where do two calls on one run meet, and which calls are there? Scenes that any store can be brought to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, RunId
from iteration_lib.store.record import NewRun
from iteration_lib.store.seam import StoreWithHistory
from tests.protocol_script import (
    LEASE_SECONDS,
    Sender,
    aborts,
    asks,
    claim,
    deletes,
    drains,
    keeps,
    part,
    prepared,
    releases,
    resumes,
    stops,
)
from tests.store_script import DEFINITION, a_run

Did: TypeAlias = Callable[[Sender], tuple[Event, ...]]
Call: TypeAlias = Callable[[Coordinator, StoreWithHistory, RunId], RunState | tuple[int, ...] | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A run to meet at: what its attempts did, of which the last one speaks, and what is meant by who speaks of it.

    Who speaks of the epoch or of the checkpoint means these: the last epoch, and the pending or newest checkpoint, but
    for a few scenes. `opens` is the epoch to open, the next one by default; `marks` the one whose edges are marked;
    `older` the checkpoint to fall back to, `pinned` the one to release; `covered` are the epochs whose rows the pending
    one publishes.
    """

    attempts: tuple[Did, ...]
    epoch: int
    checkpoint_id: int
    opens: int | None = None
    marks: int | None = None
    older: int = 2
    pinned: int = 2
    covered: tuple[int, ...] = ()
    sinks: Mapping[str, bool] = field(default_factory=dict)
    lease_ttl_seconds: float = LEASE_SECONDS

    def run(self) -> NewRun:
        """Return a run that is not there yet."""
        return a_run(definition={**DEFINITION, "sinks": dict(self.sinks)})

    def speaker(self, family: int = 0) -> Sender:
        """Return the attempt that drives the run, or drove it last."""
        return Sender(len(self.attempts), len(self.attempts), family)

    def enter(self, store: StoreWithHistory, run: NewRun, family: int = 0) -> Coordinator:
        """Bring a run here, unless it is; return a coordinator that knows it."""
        coordinator = Coordinator(store)
        if store.find_run(run.run_id) is None:
            assert store.add_run(run)
            for number, did in enumerate(self.attempts, start=1):
                opening = claim(number, takeover=True, family=family, max_pending=2, tolerable_failures=1)
                opening = replace(opening, lease_ttl_seconds=self.lease_ttl_seconds)
                coordinator.apply(run.run_id, opening, *did(Sender(number, number, family)))
        coordinator.apply(run.run_id)
        return coordinator


def _publishes(one: Sender, epoch: int, checkpoint_id: int, records: int = 3) -> tuple[Event, ...]:
    """Everything that makes an epoch durable whose rows go to a sink."""
    *before, _ = one.passes(epoch, checkpoint_id, records)
    return (*before, one.completes(checkpoint_id, committables=(prepared(epoch, "rows"),)))


def _passes(one: Sender, count: int, *, last: int = 3) -> tuple[Event, ...]:
    """Some durable epochs, of which the last one feeds back so many records."""
    *before, end = ((epoch, epoch + 1) for epoch in range(count))
    return (*(event for known in before for event in one.passes(*known)), *one.passes(*end, records=last))


def _three(one: Sender) -> tuple[Event, ...]:
    """Three durable epochs: of their checkpoints the first may go, the second is pinned, the third is the newest."""
    return (*_publishes(one, 0, 1), *_publishes(one, 1, 2), *_publishes(one, 2, 3), keeps(2))


def _fourth_pending(one: Sender) -> tuple[Event, ...]:
    """A fourth epoch whose checkpoint is being written."""
    return (*_three(one), *_begins(one, 3))


def _begins(one: Sender, epoch: int, records: int = 3) -> tuple[Event, ...]:
    """An epoch whose checkpoint is being written."""
    return one.passes(epoch, 0, records)[:-1]


_ROWS = {"rows": True}
_MIDWAY = Scene(
    attempts=(lambda one: (*_fourth_pending(one), one.opens(4, centroids=2), one.reports(4, {"centroids": {0: 1}})),),
    epoch=4,
    checkpoint_id=4,
    covered=(3,),
    sinks=_ROWS,
)
_WAITING = replace(_MIDWAY, attempts=(lambda one: (*_fourth_pending(one), one.opens(4), one.reports(4)),))
_BEHIND = Scene(
    attempts=(
        lambda one: _publishes(one, 0, 1),
        lambda two: (two.changes(*DEFINITION["operators"]), *two.passes(1, 2), *two.passes(2, 3), keeps(2)),
        lambda three: (three.finishes("scaled"),),
    ),
    epoch=2,
    checkpoint_id=3,
    sinks=_ROWS,
)
SCENES = {
    "waiting": _WAITING,  # the last epoch is aligned and has no checkpoint yet, that of the one before is pending
    "about to open": replace(_WAITING, epoch=5, opens=5),  # the epoch that is meant is the one that opens
    "midway": _MIDWAY,  # the last epoch is open, one of its two subtasks has reported
    "switched": replace(  # the last epoch but one, whose checkpoint is pending, may still have edges
        _MIDWAY,
        attempts=(
            lambda one: (
                *(*_three(one), one.opens(3), one.switches(3), *_begins(one, 3)[1:]),
                *(one.opens(4, centroids=2), one.reports(4, {"centroids": {0: 1}})),
            ),
        ),
        marks=3,
    ),
    "about to switch": Scene(attempts=(lambda one: (*one.passes(0, 1), one.opens(1)),), epoch=1, checkpoint_id=1),
    "held": Scene(
        attempts=(
            lambda one: (
                *_begins(one, 0),
                *(one.opens(1), one.switches(1), one.reports(1), one.triggers(1)),
                *(one.opens(2), one.switches(2), one.reports(2)),
            ),
        ),
        epoch=2,
        checkpoint_id=2,
    ),
    "behind": _BEHIND,  # claimed, nothing open
    "fallen back": replace(_BEHIND, epoch=1, opens=2),  # the epoch that opens is the one after the older checkpoint's
    "four there": Scene(
        attempts=(lambda one: _passes(one, 4),),
        epoch=3,
        checkpoint_id=4,
        pinned=1,
    ),
    "one pinned": Scene(
        attempts=(lambda one: (*_passes(one, 3), keeps(1)),),
        epoch=2,
        checkpoint_id=3,
        pinned=1,
    ),
    "ending": Scene(attempts=(lambda one: (*one.passes(0, 1), *_begins(one, 1, records=0)),), epoch=1, checkpoint_id=2),
    "terminating": Scene(
        attempts=(lambda one: (*_passes(one, 3, last=0), keeps(2)),),
        epoch=2,
        checkpoint_id=3,
    ),
    "terminating by hand": Scene(
        attempts=(lambda one: (asks(2, one.family), *_begins(one, 0), *one.passes(1, 2, records=0)),),
        epoch=1,
        checkpoint_id=1,
    ),
    "uncommitted": Scene(
        attempts=(lambda one: _publishes(one, 0, 1, records=0),), epoch=0, checkpoint_id=1, sinks=_ROWS
    ),
    "let go": Scene(attempts=(lambda one: (*one.passes(0, 1), one.opens(1), one.ends()),), epoch=1, checkpoint_id=1),
    "asked to stop": Scene(
        attempts=(lambda one: (*one.passes(0, 1), one.opens(1), stops(2, family=one.family)),), epoch=1, checkpoint_id=1
    ),
    "stopped": Scene(
        attempts=(lambda one: (*_three(one), one.opens(3), stops(2, family=one.family), one.ends()),),
        epoch=3,
        checkpoint_id=3,
        sinks=_ROWS,
    ),
}


def events(scene: Scene, one: Sender) -> dict[str, Event]:
    """Return what anybody may say at a scene: each kind of event, and persons and others beside the live attempt."""
    epoch, checkpoint_id, family = scene.epoch, scene.checkpoint_id, one.family
    parts = (part("x"), part("y", 0, 2, total=4, wide=("x",)))
    return {
        "claims": claim(8, family=family),
        "takes over": claim(9, takeover=True, family=family, max_pending=2),
        "asks": asks(1, family),
        "stops": stops(2, family=family),
        "drains": drains(3, family=family),
        "resumes": resumes(2, family),
        "releases": releases(scene.pinned),
        "deletes": deletes(gone=one.number, family=family),
        "aborts": aborts(checkpoint_id),
        "aborts the next": aborts(checkpoint_id + 1),
        "changes": one.changes("points", "centroids", "x", "z", dropped=("scaled", "norms")),
        "pins": one.pins("labels"),
        "opens": one.opens_if_ready(epoch + 1 if scene.opens is None else scene.opens),
        "reports": one.reports(epoch, {"centroids": {1: 0}} if scene.epoch == 4 else None, loss=0.5),
        "switches": one.switches(epoch),
        "marks": one.marks(epoch if scene.marks is None else scene.marks, *parts),
        "marks for good": one.marks(NO_EPOCH, part("norms", 0, 2, total=4)),
        "finishes": one.finishes("norms"),
        "triggers": one.triggers(epoch),
        "acknowledges": one.acknowledges(checkpoint_id, centroids=(0,)),
        "completes": one.completes(
            checkpoint_id, committables=tuple(prepared(known, "rows") for known in scene.covered)
        ),
        "declines": one.declines(checkpoint_id),
        "notifies": one.notifies(0),
        "notifies of the end": one.notifies(epoch, "end", is_final=True),
        "commits": one.commits(*((known, "rows") for known in (0, *scene.covered))),
        "publishes": one.publishes(),
        "ends": one.ends(),
        "fails": one.fails(),
    }


FALLS_BACK, RENEWS = "falls back", "renews its lease"
DISCARDS, LETS_GO, PINS = "discards", "lets go", "pins by hand"


def others(scene: Scene, one: Sender) -> dict[str, Call]:
    """Return the calls that are more than an event: that read first, in the locked run, or that are none."""
    last, last_two = CheckpointPolicy(retain_last=1), CheckpointPolicy(retain_last=2)
    return {
        FALLS_BACK: lambda coordinator, _store, run_id: coordinator.fall_back(
            run_id, one.attempt_id, one.token, checkpoint_id=scene.older, reason="a file is missing"
        ),
        RENEWS: lambda _coordinator, store, run_id: store.renew_lease(
            run_id, one.attempt_id, fencing_token=one.token, lease_ttl_seconds=LEASE_SECONDS
        ),
        DISCARDS: lambda coordinator, _store, run_id: coordinator.discard(run_id, last),
        LETS_GO: lambda coordinator, _store, run_id: coordinator.discard(run_id, last_two, attempt_id=one.attempt_id),
        PINS: lambda coordinator, _store, run_id: coordinator.pin(run_id, 1, pinned_by="ann"),
    }


def named(name: str, scene: Scene, one: Sender) -> Call:
    """Return a call by its name."""
    known = others(scene, one)
    if name in known:
        return known[name]
    sent = events(scene, one)[name]
    return lambda coordinator, _store, run_id: coordinator.apply(run_id, sent)


NAMES = (*events(_WAITING, _WAITING.speaker()), *others(_WAITING, _WAITING.speaker()))

_ENDS_A_CHECKPOINT = ("completes", "declines", "aborts")
_NEEDS_A_CHECKPOINT = (*_ENDS_A_CHECKPOINT, "aborts the next", "acknowledges")
_ENDS_AN_ATTEMPT = ("claims", "takes over", "deletes", "ends", "fails")
_BY_PERSONS = ("claims", "takes over", "deletes", "stops", "asks", "aborts the next")
_KEEPS_OR_NOT = (DISCARDS, LETS_GO, PINS, "releases")
AT_THE_END = ("publishes", "notifies of the end")

# Where one of these and one of those have something to say to each other; the first that fits counts.
MEETINGS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (("resumes",), ("ends",), ("asked to stop",)),
    (("resumes",), ("stops",), ("let go",)),
    (("resumes",), NAMES, ("stopped",)),
    (AT_THE_END, ("commits",), ("uncommitted",)),
    (AT_THE_END, _NEEDS_A_CHECKPOINT, ("ending", "terminating by hand")),
    (AT_THE_END, NAMES, ("terminating",)),
    ((FALLS_BACK,), ("opens",), ("fallen back",)),
    ((FALLS_BACK, "changes"), NAMES, ("behind",)),
    (_KEEPS_OR_NOT, _KEEPS_OR_NOT, ("four there", "one pinned")),
    (("opens",), ("switches",), ("about to open",)),
    (("marks",), ("switches",), ("about to switch",)),
    (("marks",), NAMES, ("switched", "held")),
    (("reports", "switches"), NAMES, ("midway",)),
    (_ENDS_A_CHECKPOINT, _ENDS_AN_ATTEMPT, ("waiting", "held", "terminating by hand")),
    (_ENDS_A_CHECKPOINT, NAMES, ("waiting", "held")),
    (_BY_PERSONS, _BY_PERSONS, ("waiting", "let go")),
    (NAMES, NAMES, ("waiting",)),
)


def scenes_of(first: str, second: str) -> tuple[Scene, ...]:
    """Return where a pair meets: where somebody claims the run, its lease has run out."""
    names = next(
        scenes
        for these, those, scenes in MEETINGS
        if (first in these and second in those) or (second in these and first in those)
    )
    found = (SCENES[name] for name in names)
    if "claims" in (first, second):
        return tuple(replace(scene, lease_ttl_seconds=0.0) for scene in found)
    return tuple(found)
