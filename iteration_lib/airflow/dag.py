"""How does an iteration become a DAG of its own?

It is one run's tasks (task_group) with a trigger form. The same file gives the same bytes at every parse.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from airflow.sdk import DAG

from iteration_lib.airflow.parameter import MAX_EPOCHS, PREVIOUS, START_DATA, START_FROM, find_templates, make_params
from iteration_lib.airflow.task_group import RUN_KEY, IterationTasks, RunEpochs, check_reference, plan_slices

RETRIES = 2
RETRY_DELAY = timedelta(seconds=10)  # a lost worker or driver; a user's mistake is never retried

_START_FROM, _START_DATA = (f"{{{{ params.{name} or '' }}}}" for name in (START_FROM, START_DATA))


def iteration_dag(  # noqa: PLR0913  (what a DAG's author may choose, all but one by keyword)
    reference: str,
    *,
    params: Mapping[str, object] | None = None,
    dag_id: str | None = None,
    schedule: Any = None,  # noqa: ANN401  (whatever Airflow takes: a cron text, a timedelta, assets, a timetable)
    start_from: str | None = None,
    start_data: Literal["new", "kept"] | None = None,
    max_epochs: int | None = None,
    epochs_per_task: int = 1,
    run_epochs: RunEpochs = "submit",
    runner: Literal["spark", "local"] = "spark",
    conn_id: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    store_conn_id: str | None = None,
    state_uri: str | None = None,
    run_key: str = RUN_KEY,
    epoch_options: Mapping[str, Any] | None = None,
    **dag_options: Any,  # noqa: ANN401  (Airflow's own: start_date, catchup, tags, default_args, ...)
) -> DAG:
    """Return a DAG that runs the iteration named by `module:object`.

    `params` are the run's parameters and their defaults; they become typed fields of the trigger form, and a text that
    is a template (`"/data/{{ ds }}"`) is rendered for each DAG run. The chain has tasks for `max_epochs` epochs (by
    default the parameter of that name), `epochs_per_task` each. With `run_epochs="submit"` every task is one Spark
    application; with "watch" there is one application for the whole run, in a task of its own, and the chain's tasks
    follow it in Airflow's triggerer; with "connect" every task is a client of a Spark Connect server that is there
    already. The results are the same to the bit. `conn_id` names a connection of type spark, or spark_connect;
    `spark_conf` is for applications; `runner="local"` runs plain Python instead. Where the store and the state lie
    comes from Airflow's configuration unless given here. `epoch_options` go to the epochs' tasks (what Airflow's
    BaseOperator takes: pool, execution_timeout, callbacks, a retry policy; and a `stall_alert`, and what OpenLineage
    is told), `default_args` to every task, `dag_options` (a deadline among them) to the DAG.

    `start_from` is the default of the form's field of that name: RUN_KEY@CHECKPOINT, RUN_KEY or a savepoint's folder.
    The run then goes on behind that checkpoint, for `max_epochs` epochs of its own at most; the tasks own its epochs by
    their place, so that `e000` runs the first of them, whatever its number. `start_data`, the default of another field,
    says whether such a run reads its data anew ("new"), or what the checkpoint's run has read ("kept").

    With `start_from="previous"` each DAG run starts from the last checkpoint that its predecessor left, which is the
    DAG run with the greatest earlier logical date; the first one starts from nothing, and every one reads its data
    anew, but where `start_data` is "kept". A DAG run waits until its predecessor has succeeded, whatever
    `max_active_runs` is; where that fails, all behind it wait until it is cleared and succeeds, or is deleted, so that
    they have another predecessor. A DAG run without a logical date has none: it is refused, unless it is triggered with
    another `start_from` or an empty one, and then waits for nobody. A backfill has to run forwards and to name a
    reprocess behaviour, as Airflow asks of every DAG whose tasks depend on the past; its first DAG run does not wait,
    but is refused while its predecessor has not ended.
    """
    check_reference(reference)
    given = dict(params or {})
    slices = plan_slices(given, max_epochs=max_epochs, epochs_per_task=epochs_per_task)
    given.setdefault(MAX_EPOCHS, max_epochs)
    tasks = IterationTasks(
        reference=reference,
        slices=slices,
        run_params=find_templates(given),
        has_form=True,
        start_from=_START_FROM,
        start_data=_START_DATA,
        waits_for_predecessor=start_from == PREVIOUS,
        run_epochs=run_epochs,
        runner=runner,
        conn_id=conn_id,
        spark_conf=spark_conf,
        store_conn_id=store_conn_id,
        state_uri=state_uri,
        run_key=run_key,
        epoch_options=epoch_options or {},
    )
    with DAG(
        dag_id or reference.partition(":")[2],
        schedule=schedule,
        params=make_params(given, longest=slices[-1].end_epoch, start_from=start_from, start_data=start_data),
        **_with_defaults(dag_options, reference=reference),
    ) as dag:
        tasks.draw()
    return dag


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
