"""What does everything that drives a run need to know? Given once, by constructor; nothing here changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from iteration_lib.clock import Clock
from iteration_lib.config import DEFAULT_TERMINATION_GRACE_SECONDS
from iteration_lib.crash_point import CrashPlan
from iteration_lib.driver.attempt import Attempt
from iteration_lib.driver.background import Background, Threads
from iteration_lib.driver.sinks import OpenSink
from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import CRITERIA
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import History


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
    """An open attempt of a run, and its tools.

    `location` is the run's own folder; `parallelism` the default number of an operator's subtasks. An epoch that takes
    longer than `alignment_timeout_seconds` leaves durable edges; None for never. From SIGTERM on the process has
    `termination_grace_seconds`. `sinks` are those of the outputs that have one.
    """

    run: RunRecord
    attempt: Attempt
    graph: Graph
    params: object
    runner: Runner
    store: History
    location: StateLocation
    clock: Clock
    parallelism: int
    alignment_timeout_seconds: float | None = None
    termination_grace_seconds: float = DEFAULT_TERMINATION_GRACE_SECONDS
    background: Background = field(default_factory=Threads)
    sinks: Mapping[str, OpenSink] = field(default_factory=dict)
    observer: Observer = field(default_factory=Silent)
    crash_plan: CrashPlan = field(default_factory=CrashPlan)

    @property
    def policy(self) -> CheckpointPolicy:
        """How checkpoints are paced."""
        return self.attempt.opened.policy

    def tail(self, variable: str) -> Operator:
        """Return the operator whose result is a variable's next value, or a carried state's."""
        name = self.graph.feedback.get(variable) or self.graph.states[variable]
        return self.graph.operator(name)

    def epoch_folder(self, operator: Operator, epoch: int) -> str:
        """Return where an operator's output of an epoch goes, relative to the run's folder."""
        return f"{self.attempt.folder}/epoch-{epoch:06d}/{operator.operator_id}"

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
