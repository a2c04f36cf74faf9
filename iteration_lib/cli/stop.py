"""The commands `iteration stop` and `iteration resume`: end a run early, from any process, and let it go on."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from iteration_lib import view
from iteration_lib.cli.options import command_to_drive, settings_of, store_options
from iteration_lib.cli.output import print_fields, print_json
from iteration_lib.cli.person import this_person
from iteration_lib.cli.waiting import waiting_outputs
from iteration_lib.errors import UsageError
from iteration_lib.interrupt import INTERRUPTED_EXIT_CODE
from iteration_lib.model.loop import LOOP_REFERENCE
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.saving import checkpoints_with_files, save_run
from iteration_lib.stopping import is_driven, request_stop, resume_run, wait_for_stop
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import RunRecord, StopRecord
from iteration_lib.store.seam import History, StoreWithHistory


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--drain", is_flag=True, help="Make the epoch in progress the run's last, and let it finish.")
@click.option("--savepoint", "is_saved", is_flag=True, help="Make a savepoint of what it has stopped with.")
@click.option("--to", "uri", metavar="URI", help="The savepoint's own folder [default: beside the runs' folders].")
@click.option(
    "--timeout",
    "timeout_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Wait that long [default: for ever].",
)
@store_options
def stop(run_name: str, store_url: str | None, *, drain: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Stop a RUN after the epoch in progress, and wait for that. The epoch gets a checkpoint.

    `iteration resume` lets it go on. A run that nobody drives is stopped at once, where it is durable.
    """
    is_saved, timeout_seconds = options["is_saved"], options["timeout_seconds"]
    if options["uri"] is not None and not is_saved:
        raise UsageError("--to names a savepoint's folder; give --savepoint with it")
    kind = StopKind.DRAIN if drain else StopKind.STOP
    with open_store(settings_of(store_url)) as store:
        run = find_run(store, run_name)
        was_stopped = run.status is RunStatus.STOPPED
        asked = request_stop(store, run, kind=kind, by=this_person())
        waits = not drain or is_saved or timeout_seconds is not None or is_driven(store, run)
        found = _waited(store, run, asked, timeout_seconds) if waits else run
        saved = _saved(store, found, options["uri"]) if is_saved else None
        waiting = waiting_outputs(store, found)
    answer = {
        **view.result_json(found),
        "asked_to": asked.kind.value,
        "requested_by": asked.requested_by,
        "checkpoint_id": saved[0] if saved is not None else None,
        "savepoint": saved[1] if saved is not None else None,
        "said": f"{_said(found, asked, was_stopped=was_stopped)}{waiting and f'; until then {waiting}'}",
    }
    if as_json:
        print_json(answer)
        return
    click.echo(answer["said"])
    if saved is not None:
        print_fields({name: answer[name] for name in ("checkpoint_id", "savepoint")})


@click.command()
@click.argument("run_name", metavar="RUN")
@store_options
def resume(run_name: str, store_url: str | None, *, as_json: bool) -> None:
    """Let a RUN go on that was stopped, and say what drives it. Nothing is started here."""
    with open_store(settings_of(store_url)) as store:
        run = resume_run(store, find_run(store, run_name), by=this_person())
        way = _way_on(store, run, store_url)
    if as_json:
        print_json({**view.result_json(run), "epoch": run.last_durable_epoch + 1, "way_on": way})
    else:
        click.echo(f"run {run.run_key} may go on with epoch {run.last_durable_epoch + 1}; {way}")


def _waited(store: StoreWithHistory, run: RunRecord, asked: StopRecord, timeout_seconds: float | None) -> RunRecord:
    """Wait for a run, and say on standard error what for; who interrupts that takes nothing back."""

    def tell(where: str) -> None:
        click.echo(f"waiting for run {run.run_key}: {where}", err=True)

    try:
        return wait_for_stop(store, run, asked, timeout_seconds=timeout_seconds, tell=tell)
    except KeyboardInterrupt:
        click.echo("the request stays; the same command waits again", err=True)
        sys.exit(INTERRUPTED_EXIT_CODE)


def _saved(store: History, run: RunRecord, uri: str | None) -> tuple[int, str]:
    """Make a savepoint of the checkpoint that a run stopped with: nothing lets go a run's newest one."""
    there = [c.checkpoint_id for c in checkpoints_with_files(store, run) if c.epoch == run.last_durable_epoch]
    saved = save_run(store, run, uri=uri, checkpoint_id=there[-1] if there else None)
    return saved.checkpoint.checkpoint_id, saved.savepoint.location.uri


def _said(run: RunRecord, asked: StopRecord, *, was_stopped: bool) -> str:
    """Say what became of a request."""
    where = f"after epoch {run.last_durable_epoch}" if run.epochs else "before its first epoch was durable"
    if was_stopped:
        return f"run {run.run_key} was stopped already, {where}, as {asked.requested_by} had asked"
    if run.status is RunStatus.FINISHED:
        return f"run {run.run_key} is finished, {where}"
    if asked.kind is StopKind.DRAIN:
        return f"run {run.run_key} is to drain, and nobody drives it: the next epoch that somebody runs is its last"
    return f"run {run.run_key} is stopped, {where}; `iteration resume {shlex.quote(run.run_key)}` lets it go on"


def _way_on(store: History, run: RunRecord, store_url: str | None) -> str:
    """Say what drives a run, by what drove it last."""
    if run.reference == LOOP_REFERENCE:
        return "run its script again"
    tasks = [known.holder.task for known in store.list_attempts(run.run_id) if known.holder.task is not None]
    if tasks:
        dag, dag_run = tasks[-1].split("/", 1)[0], tasks[-1].split("/", 1)[1].rsplit("/", 2)[0]
        return f"in Airflow clear the skipped tasks of {dag}, Dag Run {dag_run}"
    return f"drive it with: {command_to_drive(run, store_url=store_url)}"
