"""How does an iteration become a DAG?

    open_run >> epochs.e000 >> epochs.e010 >> ... >> finish       run_epochs="submit": each task drives its epochs
    open_run >> drive >> finish                                   run_epochs="watch": `drive` drives all of them, and
    open_run >> epochs.e000 >> epochs.e010 >> ... >> finish       each task beside it follows its own

run_epochs="connect" is drawn as "submit" is, and each task drives its epochs on a Spark Connect server.
Parsing such a file imports neither the iteration nor Spark, opens no store and asks no network: it knows a name,
parameters and a number of tasks. The same file gives the same bytes at every parse.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, get_args

from airflow.sdk import DAG, Asset, Param, TaskGroup, TriggerRule, chain

from iteration_lib.airflow.chain import ADVISED_TASKS, Slice, plan_chain
from iteration_lib.airflow.operators import (
    EpochsOperator,
    FinishRunOperator,
    FollowEpochsOperator,
    OpenRunOperator,
)
from iteration_lib.airflow.parameter import MAX_EPOCHS, make_params
from iteration_lib.errors import UsageError

RunEpochs = Literal["submit", "watch", "connect"]

GROUP = "epochs"
DRIVE = "drive"
CONNECTIONS = {"submit": "spark_default", "watch": "spark_default", "connect": "spark_connect_default"}
RUN_KEY = "{{ dag.dag_id }}/{{ run_id }}"  # a retry and a cleared task find the same run again
RETRIES = 2
RETRY_DELAY = timedelta(seconds=10)  # a lost worker or driver; a user's mistake is never retried

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def iteration_dag(  # noqa: PLR0913  (what a DAG's author may choose, all but one by keyword)
    reference: str,
    *,
    params: Mapping[str, object] | None = None,
    dag_id: str | None = None,
    schedule: Any = None,  # noqa: ANN401  (whatever Airflow takes: a cron text, a timedelta, assets, a timetable)
    max_epochs: int | None = None,
    epochs_per_task: int = 1,
    run_epochs: RunEpochs = "submit",
    runner: Literal["spark", "local"] = "spark",
    conn_id: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    store_conn_id: str | None = None,
    state_uri: str | None = None,
    run_key: str = RUN_KEY,
    **dag_options: Any,  # noqa: ANN401  (Airflow's own: start_date, catchup, tags, default_args, ...)
) -> DAG:
    """Return a DAG that runs the iteration named by `module:object`.

    `params` are the run's parameters and their defaults; they become typed fields of the trigger form. The chain has
    tasks for `max_epochs` epochs (by default the parameter of that name), `epochs_per_task` each. With
    `run_epochs="submit"` every task is one Spark application; with "watch" there is one application for the whole run,
    in a task of its own, and the chain's tasks follow it in Airflow's triggerer; with "connect" every task is a client
    of a Spark Connect server that is there already. The results are the same to the bit. `conn_id` names a connection
    of type spark, or spark_connect; `spark_conf` is for applications; `runner="local"` runs plain Python instead.
    Where the store and the state lie comes from Airflow's configuration unless given here. `dag_options` go to the DAG.
    """
    _check_reference(reference)
    _check_way(run_epochs, has_own_settings=runner == "local" or bool(spark_conf))
    given = dict(params or {})
    slices = plan_chain(max_epochs=_longest_run(given, max_epochs), epochs_per_task=epochs_per_task)
    given.setdefault(MAX_EPOCHS, max_epochs)
    if len(slices) > ADVISED_TASKS:
        warnings.warn(
            f"{len(slices)} epoch tasks: every task's start parses all of them again; "
            f"with epochs_per_task={-(-len(slices) * epochs_per_task // ADVISED_TASKS)} there are {ADVISED_TASKS}",
            stacklevel=2,
        )
    options = _with_defaults(dag_options, reference=reference)
    shared: dict[str, Any] = {"reference": reference, "run_key": run_key, "store_conn_id": store_conn_id}
    with DAG(
        dag_id or reference.partition(":")[2],
        schedule=schedule,
        params=make_params(given, longest=slices[-1].end_epoch),
        **options,
    ) as dag:
        opening = OpenRunOperator(task_id="open_run", state_uri=state_uri, longest=slices[-1].end_epoch, **shared)
        drives: dict[str, Any] = {
            "runner": "connect" if run_epochs == "connect" else runner,
            "conn_id": conn_id or CONNECTIONS[run_epochs],
            "spark_conf": dict(spark_conf or {}),
            **shared,
        }
        epochs = _draw_epochs(slices, run_epochs=run_epochs, drives=drives)
        finish = FinishRunOperator(
            task_id="finish",
            # NONE_FAILED: after an early stop the epoch before it is skipped, and it runs all the same. ALL_DONE: a
            # task of the chain may have taken the place of a failed `drive`; the store says whether the run has ended.
            trigger_rule=TriggerRule.ALL_DONE if run_epochs == "watch" else TriggerRule.NONE_FAILED,
            outlets=[iteration_asset(reference)],
            **shared,
        )
        chain(opening, *epochs, finish)
        if run_epochs == "watch":
            whole = Slice(first_epoch=0, end_epoch=slices[-1].end_epoch, name=DRIVE)
            chain(opening, _draw(EpochsOperator, whole, drives), finish)
    return dag


def _draw_epochs(
    slices: tuple[Slice, ...], *, run_epochs: RunEpochs, drives: Mapping[str, Any]
) -> list[EpochsOperator]:
    with TaskGroup(GROUP):
        if run_epochs != "watch":
            return [_draw(EpochsOperator, part, drives) for part in slices]
        follows = {**drives, "driving_task_id": DRIVE, "until_epoch": slices[-1].end_epoch}
        return [_draw(FollowEpochsOperator, part, follows) for part in slices]


def _draw(kind: type[EpochsOperator], part: Slice, options: Mapping[str, Any]) -> EpochsOperator:
    return kind(
        task_id=part.name, first_epoch=part.first_epoch, end_epoch=part.end_epoch, doc=_describe(part), **options
    )


def iteration_asset(reference: str) -> Asset:
    """Return the asset that a run of this iteration updates when its outputs are published; schedule a DAG on it."""
    _check_reference(reference)
    return Asset(name=reference, uri=f"iteration://{reference.replace(':', '/')}")


def _check_reference(reference: object) -> None:
    if not isinstance(reference, str):
        raise UsageError(
            f"iteration_dag takes the text 'module:object', not a {type(reference).__name__}: what a DAG file defines "
            "cannot be imported by Spark's driver and executors. Move the iteration into a module of its own, such as "
            "my_team/kmeans.py beside the DAG file, and write iteration_dag('my_team.kmeans:kmeans')"
        )
    if not _REFERENCE.fullmatch(reference):
        raise UsageError(f"{reference!r} is no 'module:object'; write for example 'my_team.kmeans:kmeans'")


def _check_way(run_epochs: str, *, has_own_settings: bool) -> None:
    if run_epochs not in get_args(RunEpochs):
        raise UsageError(f"run_epochs is {run_epochs!r}; choose one of {', '.join(get_args(RunEpochs))}")
    if run_epochs == "connect" and has_own_settings:
        raise UsageError(
            'run_epochs="connect" runs on a Spark Connect server, which has its own settings; leave out runner= and '
            "spark_conf="
        )


def _longest_run(params: Mapping[str, object], max_epochs: int | None) -> int:
    declared = params.get(MAX_EPOCHS)
    default = declared.value if isinstance(declared, Param) else declared
    longest = max_epochs if max_epochs is not None else default
    if not isinstance(longest, int) or isinstance(longest, bool):
        raise UsageError(
            f"{MAX_EPOCHS} is {longest!r}; give params={{'{MAX_EPOCHS}': 50, ...}} or {MAX_EPOCHS}=50, a whole number: "
            "a DAG has a fixed number of tasks"
        )
    if isinstance(default, int) and default > longest:
        raise UsageError(
            f"the parameter {MAX_EPOCHS} is {default}, but the DAG is to have tasks for {longest} epochs only"
        )
    return longest


def _with_defaults(dag_options: Mapping[str, Any], *, reference: str) -> dict[str, Any]:
    defaults = {
        "description": f"The iteration {reference}",
        "tags": ["iteration"],
    }
    return {
        **defaults,
        **dag_options,
        "default_args": {"retries": RETRIES, "retry_delay": RETRY_DELAY, **(dag_options.get("default_args") or {})},
    }


def _describe(part: Slice) -> str:
    last = part.end_epoch - 1
    return f"Epoch {part.first_epoch}" if last == part.first_epoch else f"Epochs {part.first_epoch} to {last}"
