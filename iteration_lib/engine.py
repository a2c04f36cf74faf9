"""On what do a run's operators run: on Spark, or in this process?"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from iteration_lib.process import Watchdog
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord

SPARK_STARTED = "event=spark_started application_id=%s ui=%s"  # Airflow's task reads it in its driver's output

_logger = logging.getLogger(__name__)


class EngineKind(enum.Enum):
    """SPARK for real work, LOCAL for tests and small data: plain Python, in this process."""

    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSession:
    """Opens runners on a Spark session that is somebody else's, and goes on when the runner is closed."""

    spark: Any  # a SparkSession: Spark's own types live in the runner's room

    @contextmanager
    def open_runner(self, run: RunRecord, location: StateLocation, scratch: str) -> Iterator[Runner]:
        """Open a runner for a run, with a scratch folder of its own, and close it afterwards."""
        from iteration_lib.runner.code_shipping import ship_code  # noqa: PLC0415 - pyspark takes a second
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415

        ship_code(self.spark, __name__)  # this package; what the script computes with Spark is its own business
        parallelism = os.cpu_count() or 1
        runner = SparkRunner(
            self.spark, location, max_buckets=run.max_buckets, parallelism=parallelism, scratch=scratch
        )
        try:
            yield runner
        finally:
            runner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEngine:
    """Opens runners on a session of a Spark Connect server that stays there for the next process, until `release`.

    There is one for each run and each state of its code: a worker that has imported code never imports it again.
    """

    server: str

    @property
    def default_parallelism(self) -> int:
        """The number of subtasks of an operator that names none."""
        return os.cpu_count() or 1

    @contextmanager
    def open_runner(self, run: RunRecord, location: StateLocation, scratch: str) -> Iterator[Runner]:
        """Open a runner for a run, with a scratch folder of its own, and close it afterwards."""
        from iteration_lib.runner.node_cache import scope_of_run  # noqa: PLC0415 - pyspark takes a second
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415

        runner = SparkRunner(
            self._open_session(run),
            location,
            max_buckets=run.max_buckets,
            parallelism=self.default_parallelism,
            scratch=scratch,
            cache_scope=scope_of_run(run.run_id),
        )
        try:
            yield runner
        finally:
            runner.close()

    def release(self, run: RunRecord) -> None:
        """Remove what the nodes hold of the run's data streams, and stop its session with the server's workers for it.

        Repeating the call is harmless. Raises SparkUnavailableError, at once where nobody listens at the server's
        address.
        """
        from iteration_lib.runner.node_cache import scope_of_run  # noqa: PLC0415 - pyspark takes a second
        from iteration_lib.runner.spark import release_cache  # noqa: PLC0415
        from iteration_lib.runner.spark_session import check_listening  # noqa: PLC0415

        check_listening(self.server)
        session = self._open_session(run)
        release_cache(session, scope_of_run(run.run_id))
        session.stop()

    def _open_session(self, run: RunRecord) -> Any:  # noqa: ANN401  (a SparkSession, see GivenSession)
        from iteration_lib.runner.code_shipping import digest_code, ship_code  # noqa: PLC0415 - pyspark takes a second
        from iteration_lib.runner.spark_session import open_warm_session  # noqa: PLC0415

        key = f"{run.run_id}/{digest_code(run.reference)}"
        session = open_warm_session(self.server, f"iteration {run.run_key}", key=key)
        ship_code(session, run.reference)
        return session


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Opens runners.

    `master` None means that of spark-submit, else local[*]; `parallelism` None means the cores. With `parent_pid`,
    Spark ends when that process is gone.
    """

    kind: EngineKind
    master: str | None = None
    parallelism: int | None = None
    parent_pid: int | None = None

    @property
    def default_parallelism(self) -> int:
        """The number of subtasks of an operator that names none."""
        return self.parallelism or os.cpu_count() or 1

    @contextmanager
    def open_runner(self, run: RunRecord, location: StateLocation, scratch: str) -> Iterator[Runner]:
        """Open a runner for a run, with a scratch folder of its own, and close it afterwards.

        Raises JavaNotFoundError.
        """
        if self.kind is EngineKind.LOCAL:
            runner = LocalRunner(location, max_buckets=run.max_buckets, parallelism=self.default_parallelism)
            try:
                yield runner
            finally:
                runner.close()
        else:
            with self._open_spark(run, location, scratch) as spark_runner:
                yield spark_runner

    @contextmanager
    def _open_spark(self, run: RunRecord, location: StateLocation, scratch: str) -> Iterator[Runner]:
        # Imported here: pyspark takes a second that plain Python runs and publishing tasks need not wait.
        from iteration_lib.runner.code_shipping import ship_code  # noqa: PLC0415
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415
        from iteration_lib.runner.spark_session import classic_context, jvm_pid, open_session  # noqa: PLC0415

        watchdog = Watchdog()
        if self.parent_pid is not None:
            watchdog.watch("the process that submitted this application", self.parent_pid)
        watchdog.start()
        try:
            session = open_session(self.master, f"iteration {run.run_key}")
            jvm = jvm_pid(session)
            if jvm is not None:
                watchdog.watch("Spark's JVM", jvm, is_owned=True)
            context = classic_context(session)
            if context is not None:
                _logger.info(SPARK_STARTED, context.applicationId, context.uiWebUrl)
            ship_code(session, run.reference)
            runner = SparkRunner(
                session,
                location,
                max_buckets=run.max_buckets,
                parallelism=self.default_parallelism,
                owns_session=True,
                scratch=scratch,
            )
            watchdog.when_lost(lambda what: runner.cancel(f"{what} is gone"))
            try:
                yield runner
            finally:
                watchdog.expect_ends()
                runner.close()
        finally:
            watchdog.stop()
