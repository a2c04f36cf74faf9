"""Does any pair of calls that add a run under one key have an outcome that no order of the two explains?

One of the two makes the key's run, as an own run or as a branch, again or instead of another one; or the run that had
the key until now is deleted. Each stops inside its transaction until the other has come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import RunState
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import NewRun
from iteration_lib.store.seam import StoreWithHistory
from tests.contract.meeting import WAYS, Stage, answer_of, meet, open_stage
from tests.protocol_script import Sender, claim, deletes
from tests.store_script import a_run, history, new_family, origin_of, read_state, timeless_state

pytestmark = pytest.mark.postgres

Answer: TypeAlias = RunState | bool | type[Exception]
Call: TypeAlias = Callable[["Rivals"], RunState | bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Rivals:
    """Runs that want one key, one that has it, a run to branch from, and one store's view of them all."""

    store: StoreWithHistory
    origin: NewRun
    before: NewRun
    one: NewRun
    other: NewRun

    def begin(self, family: int, *, is_taken: bool) -> None:
        """Add the run to branch from, and the one that has the key, if one has."""
        assert self.store.add_run(self.origin)
        events = (claim(family=family), *Sender(1, 1, family).passes(0, 1))
        Coordinator(self.store).apply(self.origin.run_id, *events)
        assert not is_taken or self.store.add_run(self.before)

    def add(self, run: NewRun, *, is_branch: bool = False) -> bool:
        """Add a run."""
        return self.store.add_run(run, origin_of(self.origin, checkpoint_id=1, epoch=0) if is_branch else None)

    def read(self) -> tuple[Any, ...]:
        """Return who has the key, and all that can be read of every run."""
        holder = self.store.find_run(self.one.run_key)
        runs = [
            run.run_id for run in (self.origin, self.before, self.one, self.other) if self.store.find_run(run.run_id)
        ]
        seen = tuple((timeless_state(read_state(self.store, run)), history(self.store, run)) for run in runs)
        return (holder.run_id if holder is not None else None, *seen)


CALLS: dict[str, Call] = {
    "adds one": lambda rivals: rivals.add(rivals.one),
    "adds the other": lambda rivals: rivals.add(rivals.other),
    "branches one": lambda rivals: rivals.add(rivals.one, is_branch=True),
    "branches the other": lambda rivals: rivals.add(rivals.other, is_branch=True),
    "deletes": lambda rivals: Coordinator(rivals.store).apply(rivals.before.run_id, deletes()),
}


@pytest.fixture(scope="module")
def stage(store_url: str) -> Iterator[Stage]:
    with open_stage(store_url) as opened:
        yield opened


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", CALLS)
def test_outcome_of_two_that_add_a_run_of_one_key_at_once_is_that_of_one_order(
    stage: Stage, first: str, second: str, way: str
) -> None:
    is_taken = "deletes" in (first, second)
    one, family = a_run(), new_family()
    runs = (a_run(), a_run(one.run_key), one, a_run(one.run_key))
    rivals = [Rivals(store, *runs) for store in stage.stores]
    rivals[0].begin(family, is_taken=is_taken)
    named = (CALLS[first], CALLS[second])

    answers = meet(stage, partial(answer_of, named[0], rivals[0]), partial(answer_of, named[1], rivals[1]), way=way)

    outcome = (*answers, *rivals[0].read())
    make = partial(serial, runs, family, is_taken=is_taken)
    in_order = make(named)
    if outcome != in_order:
        answer_of_second, answer_of_first, *end = make((named[1], named[0]))
        assert outcome == (answer_of_first, answer_of_second, *end)


def serial(
    runs: tuple[NewRun, NewRun, NewRun, NewRun], family: int, calls: tuple[Call, Call], *, is_taken: bool
) -> tuple[Any, ...]:
    """Return what the twin makes of two calls, one after the other."""
    rivals = Rivals(MemoryStore(SystemClock()), *runs)
    rivals.begin(family, is_taken=is_taken)
    answers = [answer_of(call, rivals) for call in calls]
    return (*answers, *rivals.read())
