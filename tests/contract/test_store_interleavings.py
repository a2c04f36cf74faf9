"""Does any pair of calls on two connections have an outcome that no order of the two explains?

Each pair meets inside its transactions: the first call stops where it holds the run's lock, or where it has written and
is about to commit; the second comes until it waits or is done; then the first goes on. What both are answered, and all
that can be read of the run afterwards, has to be what the twin in memory says of one of the two orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import FellBack
from iteration_lib.protocol.state import NO_EPOCH, RunId
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import NewRun
from iteration_lib.store.seam import StoreWithHistory
from tests.contract.meeting import DEADLINE_SECONDS, Stage, open_stage, until
from tests.protocol_script import (
    Sender,
    aborts,
    asks,
    claim,
    deletes,
    discards,
    drains,
    keeps,
    part,
    prepared,
    releases,
    resumes,
    stops,
)
from tests.size import IS_NIGHTLY
from tests.store_script import DEFINITION, a_run, history, new_family, read_state, timeless_state

pytestmark = pytest.mark.postgres

_WAYS = ("with the lock", "before the commit", "at once")
_ROUNDS = 100 if IS_NIGHTLY else 1

Answer: TypeAlias = RunState | bool | type[Exception]
Call: TypeAlias = Callable[[Coordinator, StoreWithHistory, RunId], RunState | bool]
Outcome: TypeAlias = tuple[Answer, Answer, RunState, dict[str, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A run to meet at: what has happened to it, its open or next epoch, and its pending or next checkpoint."""

    before: Callable[[Sender], tuple[Event, ...]]
    epoch: int
    checkpoint_id: int
    sinks: Mapping[str, bool] = field(default_factory=dict)


SCENES = {
    "begun": Scene(lambda one: (one.finishes("scaled"),), epoch=0, checkpoint_id=1),
    "midway": Scene(
        lambda one: (
            *one.passes(0, 1),
            *(one.opens(1), one.reports(1), one.triggers(1)),
            *(one.opens(2, centroids=2), one.reports(2, {"centroids": {0: 1}})),
        ),
        epoch=2,
        checkpoint_id=2,
    ),
    "held": Scene(
        lambda one: (
            *(one.opens(0), one.reports(0), one.triggers(0)),
            *(one.opens(1), one.switches(1), one.reports(1), one.triggers(1)),
            *(one.opens(2), one.switches(2), one.reports(2)),
        ),
        epoch=2,
        checkpoint_id=2,
    ),
    "terminating": Scene(lambda one: one.passes(0, 1, records=0), epoch=0, checkpoint_id=1),
    "behind": Scene(lambda one: (*one.passes(0, 1), *one.passes(1, 2)), epoch=1, checkpoint_id=3),
    "published": Scene(
        lambda one: (
            *(one.opens(0), one.reports(0), one.triggers(0), one.completes(1, committables=(prepared(0, "rows"),))),
            *(one.opens(1), one.reports(1), one.triggers(1)),
        ),
        epoch=1,
        checkpoint_id=2,
        sinks={"rows": True},
    ),
    "stopped": Scene(
        lambda one: (*one.passes(0, 1), one.opens(1), stops(1, family=one.family), one.ends()), epoch=1, checkpoint_id=2
    ),
}


def calls(scene: Scene, one: Sender) -> dict[str, Event]:
    """Return what anybody may say at a scene: each kind of event, and persons and others beside the live attempt."""
    epoch, checkpoint_id, family = scene.epoch, scene.checkpoint_id, one.family
    return {
        "claims": claim(3, family=family),
        "takes over": claim(2, takeover=True, family=family, max_pending=2),
        "asks": asks(1, family),
        "stops": stops(2, family=family),
        "drains": drains(3, family=family),
        "resumes": resumes(1, family),
        "discards": discards(1),
        "pins by hand": keeps(1),
        "releases": releases(1),
        "deletes": deletes(gone=1, family=family),
        "aborts": aborts(checkpoint_id),
        "aborts the next": aborts(checkpoint_id + 1),
        "changes": one.changes("points", "centroids", "x", "z", dropped=("scaled", "y")),
        "pins": one.pins("labels"),
        "opens": one.opens_if_ready(epoch + 1),
        "reports": one.reports(epoch, {"centroids": {1: 0}} if epoch == 2 else None, loss=0.5),
        "switches": one.switches(epoch),
        "marks": one.marks(epoch, part("x", 0, 4, total=8), part("y", 0, 4, total=8, narrow=("x",))),
        "marks for good": one.marks(NO_EPOCH, part("y")),
        "finishes": one.finishes("y"),
        "triggers": one.triggers(epoch),
        "acknowledges": one.acknowledges(checkpoint_id, centroids=(0,)),
        "completes": one.completes(checkpoint_id),
        "declines": one.declines(checkpoint_id),
        "notifies": one.notifies(epoch, is_final=True),
        "commits": one.commits((0, "rows")),
        "publishes": one.publishes(),
        "ends": one.ends(),
        "fails": one.fails(),
    }


RENEWS = "renews its lease"
FALLS_BACK = "falls back"
NAMES = (*calls(SCENES["midway"], Sender(1, 1)), FALLS_BACK, RENEWS)


# Where a pair with one of these calls has something to say to each other; the first that fits counts.
MEETINGS = {
    "resumes": ("stopped",),
    FALLS_BACK: ("behind",),
    **dict.fromkeys(("pins by hand", "releases"), ("behind",)),
    "commits": ("published",),
    "changes": ("begun",),
    "publishes": ("terminating",),
    "notifies": ("terminating",),
    **dict.fromkeys(("completes", "declines", "aborts", "marks"), ("midway", "held")),
}


def scenes_of(first: str, second: str) -> tuple[str, ...]:
    """Return where a pair meets."""
    return next((scenes for name, scenes in MEETINGS.items() if name in (first, second)), ("midway",))


def test_every_kind_of_event_meets_every_other() -> None:
    sent = {type(sent) for sent in calls(SCENES["midway"], Sender(1, 1)).values()}

    assert set(get_args(Event)) == {*sent, FellBack}


@pytest.fixture(scope="module")
def stage(store_url: str) -> Iterator[Stage]:
    with open_stage(store_url) as opened:
        yield opened


@pytest.mark.parametrize("second", NAMES)
@pytest.mark.parametrize("first", NAMES)
def test_outcome_of_two_calls_at_once_is_that_of_one_order(stage: Stage, first: str, second: str) -> None:
    turn = NAMES.index(first) + NAMES.index(second)
    for number in range(turn, turn + _ROUNDS):
        for scene in scenes_of(first, second):
            meet(stage, SCENES[scene], (first, second), way=_WAYS[number % len(_WAYS)])


def meet(stage: Stage, scene: Scene, names: tuple[str, str], *, way: str) -> None:
    """Let two calls meet, and see that one of the two orders explains what comes of it."""
    run, one = run_of(scene), Sender(1, 1, new_family())
    first, second = (named(name, scene, one) for name in names)
    coordinators = [begun(store, run, scene, one) for store in stage.stores]

    def answer(place: int, call: Call) -> Answer:
        return answer_of(call, coordinators[place], stage.stores[place], run.run_id)

    one_after_the_other = way != "at once"
    if one_after_the_other:
        stage.gate.set_up(is_at_commit=way == "before the commit" and names[0] != RENEWS)  # that is one statement
    started = stage.threads[0].submit(answer, 0, first)
    if one_after_the_other:
        until(lambda: stage.gate.reached.is_set() or started.done(), started)
    other = stage.threads[1].submit(answer, 1, second)
    if one_after_the_other:
        until(lambda: other.done() or stage.is_anybody_waiting(), other)
        is_refused = started.done() and isinstance(started.result(), type)
        assert is_refused or stage.gate.reached.is_set(), "the first call did not stop"
        assert is_refused or not other.done() or RENEWS in names, "the second call did not wait"
        stage.gate.opened.set()
    answers = started.result(DEADLINE_SECONDS), other.result(DEADLINE_SECONDS)

    store = stage.stores[0]
    outcome = (*answers, timeless_state(read_state(store, run.run_id)), history(store, run.run_id))
    in_order = serial(run, scene, one, (first, second))
    if outcome != in_order:
        answer_of_second, answer_of_first, *end = serial(run, scene, one, (second, first))
        assert outcome == (answer_of_first, answer_of_second, *end)


def run_of(scene: Scene) -> NewRun:
    """Return a run that is not there yet, for a scene."""
    return a_run(definition={**DEFINITION, "sinks": dict(scene.sinks)})


def named(name: str, scene: Scene, one: Sender) -> Call:
    """Return a call by its name."""
    if name == FALLS_BACK:
        return lambda coordinator, _store, run_id: coordinator.fall_back(
            run_id, one.attempt_id, 1, checkpoint_id=1, reason="a file is missing"
        )
    if name == RENEWS:
        return lambda _coordinator, store, run_id: store.renew_lease(
            run_id, one.attempt_id, fencing_token=1, lease_ttl_seconds=30
        )
    sent = calls(scene, one)[name]
    return lambda coordinator, _store, run_id: coordinator.apply(run_id, sent)


def begun(store: StoreWithHistory, run: NewRun, scene: Scene, one: Sender) -> Coordinator:
    """Bring a run to a scene, unless it is there; return a coordinator that knows it."""
    coordinator = Coordinator(store)
    if store.find_run(run.run_id) is None:
        store.add_run(run)
        opening = claim(family=one.family, max_pending=2, tolerable_failures=1)
        coordinator.apply(run.run_id, opening, *scene.before(one))
    coordinator.apply(run.run_id)
    return coordinator


def serial(run: NewRun, scene: Scene, one: Sender, calls: tuple[Call, Call]) -> Outcome:
    """Return what the twin makes of two calls, one after the other."""
    store = MemoryStore(SystemClock())
    coordinator = begun(store, run, scene, one)
    first, second = (answer_of(call, coordinator, store, run.run_id) for call in calls)
    return first, second, timeless_state(read_state(store, run.run_id)), history(store, run.run_id)


def answer_of(call: Call, coordinator: Coordinator, store: StoreWithHistory, run_id: RunId) -> Answer:
    try:
        answered = call(coordinator, store, run_id)
    except IterationError as err:
        return type(err)
    return timeless_state(answered) if isinstance(answered, RunState) else answered


def test_pairs_are_not_all_refused_or_alike() -> None:
    """The scenes are such that most calls are heard, and that for many pairs the order matters."""
    one = Sender(1, 1)
    heard: Mapping[str, set[str]] = {name: set() for name in NAMES}
    ordered = set()
    for first in NAMES:
        for second in NAMES:
            for scene in scenes_of(first, second):
                run, pair = run_of(SCENES[scene]), (named(first, SCENES[scene], one), named(second, SCENES[scene], one))
                outcome = serial(run, SCENES[scene], one, pair)
                other = serial(run, SCENES[scene], one, (pair[1], pair[0]))
                if not isinstance(outcome[0], type):
                    heard[first].add(scene)
                if outcome != (other[1], other[0], *other[2:]):
                    ordered.add((first, second))

    assert {"claims"} == {name for name, where in heard.items() if not where}
    assert len(ordered) > 100
