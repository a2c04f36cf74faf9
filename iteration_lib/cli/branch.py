"""The commands on branches: start a run from a checkpoint, and show where runs come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.cli.options import command_to_drive, params_of, settings_of, store_options
from iteration_lib.cli.output import print_fields, print_json, print_table
from iteration_lib.cli.person import this_person
from iteration_lib.config import read_settings
from iteration_lib.errors import UsageError
from iteration_lib.lineage import Descent, lineage_of
from iteration_lib.protocol.status import RestoreMode
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import BranchRecord
from iteration_lib.view import Json, instant

_MODES = {"no-claim": RestoreMode.NO_CLAIM, "claim": RestoreMode.CLAIM}


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--run-key", required=True, help="The new run's own name.")
@click.option("--epoch", type=click.IntRange(min=0), help="Start behind this epoch of the run.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter that is to be another one.")
@click.option(
    "--mode",
    type=click.Choice(list(_MODES)),
    default="no-claim",
    show_default=True,
    help="Whether the checkpoint stays, or `iteration gc` removes it once the branch has a full one of its own.",
)
@click.option("--state", "state_uri", metavar="URI", help="Where state files go [default: where the origin's are].")
@click.option("--new-data", is_flag=True, help="Let data streams read their sources anew.")
@click.option("--keep-data", is_flag=True, help="Let data streams read what the origin read.")
@click.option("--allow-dropped-state", is_flag=True, help="Let the state of operators that are gone go too.")
@store_options
def branch(*, checkpoint: str, run_key: str, store_url: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Make a run that starts from a CHECKPOINT. That is RUN (its newest), RUN@ID, or a savepoint's folder.

    `iteration run` with its key drives it. The checkpoint is pinned until the branch has a full one of its own; with
    --mode claim `iteration gc` removes it then.
    """
    if not run_key:
        raise UsageError("--run-key is empty; give the new run's name")
    if options["new_data"] and options["keep_data"]:
        raise UsageError("--new-data and --keep-data contradict each other; give one of them, or neither")
    request = BranchRequest(
        checkpoint=checkpoint,
        run_key=run_key,
        branched_by=this_person(),
        epoch=options["epoch"],
        params=params_of(options["params"]),
        mode=_MODES[options["mode"]],
        state_uri=options["state_uri"],
        data="new" if options["new_data"] else "kept" if options["keep_data"] else None,
        allow_dropped_state=options["allow_dropped_state"],
    )
    with open_store(read_settings(os.environ, store_url=store_url, state_uri=options["state_uri"])) as store:
        run = branch_run(store, settings_of(store_url), request)
        found = store.find_branch(run.run_id)
    answer = {
        "run_id": run.run_id,
        "run_key": run.run_key,
        "reference": run.reference,
        "epoch": run.last_durable_epoch + 1,
        "params": dict(run.params),
        **(branch_json(found) if found is not None else {}),
    }
    if as_json:
        print_json(answer)
    else:
        print_fields({**answer, "keeps": ", ".join(found.keeps) if found is not None else ""})
        click.echo(f"drive it with: {command_to_drive(run, store_url=store_url)}")


@click.command()
@click.argument("run_name", metavar="RUN")
@store_options
def lineage(run_name: str, store_url: str | None, *, as_json: bool) -> None:
    """Show where a run and its relatives started from. Deleted runs are among them."""
    with open_store(settings_of(store_url)) as store:
        found = [_descent_json(descent) for descent in lineage_of(store, find_run(store, run_name))]
    if as_json:
        print_json(found)
        return
    keys = {str(row["run_id"]): str(row["run_key"]) for row in found}
    print_table("lineage", [_shown(row, keys) for row in found], ("run_key", "status", "epochs", "from", "pins_it"))


def _shown(row: Json, keys: Mapping[str, str]) -> Json:
    """Return a row for people: indented below what it started from, which is named by its key."""
    origin, separator, checkpoint = str(row["from"] or "").rpartition("@")
    named = f"{keys.get(origin, origin)}{separator}{checkpoint}"
    return {**row, "run_key": f"{'  ' * int(str(row['depth']))}{row['run_key']}", "from": named}


def branch_json(found: BranchRecord) -> Json:
    """Return where a branch comes from; `pins_it` as long as it has no full checkpoint of its own."""
    is_saved = found.origin_run_id is None
    return {
        "from": found.uri if is_saved else f"{found.origin_run_id}@{found.origin_checkpoint_id}",
        "from_epoch": found.epoch,
        "mode": found.mode.value.lower().replace("_", "-"),
        "keeps": list(found.keeps),
        "pins_it": found.holds_origin and not is_saved,
        "branched_by": found.branched_by,
        "branched_at": instant(found.branched_at),
        "released_at": instant(found.released_at),
    }


def _descent_json(descent: Descent) -> Json:
    nothing = {"from": None, "mode": None, "pins_it": False, "branched_at": None}
    return {
        "depth": descent.depth,
        "run_id": descent.run.run_id,
        "run_key": descent.run.run_key,
        "status": descent.run.status.value,
        "epochs": descent.run.epochs,
        **(branch_json(descent.branch) if descent.branch is not None else nothing),
    }
