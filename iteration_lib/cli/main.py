"""Which commands are there? Each opens the store, asks, prints, and maps errors to exit codes."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import click
from rich.console import Console

from iteration_lib import view
from iteration_lib.cli.branch import branch, lineage
from iteration_lib.cli.checkpoint import CHECKPOINT_COLUMNS, abort, checkpoint, checkpoints
from iteration_lib.cli.explain import explain
from iteration_lib.cli.garbage import delete, gc
from iteration_lib.cli.options import (
    checkpointing_of,
    checkpointing_options,
    grace_option,
    params_of,
    settings_of,
    store_options,
)
from iteration_lib.cli.output import print_fields, print_json, print_table
from iteration_lib.cli.pin import pin, release
from iteration_lib.cli.plan import plan
from iteration_lib.cli.progress import ProgressBar
from iteration_lib.cli.savepoint import savepoint
from iteration_lib.cli.stop import resume, stop
from iteration_lib.cli.verify import verify
from iteration_lib.config import Settings, read_settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import IterationError, StateCorruptedError, UsageError
from iteration_lib.fallback import advise
from iteration_lib.interrupt import TERMINATED_EXIT_CODE, end_in_order
from iteration_lib.launch import (
    DEFAULT_MAX_BUCKETS,
    LARGEST_MAX_BUCKETS,
    Drive,
    Request,
    drive_run,
    find_run,
    open_run,
    open_store,
)
from iteration_lib.model.definition import load_iteration
from iteration_lib.process import this_holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.record import RunRecord

_INTERRUPTED = 130

_logger = logging.getLogger(__name__)


def main() -> None:
    """Run the command line; never returns."""
    with suppress(FileNotFoundError):  # a folder that is gone
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - modules of the current folder, as python -m finds them
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        _log_as_asked(os.environ.get("ITERATION_LOG_LEVEL") or "WARNING")
        cli.main(standalone_mode=False)
    except click.ClickException as err:
        err.show()
        sys.exit(err.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(_INTERRUPTED)
    except IterationError as err:
        _logger.info("event=command_failed", exc_info=err)  # with the line of the user's code that raised
        click.echo(f"error: {err}", err=True)
        sys.exit(err.exit_code)
    except OSError as err:  # of what it prints to, as a full disk
        _logger.info("event=command_failed", exc_info=err)
        click.echo(f"error: {err}", err=True)
        sys.exit(IterationError.exit_code)
    sys.exit(0)


def _log_as_asked(level: str) -> None:
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise UsageError(f"ITERATION_LOG_LEVEL is {level!r}; give DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(level=levels[level.upper()], format="%(levelname)s %(message)s")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="iteration-lib")
def cli() -> None:
    """Durable iterations on Spark: every epoch recorded, checkpointed and resumable."""


@cli.command()
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
        sys.exit(_INTERRUPTED)
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


@cli.command("list")
@click.option("--all", "is_all", is_flag=True, help="List deleted runs too.")
@store_options
def list_runs(store_url: str | None, *, is_all: bool, as_json: bool) -> None:
    """List the runs, newest first."""
    with open_store(settings_of(store_url)) as store:
        found = [run for run in store.list_runs() if is_all or run.status is not RunStatus.DELETED]
    runs = [view.run_json(run) for run in found]
    if as_json:
        print_json(runs)
    else:
        asked = ("asked_to",) if any(run["asked_to"] for run in runs) else ()
        ids = ("run_id",) if is_all else ()  # a deleted run's key may be another run's by now
        columns = ("run_key", "status", *asked, "epochs", "reference", "created_at", *ids)
        print_table("runs", runs, columns)


@cli.command()
@click.argument("run_name", metavar="RUN")
@store_options
def show(run_name: str, store_url: str | None, *, as_json: bool) -> None:
    """Show a run: attempts, epochs, operators and checkpoints. RUN is its id or its key."""
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        epochs = store.list_epochs(found.run_id)
        answer: view.Json = {
            "run": view.run_json(found),
            "attempts": [view.attempt_json(attempt) for attempt in store.list_attempts(found.run_id)],
            "epochs": [view.epoch_json(epoch) for epoch in epochs],
            "operators": view.operators_json(
                found, store.list_operators(found.run_id), epochs, store.list_parts(found.run_id)
            ),
            "checkpoints": [view.checkpoint_json(known) for known in store.list_checkpoints(found.run_id)],
            "stops": [view.stop_json(known) for known in store.list_stops(found.run_id)],
        }
    if as_json:
        print_json(answer)
        return
    print_fields(cast("view.Json", answer["run"]))
    for title, columns in _SHOWN.items():
        if answer[title] or title not in _RARE:
            click.echo()
            print_table(title, cast("list[view.Json]", answer[title]), columns)


_SHOWN = {
    "attempts": ("attempt", "holder", "started_at", "outcome", "reason"),
    "epochs": ("epoch", "status", "attempt", "seconds", "records", "metrics"),
    "operators": ("operator_id", "epoch", "status"),
    "checkpoints": CHECKPOINT_COLUMNS,
    "stops": ("kind", "requested_by", "requested_at", "stopped_at", "resumed_by", "resumed_at"),
}
_RARE = ("stops",)


_VERBS = (
    plan,
    explain,
    verify,
    checkpoints,
    checkpoint,
    abort,
    pin,
    release,
    savepoint,
    stop,
    resume,
    branch,
    lineage,
    delete,
    gc,
)
for verb in _VERBS:
    cli.add_command(verb)


@cli.group()
def db() -> None:
    """Look after the store's schema."""


@db.command("upgrade")
@store_options
def db_upgrade(store_url: str | None, *, as_json: bool) -> None:
    """Bring the store's schema to this version. Repeating it is harmless."""
    settings = settings_of(store_url)
    if settings.store_url is None:
        with open_store(settings):  # the embedded store is upgraded whenever it is opened
            applied: list[str] = []
    else:
        engine = open_engine(settings.store_url)
        applied = [f"{migration.version:04d}_{migration.name}" for migration in upgrade(engine)]
        engine.dispose()
    if as_json:
        print_json({"applied": applied})
    else:
        click.echo(f"applied: {', '.join(applied)}" if applied else "the store's schema is up to date")
