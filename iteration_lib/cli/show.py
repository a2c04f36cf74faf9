"""The commands `iteration list` and `iteration show`: which runs are there, and what has become of one?"""

from __future__ import annotations

from typing import cast

import click

from iteration_lib import view
from iteration_lib.cli.checkpoint import CHECKPOINT_COLUMNS
from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_fields, print_json, print_table
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.opening import find_run, open_store

_SHOWN = {
    "attempts": ("attempt", "holder", "started_at", "outcome", "reason"),
    "epochs": ("epoch", "status", "attempt", "seconds", "records", "metrics"),
    "operators": ("operator_id", "epoch", "status"),
    "checkpoints": CHECKPOINT_COLUMNS,
    "stops": ("kind", "requested_by", "requested_at", "stopped_at", "resumed_by", "resumed_at"),
}
_RARE = ("stops",)


@click.command("list")
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


@click.command()
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
