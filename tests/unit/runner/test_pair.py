"""What happens to the two halves of what a function that carries state returns?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iteration_lib.errors import OperatorFailedError, OperatorResultError, SchemaMismatchError
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.operator import Function, Operator, Pair
from iteration_lib.runner.calling import call_on_blocks, check_one_schema
from iteration_lib.runner.remote_error import dump_error, load_error
from iteration_lib.state.block import batch_of

NO_STATE = batch_of({})


def operators_of(function: Function) -> dict[Pair, Operator]:
    """Return the call of a function that carries state, and its halves."""
    iteration = Iteration("remembering")

    @iteration.variable
    def value() -> None: ...

    iteration.feedback(value=iteration.operator(operator_id="op", state="carry")(function))
    return {operator.pair: operator for operator in iteration.graph().operators if operator.pair is not None}


def call(function: Function, state: pa.RecordBatch = NO_STATE) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Call a function with a value of three rows and a state, and return both halves."""
    operators = operators_of(function)
    inputs = {"value": batch_of({"x": np.arange(3.0)}), f"{function.__name__}.state": state}
    pair = call_on_blocks(operators[Pair.CALL], inputs, {"epoch": 4})
    taken = {f"{function.__name__}.call": through_a_file(pair)}
    return call_on_blocks(operators[Pair.RESULT], taken, {}), call_on_blocks(operators[Pair.STATE], taken, {})


def through_a_file(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return what an Arrow file gives back, where other batches lie before this one."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    found: pa.RecordBatch = pa.ipc.open_file(pa.BufferReader(sink.getvalue())).get_batch(1)
    return found


@pytest.mark.parametrize(
    "half",
    [
        {"x": np.arange(3), "at": np.arange(12.0).reshape(3, 2, 2), "name": np.array(["a", "b", "c"])},
        {"x": np.zeros(0), "at": np.zeros((0, 4))},
        {"day": np.array(["2024-02-29"], "datetime64[s]"), "ok": np.array([True]), "raw": np.array([b"\0"], object)},
        {},
    ],
    ids=["rows", "no rows", "other types", "no columns"],
)
def test_both_halves_come_back_to_the_bit(half: dict[str, Any]) -> None:
    def doubled(value: Any, state: Any) -> Any:
        return half, half

    expected = batch_of(half)

    for found in call(doubled):
        assert expected.equals(found, check_metadata=True)


def test_state_is_none_at_first_and_then_what_the_function_returned() -> None:
    seen = []

    def counted(value: Any, state: Any) -> Any:
        seen.append(state if state is None else state["n"].tolist())
        return value, {"n": np.arange(len(seen))}

    _, state = call(counted)
    _, state = call(counted, state)
    call(counted, state)

    assert [None, [0], [0, 1]] == seen


def test_state_without_rows_is_a_state() -> None:
    seen = []

    def emptied(value: Any, state: Any) -> Any:
        seen.append(state)
        return value, {"n": np.zeros(0)}

    call(emptied, batch_of({"n": np.zeros(0)}))

    assert [{"n": []}] == [{name: column.tolist() for name, column in state.items()} for state in seen]


def test_function_may_return_no_state_until_it_has_one() -> None:
    def forgetful(value: Any, state: Any) -> Any:
        return None, None

    result, state = call(forgetful)

    assert (0, 0, 0) == (result.num_rows, result.num_columns, state.num_columns)


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ({"n": np.zeros(2, int)}, "n: int64"),
        ({"m": np.zeros(2)}, "m: double"),
        ({"n": np.zeros((2, 2))}, "n: fixed_size_list<double>[2]"),
        (None, "no columns"),
    ],
)
def test_state_keeps_its_columns_after_the_first_epoch(after: Any, shown: str) -> None:
    def changed(value: Any, state: Any) -> Any:
        return value, after

    with pytest.raises(SchemaMismatchError) as caught:
        call(changed, batch_of({"n": np.zeros(1)}))

    sentence = str(load_error(dump_error(caught.value)))  # as it comes back from an executor
    assert sentence.startswith(f"operator 'op' feeds back ({shown}), but its variable 'state' is (n: double); return")


@pytest.mark.parametrize("returned", [None, {"x": np.zeros(1)}, (np.zeros(1),), [1, 2], (1, 2, 3)])
def test_result_that_is_no_pair_is_refused(returned: Any) -> None:
    def single(value: Any, state: Any) -> Any:
        return returned

    with pytest.raises(OperatorResultError) as caught:
        call(single)

    assert f"operator 'op' carries state, but returned a {type(returned).__name__}; return (result, new state)" == str(
        caught.value
    )


@pytest.mark.parametrize("returned", [({"x": object()}, None), (None, {"x": object()})])
def test_half_that_no_stream_can_hold_is_refused_by_the_operators_id(returned: Any) -> None:
    def odd(value: Any, state: Any) -> Any:
        return returned

    with pytest.raises(OperatorResultError, match="operator 'op' returned what no stream can hold: column 'x'"):
        call(odd)


def test_error_of_the_function_names_its_operator_and_epoch() -> None:
    def failing(value: Any, state: Any) -> Any:
        raise ValueError("boom")

    with pytest.raises(OperatorFailedError, match="operator 'op' failed in epoch 4: ValueError: boom"):
        call(failing)


def test_other_columns_for_another_bucket_are_named_by_half() -> None:
    states = iter([{"n": np.zeros(1)}, None])

    def half(value: Any, state: Any) -> Any:
        return value, next(states)

    operator = operators_of(half)[Pair.CALL]
    inputs = {"value": batch_of({"x": np.zeros(1)}), "half.state": NO_STATE}
    schemas = {bucket: call_on_blocks(operator, inputs, {}).schema for bucket in (2, 5)}

    with pytest.raises(OperatorResultError) as caught:
        check_one_schema("op", schemas)

    assert (
        "operator 'op' returned (result: (x: double), state: (no columns)) for bucket 5, but (result: (x: double), "
        "state: (n: double)) for bucket 2; return the same columns for every bucket, also for one without rows"
    ) == str(caught.value)
