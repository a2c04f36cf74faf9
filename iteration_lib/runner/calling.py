"""How is one operator's function called, and what happens to what it returns or raises?

The same for every runner and on every machine: inputs arrive as blocks, the result leaves as a record batch. While it
runs, BLAS and OpenMP use one thread: how many share a sum decides its rounding, and a run has to give the same bits on
a machine with other cores. Cores are used by running buckets side by side.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it has no annotations

from iteration_lib.errors import InputError, OperatorError, OperatorFailedError, OperatorResultError, say
from iteration_lib.interrupt import RAISED_BY_USERS, ToldToEnd
from iteration_lib.model.bucket import Bucket
from iteration_lib.model.operator import Operator, Pair
from iteration_lib.runner.pair import STATE, describe_result, half_of, pair_of, split_inputs, state_block
from iteration_lib.state.block import batch_of_result, block_of

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # what they read when they are loaded


def call_on_blocks(
    operator: Operator, inputs: Mapping[str, pa.RecordBatch], injected: Mapping[str, object]
) -> pa.RecordBatch:
    """Call an operator with blocks and return its result as a batch; with state, a pair of both (see `pair`).

    Raises OperatorFailedError with the user's exception chained, OperatorResultError, SchemaMismatchError for a state
    that has other columns than before, or the InputError or MetricError that the function itself raised.
    """
    if operator.pair is Pair.RESULT or operator.pair is Pair.STATE:
        (pair,) = inputs.values()
        return half_of(pair, operator.pair)
    if operator.pair is Pair.CALL:
        taken, before = split_inputs(operator, inputs)
        returned = _call(operator, taken, injected, state=before)
        return pair_of(returned, operator=operator, before=before)
    return batch_of_result(_call(operator, inputs, injected), operator_id=operator.operator_id)


def _call(
    operator: Operator,
    inputs: Mapping[str, pa.RecordBatch],
    injected: Mapping[str, object],
    *,
    state: pa.RecordBatch | None = None,
) -> object:
    with user_errors(operator, injected.get("epoch")):
        arguments: dict[str, object] = {name: block_of(batch) for name, batch in inputs.items()}
        arguments |= {name: injected[name] for name in operator.injected}
        if state is not None:
            arguments[STATE] = state_block(state)
        return operator.function(**arguments)


def call_source(operator: Operator, params: object) -> object:
    """Return what a data stream that needs no Spark reads from; raises OperatorFailedError for what it raises."""
    with user_errors(operator, None):
        return operator.function(**({"params": params} if "params" in operator.injected else {}))


def check_one_schema(operator_id: str, schemas: Mapping[int, pa.Schema]) -> None:
    """Check that an operator returned the same columns for each of these buckets; raises OperatorResultError."""
    first = min(schemas)
    for bucket, schema in schemas.items():
        if not schema.equals(schemas[first], check_metadata=True):
            raise OperatorResultError(
                operator_id=operator_id,
                problem=f"returned ({describe_result(schema)}) for bucket {bucket}, but "
                f"({describe_result(schemas[first])}) for bucket {first}; return the same columns for every bucket, "
                "also for one without rows",
            )


@contextmanager
def user_errors(
    operator: Operator, epoch: object, *, passes: Callable[[BaseException], bool] = lambda _: False
) -> Iterator[None]:
    """Turn what a user's function raises into OperatorFailedError, but for verdicts on this very call.

    Those are InputError, which is there for it to raise, and errors that blame its operator and no epoch yet. What else
    this project raises in it tells of another run, which it drives or reads, and whose operators may have the same ids:
    it must not be taken for what has become of this one. What `passes` takes for somebody else's is not touched.
    """
    try:
        yield
    except (InputError, ToldToEnd):
        raise
    except RAISED_BY_USERS as err:  # the border to the user's code: whatever it raises
        if _is_verdict(err, operator) or passes(err):
            raise
        number = epoch if isinstance(epoch, int) else None
        raise OperatorFailedError(operator_id=operator.operator_id, epoch=number, cause=say(err)) from err


def _is_verdict(err: BaseException, operator: Operator) -> bool:
    """Tell whether what an operator was given for its call has refused what it was told: a metric, for one."""
    if not isinstance(err, OperatorError) or isinstance(err, OperatorFailedError):
        return False
    return (err.operator_id, err.epoch) == (operator.operator_id, None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep numerical libraries to one thread inside the block, those too that it loads."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        with _thread_pools(len(sys.modules)).limit(limits=1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@functools.lru_cache(maxsize=1)
def _thread_pools(_modules: int) -> ThreadpoolController:
    """Return the control of the pools that are loaded; looking for them takes milliseconds, so only after imports."""
    return ThreadpoolController()


def injectable(
    operator: Operator, *, params: object, epoch: int | None, bucket: Bucket | None = None
) -> dict[str, object]:
    """Return what every operator may ask for by name; `metrics`, `scratch` and `spark` are their runner's to add."""
    found: dict[str, object] = {"params": params, "epoch": epoch, "bucket": bucket}
    if "rng" in operator.injected:
        found["rng"] = generator(operator, params=params, epoch=epoch, bucket=bucket)
    return found


def generator(operator: Operator, *, params: object, epoch: int | None, bucket: Bucket | None) -> np.random.Generator:
    """Return the random numbers of one call: equal for equal (seed parameter, operator, epoch, bucket)."""
    seed = getattr(params, "seed", None)
    identity = hashlib.sha256(operator.operator_id.encode()).digest()
    entropy = [
        (seed if isinstance(seed, int) else 0) % 2**64,
        int.from_bytes(identity[:8], "little"),
        0 if epoch is None else epoch + 1,
        0 if bucket is None else bucket.index + 1,
    ]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
