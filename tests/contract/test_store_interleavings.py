"""Does any pair of calls on two connections have an outcome that no order of the two explains?

Each pair meets inside its transactions: the first call stops where it holds the run's lock, where it has decided and
nothing is written, or where it has written and is about to commit; the second comes until it waits or is done; then
the first goes on. What both are answered, and all that can be read of the run afterwards, has to be what the twin in
memory says of one of the two orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointPinned, CheckpointsDiscarded, FellBack
from iteration_lib.protocol.state import RunId
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import NewRun
from iteration_lib.store.seam import Store, StoreWithHistory
from tests.contract.meeting import WAYS, Stage, answer_of, meet, open_stage
from tests.contract.scenes import AT_THE_END, NAMES, RENEWS, SCENES, Call, Scene, events, named, scenes_of
from tests.size import IS_NIGHTLY
from tests.store_script import history, new_family, read_state, timeless_state

pytestmark = pytest.mark.postgres

_MEETINGS = ("scenes.py", "test_branch_interleavings.py", "test_adding_interleavings.py")
_ROUNDS = 100 if IS_NIGHTLY else 1

Answer: TypeAlias = RunState | tuple[int, ...] | bool | type[Exception]
Look: TypeAlias = tuple[RunState, dict[str, tuple[Any, ...]]]  # Any: every record that there is
Outcome: TypeAlias = tuple[Answer, Answer, Look]


def test_every_kind_of_event_meets_every_other() -> None:
    scene = SCENES["midway"]
    sent = {type(sent) for sent in events(scene, scene.speaker()).values()}

    assert set(get_args(Event)) == {*sent, CheckpointsDiscarded, CheckpointPinned, FellBack}


def test_every_call_that_writes_meets_others() -> None:
    """A new one has to be named where calls meet, or nobody has asked what comes of it beside another."""
    looks = {"check_fallback", "discardable", "close"}
    inside = {"transaction", "write"}  # of whatever a coordinator does
    there = {name for owner in (Coordinator, Store) for name in vars(owner) if not name.startswith("_")}
    owed = there - looks - inside

    text = "".join((Path(__file__).parent / file).read_text() for file in _MEETINGS)

    assert looks | inside <= there
    assert {"apply", "discard", "fall_back", "pin", "add_run", "renew_lease"} <= owed
    assert set() == {name for name in owed if f".{name}(" not in text}


@pytest.fixture(scope="module")
def stage(store_url: str) -> Iterator[Stage]:
    with open_stage(store_url) as opened:
        yield opened


@pytest.mark.parametrize("second", NAMES)
@pytest.mark.parametrize("first", NAMES)
def test_outcome_of_two_calls_at_once_is_that_of_one_order(stage: Stage, first: str, second: str) -> None:
    places = NAMES.index(first), NAMES.index(second)
    turn = sum(places) + (places[0] > places[1])  # of the two that come first, one stops at a gate at least
    for number in range(turn, turn + _ROUNDS):
        for scene in scenes_of(first, second):
            meet_at(scene, stage, (first, second), way=WAYS[number % len(WAYS)])


def meet_at(scene: Scene, stage: Stage, names: tuple[str, str], *, way: str) -> None:
    """Let two calls meet, and see that one of the two orders explains what comes of it."""
    run, family = scene.run(), new_family()
    first, second = (named(name, scene, scene.speaker(family)) for name in names)
    coordinators = [scene.enter(store, run, family) for store in stage.stores]

    def answer(place: int, call: Call) -> Answer:
        return answer_of(call, coordinators[place], stage.stores[place], run.run_id)

    if RENEWS in names[:1] and way in ("having decided", "before the commit"):  # that is one statement
        way = "with the lock"
    answers = meet(stage, partial(answer, 0, first), partial(answer, 1, second), way=way, must_wait=RENEWS not in names)

    outcome = (*answers, look(stage.stores[0], run.run_id))
    in_order = serial(run, scene, family, (first, second))
    if outcome != in_order:
        answer_of_second, answer_of_first, end = serial(run, scene, family, (second, first))
        assert outcome == (answer_of_first, answer_of_second, end)


def serial(run: NewRun, scene: Scene, family: int, calls: tuple[Call, Call]) -> Outcome:
    """Return what the twin makes of two calls, one after the other, by coordinators that remember nothing."""
    store = MemoryStore(SystemClock())
    scene.enter(store, run, family)
    first, second = (answer_of(call, Coordinator(store), store, run.run_id) for call in calls)
    return first, second, look(store, run.run_id)


def look(store: StoreWithHistory, run_id: RunId) -> Look:
    """Return all that can be read of a run."""
    return timeless_state(read_state(store, run_id)), history(store, run_id)


_OF_AN_EPOCH = ("reports", "switches", "marks", "triggers")
_OF_A_DRIVER = (
    *("changes", "pins", "opens", *_OF_AN_EPOCH, "marks for good", "finishes", "acknowledges", "completes", "declines"),
    *("notifies", *AT_THE_END, "commits", "fails", "falls back", "renews its lease"),
)
# Which calls cannot both take effect, in whatever order and wherever they meet.
APART: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("resumes",), _OF_A_DRIVER, "nobody drives a run that is STOPPED, nor at once when it is resumed (I20)"),
    (("resumes",), ("aborts",), "nothing is pending in a run that is STOPPED (I20)"),
    (("claims",), ("renews its lease",), "a lease that is renewed has not run out"),
    (("deletes",), ("claims", "takes over"), "a run that is deleted is not driven, and one that is driven not deleted"),
    (("stops",), ("drains",), "of two requests the first one counts, and the other kind is refused"),
    (("ends",), ("fails", "publishes"), "an attempt ends once"),
    (
        ("fails", "claims", "takes over"),
        ("publishes",),
        "who publishes finishes the run, and only the live attempt does",
    ),
    (("completes",), ("aborts", "declines"), "a checkpoint that has ended is not pending any more"),
    (AT_THE_END, ("asks", "stops", "drains", "opens", *_OF_AN_EPOCH), "a run that terminates has no next epoch (I9)"),
    (AT_THE_END, ("changes", "falls back"), "neither is done to a run that terminates (I21)"),
    (("publishes",), ("acknowledges",), "a run does not finish while a checkpoint is pending (I10)"),
    (("changes", "falls back"), _OF_AN_EPOCH, "both come before the attempt's first epoch (I21)"),
    (
        ("changes", "falls back"),
        ("aborts", "acknowledges", "completes", "declines"),
        "what is pending is of an epoch that the attempt opened",
    ),
    (("switches", "marks"), ("triggers",), "the one is of an epoch that is open, the other of the last one, aligned"),
    (("opens",), ("marks",), "an epoch that has just opened has not switched, and none opens behind one that is open"),
)


def test_pair_meets_where_both_calls_take_effect_unless_a_rule_keeps_them_apart() -> None:
    apart = {
        frozenset((first, second))
        for first, second in itertools.combinations(NAMES, 2)
        if not any(take_effect(scene, pair) for scene in scenes_of(first, second) for pair in orders(first, second))
    }

    assert {frozenset(pair) for these, those, _ in APART for pair in itertools.product(these, those)} == apart


def orders(first: str, second: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (first, second), (second, first)


def take_effect(scene: Scene, names: tuple[str, str]) -> bool:
    """Tell whether two calls, one after the other, are neither refused nor in vain; a renewal shows in no look."""
    run, store = scene.run(), MemoryStore(SystemClock())
    scene.enter(store, run)
    for name in names:
        before = look(store, run.run_id)
        answer = answer_of(named(name, scene, scene.speaker()), Coordinator(store), store, run.run_id)
        if isinstance(answer, type) or (answer is not True and look(store, run.run_id) == before):
            return False
    return True
