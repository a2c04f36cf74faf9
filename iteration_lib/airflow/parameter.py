"""How does a run's parameter become a field of Airflow's trigger form?"""

from __future__ import annotations

from collections.abc import Mapping

from airflow.sdk import Param

from iteration_lib.errors import UsageError

MAX_EPOCHS = "max_epochs"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_DESCRIPTIONS = {
    MAX_EPOCHS: "The run terminates after this many epochs at the latest. The DAG has tasks for {longest}.",
}


def make_params(given: Mapping[str, object], *, longest: int) -> dict[str, Param]:
    """Return a typed Param for every parameter; a `Param` is taken as it is.

    `max_epochs` gets the chain's length as its maximum, so that Airflow refuses a longer run when it is triggered.
    """
    params = {name: value if isinstance(value, Param) else _make_param(name, value) for name, value in given.items()}
    limited = params[MAX_EPOCHS]
    params[MAX_EPOCHS] = Param(
        limited.value,
        description=limited.description or _DESCRIPTIONS[MAX_EPOCHS].format(longest=longest),
        schema={"type": "integer", "minimum": 1, **limited.schema, "maximum": longest},
    )
    return params


def _make_param(name: str, value: object) -> Param:
    if type(value) not in _TYPES and value is not None:
        raise UsageError(
            f"parameter {name!r} is a {type(value).__name__}; a parameter is a bool, int, float or str, or an Airflow "
            "Param for anything else that the trigger form should know"
        )
    kind = _TYPES.get(type(value), "string")
    if value is None:  # what type it has when it is given is the iteration's business
        return Param(None, type=["null", "string", "number", "boolean"])
    if value == "":
        return Param("", type=["null", "string"])
    return Param(value, type=kind)
