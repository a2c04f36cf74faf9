"""A driver in the test's own process, on a real store: what happens at its crash points, and when, is the test's.

What iteration_lib/launch.py puts together for a process, this puts together with a clock, jobs and crash points that a
test holds in its hand. A driver that is killed here leaves what a killed process leaves: its attempt is live, and
nothing of it reaches the store any more.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Self

from iteration_lib.config import DEFAULT_TERMINATION_GRACE_SECONDS
from iteration_lib.coordinator import Coordinator, Publish
from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.attempt import Claim, open_attempt
from iteration_lib.driver.background import Job, Threads
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.drive import drive_epochs
from iteration_lib.driver.publish import publish_outputs
from iteration_lib.driver.sinks import open_sinks
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.definition import describe
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.params import params_json, parse_params
from iteration_lib.process import this_holder
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.state import AttemptId, Holder, RunId
from iteration_lib.protocol.status import EpochStatus
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Invocation, Stream
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import CheckpointRecord, EpochRecord, NewRun, PartRecord, RunRecord
from iteration_lib.store.seam import StoreWithHistory

DEADLINE_SECONDS = 30
TIMER = "timer"  # the name of threads that wait for the clock in the hand
MAX_BUCKETS = 4

# What happens where: at a crash point (`point@epoch`, or `point` where it is reached first), before a job of that name,
# and whenever the driver waits (`waiting`).
Script = Mapping[str, Callable[[], None]]


class Killed(BaseException):
    """Ends a driver at once, as SIGKILL does."""


def at_rest(jobs: Sequence[Job]) -> None:
    """Wait until no job is at work, and raise what a test's own act in one of them found wrong: nobody else looks."""
    assert not wait(jobs, timeout=DEADLINE_SECONDS).not_done, "a job is still at work"
    for job in jobs:
        if isinstance(found := job.exception(), AssertionError):
            raise found


class Latch:
    """Holds whoever comes to it until it is opened; leaving its block opens it."""

    def __init__(self) -> None:
        """Hold."""
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        """Come to the latch, and wait."""
        self._reached.set()
        assert self._open.wait(DEADLINE_SECONDS), "nobody opened the latch"

    def __enter__(self) -> Self:
        """Go on when somebody is held."""
        self.wait_for_arrival()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        self.open()

    def wait_for_arrival(self) -> None:
        """Wait until somebody has come."""
        assert self._reached.wait(DEADLINE_SECONDS), "nobody came to the latch"

    @property
    def is_open(self) -> bool:
        """Whether nobody is held any more."""
        return self._open.is_set()

    def open(self) -> None:
        """Let go whoever is held, and whoever comes."""
        self._open.set()


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.seconds = 0.0

    def now(self) -> datetime:
        """See Clock."""
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic_seconds(self) -> float:
        """See Clock."""
        return self.seconds


class HastyThreads(Threads):
    """Real jobs, which begin when the script lets them; who waits longer than `patience_seconds` moves the clock on."""

    def __init__(self, clock: HandClock, script: Script, jobs: list[Job], patience_seconds: float) -> None:
        """Move `clock`; a job begins behind what the script says of its name, and is added to `jobs`."""
        self._clock = clock
        self._script = script
        self._patience_seconds = patience_seconds
        self._jobs = jobs

    def start(self, name: str, work: Callable[[], RunState]) -> Job:
        """See Background."""

        def begin() -> RunState:
            self._script.get(name, lambda: None)()
            return work()

        self._jobs.append(super().start(name, begin))
        return self._jobs[-1]

    def wait(self, jobs: Sequence[Job], *, timeout_seconds: float) -> None:
        """See Background."""
        self._script.get("waiting", lambda: None)()
        super().wait(jobs, timeout_seconds=min(timeout_seconds, self._patience_seconds))
        if not any(job.done() for job in jobs):
            self._clock.seconds += timeout_seconds

    def after(self, delay_seconds: float, work: Callable[[], None]) -> Callable[[], None]:
        """Do some work once the clock in the hand has come that far; see Background."""
        due, cancelled = self._clock.seconds + delay_seconds, threading.Event()

        def watch() -> None:
            while not cancelled.wait(0.01):
                if self._clock.seconds >= due:
                    work()
                    break

        threading.Thread(target=watch, name=TIMER, daemon=True).start()
        return cancelled.set


class SlowRunner(LocalRunner):
    """Takes time of the clock for each operator of an epoch; `seconds` says of which epochs, and how much."""

    clock: HandClock
    seconds: Mapping[int, float]

    def compute(self, invocation: Invocation) -> Stream:
        """See Runner."""
        self.clock.seconds += self.seconds.get(invocation.epoch, 0.0)
        return super().compute(invocation)


class MortalCoordinator(Coordinator):
    """Applies nothing any more once its process is dead."""

    is_dead = False

    def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
        """See Coordinator."""
        if self.is_dead:
            raise Killed
        return super().apply(run_id, *events, publish=publish)

    def kill(self) -> None:
        """Die."""
        self.is_dead = True
        raise Killed


class ScriptedPoints:
    """Acts at `point@epoch`, or where `point` is reached first; each action once."""

    def __init__(self, script: Script, kill: Callable[[], None]) -> None:
        """Act by `script`, in which KILL stands for `kill`."""
        self._script = dict(script)
        self._kill = kill

    def reach(self, point: CrashPoint, epoch: int | None = None) -> None:
        """See CrashPlan."""
        for place in (f"{point.value}@{epoch}", point.value):
            act = self._script.pop(place, None)
            if act is not None:
                (self._kill if act is KILL else act)()


def KILL() -> None:  # noqa: N802 - a constant of a script, which says what happens
    """Stand for the death of the process."""


def be_told_to_end() -> None:
    """Do what the command line does at SIGTERM."""
    raise ToldToEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """A run that a test drives, attempt after attempt, and what the test sees of it."""

    store: StoreWithHistory
    run: RunRecord
    iteration: Iteration
    desk: Path
    clock: HandClock = field(default_factory=HandClock)

    @classmethod
    def begin(
        cls,
        store: StoreWithHistory,
        folder: Path,
        iteration: Iteration,
        *,
        state_uri: str | None = None,
        **params: object,
    ) -> Here:
        """Add a run of an iteration that is steered from a desk."""
        desk = folder / uuid.uuid4().hex
        desk.mkdir(parents=True)
        parsed = parse_params(iteration.params, {"desk": str(desk), **params})
        new = NewRun(
            run_id=RunId(str(uuid.uuid4())),
            run_key=f"{iteration.name}-{desk.name}",
            reference=f"tests.iterations.{iteration.name}:{iteration.name}",
            definition=describe(iteration.graph()),
            params=params_json(parsed),
            state_uri=state_uri or str(folder / "state"),
            max_buckets=MAX_BUCKETS,
            max_epochs=getattr(parsed, "max_epochs", None),
        )
        store.add_run(new)
        return cls(store=store, run=store.find_run(new.run_id), iteration=iteration, desk=desk)

    def drive(
        self,
        *,
        parallelism: int = 2,
        until_epoch: int | None = None,
        script: Script = MappingProxyType({}),
        seconds: Mapping[int, float] = MappingProxyType({}),
        patience_seconds: float = 0.1,
        coordinator_class: type[MortalCoordinator] = MortalCoordinator,
        runner_class: type[SlowRunner] = SlowRunner,
        jobs: list[Job] | None = None,
        ignore_edges: bool = False,
        holder: Holder | None = None,
        termination_grace_seconds: float = DEFAULT_TERMINATION_GRACE_SECONDS,
        **checkpointing: object,
    ) -> RunRecord:
        """Take the run over and drive it, to the end or up to `until_epoch`; return it as it is then."""
        settings = Checkpointing(**checkpointing)
        coordinator = coordinator_class(self.store)
        background = HastyThreads(self.clock, script, jobs if jobs is not None else [], patience_seconds)
        location = StateLocation(self.run.state_uri).below(self.run.run_id)
        runner = runner_class(location, max_buckets=self.run.max_buckets, parallelism=parallelism)
        runner.clock, runner.seconds = self.clock, seconds
        claim = Claim(
            attempt_id=AttemptId(str(uuid.uuid4())),
            holder=holder or this_holder(),
            takeover=True,
            ignore_edges=ignore_edges,
            policy=settings.policy,
        )
        graph, params = self.iteration.graph(), parse_params(self.iteration.params, self.run.params)
        with open_attempt(self.store, coordinator, self.run.run_id, claim) as attempt, closing(runner):
            attempt.heartbeat.when_superseded(runner.cancel)
            context = RunContext(
                run=self.store.find_run(self.run.run_id),
                attempt=attempt,
                graph=graph,
                params=params,
                runner=runner,
                store=self.store,
                location=location,
                clock=self.clock,
                parallelism=parallelism,
                alignment_timeout_seconds=settings.alignment_timeout_seconds,
                termination_grace_seconds=termination_grace_seconds,
                sinks=open_sinks(graph, params, store_url=self.store.url),
                background=background,
                crash_plan=ScriptedPoints(script, coordinator.kill),
            )
            driven = drive_epochs(context, until_epoch=until_epoch)
            publish_outputs(context, driven)
        return self.found

    def drive_to_rest(self, **options: object) -> RunRecord:
        """Drive it, and wait for what it leaves to its jobs: to let checkpoints go, or an act of the script."""
        jobs: list[Job] = []
        self.drive(jobs=jobs, **options)
        at_rest(jobs)
        return self.found

    def drive_and_fail(self, *, jobs: list[Job] | None = None, **options: object) -> BaseException:
        """Drive it, and return what ended the attempt; what dies leaves no thread that still talks to a sink."""
        jobs = [] if jobs is None else jobs
        try:
            self.drive(jobs=jobs, **options)
        except BaseException as err:  # noqa: BLE001 - Killed and SystemExit are answers as any other
            if isinstance(err, Killed):
                at_rest(jobs)
            return err
        raise AssertionError("nothing ended the attempt")

    @contextmanager
    def driving(self, *, jobs: list[Job] | None = None, **options: object) -> Iterator[Future[RunRecord]]:
        """Drive it beside the test; on the way out nothing of the driver is left, also no job that hung."""
        jobs = [] if jobs is None else jobs
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(self.drive, jobs=jobs, **options)
        at_rest(jobs)

    # What the test sees

    @property
    def found(self) -> RunRecord:
        """The run as it is now."""
        return self.store.find_run(self.run.run_id)

    @property
    def folder(self) -> Path:
        """The run's folder of state."""
        return Path(self.run.state_uri) / self.run.run_id

    @property
    def epochs(self) -> list[EpochRecord]:
        """The epochs that are not voided."""
        return [e for e in self.store.list_epochs(self.run.run_id) if e.status is not EpochStatus.VOIDED]

    @property
    def statuses(self) -> list[str]:
        """The status of each epoch that is not voided."""
        return [epoch.status.value for epoch in self.epochs]

    @property
    def checkpoints(self) -> list[CheckpointRecord]:
        """All checkpoints."""
        return list(self.store.list_checkpoints(self.run.run_id))

    @property
    def parts(self) -> list[PartRecord]:
        """The live parts of durable edges."""
        return [part for part in self.store.list_parts(self.run.run_id) if part.voided_at is None]

    def marked(self, epoch: int) -> dict[str, list[tuple[int, int]]]:
        """Return the live parts of an epoch's edges: operator to ranges of buckets."""
        found: dict[str, list[tuple[int, int]]] = {}
        for part in self.parts:
            if part.epoch == epoch:
                found.setdefault(part.operator_id, []).append((part.first_bucket, part.end_bucket))
        return found

    def order(self, what: str, line: str) -> None:
        """Put an order on the desk; see tests.iterations.steered."""
        (self.desk / what).write_text(line)

    def clear(self, *what: str) -> None:
        """Take orders from the desk."""
        for name in what:
            (self.desk / name).unlink()

    @property
    def epochs_that_ran(self) -> set[str]:
        """The epochs whose bodies ran since the log was last counted."""
        return {line.split()[1] for line in self.log()} - {"-"}

    def log(self) -> Counter[str]:
        """Count which lines the bodies wrote since the last call."""
        log = self.desk / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return Counter(lines)
