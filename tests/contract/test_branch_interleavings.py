"""Does any pair of calls on a run and on a branch of it have an outcome that no order of the two explains?

The one changes the run, and may take away what the branch begins with; the other makes the branch, or lets go of what
it pinned. Each stops inside its transaction, where it holds its lock, has decided, or is about to commit, until the
other has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import RunState
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import NewRun, Origin
from iteration_lib.store.seam import StoreWithHistory
from tests.contract.meeting import WAYS, Stage, answer_of, meet, open_stage
from tests.protocol_script import Sender, aborts, claim, deletes, keeps, releases, stops
from tests.store_script import a_run, history, new_family, origin_of, read_state, timeless_state

pytestmark = pytest.mark.postgres

Answer: TypeAlias = RunState | tuple[int, ...] | bool | type[Exception]
Call: TypeAlias = Callable[["Pair"], RunState | tuple[int, ...] | bool]

_BEGINS = "begins"


class Pair:
    """A run with two checkpoints, a branch of one of them, and one store's view of both."""

    def __init__(
        self, store: StoreWithHistory, runs: tuple[NewRun, NewRun], families: tuple[int, int], *, checkpoint_id: int
    ) -> None:
        self.store, self.checkpoint_id = store, checkpoint_id
        self.origin, self.branch = runs
        self.of_origin, self.of_branch = Sender(2, 2, families[0]), Sender(1, 1, families[1])
        self.coordinator = Coordinator(store)

    def begin(self, *, is_branched: bool, is_pinned: bool) -> None:
        """Bring both to where the calls meet."""
        self.store.add_run(self.origin)
        two = self.of_branch
        one = Sender(1, 1, self.of_origin.family)
        self.coordinator.apply(self.origin.run_id, claim(family=one.family), *one.passes(0, 1), *one.passes(1, 2))
        self.coordinator.apply(self.origin.run_id, claim(2, takeover=True, family=one.family))
        if is_pinned:
            self.coordinator.apply(self.origin.run_id, keeps(1))
        if is_branched:
            assert self.make_branch()
            epoch = self.checkpoint_id
            opened = (claim(family=two.family), two.opens(epoch), two.reports(epoch), two.triggers(epoch))
            self.coordinator.apply(self.branch.run_id, *opened)

    def look(self) -> None:
        """Know both as they are."""
        self.coordinator.apply(self.origin.run_id)
        if self.store.find_run(self.branch.run_id) is not None:
            self.coordinator.apply(self.branch.run_id)

    def make_branch(self) -> bool:
        """Add the branch."""
        return self.store.add_run(self.branch, self.a_checkpoint())

    def a_checkpoint(self) -> Origin:
        """Return what the branch begins with."""
        return origin_of(self.origin, checkpoint_id=self.checkpoint_id, epoch=self.checkpoint_id - 1)

    def read(self) -> tuple[Any, ...]:
        """Return all that can be read of both."""
        runs = (run.run_id for run in (self.origin, self.branch) if self.store.find_run(run.run_id) is not None)
        return tuple((timeless_state(read_state(self.store, run)), history(self.store, run)) for run in runs)


ON_THE_ORIGIN: dict[str, Call] = {
    "discards": lambda pair: pair.coordinator.discard(pair.origin.run_id, CheckpointPolicy(retain_last=1)),
    "pins by hand": lambda pair: pair.coordinator.pin(pair.origin.run_id, 1, pinned_by="ann"),
    "releases by hand": lambda pair: pair.coordinator.apply(pair.origin.run_id, releases(1)),
    "falls back": lambda pair: pair.coordinator.fall_back(
        pair.origin.run_id, pair.of_origin.attempt_id, 2, checkpoint_id=1, reason="a file is missing"
    ),
    "deletes": lambda pair: pair.coordinator.apply(pair.origin.run_id, deletes(gone=2, family=pair.of_origin.family)),
    "takes over": lambda pair: pair.coordinator.apply(
        pair.origin.run_id, claim(3, takeover=True, family=pair.of_origin.family)
    ),
    "stops": lambda pair: pair.coordinator.apply(pair.origin.run_id, stops(family=pair.of_origin.family)),
    "aborts the next": lambda pair: pair.coordinator.apply(pair.origin.run_id, aborts(3)),
    "has a third": lambda pair: pair.coordinator.apply(pair.origin.run_id, *pair.of_origin.passes(2, 3)),
}
ON_THE_BRANCH: dict[str, Call] = {
    _BEGINS: lambda pair: pair.make_branch(),
    "has its own": lambda pair: pair.coordinator.apply(pair.branch.run_id, pair.of_branch.completes(1)),
    "is deleted": lambda pair: pair.coordinator.apply(
        pair.branch.run_id, deletes(gone=1, family=pair.of_branch.family)
    ),
}


@pytest.fixture(scope="module")
def stage(store_url: str) -> Iterator[Stage]:
    with open_stage(store_url) as opened:
        yield opened


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_branch_first", [False, True], ids=["origin first", "branch first"])
@pytest.mark.parametrize("of_branch", ON_THE_BRANCH)
@pytest.mark.parametrize("of_origin", ON_THE_ORIGIN)
def test_outcome_of_a_call_on_a_run_and_one_on_its_branch_at_once_is_that_of_one_order(
    stage: Stage, of_origin: str, of_branch: str, way: str, *, is_branch_first: bool
) -> None:
    runs, families = (a_run(), a_run()), (new_family(), new_family())
    begins = {"is_branched": of_branch != _BEGINS, "is_pinned": of_origin == "releases by hand"}
    checkpoint_id = 2 if of_origin == "falls back" else 1  # what the call on the origin could take away
    named = (ON_THE_ORIGIN[of_origin], ON_THE_BRANCH[of_branch])
    first, second = reversed(named) if is_branch_first else named
    make = partial(Pair, runs=runs, families=families, checkpoint_id=checkpoint_id)
    pairs = [make(store) for store in stage.stores]
    pairs[0].begin(**begins)
    for pair in pairs:
        pair.look()

    answers = meet(stage, partial(answer_of, first, pairs[0]), partial(answer_of, second, pairs[1]), way=way)

    outcome = (*answers, *pairs[0].read())
    in_order = serial(make, begins, (first, second))
    if outcome != in_order:
        answer_of_second, answer_of_first, *end = serial(make, begins, (second, first))
        assert outcome == (answer_of_first, answer_of_second, *end)


def serial(
    make: Callable[[StoreWithHistory], Pair], begins: dict[str, bool], calls: tuple[Call, Call]
) -> tuple[Any, ...]:
    """Return what the twin makes of two calls, one after the other, by coordinators that remember nothing."""
    pair = make(MemoryStore(SystemClock()))
    pair.begin(**begins)
    answers = []
    for call in calls:
        pair.coordinator = Coordinator(pair.store)
        answers.append(answer_of(call, pair))
    return (*answers, *pair.read())
