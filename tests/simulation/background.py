"""How does a checkpoint's asynchronous part run beside the next epoch of a simulated run? In a fiber of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iteration_lib.driver.background import Job
from iteration_lib.protocol import RunState
from tests.simulation.change import of_status
from tests.simulation.fiber import Call, Fiber, Killed, ask, noting_loss

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.ports import SimulatedClock


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a fiber waits for: one of these jobs, or the machine's time."""

    jobs: Sequence[Job] = field(repr=False)  # they would show their addresses, and a schedule is printed for replay
    deadline_seconds: float

    @property
    def is_done(self) -> bool:
        """Whether one of the jobs has ended."""
        return any(job.done() for job in self.jobs)


class SimulatedJob(Job):
    """See driver.background.Job."""

    def result(self, timeout: float | None = None) -> RunState:
        """Return what it came to; an error is its own until somebody asks."""
        with noting_loss():
            return super().result(timeout)


class SimulatedBackground:
    """See driver.background.Background: the scheduler decides whether a job ends before the time is over."""

    def __init__(self, attempt: SimulatedAttempt, clock: SimulatedClock) -> None:
        self._attempt = attempt
        self._clock = clock
        self._started_seconds: dict[Job, float] = {}
        self._checkpoint_ids: dict[Job, int] = {}
        self._waited_until_seconds = 0.0
        self._looks = 0
        self._failed: list[Job] = []

    def start(self, name: str, work: Callable[[], RunState]) -> Job:
        """Start a job in a fiber, which ends with the process."""
        job = SimulatedJob()

        def run() -> None:
            try:
                job.set_result(work())
            except Killed:
                return
            except BaseException as err:  # noqa: BLE001 - it is raised again where the job is waited for
                job.set_exception(err)
            self._attempt.jobs.remove(fiber)

        fiber = Fiber(self._attempt, f"{name} of {self._attempt.number}", run, is_beside=True)
        self._attempt.jobs.append(fiber)
        self._started_seconds[job] = self._clock.monotonic_seconds()
        self._checkpoint_ids[job] = int(name.rpartition("-")[2])
        self._attempt.began_seconds[self._checkpoint_ids[job]] = self._started_seconds[job]
        return job

    def wait(self, jobs: Sequence[Job], *, timeout_seconds: float) -> None:
        """Return when a job has ended, or the time is over; at once where there is no job."""
        self._check_patience(jobs)
        awaited = Awaited(jobs, self._clock.monotonic_seconds() + timeout_seconds)
        while jobs and not awaited.is_done and self._clock.monotonic_seconds() < awaited.deadline_seconds:
            ask(Call.AWAIT, awaited)
        self._waited_until_seconds = self._clock.monotonic_seconds()
        self._looks = self._attempt.looks
        self._failed = [job for job in jobs if job.done() and job.exception() is not None]

    def after(self, delay_seconds: float, work: Callable[[], None]) -> Callable[[], None]:
        """Do some work in a fiber, which begins when the machines' clock has come that far."""
        asked_seconds = self._clock.monotonic_seconds()

        def run() -> None:
            hurts = self._attempt.hurts
            try:
                work()
            except Killed:
                return
            self._attempt.jobs.remove(fiber)
            if hurts == self._attempt.hurts:
                self._check_timed(asked_seconds)

        fiber = Fiber(self._attempt, f"timer of {self._attempt.number}", run, is_beside=True)
        timer = (self._clock.monotonic_seconds() + delay_seconds, fiber)
        self._attempt.timers.append(timer)

        def cancel() -> None:
            self._attempt.timers = [other for other in self._attempt.timers if other is not timer]

        return cancel

    def _check_timed(self, began_seconds: float) -> None:
        """See that what began when a timer was set is not pending once that has done its work."""
        rows = self._attempt.run.rows
        for row in of_status(rows.checkpoints, "PENDING"):
            checkpoint_id, begun_by = row["checkpoint_id"], rows.attempts[row["fencing_token"]]["attempt_id"]
            if begun_by != self._attempt.attempt_id:  # another one has its id, where the server forgot this one
                continue
            if self._attempt.began_seconds.get(checkpoint_id) == began_seconds:
                text = f"checkpoint {checkpoint_id} of attempt {self._attempt.number} is pending behind its time"
                self._attempt.run.oracle.violate("expiry", text)

    def _check_patience(self, jobs: Sequence[Job]) -> None:
        """See that nobody who has looked at the run waits again for a checkpoint that had taken too long by then.

        An attempt that ends gives its checkpoints some more time, and looks no more; one that is killed waits no more.
        """
        if self._attempt.is_killed or self._attempt.looks == self._looks:
            return
        if self._failed:
            text = f"attempt {self._attempt.number} goes on, and a checkpoint beside it had failed"
            self._attempt.run.oracle.violate("errors", text)
        timeout = self._attempt.pace.policy.timeout_seconds
        late = [job for job in jobs if self._waited_until_seconds - self._started_seconds[job] >= timeout]
        if late and not self._is_committing(late):
            text = f"attempt {self._attempt.number} waits for a checkpoint longer than {timeout} seconds"
            self._attempt.run.oracle.violate("expiry", text)

    def _is_committing(self, jobs: Sequence[Job]) -> bool:
        """Tell whether all of the jobs are through with their checkpoints, and let sinks commit, or old files go."""
        checkpoints = self._attempt.run.rows.checkpoints
        pending = {row["checkpoint_id"] for row in of_status(checkpoints, "PENDING")}
        return pending.isdisjoint(self._checkpoint_ids[job] for job in jobs)

    def lock(self) -> AbstractContextManager[object]:
        """Return what one fiber at a time may enter: whoever comes second waits, and looks again."""
        return SimulatedLock()


class SimulatedLock:
    """A lock between fibers, which are all of one thread; see Background."""

    def __init__(self) -> None:
        self._is_taken = False

    def __enter__(self) -> None:
        while self._is_taken:
            ask(Call.WAIT)
        self._is_taken = True

    def __exit__(self, *_: object) -> None:
        self._is_taken = False
