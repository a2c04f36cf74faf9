"""On what do a run's operators run: on Spark, or in this process?"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass

from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord


class EngineKind(enum.Enum):
    """SPARK for real work, LOCAL for tests and small data: plain Python, in this process."""

    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Makes runners.

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

    def make_runner(self, run: RunRecord, location: StateLocation) -> Runner:
        """Return a runner for a run; the caller closes it. Raises JavaNotFoundError."""
        if self.kind is EngineKind.LOCAL:
            return LocalRunner(location, max_buckets=run.max_buckets, parallelism=self.default_parallelism)
        raise NotImplementedError
