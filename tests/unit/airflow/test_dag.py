"""What `iteration_dag` draws, refuses and leaves alone."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import (
    AsyncCallback,
    DeadlineAlert,
    DeadlineReference,
    ExceptionRetryPolicy,
    Param,
    RetryAction,
    RetryRule,
    TriggerRule,
)
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from iteration_lib.airflow import StallAlert, iteration_dag
from iteration_lib.errors import UsageError
from iteration_lib.model.iteration import Iteration
from tests.printed import FIRST_DAG, program

pytestmark = pytest.mark.airflow

PARAMS: dict[str, Any] = {"input": "/data", "k": 10, "tolerance": 0.5, "exact": True, "max_epochs": 25}


def test_dag_is_a_chain_from_open_run_through_the_epochs_to_finish() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=10)

    assert {
        "open_run": {"epochs.e000"},
        "epochs.e000": {"epochs.e010"},
        "epochs.e010": {"epochs.e020"},
        "epochs.e020": {"finish"},
        "finish": set(),
    } == {task.task_id: task.downstream_task_ids for task in dag.tasks}
    assert "kmeans" == dag.dag_id
    assert TriggerRule.NONE_FAILED == dag.get_task("finish").trigger_rule
    assert ["my_team.kmeans:kmeans"] == [asset.name for asset in dag.get_task("finish").outlets]


def test_watched_chain_has_a_task_beside_it_that_drives_the_whole_run_and_finish_waits_for_both() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=10, run_epochs="watch")

    assert {
        "open_run": {"drive", "epochs.e000"},
        "drive": {"finish"},
        "epochs.e000": {"epochs.e010"},
        "epochs.e010": {"epochs.e020"},
        "epochs.e020": {"finish"},
        "finish": set(),
    } == {task.task_id: task.downstream_task_ids for task in dag.tasks}
    drive, following = dag.get_task("drive"), dag.get_task("epochs.e010")
    assert ((0, 30), (10, 20)) == tuple((task.first_epoch, task.end_epoch) for task in (drive, following))
    assert ("drive", 30) == (following.driving_task_id, following.until_epoch)
    assert TriggerRule.ALL_DONE == dag.get_task("finish").trigger_rule


def test_chain_on_a_connect_server_is_that_of_applications_through_a_connection_of_its_own() -> None:
    submitting = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=10)
    connecting = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=10, run_epochs="connect")

    drawn = [{task.task_id: task.downstream_task_ids for task in dag.tasks} for dag in (submitting, connecting)]
    assert drawn[0] == drawn[1]
    tasks = [dag.get_task("epochs.e010") for dag in (submitting, connecting)]
    assert [("spark", "spark_default"), ("connect", "spark_connect_default")] == [(t.runner, t.conn_id) for t in tasks]
    ending = [dag.get_task("finish").connect_conn_id for dag in (submitting, connecting)]
    assert [None, "spark_connect_default"] == ending


def test_epoch_task_skips_those_behind_it_and_never_finish() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=5)

    assert ["epochs.e015", "epochs.e020"] == dag.get_task("epochs.e010").later_epochs()


def test_params_are_typed_by_their_defaults() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=10)

    assert {
        "input": {"type": "string"},
        "k": {"type": "integer"},
        "tolerance": {"type": "number"},
        "exact": {"type": "boolean"},
        "max_epochs": {"type": "integer", "minimum": 1, "maximum": 30},
        "start_from": {"type": ["null", "string"]},
        "start_data": {"type": ["null", "string"], "pattern": "^(new|kept)?$", "examples": ["new", "kept"]},
    } == {name: dag.params.get_param(name).schema for name in dag.params}


def test_more_epochs_than_the_chain_has_are_refused_by_the_param() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=10)

    with pytest.raises(ParamValidationError, match="31 is greater than the maximum of 30"):
        dag.params["max_epochs"] = 31


def test_own_param_keeps_its_help_and_gets_the_chains_length() -> None:
    own = Param(5, type="integer", description="How long.", minimum=2)

    dag = iteration_dag("my_team.kmeans:kmeans", params={"max_epochs": own}, max_epochs=8)

    limited = dag.params.get_param("max_epochs")
    assert ("How long.", {"type": "integer", "minimum": 2, "maximum": 8}) == (limited.description, limited.schema)
    assert 8 == sum(task.task_id.startswith("epochs.") for task in dag.tasks)


def test_own_param_of_a_plain_parameter_keeps_its_help_and_its_schema_in_the_form() -> None:
    own = Param("cosine", type="string", enum=["cosine", "euclidean"], description="How far is far.")

    dag = iteration_dag("my_team.kmeans:kmeans", params={**PARAMS, "distance": own})

    read_back = DagSerialization.from_dict(DagSerialization.to_dict(dag)).params.get_param("distance")
    schema = {"type": "string", "enum": ["cosine", "euclidean"]}
    assert ("cosine", "How far is far.", schema) == (read_back.value, read_back.description, read_back.schema)
    with pytest.raises(ParamValidationError, match="'manhattan' is not one of"):
        dag.params["distance"] = "manhattan"


def test_help_that_the_first_page_writes_is_in_the_form(tmp_path: Path) -> None:
    file = tmp_path / "params.py"
    file.write_text(program(FIRST_DAG, "Param("))

    dag = iteration_dag("my_team.mean:mean", params=runpy.run_path(str(file))["params"])

    assert "Parquet with a column features" == dag.params.get_param("input").description


def test_max_epochs_alone_becomes_the_parameter() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", max_epochs=4)

    assert {"max_epochs": 4, "start_from": None, "start_data": None} == dag.params.dump()


def test_start_from_is_a_field_with_help_whose_default_is_the_dag_files() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", max_epochs=4, start_from="nightly@3")

    field = dag.params.get_param("start_from")
    opening = dag.get_task("open_run")
    assert ("nightly@3", "{{ params.start_from or '' }}") == (field.value, opening.start_from)
    assert str(field.description).startswith("Where the run starts from: RUN_KEY@CHECKPOINT, RUN_KEY")
    assert "{{ params.start_data or '' }}" == opening.start_data


@pytest.mark.parametrize("start_data", [None, "new", "kept"])
def test_start_data_is_a_field_whose_default_is_the_dag_files_and_takes_no_other_word(start_data: Any) -> None:
    """A schedule has no form: what its runs read is said in the file."""
    dag = iteration_dag("my_team.kmeans:kmeans", max_epochs=4, start_from="nightly@3", start_data=start_data)

    assert start_data == dag.params["start_data"]
    for said in ("new", "kept", "", None):
        dag.params["start_data"] = said
    with pytest.raises(ParamValidationError, match="'fresh' does not match"):
        dag.params["start_data"] = "fresh"


@pytest.mark.parametrize("start_from", [None, "nightly@3"])
def test_dag_run_waits_for_none_before_it_where_it_starts_from_none(start_from: str | None) -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", max_epochs=4, start_from=start_from)

    assert {False} == {task.depends_on_past or task.wait_for_downstream for task in dag.tasks}


def test_dag_run_that_starts_from_the_previous_one_waits_until_that_has_finished() -> None:
    """Airflow's `wait_for_downstream` looks at immediate successors, so `finish` is one."""
    dag = iteration_dag("my_team.kmeans:kmeans", max_epochs=4, start_from="previous")

    opening = dag.get_task("open_run")
    assert (True, True) == (opening.depends_on_past, opening.wait_for_downstream)
    assert {"epochs.e000", "finish"} == opening.downstream_task_ids
    assert ["open_run"] == [task.task_id for task in dag.tasks if task.depends_on_past]


def test_text_that_is_a_template_is_rendered_by_the_first_task_and_stays_a_field_of_the_form() -> None:
    dag = iteration_dag("my_team.kmeans:kmeans", params={**PARAMS, "input": "/data/{{ ds }}"})

    opening = dag.get_task("open_run")
    assert {"input": "/data/{{ ds }}"} == opening.run_params
    assert "/data/{{ ds }}" == dag.params["input"]
    assert {"run_params", "start_from", "start_data", "state_uri", "run_key", "store_conn_id"} == set(
        opening.template_fields
    )


def test_options_of_epochs_reach_their_tasks_alone() -> None:
    dag = iteration_dag(
        "my_team.kmeans:kmeans", max_epochs=2, epoch_options={"pool": "spark", "execution_timeout": timedelta(hours=1)}
    )

    assert {
        "open_run": ("default_pool", None),
        "epochs.e000": ("spark", timedelta(hours=1)),
        "epochs.e001": ("spark", timedelta(hours=1)),
        "finish": ("default_pool", None),
    } == {task.task_id: (task.pool, task.execution_timeout) for task in dag.tasks}


def test_dag_options_go_to_the_dag_and_default_args_win_over_ours() -> None:
    dag = iteration_dag(
        "my_team.kmeans:kmeans", max_epochs=2, dag_id="nightly", tags=["mine"], default_args={"retries": 7}
    )

    task = dag.get_task("epochs.e000")
    assert ("nightly", {"mine"}, 7, timedelta(seconds=10)) == (dag.dag_id, dag.tags, task.retries, task.retry_delay)


@pytest.mark.parametrize(
    ("reference", "options", "message"),
    [
        (Iteration("mine"), {"max_epochs": 3}, "takes the text 'module:object', not a Iteration: .*my_team/kmeans.py"),
        ("my_team.kmeans", {"max_epochs": 3}, "'my_team.kmeans' is no 'module:object'"),
        ("my_team.kmeans:", {"max_epochs": 3}, "is no 'module:object'"),
        ("my_team.kmeans:kmeans", {}, "max_epochs is None; give"),
        ("my_team.kmeans:kmeans", {"params": {"max_epochs": "9"}}, "max_epochs is '9'; give"),
        ("my_team.kmeans:kmeans", {"max_epochs": 3, "params": {"max_epochs": 4}}, "tasks for 3 epochs only"),
        ("my_team.kmeans:kmeans", {"max_epochs": 3, "params": {"input": [1]}}, "parameter 'input' is a list"),
        (
            "my_team.kmeans:kmeans",
            {"max_epochs": 3, "params": {"start_from": 4}},
            "'start_from' says how a run starts",
        ),
        (
            "my_team.kmeans:kmeans",
            {"max_epochs": 3, "params": {"start_data": "x"}},
            "'start_data' says how a run starts",
        ),
        (
            "my_team.kmeans:kmeans",
            {"max_epochs": 3, "start_data": "fresh"},
            "start_data is 'fresh'; choose new or kept, or leave it out",
        ),
        ("my_team.kmeans:kmeans", {"max_epochs": 3, "epochs_per_task": 0}, "epochs_per_task is 0"),
        (
            "my_team.kmeans:kmeans",
            {"max_epochs": 3, "run_epochs": "look"},
            "run_epochs is 'look'; choose one of submit",
        ),
    ],
)
def test_mistake_in_a_dag_file_gets_one_sentence(reference: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        iteration_dag(reference, **options)


def test_long_chain_warns_with_the_number_that_shortens_it() -> None:
    with pytest.warns(UserWarning, match="250 epoch tasks.*epochs_per_task=3"):
        iteration_dag("my_team.kmeans:kmeans", max_epochs=250)


def test_dag_is_the_same_bytes_at_every_parse() -> None:
    def parse() -> str:
        dag = iteration_dag("my_team.kmeans:kmeans", params=PARAMS, epochs_per_task=5, tags=["b", "a"])
        return json.dumps(DagSerialization.to_dict(dag))

    assert 1 == len({parse() for _ in range(100)})


PARSE = """
import json, runpy, sys
import airflow.sdk
from airflow.serialization.serialized_objects import DagSerialization

touched, dags = set(), set()
sys.addaudithook(lambda event, _: touched.add(event) if event.startswith(("socket.", "subprocess.")) else None)
for _ in range(100):
    dag = runpy.run_path("dags/kmeans_digits.py")["dag"]
    dags.add(json.dumps(DagSerialization.to_dict(dag), sort_keys=True))
print(len(dags), sorted(touched), sorted({"pyspark", "psycopg2", "iteration_lib.store"} & set(sys.modules)))
"""


def test_dag_file_parses_a_hundred_times_to_the_same_bytes_and_touches_neither_spark_nor_postgres_nor_the_network() -> (
    None
):
    assert "1 [] []" == _run(PARSE).strip().splitlines()[-1]


def told(context: object) -> None:
    """Stand for a callback."""


def test_callbacks_deadlines_and_retry_policies_go_to_airflow() -> None:
    deadline = DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, timedelta(hours=6), AsyncCallback("my_team.page"))
    stall = StallAlert(interval=timedelta(minutes=5), callback=told)
    policy = ExceptionRetryPolicy(rules=[RetryRule(exception=ValueError, action=RetryAction.FAIL)])

    dag = iteration_dag(
        "my_team.kmeans:kmeans",
        max_epochs=1,
        deadline=deadline,
        on_failure_callback=told,
        epoch_options={"on_success_callback": told, "stall_alert": stall},
        default_args={"retry_policy": policy},
    )

    task = dag.get_task("epochs.e000")
    assert ([deadline], told) == (dag.deadline, dag.on_failure_callback)
    assert ([told], stall) == (list(task.on_success_callback), task.stall_alert)
    assert [policy] * 3 == [task.retry_policy for task in dag.tasks]


def test_dag_is_the_same_bytes_in_processes_with_other_hash_seeds() -> None:
    program = (
        "import json; from iteration_lib.airflow import iteration_dag;"
        "from airflow.serialization.serialized_objects import DagSerialization;"
        "dag = iteration_dag('a.b:c', max_epochs=9, tags=['b', 'a', 'c']);"
        "print(json.dumps(DagSerialization.to_dict(dag), sort_keys=True))"  # Airflow sorts keys before it digests
    )

    answers = {_run(program, PYTHONHASHSEED=seed) for seed in ("1", "2")}

    assert 1 == len(answers)


def test_parsing_a_dag_imports_neither_the_iteration_nor_spark_nor_a_database_driver() -> None:
    program = (
        "import airflow.sdk, sys; airflow.sdk.DAG, airflow.sdk.BaseOperator; before = set(sys.modules);"
        "from iteration_lib.airflow import iteration_dag; iteration_dag('no_such.module:thing', max_epochs=9);"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - {'airflow', 'croniter'}))"
    )

    assert "['iteration_lib']" == _run(program).strip().splitlines()[-1]


LINEAGE_DEFAULTS = """
from inspect import signature
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from iteration_lib.airflow.operators import EpochsOperator

names = ["openlineage_inject_parent_job_info", "openlineage_inject_transport_info"]
print([[signature(kind).parameters[name].default for name in names] for kind in (EpochsOperator, SparkSubmitOperator)])
"""


@pytest.mark.parametrize(
    ("configured", "defaults"),
    [("SPARK_INJECT_PARENT_JOB_INFO", [True, False]), ("SPARK_INJECT_TRANSPORT_INFO", [False, True])],
)
def test_epochs_tasks_tell_openlineage_by_default_what_the_providers_own_submit_operator_does(
    configured: str, defaults: list[bool]
) -> None:
    said = _run(LINEAGE_DEFAULTS, **{f"AIRFLOW__OPENLINEAGE__{configured}": "True"})

    assert str([defaults, defaults]) == said.strip().splitlines()[-1]


def test_epoch_options_say_what_openlineage_is_told() -> None:
    dag = iteration_dag(
        "my_team.kmeans:kmeans",
        params=PARAMS,
        epochs_per_task=25,
        run_epochs="watch",
        epoch_options={"openlineage_inject_transport_info": True},
        default_args={"openlineage_inject_parent_job_info": True},
    )

    epochs = [dag.get_task(task_id) for task_id in ("drive", "epochs.e000")]

    asked = [(task.openlineage_inject_parent_job_info, task.openlineage_inject_transport_info) for task in epochs]
    assert [(True, True), (True, True)] == asked


def _run(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    ).stdout
