"""The command `iteration run`: drive a run, show how far it is, and say how to resume it."""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console

from iteration_lib import view
from iteration_lib.cli.options import checkpointing_of, checkpointing_options, grace_option, params_of, store_options
from iteration_lib.cli.output import print_fields, print_json
from iteration_lib.cli.progress import ProgressBar
from iteration_lib.config import Settings, read_settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import StateCorruptedError, UsageError
from iteration_lib.fallback import advise
from iteration_lib.interrupt import INTERRUPTED_EXIT_CODE, TERMINATED_EXIT_CODE
from iteration_lib.launch import DEFAULT_MAX_BUCKETS, LARGEST_MAX_BUCKETS, Drive, Request, drive_run, open_run
from iteration_lib.model.definition import load_iteration
from iteration_lib.process import this_holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import RunRecord


@click.command()
@click.argument("reference", metavar="MODULE:OBJECT")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter; repeat for more.")
@click.option("--run-key", help="The run's own name; the same key again resumes the run [default: a new one].")
@click.option(
    "--state", "state_uri", metavar="URI", help="Where state files go [ITERATION_STATE_URI, else your data folder]."
)
@click.option("--master", metavar="URL", help="The Spark master [default: local[*], or that of spark-submit].")
@click.option(
    "--runner",
    type=click.Choice([kind.value for kind in EngineKind]),
    default="spark",
    show_default=True,
    help="What runs the operators; local is plain Python, for small data and tests.",
)
@click.option("--parallelism", type=click.IntRange(min=1), help="Subtasks per operator [default: the cores].")
@click.option(
    "--max-buckets",
    type=click.IntRange(1, LARGEST_MAX_BUCKETS),
    help=f"Buckets of a stream [default: {DEFAULT_MAX_BUCKETS}].",
)
@click.option("--takeover", is_flag=True, help="Take the run from an attempt that you know is gone.")
@click.option("--allow-dropped-state", is_flag=True, help="Let the state of operators that are gone go too.")
@click.option("--ignore-edges", is_flag=True, help="Compute anew what is durable inside the open epoch.")
@click.option("--allow-fallback", is_flag=True, help="Give up a broken newest checkpoint for an older, whole one.")
@checkpointing_options
@grace_option
@store_options
def run(*, reference: str, run_key: str | None, store_url: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Run an iteration, or go on with the run of this key. It goes on from its last durable epoch."""
    if run_key == "":
        raise UsageError("--run-key is empty; give the run's name, or leave it out for a new run")
    settings = read_settings(
        os.environ,
        store_url=store_url,
        state_uri=options["state_uri"],
        termination_grace_seconds=options["termination_grace_seconds"],
    )
    request = Request(
        reference=reference,
        run_key=run_key or f"{reference.rpartition(':')[2]}-{uuid.uuid4().hex[:8]}",
        params=params_of(options["params"]),
        max_buckets=options["max_buckets"],
        state_uri=options["state_uri"],
        allow_dropped_state=options["allow_dropped_state"],
        ignore_edges=options["ignore_edges"],
        checkpointing=checkpointing_of(options),
    )
    engine = Engine(kind=EngineKind(options["runner"]), master=options["master"], parallelism=options["parallelism"])
    with _telling_how_to_resume(), open_store(settings) as store:
        found = open_run(store, settings, request)
        if found.status is RunStatus.FINISHED:
            click.echo(f"run {found.run_key} is finished; nothing to run", err=True)
        else:
            found = _drive(store, settings, found, engine, options)
    if found.status is RunStatus.STOPPED:
        resume = f"`iteration resume {shlex.quote(found.run_key)}`"
        said = f"run {found.run_key} is stopped; {resume}, then the same command, goes on"
        click.echo(said, err=True)
    if as_json:
        print_json(view.result_json(found))
    else:
        print_fields(view.result_json(found))


@contextmanager
def _telling_how_to_resume() -> Iterator[None]:
    resume = "run the same command again to resume"
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted; {resume}", err=True)
        sys.exit(INTERRUPTED_EXIT_CODE)
    except SystemExit as err:
        if err.code == TERMINATED_EXIT_CODE:
            click.echo(f"terminated; {resume}", err=True)
        raise


def _drive(
    store: PostgresStore, settings: Settings, found: RunRecord, engine: Engine, options: Mapping[str, Any]
) -> RunRecord:
    with ProgressBar(Console(stderr=True)) as observer:
        drive = Drive(
            holder=this_holder(),
            open_runner=engine.open_runner,
            parallelism=engine.default_parallelism,
            takeover=options["takeover"],
            allow_dropped_state=options["allow_dropped_state"],
            ignore_edges=options["ignore_edges"],
            allow_fallback=options["allow_fallback"],
            checkpointing=checkpointing_of(options),
            observer=observer,
        )
        try:
            return drive_run(store, settings, found, drive)
        except StateCorruptedError:
            graph = load_iteration(found.reference).graph()
            advice = None if drive.allow_fallback else advise(store, find_run(store, found.run_id), graph)
            if advice is not None:
                click.echo(advice, err=True)
            raise
