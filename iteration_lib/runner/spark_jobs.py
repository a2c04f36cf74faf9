"""How is a Spark job named, waited for and stopped?

When a signal's handler raises while pyspark waits for a job, pyspark still waits for its end. So whatever starts jobs,
a user's function included, is called by a thread of the runner's own: the wait for a call ends at once, and what is
called next has another thread. The call that was left is stopped by a third one, for Spark may not answer. Spark stops
only what it runs already, and a call plans its job before it starts it: so Spark is told again until the call is over.
Each call has a tag of its own, in whatever process. Its description would not do: whoever goes on with the run has
calls with the same one.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from secrets import token_hex
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from iteration_lib.errors import ExecutionLostError, OperatorFailedError
from iteration_lib.model.operator import Operator
from iteration_lib.runner.latch import Latch
from iteration_lib.runner.spark_errors import CLOSED, spark_errors
from iteration_lib.runner.spark_session import activate, classic_context

RUN_CANCELLED = "the run was cancelled"

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_STOP_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A call that somebody waits for, and the tag of its jobs."""

    tag: str
    answer: Future[Any] = field(default_factory=Future)  # Any: of whatever the call returns
    is_answered: Latch = field(default_factory=Latch)
    next_turn: threading.Lock = field(default_factory=threading.Lock)  # of who takes it, who serves the next call


class SparkJobs:
    """Runs the jobs of one runner; what Spark raises in them becomes an error of this project."""

    def __init__(self, spark: SparkSession) -> None:
        """Start the thread."""
        self._spark = spark
        self._tag = f"iteration-{token_hex(8)}"
        self._numbers = itertools.count()
        self._why_cancelled: str | None = None
        self._calls: SimpleQueue[Callable[[], _Call] | None] = SimpleQueue()
        self._running: set[_Call] = set()
        self._start(self._serve)

    def run(
        self, call: Callable[[], _Result], *, operator: Operator | None, epoch: int | None, description: str
    ) -> _Result:
        """Return what a call returns that starts jobs and waits for them; one call runs at a time, besides those left.

        It runs in the caller's context. What a signal's handler raises here ends the wait at once, and stops the call's
        jobs; the next call then waits for it no longer. Raises ExecutionLostError once the runner was cancelled; a
        call that was given to its thread just before is left in the same way.
        """
        made, context = _Call(f"{self._tag}-{next(self._numbers)}"), copy_context()
        answer: Future[_Result] = made.answer

        def answer_call() -> _Call:
            if answer.set_running_or_notify_cancel():
                self._running.add(made)
                try:
                    self.check_not_cancelled()  # behind the line above: one of this and `cancel` sees the other
                    with self._named(description, made.tag):
                        result = context.run(call)
                except BaseException as err:  # noqa: BLE001 - raised in the caller's thread, whatever it is
                    answer.set_exception(err)
                else:
                    answer.set_result(result)
                made.is_answered.open()
                self._running.discard(made)
            return made

        with self.errors(operator, epoch):
            try:
                self._calls.put(answer_call)
                self.check_not_cancelled()  # behind the line above: one of this and `close` sees the other
                made.is_answered.wait()
                return answer.result()
            except BaseException:  # a handler may raise anything; where the call itself did, it is over
                if not answer.done() and not answer.cancel():
                    self._start_beside(self._leave, made)
                raise

    @contextmanager
    def errors(self, operator: Operator | None, epoch: int | None) -> Iterator[None]:
        """Turn what Spark raises inside the block into an error of this project; see `spark_errors`."""
        self.check_not_cancelled()
        try:
            with spark_errors(operator, epoch):
                yield
        except OperatorFailedError as err:
            if self._why_cancelled is not None:
                raise ExecutionLostError(self._why_cancelled) from err
            raise
        self.check_not_cancelled()

    def stop(self) -> None:
        """Stop the jobs of what runs, also those that are yet to start; from any thread, without waiting."""
        for call in tuple(self._running):
            self._start_beside(self._stop_until_over, call)

    def cancel(self, why: str) -> None:
        """Stop the jobs of what runs, from any thread, without waiting, and refuse what has not begun.

        Whoever is refused hears why; the first cause counts.
        """
        self._why_cancelled = self._why_cancelled or why
        self.stop()

    def check_not_cancelled(self) -> None:
        """Raise ExecutionLostError once the runner was cancelled."""
        if self._why_cancelled is not None:
            raise ExecutionLostError(self._why_cancelled)

    def close(self) -> None:
        """Cancel, and let the thread end; what two signals have left behind is stopped by this alone."""
        self.cancel(RUN_CANCELLED)
        self._calls.put(None)

    def _leave(self, call: _Call) -> None:
        """Stop a call that nobody waits for any more, and serve what comes next in its thread's place."""
        if call.next_turn.acquire(blocking=False):
            self._start_beside(self._stop_until_over, call)
            self._serve()

    def _stop_until_over(self, call: _Call) -> None:
        while not call.answer.done():
            self._stop_tagged(call.tag)
            wait([call.answer], timeout=_STOP_AGAIN_SECONDS)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, name=f"{self._tag} {target.__name__}", daemon=True).start()

    def _start_beside(self, target: Callable[[_Call], None], call: _Call) -> None:
        """Start a thread for a call; where there can be none, the call goes on, and `close` tries to stop it again."""
        try:
            self._start(target, call)
        except RuntimeError as err:
            _logger.warning("event=no_thread for=%s error=%s", target.__name__, err)

    def _stop_tagged(self, tag: str) -> None:
        context = classic_context(self._spark)
        with suppress(*CLOSED):
            if context is not None:
                context.cancelJobsWithTag(tag)  # a classic session's own tags are each thread's
            else:
                self._spark.interruptTag(tag)

    def _serve(self) -> None:
        with suppress(Exception):  # whatever is wrong with the session, the calls themselves will say it
            activate(self._spark)
        for answer_call in iter(self._calls.get, None):
            if not answer_call().next_turn.acquire(blocking=False):
                return  # it was left
            del answer_call  # what was answered may be large, and the next call late

    @contextmanager
    def _named(self, description: str, tag: str) -> Iterator[None]:
        """Name this thread's jobs inside the block: in Spark's UI by a description, for stopping them by a tag."""
        context = classic_context(self._spark)
        if context is None:
            named = (description.replace(",", ";"), tag)  # a tag cannot hold a comma
            with _tagged(named, self._spark.addTag, self._spark.removeTag):
                yield
            return
        context.setJobGroup(description, description, interruptOnCancel=True)
        try:
            with _tagged((tag,), context.addJobTag, context.removeJobTag):
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
