"""What does everything that drives a run need to know? Given once, by constructor; nothing here changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypedDict

from iteration_lib.clock import Clock
from iteration_lib.coordinator import Coordinator
from iteration_lib.crash_point import CrashPlan
from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.state import CRITERIA, AttemptId
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory


class Observer(Protocol):
    """Is told how a run goes on; what it does with that is its own business."""

    def run_restored(self, run: RunRecord, *, next_epoch: int) -> None:
        """The attempt is about to run `next_epoch`."""
        ...

    def epoch_durable(self, epoch: int, *, metrics: Mapping[str, float], seconds: float) -> None:
        """An epoch is durable."""
        ...


class Silent:
    """An observer that looks away."""

    def run_restored(self, run: RunRecord, *, next_epoch: int) -> None:
        """Do nothing."""

    def epoch_durable(self, epoch: int, *, metrics: Mapping[str, float], seconds: float) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """A run and the tools to drive it. `location` is the run's own folder; `parallelism` the default for operators."""

    run: RunRecord
    graph: Graph
    params: object
    runner: Runner
    store: StoreWithHistory
    coordinator: Coordinator
    location: StateLocation
    clock: Clock
    parallelism: int
    observer: Observer = field(default_factory=Silent)
    crash_plan: CrashPlan = field(default_factory=CrashPlan)

    def parallelism_of(self, operator: Operator) -> int:
        """Return an operator's number of subtasks."""
        if operator.kind is Kind.VALUE:
            return 1
        wanted = operator.parallelism or self.parallelism
        return min(wanted, self.run.max_buckets) if operator.kind is Kind.BUCKETS else wanted

    def heads(self) -> dict[str, int]:
        """Return the parallelism of every head: of a variable that of its tail, and of the criteria's operator."""
        tails = {**self.graph.feedback, **({CRITERIA: self.graph.criteria} if self.graph.criteria else {})}
        return {head: self.parallelism_of(self.graph.operator(tail)) for head, tail in tails.items()}


class Guard(TypedDict):
    """What an event carries so that it is known whose it is (I2)."""

    attempt_id: AttemptId
    fencing_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An open attempt of a run."""

    context: RunContext
    attempt_id: AttemptId
    fencing_token: int

    @property
    def guard(self) -> Guard:
        """Return what every event of this attempt carries."""
        return {"attempt_id": self.attempt_id, "fencing_token": self.fencing_token}

    @property
    def folder(self) -> str:
        """The attempt's own folder, relative to the run's: no two attempts ever write to the same path."""
        return f"{self.fencing_token:06d}-{self.attempt_id[:8]}"

    def apply(self, *events: Event) -> RunState:
        """Apply events in one transaction."""
        return self.context.coordinator.apply(self.context.run.run_id, *events)
