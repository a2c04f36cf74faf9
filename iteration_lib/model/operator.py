"""What is one operator of an iteration?

An operator is a plain function. Its parameters are its wiring: each names another operator, a data stream or a
variable, or one of the INJECTED names below. What the function works on is its kind:

    VALUE    the whole stream at once, in the driver: a block (a dict of numpy arrays of one length, the columns)
    BUCKETS  one bucket of a stream at a time, where Spark's executors are: a block in, a block out
    FRAME    a lazy DataFrame (Spark only)

A stream is a table. A bucketed stream is a table cut into `max_buckets` buckets; that number is fixed when a run
starts, so that a result does not depend on how many subtasks share the buckets.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# What a user's function takes and returns is the user's business: its types are checked when it runs.
Function = Callable[..., Any]

# params: the run's parameters. epoch: int, from 0. metrics: `.report(name, number)`. rng: a numpy Generator seeded by
# the run's `seed` parameter, the operator, the epoch and the bucket. bucket: `.index` and `.count`. spark: the session.
INJECTED = ("params", "epoch", "metrics", "rng", "bucket", "spark")

_ALLOWED_INJECTIONS = {
    "data": {"params", "spark"},
    "VALUE": {"params", "epoch", "metrics", "rng"},
    "BUCKETS": {"params", "epoch", "rng", "bucket"},
    "FRAME": {"params", "epoch", "spark"},
}


class Role(enum.Enum):
    """What an operator is for."""

    DATA = "data"
    VARIABLE = "variable"
    OPERATOR = "operator"


class Kind(enum.Enum):
    """What an operator's function works on; DATA adapts to its consumers."""

    DATA = "data"
    VALUE = "value"
    BUCKETS = "buckets"
    FRAME = "frame"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One named step. `operator_id` is stable across renames; `name` is what others wire to."""

    operator_id: str
    name: str
    role: Role
    kind: Kind
    function: Function
    inputs: tuple[str, ...]
    injected: tuple[str, ...]
    finishes: bool = False
    parallelism: int | None = None


def parameters_of(function: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (names of the inputs, names injected) that a function asks for; parameters with defaults are its own."""
    required = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    return tuple(n for n in required if n not in INJECTED), tuple(n for n in required if n in INJECTED)


def forbidden_injections(operator: Operator) -> tuple[str, ...]:
    """Return the injected names that an operator of this kind cannot have."""
    allowed = _ALLOWED_INJECTIONS["data" if operator.role is Role.DATA else operator.kind.name]
    return tuple(name for name in operator.injected if name not in allowed)
