"""What does an operator's function find when it is called?"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from iteration_lib.errors import InputError, MetricError, OperatorFailedError, OperatorResultError
from iteration_lib.model.bucket import Bucket
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Kind, Operator, Role, parameters_of
from iteration_lib.runner.calling import call_on_blocks, check_one_schema, generator, injectable, one_thread
from iteration_lib.runner.remote_error import dump_error, load_error
from iteration_lib.state.block import batch_of, block_of


def operator_of(function: Any, operator_id: str = "op") -> Operator:
    inputs, injected = parameters_of(function)
    return Operator(
        operator_id=operator_id,
        name=function.__name__,
        role=Role.OPERATOR,
        kind=Kind.VALUE,
        function=function,
        inputs=inputs,
        injected=injected,
    )


@dataclass
class Seeded:
    seed: int | None = None


def test_operator_gets_its_inputs_as_arrays_and_what_it_asks_for_by_name() -> None:
    def add(points: Any, params: Any, epoch: int) -> Any:
        return {"x": points["x"] + params.seed + epoch}

    operator = operator_of(add)

    result = call_on_blocks(
        operator, {"points": batch_of({"x": np.arange(3)})}, injectable(operator, params=Seeded(10), epoch=5)
    )

    assert [15, 16, 17] == block_of(result)["x"].tolist()


def test_numerical_libraries_have_one_thread_while_an_operator_runs() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))  # a library that was never used has no threads to count

    with one_thread():
        found = [library["num_threads"] for library in threadpool_info()]

    assert found
    assert {1} == set(found)


def test_library_that_an_operator_loads_has_one_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that goes on with a run it is loaded in another epoch."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    load = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])"

    with one_thread():
        found = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True).stdout.split()

    assert ["1", "1"] == found
    assert "4" == os.environ["OMP_NUM_THREADS"]


def test_verdict_on_a_call_passes_and_any_other_error_names_the_operator() -> None:
    def refuse() -> None:
        raise InputError("column 'x' holds NaN")

    def measure(metrics: Metrics) -> None:
        metrics.report("loss", np.nan)

    def fail() -> None:
        raise ValueError("boom")

    with pytest.raises(InputError, match="holds NaN"):
        call_on_blocks(operator_of(refuse), {}, {})
    with pytest.raises(MetricError, match="operator 'op' reported the metric 'loss'"):
        call_on_blocks(operator_of(measure), {}, {"metrics": Metrics(operator_id="op")})
    with pytest.raises(OperatorFailedError, match="operator 'op' failed in epoch 3: ValueError: boom"):
        call_on_blocks(operator_of(fail), {}, {"epoch": 3})


def test_random_numbers_are_equal_for_equal_identity_and_differ_otherwise() -> None:
    def draw(operator_id: str, seed: int | None, epoch: int | None, bucket: int | None) -> float:
        found = Bucket(index=bucket, count=9) if bucket is not None else None
        operator = operator_of(lambda: None, operator_id)
        return float(generator(operator, params=Seeded(seed), epoch=epoch, bucket=found).random())

    identities = [("a", 1, 0, 0), ("b", 1, 0, 0), ("a", 2, 0, 0), ("a", -1, 0, 0), ("a", 1, 1, 0), ("a", 1, None, 0)]
    identities += [("a", 1, 0, 1), ("a", 1, 0, None), ("a", 1, None, None)]

    drawn = [draw(*identity) for identity in identities]

    assert drawn == [draw(*identity) for identity in identities]
    assert len(drawn) == len(set(drawn))
    assert draw("a", None, 0, 0) == draw("a", 0, 0, 0)


@pytest.mark.parametrize("other", [{"x": np.zeros(1, int)}, {"y": np.zeros(1)}, {"x": np.zeros((1, 4, 1))}])
def test_other_columns_for_another_bucket_are_refused(other: dict[str, Any]) -> None:
    flat, same = batch_of({"x": np.zeros((1, 2, 2))}).schema, batch_of({"x": np.zeros((7, 2, 2))}).schema

    check_one_schema("op", {0: flat, 1: same})
    with pytest.raises(OperatorResultError, match=r"for bucket 4, but .* for bucket 2"):
        check_one_schema("op", {2: flat, 4: batch_of(other).schema})


def test_error_travels_as_text_and_stays_what_it_is() -> None:
    sent = OperatorFailedError(operator_id="op", epoch=3, cause="by zero")
    sent.__cause__ = ZeroDivisionError("by zero")

    found = load_error(dump_error(sent))

    assert isinstance(found, OperatorFailedError)
    assert (str(sent), "op", 3, 1) == (str(found), found.operator_id, found.epoch, found.exit_code)
    assert "ZeroDivisionError: by zero" in str(found.__cause__)
