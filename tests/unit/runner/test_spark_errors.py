"""Is a loss told from a failure by what Spark says of it, in the words in which it does?"""

from __future__ import annotations

import socket

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from iteration_lib.errors import ExecutionLostError, IterationError, OperatorFailedError, StateLocationError
from iteration_lib.model.operator import Kind
from iteration_lib.runner.remote_error import PassingError
from iteration_lib.runner.spark_errors import spark_errors
from tests.runner_cases import given_back, operator_of

JAVA = (
    "An error occurred while calling o75.getResult.\n: org.apache.spark.SparkException: Exception thrown in awaitResult"
)
TASK = (
    f"{JAVA}\nCaused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 5.0 failed"
)
LOST_TASK = f"{TASK} 4 times, most recent failure: Lost task 0.3 in stage 5.0 (TID 7) (10.0.0.7 executor 3)"
STAGE = "Job aborted due to stage failure: ShuffleMapStage 3 has failed the maximum allowable number of times: 4."
PYTHON = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File ..., line 1, in f"


def raised_for(said: str) -> Exception:
    to_be_raised = pytest.raises((ExecutionLostError, OperatorFailedError))
    with to_be_raised as caught, spark_errors(operator_of(given_back, Kind.FRAME), 3):
        raise PySparkException(said)
    return caught.value


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        (
            f"{JAVA}\nCaused by: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 0 cancelled",
            "job was cancelled",
        ),
        ("(org.apache.spark.SparkSQLException) [OPERATION_CANCELED] Operation has been canceled.", "job was cancelled"),
        (f"{JAVA}\nCaused by: Job 9 cancelled because SparkContext was shut down\n\tat org", "Spark was stopped"),
        (": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", "Spark was stopped"),
        (f"{LOST_TASK}: ExecutorLostFailure (executor 3 exited caused by one of the", "lost executors"),
        (
            f"{LOST_TASK}: org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint",
            "lost the blocks",
        ),
        (
            f"{TASK} (TID 7) ([2001:db8::1] executor 3): [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint",
            "lost the blocks",
        ),
        (
            f"{STAGE} Most recent failure reason: Stage failed, barrier.\nExecutorLostFailure (executor 1",
            "lost executors",
        ),
        (f"{LOST_TASK}: FetchFailed(BlockManagerId(3, 10.0.0.7, 7337, None), shuffleId=0", "lost the shuffle files"),
        (
            f"{STAGE} Most recent failure reason:\norg.apache.spark.shuffle.MetadataFetchFailedException",
            "lost the shuffle",
        ),
        (
            "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE",
            "Connect server is gone",
        ),
        ("[INVALID_HANDLE.SESSION_CLOSED] The handle 7 is invalid. Session was closed.", "Connect session is gone"),
    ],
)
def test_loss_is_no_failure_of_the_operator(said: str, lost: str) -> None:
    err = raised_for(said)

    assert isinstance(err, ExecutionLostError)
    assert lost in err.what


@pytest.mark.parametrize(
    "said",
    [
        "[UNRESOLVED_COLUMN] A column with name `INTERRUPTED_AT` cannot be resolved.\n'Project ['INTERRUPTED_AT]",
        "[UNRESOLVED_COLUMN] A column with name `INVALID_HANDLE` cannot be resolved.\n'Project ['INVALID_HANDLE]",
        "[USER_RAISED_EXCEPTION] [INTERRUPTED] by hand, FetchFailed, ExecutorLostFailure SQLSTATE: P0001",
        f"{PYTHON}\nValueError: the sensor was INTERRUPTED",
        f"{PYTHON}\nValueError:\n[INTERRUPTED]\n(host executor 1): ExecutorLostFailure (",
    ],
)
def test_users_own_words_are_no_loss(said: str) -> None:
    err = raised_for(said)

    assert isinstance(err, OperatorFailedError)
    assert ("given_back", 3) == (err.operator_id, err.epoch)


@pytest.mark.parametrize("worker", ["worker:\n", "worker. See below.\n[PYTHON_EXCEPTION] An exception was thrown: "])
def test_cause_is_what_the_tasks_python_raised(worker: str) -> None:
    """Spark Connect begins a traceback behind something else."""
    traceback = (
        "Traceback (most recent call last):\n  File ..., line 1, in f\nValueError: no such row\n SQLSTATE: 38000"
    )

    err = raised_for(f"An exception was thrown from the Python {worker}{traceback}")

    assert "failed in epoch 3: ValueError: no such row;" in str(err)


def test_error_of_a_task_that_may_pass_is_one_that_may_pass_where_spark_has_cut_it() -> None:
    told = f"{PYTHON}\n{PassingError.__module__}.PassingError: {PassingError(StateLocationError('s3://x', 'is away'))}"

    for said in (told, *(told[: told.index(last)] + "..." for last in ("traceback", "message", ": {"))):
        with pytest.raises(IterationError) as caught, spark_errors(operator_of(given_back, Kind.FRAME), 3):
            raise PySparkException(said)

        assert isinstance(caught.value, StateLocationError if said == told else ExecutionLostError)


@pytest.mark.parametrize(
    "said",
    [
        "An error occurred while calling o7.cube",
        "An error occurred while calling o7.cube. Trace:\npy4j.Py4JException: Target Object ID does not exist for this",
    ],
)
def test_answer_of_no_jvm_or_of_another_one_is_a_loss(said: str) -> None:
    with pytest.raises(ExecutionLostError, match="JVM is gone"), spark_errors(operator_of(given_back, Kind.FRAME), 3):
        raise Py4JError(said)


def ask_for_what_is_not_there() -> None:
    try:
        socket.create_connection(("127.0.0.1", 1), timeout=1)
    except ConnectionError:
        raise PySparkException("[UNRESOLVED_COLUMN] A column cannot be resolved") from None


def test_error_of_pyspark_behind_a_lost_connection_of_the_users_is_the_operators() -> None:
    with pytest.raises(OperatorFailedError), spark_errors(operator_of(given_back, Kind.FRAME), 3):
        ask_for_what_is_not_there()
