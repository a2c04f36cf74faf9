"""How is a Spark job named, waited for and stopped?

When a signal's handler raises while pyspark collects rows, pyspark still waits for the end of the job. So a runner's
jobs are started by a thread of its own: the wait for one ends at once, and the job is stopped. Spark stops only what it
runs already, and a call plans its job before it starts it: so Spark is told again until the call is over. Each call has
a tag that no other one has, in whatever process: what it is called by, others are called by as well.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from secrets import token_hex
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from iteration_lib.errors import ExecutionLostError, OperatorFailedError
from iteration_lib.model.operator import Operator
from iteration_lib.runner.spark_errors import FOREIGN, spark_errors
from iteration_lib.runner.spark_session import classic_context

_Result = TypeVar("_Result")

_GONE = (*FOREIGN, AttributeError, ValueError)  # what is raised where a JVM, a session or its channel is closed
_STOP_AGAIN_SECONDS = 0.2


class SparkJobs:
    """Runs the jobs of one runner; what Spark raises in them becomes an error of this project."""

    def __init__(self, spark: SparkSession) -> None:
        """Start the thread."""
        self._spark = spark
        self._tag = f"iteration-{token_hex(8)}"
        self._numbers = itertools.count()
        self._cancelled = threading.Event()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._begun: tuple[Future[Any], str] | None = None  # Any: of what calls return
        threading.Thread(target=self._serve, name=self._tag, daemon=True).start()

    def run(
        self, call: Callable[[], _Result], *, operator: Operator | None, epoch: int | None, description: str
    ) -> _Result:
        """Return what a call returns that starts a job and waits for it; one call runs at a time.

        A signal's handler that raises here stops the job.
        """
        answer: Future[_Result] = Future()
        tag = f"{self._tag}-{next(self._numbers)}"

        def answer_call() -> None:
            self._begun = (answer, tag)
            if not answer.set_running_or_notify_cancel():
                return
            try:
                with self._named(description, tag):
                    result = call()
            except BaseException as err:  # noqa: BLE001 - raised in the caller's thread, whatever it is
                answer.set_exception(err)
            else:
                answer.set_result(result)

        with self._errors(operator, epoch):
            try:
                self._calls.put(answer_call)
                return answer.result()
            except (KeyboardInterrupt, SystemExit):
                if not answer.cancel():
                    self.stop()
                raise

    @contextmanager
    def named(self, operator: Operator | None, epoch: int | None, description: str) -> Iterator[None]:
        """Name the jobs that a user's function starts inside the block."""
        with self._errors(operator, epoch), self._named(description):
            yield

    def stop(self) -> None:
        """Stop the job of the call that runs, also where that has yet to start it; from any thread, without waiting."""
        if (begun := self._begun) is None:
            return
        answer, tag = begun
        if not answer.done():
            self._stop_tagged(tag)
            threading.Thread(target=self._stop_until_over, args=begun, name=f"{tag}-stop", daemon=True).start()

    def cancel(self) -> None:
        """Stop all jobs of this runner, from any thread, and refuse what comes."""
        self._cancelled.set()
        if classic_context(self._spark) is not None:
            with suppress(*_GONE):
                self._spark.interruptAll()
        else:  # whoever took the run over may be a client of the same session
            self._stop_tagged(self._tag)
        self.stop()

    def check_not_cancelled(self) -> None:
        """Raise ExecutionLostError once the runner was cancelled."""
        if self._cancelled.is_set():
            raise ExecutionLostError("the run was cancelled")

    def close(self) -> None:
        """Let the thread end."""
        self._calls.put(None)

    def _stop_until_over(self, answer: Future[Any], tag: str) -> None:
        while not wait([answer], timeout=_STOP_AGAIN_SECONDS).done:
            self._stop_tagged(tag)

    def _stop_tagged(self, tag: str) -> None:
        context = classic_context(self._spark)
        with suppress(*_GONE):
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
        context = classic_context(self._spark)
        if context is None:
            named = (self._tag, description.replace(",", ";"), *tags)  # a tag cannot hold a comma
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
