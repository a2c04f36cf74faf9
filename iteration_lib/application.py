"""What does spark-submit run? The driver of one run, for some of its epochs.

    spark-submit ... application.py RUN_ID --until-epoch 20

The store's address comes in ITERATION_STORE_URL, never in arguments or Spark's conf, which other people see.
ITERATION_PARENT_PID names the process that wants the result: when it is gone, so is this application, within seconds.
ITERATION_TASK names the Airflow task instance, for whoever looks at the attempts. An application whose run another
attempt has taken hears of it when it next renews its lease, and ends within a grace. Exit codes are those of
iteration_lib.errors: 2 the user has to change something, 3 superseded, 4 what ran the operators, or the store, is gone;
2 is also for a state file that is not what was written, for the next try would read it again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import click

from iteration_lib.config import read_settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import (
    ExecutionLostError,
    IterationError,
    StateCorruptedError,
    SupersededError,
    UsageError,
)
from iteration_lib.interrupt import end_in_order
from iteration_lib.launch import Drive, drive_run
from iteration_lib.process import this_holder
from iteration_lib.store.opening import find_run, open_store

PARENT_PID_VARIABLE = "ITERATION_PARENT_PID"
TASK_VARIABLE = "ITERATION_TASK"
_SUPERSEDED_GRACE_SECONDS = 10.0

_logger = logging.getLogger("iteration_lib.application")


@click.command()
@click.argument("run_id")
@click.option("--until-epoch", type=click.IntRange(min=1), help="Stop before this epoch [default: the run's end].")
@click.option("--parallelism", type=click.IntRange(min=1), help="Subtasks per operator [default: the cores].")
def main(run_id: str, *, until_epoch: int | None, parallelism: int | None) -> None:
    """Drive a run on Spark; its outputs are left to whoever asked for the epochs."""
    signal.signal(signal.SIGTERM, end_in_order)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    parent = os.environ.get(PARENT_PID_VARIABLE)
    engine = Engine(kind=EngineKind.SPARK, parallelism=parallelism, parent_pid=int(parent) if parent else None)
    try:
        settings = read_settings(os.environ)
        with open_store(settings) as store:
            drive = Drive(
                holder=this_holder(os.environ.get(TASK_VARIABLE)),
                open_runner=engine.open_runner,
                parallelism=engine.default_parallelism,
                until_epoch=until_epoch,
                publish=False,
                when_superseded=_end_soon,
            )
            drive_run(store, settings, find_run(store, run_id), drive)
    except IterationError as err:
        _logger.error("event=application_failed error=%s", err)  # noqa: TRY400 - the sentence says it, no trace
        sys.exit(exit_code_of(err))


def exit_code_of(error: IterationError) -> int:
    """Return what this application ends with, by which its task knows whether to try again."""
    if error.is_passing:
        return ExecutionLostError.exit_code
    return UsageError.exit_code if isinstance(error, StateCorruptedError) else error.exit_code


def _end_soon() -> None:
    """End this process, and Spark with it, also where a user's function goes on computing for nobody."""
    timer = threading.Timer(_SUPERSEDED_GRACE_SECONDS, os._exit, (SupersededError.exit_code,))
    timer.daemon = True  # whoever ends in order does not wait for it
    timer.start()


if __name__ == "__main__":
    main()
