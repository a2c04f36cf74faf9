"""The command `iteration savepoint`: copy a checkpoint to a folder that the user owns."""

from __future__ import annotations

from contextlib import suppress

import click

from iteration_lib.cli.checkpoint import wait_for
from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_fields, print_json
from iteration_lib.cli.person import this_person
from iteration_lib.errors import RunFinishedError, RunStoppedError
from iteration_lib.requesting import request_checkpoint
from iteration_lib.saving import save_run
from iteration_lib.stopping import is_driven
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory

_WAIT_SECONDS = 600.0


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--to", "uri", metavar="URI", help="The savepoint's own folder [default: beside the runs' folders].")
@click.option("--checkpoint", "checkpoint_id", type=click.IntRange(min=1), help="Copy this one.")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=_WAIT_SECONDS,
    show_default=True,
    help="Wait that long for the checkpoint of a run that is driven.",
)
@store_options
def savepoint(
    run_name: str,
    store_url: str | None,
    *,
    uri: str | None,
    checkpoint_id: int | None,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Save a RUN in a folder that nothing here ever removes. Its newest checkpoint is copied, or the one that is named.

    While somebody drives the run, a checkpoint is taken for it, of the next epoch that aligns. The folder needs no
    store and may be moved; `iteration branch FOLDER` starts a run from it.
    """
    with open_store(settings_of(store_url)) as store:
        run = find_run(store, run_name)
        is_taken = checkpoint_id is None and is_driven(store, run)
        if is_taken:
            checkpoint_id = _taken(store, run, wait_seconds)
        saved = save_run(store, run, uri=uri, checkpoint_id=checkpoint_id, or_newest=is_taken)
    answer = {
        "run_id": run.run_id,
        "run_key": run.run_key,
        "checkpoint_id": saved.checkpoint.checkpoint_id,
        "epoch": saved.checkpoint.epoch,
        "savepoint": saved.savepoint.location.uri,
    }
    if as_json:
        print_json(answer)
    else:
        print_fields(answer)


def _taken(store: StoreWithHistory, run: RunRecord, wait_seconds: float) -> int | None:
    """Have a checkpoint taken, and return its id; None for a run that goes no further: its last one is the newest."""
    with suppress(RunFinishedError, RunStoppedError):
        request_id = request_checkpoint(store, run, by=this_person())
        taken = wait_for(store, run, request_id, wait_seconds, while_driven=True)
        return taken.checkpoint_id if taken is not None else None
    return None
