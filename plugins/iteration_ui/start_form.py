"""Which fields has the form that starts a run from a checkpoint? Pure: the origin's parameters, each as it is typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iteration_lib.model.params import Scalar

START_FROM = "start_from"
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


def make_start_form(run_key: str, params: Mapping[str, Scalar], *, checkpoint_id: int, epoch: int) -> StartForm:
    """Return the form for a checkpoint of a run of a DAG."""
    return StartForm(
        dag_id=run_key.partition("/")[0],
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        start_from=f"{run_key}@{checkpoint_id}",
        fields=tuple(
            Field(name=name, kind=_KINDS.get(type(value), "null"), value=_text(value))
            for name, value in params.items()
            if name != START_FROM
        ),
    )


def _text(value: Scalar) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
