"""What does a task group of an iteration add to a larger DAG?"""

from __future__ import annotations

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup, task_group

from iteration_lib.airflow import iteration_task_group
from iteration_lib.errors import UsageError

pytestmark = pytest.mark.airflow


def test_group_lies_between_other_tasks_and_only_its_finish_leads_on() -> None:
    with DAG("nightly", schedule=None) as dag:
        before, after = EmptyOperator(task_id="extract"), EmptyOperator(task_id="report")
        before >> iteration_task_group("train", "my_team.kmeans:kmeans", max_epochs=2) >> after

    assert {
        "extract": {"train.open_run"},
        "train.open_run": {"train.epochs.e000"},
        "train.epochs.e000": {"train.epochs.e001"},
        "train.epochs.e001": {"train.finish"},
        "train.finish": {"report"},
        "report": set(),
    } == {task.task_id: task.downstream_task_ids for task in dag.tasks}


def test_two_groups_of_a_dag_have_a_run_each_and_skip_their_own_epochs_alone() -> None:
    with DAG("nightly", schedule=None) as dag:
        first = iteration_task_group("coarse", "my_team.kmeans:kmeans", max_epochs=3)
        first >> iteration_task_group("fine", "my_team.kmeans:kmeans", max_epochs=3)

    assert ["{{ dag.dag_id }}/{{ run_id }}/coarse", "{{ dag.dag_id }}/{{ run_id }}/fine"] == [
        dag.get_task(f"{group}.open_run").run_key for group in ("coarse", "fine")
    ]
    assert ["coarse.epochs.e002"] == dag.get_task("coarse.epochs.e001").later_epochs()


def test_groups_of_one_name_in_two_other_groups_have_a_run_each() -> None:
    with DAG("nightly", schedule=None) as dag:
        for outer in ("north", "south"):
            with TaskGroup(outer):
                iteration_task_group("fit", "my_team.kmeans:kmeans", max_epochs=1)

    assert ["{{ dag.dag_id }}/{{ run_id }}/north.fit", "{{ dag.dag_id }}/{{ run_id }}/south.fit"] == [
        dag.get_task(f"{group}.open_run").run_key for group in ("north.fit", "south.fit")
    ]


def test_group_in_a_mapped_one_is_refused_with_what_to_do_instead() -> None:
    @task_group
    def outer(k: int) -> None:
        with TaskGroup("inner"):
            iteration_task_group("fit", "my_team.kmeans:kmeans", params={"k": k}, max_epochs=1)

    with (
        DAG("nightly", schedule=None),
        pytest.raises(UsageError, match=r"'outer\.inner\.fit\.open_run' lies in a mapped task group.* in a loop of"),
    ):
        outer.expand(k=[1, 2])


def test_all_that_the_run_gets_is_the_groups_and_a_field_of_the_form_is_a_template() -> None:
    with DAG("nightly", schedule=None, params={"k": 3}) as dag:
        iteration_task_group(
            "train",
            "a.b:c",
            params={"k": "{{ params.k }}", "scale": 0.5},
            max_epochs=5,
            start_from="previous",
            start_data="kept",
        )

    opening = dag.get_task("train.open_run")
    assert (False, "previous", "kept", {"k": "{{ params.k }}", "scale": 0.5, "max_epochs": 5}) == (
        opening.has_form,
        opening.start_from,
        opening.start_data,
        opening.run_params,
    )
    assert {"train.epochs.e000", "train.finish"} == opening.downstream_task_ids
    assert {"k": 3} == dag.params.dump()


def test_options_of_the_group_reach_its_tasks() -> None:
    with DAG("nightly", schedule=None, default_args={"owner": "ann", "retries": 1}) as dag:
        iteration_task_group(
            "train", "a.b:c", max_epochs=1, default_args={"retries": 5}, epoch_options={"pool": "spark"}
        )

    assert {
        "train.open_run": ("ann", 5, "default_pool"),
        "train.epochs.e000": ("ann", 5, "spark"),
        "train.finish": ("ann", 5, "default_pool"),
    } == {task.task_id: (task.owner, task.retries, task.pool) for task in dag.tasks}


def test_group_that_watches_follows_its_own_driving_task() -> None:
    with DAG("nightly", schedule=None) as dag:
        iteration_task_group("train", "a.b:c", max_epochs=2, run_epochs="watch")

    assert "train.drive" == dag.get_task("train.epochs.e001").driving_task_id
