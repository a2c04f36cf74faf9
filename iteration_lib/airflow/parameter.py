"""How does a run's parameter become a field of Airflow's trigger form?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from airflow.sdk import Param

from iteration_lib.errors import UsageError

MAX_EPOCHS = "max_epochs"
START_FROM = "start_from"
START_DATA = "start_data"
DATA_CHOICES: tuple[Literal["new", "kept"], ...] = ("new", "kept")  # as the value of start_data
PREVIOUS = "previous"  # as the value of start_from
_TEMPLATE = re.compile(r"\{\{|\{%")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_DESCRIPTIONS = {
    MAX_EPOCHS: "The run terminates after this many epochs of its own at the latest. The DAG has tasks for {longest}.",
    START_FROM: "Where the run starts from: RUN_KEY@CHECKPOINT, RUN_KEY (its newest checkpoint), a savepoint's folder, "
    "or previous (the last checkpoint of the DAG run before this one). Empty: from nothing.",
    START_DATA: "What a run that starts from a checkpoint reads: its data anew (new), or what the checkpoint's run has "
    "read (kept). Empty: kept where it is known to be the same, else anew; where nobody can tell, one is asked for; "
    "behind the DAG run before this one always anew.",
}
_NO_PARAMETERS = (START_FROM, START_DATA)


def make_params(
    given: Mapping[str, object], *, longest: int, start_from: str | None, start_data: Literal["new", "kept"] | None
) -> dict[str, Param]:
    """Return a typed Param for every parameter, and for `start_from` and `start_data`; a `Param` is taken as it is.

    `max_epochs` gets the chain's length as its maximum, so that Airflow refuses a longer run when it is triggered.
    """
    for name in _NO_PARAMETERS:
        if name in given:
            raise UsageError(f"{name!r} says how a run starts and is no parameter of it; rename the iteration's own")
    choose_data(start_data, or_else="leave it out")
    params = {name: value if isinstance(value, Param) else _make_param(name, value) for name, value in given.items()}
    limited = params[MAX_EPOCHS]
    params[MAX_EPOCHS] = Param(
        limited.value,
        description=limited.description or _DESCRIPTIONS[MAX_EPOCHS].format(longest=longest),
        schema={"type": "integer", "minimum": 1, **limited.schema, "maximum": longest},
    )
    params[START_FROM] = Param(start_from, description=_DESCRIPTIONS[START_FROM], type=["null", "string"])
    params[START_DATA] = Param(
        start_data,
        description=_DESCRIPTIONS[START_DATA],
        type=["null", "string"],
        pattern=f"^({'|'.join(DATA_CHOICES)})?$",  # no enum: the form of Airflow 3.1 cannot draw one that holds null
        examples=[*DATA_CHOICES],
    )
    return params


def choose_data(start_data: str | None, *, or_else: str) -> Literal["new", "kept"] | None:
    """Return what `start_data` says; raises UsageError for another word, with what may be done instead."""
    found = next((choice for choice in DATA_CHOICES if choice == start_data), None)
    if start_data is not None and found is None:
        raise UsageError(f"start_data is {start_data!r}; choose {' or '.join(DATA_CHOICES)}, or {or_else}")
    return found


def find_templates(given: Mapping[str, object]) -> dict[str, str]:
    """Return the parameters of a DAG file that Airflow renders before a run gets them, as `{{ ds }}`."""
    values = {name: value.value if isinstance(value, Param) else value for name, value in given.items()}
    return {
        name: value for name, value in values.items() if isinstance(value, str) and ("{{" in value or "{%" in value)
    }


def read_form(
    form: Mapping[str, object], *, defaults: Mapping[str, object], rendered: Mapping[str, object]
) -> dict[str, object]:
    """Return the run's parameters: what the trigger form says, and a template's rendered text where it was left alone.

    What a person types is never rendered: whoever may trigger a DAG is not its author.
    """
    return {
        name: rendered[name] if name in rendered and value == defaults.get(name) else value
        for name, value in form.items()
        if name not in _NO_PARAMETERS
    }


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
