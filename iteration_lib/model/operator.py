"""What is one operator of an iteration?

An operator is a plain function. Its parameters are its wiring: each names another operator, a data stream or a
variable, or one of the INJECTED names below. What the function works on is its kind:

    VALUE    the whole stream at once, in the driver: a block (a dict of numpy arrays of one length, the columns)
    BUCKETS  one bucket of a stream at a time, where Spark's executors are: a block in, a block out
    FRAME    a lazy DataFrame (Spark only)

A stream is a table. A bucketed stream is a table cut into `max_buckets` buckets; that number is fixed when a run
starts, so that a result does not depend on how many subtasks share the buckets.

What the function may keep is its state:

    CARRY    from epoch to epoch: it takes `state`, what it returned as its state in the epoch before (a block, None in
             its first epoch), and returns (result, new state). On whole values there is one state of the whole stream;
             on buckets every bucket has its own, which no other bucket sees.
    FRESH    for one epoch: it takes `scratch`, the address of an empty folder, which is dropped after the epoch. Every
             call, that of a repeated Spark task too, gets one of its own.
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
    "VALUE": {"params", "epoch", "metrics", "rng", "state", "scratch"},
    "BUCKETS": {"params", "epoch", "rng", "bucket", "state", "scratch"},
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


class StateScope(enum.Enum):
    """How long an operator keeps state."""

    CARRY = "carry"
    FRESH = "fresh"

    @property
    def parameter(self) -> str:
        """The name by which the function takes it."""
        return "state" if self is StateScope.CARRY else "scratch"


class Pair(enum.Enum):
    """What an operator does with the pair (result, new state) of a function that carries state; see `carry`."""

    CALL = "call"
    RESULT = "result"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One named step. `operator_id` is stable across renames; `name` is what others wire to.

    A data stream that `replays` is seen by every epoch, else by epoch 0 alone. With `capture`, what the operator has
    finished inside an epoch may be kept for a retry of that epoch. `pair` and `part_of` (the id of the user's operator
    that a hidden one is part of) are set by `carry`.
    """

    operator_id: str
    name: str
    role: Role
    kind: Kind
    function: Function
    inputs: tuple[str, ...]
    injected: tuple[str, ...]
    finishes: bool = False
    parallelism: int | None = None
    replays: bool = True
    state: StateScope | None = None
    capture: bool = True
    pair: Pair | None = None
    part_of: str | None = None


def parameters_of(function: Function, *, own: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (names of the inputs, names injected) that a function asks for; parameters with defaults are its own.

    `own` are names that are injected into this function beside INJECTED.
    """
    required = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    injected = (*INJECTED, *own)
    return tuple(n for n in required if n not in injected), tuple(n for n in required if n in injected)


def forbidden_injections(operator: Operator) -> tuple[str, ...]:
    """Return the injected names that an operator of this kind cannot have."""
    allowed = _ALLOWED_INJECTIONS["data" if operator.role is Role.DATA else operator.kind.name]
    return tuple(name for name in operator.injected if name not in allowed)
