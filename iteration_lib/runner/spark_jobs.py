"""How is a Spark job named, waited for and stopped?

When a signal's handler raises while pyspark collects rows, pyspark still waits for the end of the job. So a runner's
jobs are started by a thread of its own: the wait for one ends at once, and the job is stopped. Spark stops only what it
runs already, and a call plans its job before it starts it: so it is told again until the call is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from secrets import token_hex
from typing import TypeVar

from pyspark.sql import SparkSession

from iteration_lib.errors import ExecutionLostError, OperatorFailedError
from iteration_lib.model.operator import Operator
from iteration_lib.runner.spark_errors import FOREIGN, spark_errors
from iteration_lib.runner.spark_session import classic_context

_Result = TypeVar("_Result")

_STOP_AGAIN_SECONDS = 0.2


class SparkJobs:
    """Runs the jobs of one runner; what Spark raises in them becomes an error of this project."""

    def __init__(self, spark: SparkSession) -> None:
        """Start the thread."""
        self._spark = spark
        self._tag = f"iteration-{token_hex(8)}"
        self._cancelled = threading.Event()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name=self._tag, daemon=True).start()

    def run(
        self, call: Callable[[], _Result], *, operator: Operator | None, epoch: int | None, description: str
    ) -> _Result:
        """Return what a call returns that starts a job and waits for it; one call runs at a time.

        A signal's handler that raises here stops the job.
        """
        answer: Future[_Result] = Future()

        def answer_call() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                with self._named(description):
                    answer.set_result(call())
            except BaseException as err:  # noqa: BLE001 - raised in the caller's thread, whatever it is
                answer.set_exception(err)

        with self._errors(operator, epoch):
            try:
                self._calls.put(answer_call)
                return answer.result()
            except (KeyboardInterrupt, SystemExit):
                if not answer.cancel():
                    self._stop_until_over(answer, description)
                raise

    @contextmanager
    def named(self, operator: Operator | None, epoch: int | None, description: str) -> Iterator[None]:
        """Name the jobs that a user's function starts inside the block."""
        with self._errors(operator, epoch), self._named(description):
            yield

    def stop(self, description: str) -> None:
        """Stop the running jobs of this name, from any thread; nothing happens where there is none."""
        context = classic_context(self._spark)
        with suppress(*FOREIGN):  # what is gone has stopped
            if context is not None:
                context.cancelJobGroup(description)  # a classic session's tags are each thread's own
            else:
                self._spark.interruptTag(_tag_of(description))

    def cancel(self) -> None:
        """Stop all jobs of this runner, from any thread, and refuse what comes."""
        self._cancelled.set()
        with suppress(*FOREIGN):
            if classic_context(self._spark) is not None:
                self._spark.interruptAll()
            else:  # whoever took the run over may be a client of the same session
                self._spark.interruptTag(self._tag)

    def check_not_cancelled(self) -> None:
        """Raise ExecutionLostError once the runner was cancelled."""
        if self._cancelled.is_set():
            raise ExecutionLostError("the run was cancelled")

    def close(self) -> None:
        """Let the thread end."""
        self._calls.put(None)

    def _stop_until_over(self, answer: Future[_Result], description: str) -> None:
        """Stop a call's job, also one that the call has yet to start; whoever calls this does not wait for it."""

        def stop() -> None:
            while not answer.done():
                self.stop(description)
                wait([answer], timeout=_STOP_AGAIN_SECONDS)

        threading.Thread(target=stop, name=f"{self._tag}-stop", daemon=True).start()

    def _serve(self) -> None:
        while (answer_call := self._calls.get()) is not None:
            answer_call()

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
    def _named(self, description: str) -> Iterator[None]:
        """Name this thread's jobs inside the block: in Spark's UI by a description, for stopping them by tags."""
        tags, context = (self._tag, _tag_of(description)), classic_context(self._spark)
        for tag in tags:
            self._spark.addTag(tag)
        if context is not None:
            context.setJobGroup(description, description, interruptOnCancel=True)
        try:
            yield
        finally:
            if context is not None:
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                    context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it
            for tag in tags:
                self._spark.removeTag(tag)


def _tag_of(description: str) -> str:
    return description.replace(",", ";")  # a tag cannot hold a comma
