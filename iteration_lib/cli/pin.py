"""The commands that keep a checkpoint by hand: pin it, release it."""

from __future__ import annotations

import click

from iteration_lib import view
from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_json
from iteration_lib.cli.person import this_person
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import CheckpointNotFoundError
from iteration_lib.protocol.event import CheckpointReleased
from iteration_lib.protocol.state import RunState
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import CheckpointRecord
from iteration_lib.store.seam import History


@click.command()
@click.argument("run_name", metavar="RUN")
@click.argument("checkpoint_id", metavar="CHECKPOINT", type=click.IntRange(min=1))
@store_options
def pin(run_name: str, checkpoint_id: int, store_url: str | None, *, as_json: bool) -> None:
    """Keep a CHECKPOINT until it is released. Retention lets it be, and it stays when its run is deleted, too."""
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        person = this_person()
        Coordinator(store).pin(found.run_id, checkpoint_id, pinned_by=person)
        (checkpoint,) = store.list_checkpoints(found.run_id, [checkpoint_id])
    by = f" by {checkpoint.by_person} already," if checkpoint.by_person not in (person, None) else ""
    said = f"checkpoint {checkpoint_id} of run {found.run_key} is kept{by} until somebody releases it"
    _say(said, view.checkpoint_json(checkpoint), as_json=as_json)


@click.command()
@click.argument("run_name", metavar="RUN")
@click.argument("checkpoint_id", metavar="CHECKPOINT", type=click.IntRange(min=1))
@store_options
def release(run_name: str, checkpoint_id: int, store_url: str | None, *, as_json: bool) -> None:
    """Let a pinned CHECKPOINT go. Retention decides on it again."""
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        state = Coordinator(store).apply(found.run_id, CheckpointReleased(checkpoint_id=checkpoint_id))
        checkpoint = _known(store, state, checkpoint_id)
    needed = "" if checkpoint.safe_to_delete or not checkpoint.has_files else "; its run or a branch needs it still"
    said = f"checkpoint {checkpoint_id} of run {found.run_key} is released{needed}"
    _say(said, view.checkpoint_json(checkpoint), as_json=as_json)


def _known(store: History, run: RunState, checkpoint_id: int) -> CheckpointRecord:
    """Return a checkpoint, pinned or not; raises CheckpointNotFoundError for what never was one."""
    last = run.last_checkpoint_id
    found = store.list_checkpoints(run.run_id, [checkpoint_id]) if checkpoint_id <= last else ()
    if not found:
        raise CheckpointNotFoundError(run.run_id, checkpoint_id, last=last)
    return found[0]


def _say(said: str, answer: view.Json, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(said)
