"""How is a Spark job named, waited for and stopped?

When a signal's handler raises while pyspark collects rows, pyspark still waits for the end of the job. So a runner's
jobs are started by a thread of its own: the wait for one ends at once. It is stopped by another thread, for Spark may
not answer. Spark stops only what it runs already, and a call plans its job before it starts it: so Spark is told again
until the call is over. Each call has a tag of its own, in whatever process. Its description would not do: whoever goes
on with the run has calls of the same one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from secrets import token_hex
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from iteration_lib.errors import ExecutionLostError, OperatorFailedError
from iteration_lib.model.operator import Operator
from iteration_lib.runner.spark_errors import FOREIGN, spark_errors
from iteration_lib.runner.spark_session import classic_context

_Result = TypeVar("_Result")

_CLOSED = (*FOREIGN, AttributeError, ValueError)  # what is raised where a JVM, a session or its channel is closed
_STOP_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that somebody waits for, and the tag of its jobs."""

    tag: str
    answer: Future[Any] = field(default_factory=Future)  # Any: of whatever the call returns


class SparkJobs:
    """Runs the jobs of one runner; what Spark raises in them becomes an error of this project."""

    def __init__(self, spark: SparkSession) -> None:
        """Start the thread."""
        self._spark = spark
        self._tag = f"iteration-{token_hex(8)}"
        self._numbers = itertools.count()
        self._cancelled = threading.Event()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._begun: _Call | None = None
        threading.Thread(target=self._serve, name=self._tag, daemon=True).start()

    def run(
        self, call: Callable[[], _Result], *, operator: Operator | None, epoch: int | None, description: str
    ) -> _Result:
        """Return what a call returns that starts a job and waits for it; one call runs at a time.

        What a signal's handler raises here stops the job. Raises ExecutionLostError once the runner was cancelled.
        """
        started = _Call(f"{self._tag}-{next(self._numbers)}")
        answer: Future[_Result] = started.answer

        def answer_call() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            self._begun = started
            try:
                self.check_not_cancelled()  # behind the line above: one of this and `cancel` sees the other
                with self._named(description, started.tag):
                    result = call()
            except BaseException as err:  # noqa: BLE001 - raised in the caller's thread, whatever it is
                answer.set_exception(err)
            else:
                answer.set_result(result)

        with self._errors(operator, epoch):
            try:
                self._calls.put(answer_call)
                return answer.result()
            except BaseException:  # a handler may raise anything; where the call itself did, it is over
                if not answer.cancel():
                    self._stop(started)
                raise

    @contextmanager
    def named(self, operator: Operator | None, epoch: int | None, description: str) -> Iterator[None]:
        """Name the jobs that a user's function starts inside the block."""
        with self._errors(operator, epoch), self._named(description):
            yield

    def stop(self) -> None:
        """Stop the job of the call that runs, also where that has yet to start it; from any thread, without waiting."""
        if (begun := self._begun) is not None:
            self._stop(begun)

    def cancel(self) -> None:
        """Stop the jobs of this runner, from any thread, without waiting, and refuse the calls that have not begun.

        Of the jobs of a user's function those are stopped that run, and that its own thread started.
        """
        self._cancelled.set()
        self.stop()
        self._apart(self._stop_tagged, self._tag)

    def check_not_cancelled(self) -> None:
        """Raise ExecutionLostError once the runner was cancelled."""
        if self._cancelled.is_set():
            raise ExecutionLostError("the run was cancelled")

    def close(self) -> None:
        """Let the thread end."""
        self._calls.put(None)

    def _stop(self, call: _Call) -> None:
        if not call.answer.done():
            self._apart(self._stop_until_over, call)

    def _stop_until_over(self, call: _Call) -> None:
        while not call.answer.done():
            self._stop_tagged(call.tag)
            wait([call.answer], timeout=_STOP_AGAIN_SECONDS)

    def _apart(self, stop: Callable[..., None], *what: object) -> None:
        threading.Thread(target=stop, args=what, name=f"{self._tag}-stop", daemon=True).start()

    def _stop_tagged(self, tag: str) -> None:
        context = classic_context(self._spark)
        with suppress(*_CLOSED):
            if context is not None:
                context.cancelJobsWithTag(tag)  # a classic session's own tags are each thread's
            else:
                self._spark.interruptTag(tag)

    def _serve(self) -> None:
        for answer_call in iter(self._calls.get, None):
            answer_call()
            self._begun = None
            del answer_call  # what was answered may be large, and the next call late

    @contextmanager
    def _errors(self, operator: Operator | None, epoch: int | None) -> Iterator[None]:
        self.check_not_cancelled()
        try:
            with spark_errors(operator, epoch):
                yield
        except OperatorFailedError as err:
            if self._cancelled.is_set():
                raise ExecutionLostError("the run was cancelled") from err
            raise
        self.check_not_cancelled()

    @contextmanager
    def _named(self, description: str, *tags: str) -> Iterator[None]:
        """Name this thread's jobs inside the block: in Spark's UI by a description, for stopping them by tags."""
        context, tags = classic_context(self._spark), (self._tag, *tags)
        if context is None:
            named = (description.replace(",", ";"), *tags)  # a tag cannot hold a comma
            with _tagged(named, self._spark.addTag, self._spark.removeTag):
                yield
            return
        context.setJobGroup(description, description, interruptOnCancel=True)
        try:
            with _tagged(tags, context.addJobTag, context.removeJobTag):
                yield
        finally:
            for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


@contextmanager
def _tagged(tags: Collection[str], add: Callable[[str], None], remove: Callable[[str], None]) -> Iterator[None]:
    for tag in tags:
        add(tag)
    try:
        yield
    finally:
        for tag in tags:
            remove(tag)
