"""What would the next attempt do, and would it be let? A dry run: it reads, writes nothing, and starts no Spark."""

from iteration_lib.planning.input import CheckedPin
from iteration_lib.planning.plan import RestoredCheckpoint, RunPlan, plan_run
from iteration_lib.planning.rows import UnheardEpochs

__all__ = ["CheckedPin", "RestoredCheckpoint", "RunPlan", "UnheardEpochs", "plan_run"]
