"""Which fields has the form that starts a run from a checkpoint? Pure: the origin's parameters, each as it is typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iteration_lib.airflow.parameter import MAX_EPOCHS, START_DATA, START_FROM
from iteration_lib.model.params import Scalar

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One parameter; `kind` is JSON's type of its value, "null" where it has none."""

    name: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForm:
    """A run to start: `start_from` names the checkpoint as the DAG's parameter of that name takes it."""

    dag_id: str
    checkpoint_id: int
    epoch: int
    start_from: str
    fields: tuple[Field, ...]


def make_start_form(
    run_key: str, params: Mapping[str, Scalar], *, checkpoint_id: int, epoch: int, first_epoch: int = 0
) -> StartForm:
    """Return the form for a checkpoint of a run of a DAG, which began with `first_epoch`.

    A run's max_epochs counts from epoch 0 on, and the form's counts those of the run itself.
    """
    asked = {name: value for name, value in params.items() if name not in (START_FROM, START_DATA)}
    if isinstance(max_epochs := asked.get(MAX_EPOCHS), int):
        asked[MAX_EPOCHS] = max_epochs - first_epoch
    return StartForm(
        dag_id=run_key.partition("/")[0],
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        start_from=f"{run_key}@{checkpoint_id}",
        fields=tuple(
            Field(name=name, kind=_KINDS.get(type(value), "null"), value=_text(value)) for name, value in asked.items()
        ),
    )


def _text(value: Scalar) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
