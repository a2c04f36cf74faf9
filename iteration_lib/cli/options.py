"""Which options do the commands share?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from typing import Any, TypeVar, cast

import click

from iteration_lib.cli.output import answering_alone
from iteration_lib.config import (
    DEFAULT_TERMINATION_GRACE_SECONDS,
    TERMINATION_GRACE_VARIABLE,
    Settings,
    read_settings,
)
from iteration_lib.errors import ParameterError
from iteration_lib.store.record import RunRecord

F = TypeVar("F", bound=Callable[..., None])


def store_options(command: F) -> F:
    """Give a command --store and --json."""

    @click.option("--store", "store_url", metavar="URL", help="The store [ITERATION_STORE_URL, else an embedded one].")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(command)
    def decorated(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by the command itself
        with answering_alone() if options["as_json"] else nullcontext():
            command(**options)

    return cast("F", decorated)


def checkpointing_options(command: F) -> F:
    """Give a command the fields of Checkpointing, each None unless it was given."""
    for option, field, kind, said in reversed(_CHECKPOINTING):
        command = click.option(option, field, type=kind, help=said)(command)
    return command


_CHECKPOINTING = (
    ("--checkpoint-every", "every_epochs", click.INT, "Epochs that one checkpoint covers."),
    ("--checkpoint-pause", "min_pause_seconds", click.FLOAT, "Least seconds between two checkpoints."),
    ("--checkpoint-pending", "max_pending", click.INT, "Checkpoints that may be written at once."),
    ("--checkpoint-timeout", "timeout_seconds", click.FLOAT, "Seconds after which a checkpoint has failed."),
    ("--checkpoint-failures", "tolerable_failures", click.INT, "Failed checkpoints in a row to put up with."),
    ("--retain-last", "retain_last", click.INT, "Newest checkpoints to keep [default: all]."),
    ("--retain-best", "retain_best", click.INT, "Best checkpoints to keep, by --retain-metric."),
    ("--retain-metric", "retain_metric", click.STRING, "The metric that tells which are best."),
    ("--retain-mode", "retain_mode", click.Choice(["min", "max"]), "Whether the least or the greatest is best."),
    (
        "--alignment-timeout",
        "alignment_timeout_seconds",
        click.FLOAT,
        "Seconds after which an epoch keeps what its operators finish; 0 for at once.",
    ),
)


def checkpointing_of(options: Mapping[str, Any]) -> dict[str, Any]:  # Any: click's options, by their fields' types
    """Return the fields of Checkpointing that were given; the others are as the iteration declares them."""
    fields = [field for _, field, _, _ in _CHECKPOINTING]
    return {field: options[field] for field in fields if options[field] is not None}


def grace_option(command: F) -> F:
    """Give a command that drives a run --termination-grace."""
    said = (
        f"Seconds from SIGTERM to SIGKILL [{TERMINATION_GRACE_VARIABLE}, else {DEFAULT_TERMINATION_GRACE_SECONDS:g}]."
    )
    return click.option("--termination-grace", "termination_grace_seconds", type=click.FLOAT, help=said)(command)


def settings_of(store_url: str | None) -> Settings:
    """Return the settings, with the store that was given on the command line."""
    return read_settings(os.environ, store_url=store_url)


def params_of(params: tuple[str, ...]) -> dict[str, object]:
    """Return the parameters that --param gave; raises ParameterError for one without a value, or given twice."""
    parsed: dict[str, object] = {}
    for param in params:
        name, separator, value = param.partition("=")
        if not separator:
            raise ParameterError(f"--param {param!r} has no value; write it as NAME=VALUE", name=name)
        if name in parsed:
            raise ParameterError(f"parameter {name!r} is given twice; give it once", name=name)
        parsed[name] = value
    return parsed


def command_to_drive(run: RunRecord, *, store_url: str | None) -> str:
    """Return the command that drives a run of an iteration; the address of a store may hold a password."""
    given = {"--run-key": [run.run_key], "--param": [f"{k}={'' if v is None else v}" for k, v in run.params.items()]}
    said = (f"{option} {shlex.quote(value)}" for option, values in given.items() for value in values)
    same = "" if store_url is None else ", with the same --store"
    return f"iteration run {run.reference} {' '.join(said)}{same}"
