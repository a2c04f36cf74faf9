"""What would the next attempt do, and would it be let? A dry run: it reads, writes nothing, and starts no Spark."""

from iteration_lib.planning.input import CheckedPin
from iteration_lib.planning.plan import RestoredCheckpoint, RunPlan, plan_run

__all__ = ["CheckedPin", "RestoredCheckpoint", "RunPlan", "plan_run"]
