"""How does an iteration become tasks of a DAG?

    open_run >> epochs.e000 >> epochs.e010 >> ... >> finish       run_epochs="submit": each task drives its epochs
    open_run >> drive >> finish                                   run_epochs="watch": `drive` drives all of them, and
    open_run >> epochs.e000 >> epochs.e010 >> ... >> finish       each task beside it follows its own

run_epochs="connect" is drawn as "submit" is, and each task drives its epochs on a Spark Connect server. Drawing the
tasks imports neither the iteration nor Spark, opens no store and asks no network: all that is known is a name,
parameters and a number of tasks.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow.sdk import Asset, Param, TaskGroup, TriggerRule, chain

from iteration_lib.airflow.chain import ADVISED_TASKS, Slice, plan_chain
from iteration_lib.airflow.operators import EpochsOperator, FinishRunOperator, FollowEpochsOperator, OpenRunOperator
from iteration_lib.airflow.parameter import MAX_EPOCHS, PREVIOUS
from iteration_lib.errors import UsageError

RunEpochs = Literal["submit", "watch", "connect"]

EPOCHS = "epochs"
DRIVE = "drive"
CONNECTIONS = {"submit": "spark_default", "watch": "spark_default", "connect": "spark_connect_default"}
RUN_KEY = "{{ dag.dag_id }}/{{ run_id }}"  # a retry and a cleared task find the same run again

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def iteration_task_group(  # noqa: PLR0913  (what a DAG's author may choose, all but two by keyword)
    group_id: str,
    reference: str,
    *,
    params: Mapping[str, object] | None = None,
    start_from: str | None = None,
    start_data: str | None = None,
    max_epochs: int | None = None,
    epochs_per_task: int = 1,
    run_epochs: RunEpochs = "submit",
    runner: Literal["spark", "local"] = "spark",
    conn_id: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    store_conn_id: str | None = None,
    state_uri: str | None = None,
    run_key: str | None = None,
    epoch_options: Mapping[str, Any] | None = None,
    **group_options: Any,  # noqa: ANN401  (Airflow's own: tooltip, default_args, ...)
) -> TaskGroup:
    """Return a task group that runs the iteration named by `module:object` inside a larger DAG.

    As `iteration_dag`, with two differences: the run gets nothing of the DAG's own form, unless `params`, `start_from`
    or `start_data` ("new", "kept") hand it over as a template (`{"k": "{{ params.k }}"}`), and where it starts from
    another run it has that run's parameters where none are given; and its key holds the group's id, so that a DAG may
    have several. What comes behind the group runs once the run's outputs are published. `start_from="previous"`
    looks past the DAG runs in which a branch has skipped the group, and fails where the one behind them has not ended:
    such a DAG needs `max_active_runs=1`, for a task does not wait for what lies behind a skipped one.
    In a mapped task group it is refused (UsageError).
    """
    check_reference(reference)
    given = dict(params or {})
    group = TaskGroup(group_id, **group_options)
    tasks = IterationTasks(
        reference=reference,
        slices=plan_slices(given, max_epochs=max_epochs, epochs_per_task=epochs_per_task),
        run_params={MAX_EPOCHS: max_epochs, **given},
        start_from=start_from or "",
        start_data=start_data or "",
        waits_for_predecessor=start_from == PREVIOUS,
        run_epochs=run_epochs,
        runner=runner,
        conn_id=conn_id,
        spark_conf=spark_conf,
        store_conn_id=store_conn_id,
        state_uri=state_uri,
        run_key=run_key or f"{RUN_KEY}/{group.group_id}",
        epoch_options=epoch_options or {},
    )
    with group:
        tasks.draw()
    return group


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTasks:
    """The tasks of one run. With `has_form` the DAG's trigger form has the say over `run_params`."""

    reference: str
    slices: tuple[Slice, ...]
    run_params: Mapping[str, object]
    run_key: str
    has_form: bool = False
    start_from: str = ""
    start_data: str = ""
    waits_for_predecessor: bool = False
    run_epochs: RunEpochs = "submit"
    runner: Literal["spark", "local"] = "spark"
    conn_id: str | None = None
    spark_conf: Mapping[str, str] | None = None
    store_conn_id: str | None = None
    state_uri: str | None = None
    epoch_options: Mapping[str, Any] = field(default_factory=dict)

    def draw(self) -> None:
        """Add the tasks to the DAG, or the task group, whose block this is called in."""
        _check_way(self.run_epochs, has_own_settings=self.runner == "local" or bool(self.spark_conf))
        opening = OpenRunOperator(
            task_id="open_run",
            run_params=self.run_params,
            has_form=self.has_form,
            start_from=self.start_from,
            start_data=self.start_data,
            longest=self.slices[-1].end_epoch,
            state_uri=self.state_uri,
            **self._shared,
            **({"wait_for_downstream": True} if self.waits_for_predecessor else {}),
        )
        _check_unmapped(opening)
        driving = self._draw_part(EpochsOperator, self._whole) if self.run_epochs == "watch" else None
        epochs = self._draw_epochs(driving)
        finish = FinishRunOperator(
            task_id="finish",
            opening_task_id=opening.task_id,
            connect_conn_id=self._spark_conn_id if self.run_epochs == "connect" else None,
            # NONE_FAILED: after an early stop the epoch before it is skipped, and it runs all the same. ALL_DONE: a
            # task of the chain may have taken the place of a failed `drive`; the store says whether the run has ended.
            trigger_rule=TriggerRule.ALL_DONE if self.run_epochs == "watch" else TriggerRule.NONE_FAILED,
            outlets=[iteration_asset(self.reference)],
            **self._shared,
        )
        chain(opening, *epochs, finish)
        if driving is not None:
            chain(opening, driving, finish)
        if self.waits_for_predecessor:
            opening >> finish  # `wait_for_downstream` looks at a task's immediate successors alone

    def _draw_epochs(self, driving: EpochsOperator | None) -> list[EpochsOperator]:
        with TaskGroup(EPOCHS):
            if driving is None:
                return [self._draw_part(EpochsOperator, part) for part in self.slices]
            follows = {"driving_task_id": driving.task_id, "until_epoch": driving.end_epoch}
            return [self._draw_part(FollowEpochsOperator, part, **follows) for part in self.slices]

    def _draw_part(self, kind: type[EpochsOperator], part: Slice, **more: object) -> EpochsOperator:
        own: dict[str, Any] = {"doc": _describe(part), **self._shared, **more, **self.epoch_options}
        return kind(
            task_id=part.name,
            first_epoch=part.first_epoch,
            end_epoch=part.end_epoch,
            runner="connect" if self.run_epochs == "connect" else self.runner,
            conn_id=self._spark_conn_id,
            spark_conf=dict(self.spark_conf or {}),
            **own,
        )

    @property
    def _whole(self) -> Slice:
        return Slice(first_epoch=0, end_epoch=self.slices[-1].end_epoch, name=DRIVE)

    @property
    def _spark_conn_id(self) -> str:
        return self.conn_id or CONNECTIONS[self.run_epochs]

    @property
    def _shared(self) -> dict[str, Any]:  # Any: what the three operators take
        return {"reference": self.reference, "run_key": self.run_key, "store_conn_id": self.store_conn_id}


def iteration_asset(reference: str) -> Asset:
    """Return the asset that a run of this iteration updates when its outputs are published; schedule a DAG on it."""
    check_reference(reference)
    return Asset(name=reference, uri=f"iteration://{reference.replace(':', '/')}")


def check_reference(reference: object) -> None:
    """Raise UsageError for anything but the text `module:object`."""
    if not isinstance(reference, str):
        raise UsageError(
            f"a DAG takes the text 'module:object', not a {type(reference).__name__}: what a DAG file defines "
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


def _check_unmapped(task: OpenRunOperator) -> None:
    if task.get_closest_mapped_task_group() is not None:
        raise UsageError(
            f"{task.task_id!r} lies in a mapped task group, all of whose copies would drive one run; draw a group for "
            "each value in a loop of the DAG file, or expand a TriggerDagRunOperator for a DAG of the iteration's own"
        )


def plan_slices(params: Mapping[str, object], *, max_epochs: int | None, epochs_per_task: int) -> tuple[Slice, ...]:
    """Cut as many epochs into tasks as the longest run has; warns of a chain that is slow for its length."""
    slices = plan_chain(max_epochs=_longest_run(params, max_epochs), epochs_per_task=epochs_per_task)
    if len(slices) > ADVISED_TASKS:
        warnings.warn(
            f"{len(slices)} epoch tasks: every task's start parses all of them again; "
            f"with epochs_per_task={-(-len(slices) * epochs_per_task // ADVISED_TASKS)} there are {ADVISED_TASKS}",
            stacklevel=3,
        )
    return slices


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


def _describe(part: Slice) -> str:
    last = part.end_epoch - 1
    return f"Epoch {part.first_epoch}" if last == part.first_epoch else f"Epochs {part.first_epoch} to {last}"
