"""How does one stream hold both halves of what a function that carries state returned?

A *pair* is a batch of one row and two columns, `result` and `state`: each holds all rows of its half, as one list of
structs whose fields are the columns. Nothing is copied either way, and a file of pairs can be read by anything that
reads Arrow. A half without columns is no state, or a result without records.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from iteration_lib.errors import OperatorResultError, SchemaMismatchError
from iteration_lib.model.operator import Operator, Pair, StateScope
from iteration_lib.state.block import Block, batch_of_result, block_of, describe_schema

STATE = StateScope.CARRY.parameter


def split_inputs(
    operator: Operator, inputs: Mapping[str, pa.RecordBatch]
) -> tuple[dict[str, pa.RecordBatch], pa.RecordBatch]:
    """Return (what a call takes beside its state, its state)."""
    *taken, state = operator.inputs
    return {name: inputs[name] for name in taken}, inputs[state]


def state_block(state: pa.RecordBatch) -> Block | None:
    """Return a state as the function takes it: None where there is none yet."""
    return block_of(state) if has_state(state) else None


def has_state(state: pa.RecordBatch) -> bool:
    """Tell whether the function has returned a state before."""
    return bool(state.num_columns)


def pair_of(returned: object, *, operator: Operator, before: pa.RecordBatch) -> pa.RecordBatch:
    """Return what a call returned as one batch.

    Raises OperatorResultError for what is no pair or no block, SchemaMismatchError for a state that has other columns
    than the one before it.
    """
    if not isinstance(returned, tuple) or len(returned) != 2:  # noqa: PLR2004 - a pair
        raise OperatorResultError(
            operator_id=operator.operator_id,
            problem=f"carries state, but returned a {type(returned).__name__}; return (result, new state)",
        )
    result, state = (batch_of_result(half, operator_id=operator.operator_id) for half in returned)
    if has_state(before) and not state.schema.equals(before.schema, check_metadata=True):
        raise SchemaMismatchError(
            variable=STATE,
            operator_id=operator.operator_id,
            expected=describe_schema(before.schema),
            found=describe_schema(state.schema),
        )
    names = [half.value for half in _HALVES]
    return pa.RecordBatch.from_arrays([_packed(result), _packed(state)], names=names).replace_schema_metadata(_MARK)


def half_of(pair: pa.RecordBatch, half: Pair) -> pa.RecordBatch:
    """Return one half of a pair."""
    return pa.RecordBatch.from_struct_array(pair.column(_HALVES.index(half)).flatten())


def describe_result(schema: pa.Schema) -> str:
    """Return the columns and their types of what an operator returned, those of each half where it is a pair."""
    if (schema.metadata or {}) != _MARK:
        return describe_schema(schema)
    return ", ".join(f"{field.name}: ({describe_schema(pa.schema(field.type.value_type))})" for field in schema)


_HALVES = (Pair.RESULT, Pair.STATE)
_MARK = {b"iteration.pair": b"1"}


def _packed(batch: pa.RecordBatch) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array([0, batch.num_rows], pa.int64()), batch.to_struct_array())
