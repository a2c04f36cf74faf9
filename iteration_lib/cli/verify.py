"""The command `iteration verify`: are a run's files still the bytes that were written?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_json, print_table
from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.location import StateLocation
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import RunRecord
from iteration_lib.verification import CheckedFile, verify_run
from iteration_lib.view import Json


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--checkpoint", "checkpoint_id", type=click.IntRange(min=1), metavar="ID", help="This one alone.")
@store_options
def verify(run_name: str, store_url: str | None, *, checkpoint_id: int | None, as_json: bool) -> None:
    """Check every file of a run against its size and SHA-256. Every bad one is named."""
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        files = verify_run(store, found, checkpoint_id=checkpoint_id)
    bad = [file for file in files if file.problem is not None]
    folder = StateLocation(found.state_uri).below(found.run_id).uri
    if as_json:
        print_json(
            {
                "run_id": found.run_id,
                "run_key": found.run_key,
                "folder": folder,
                "files": len(files),
                "bytes": sum(file.size_bytes for file in files),
                "checked": _by_owner(files),
                "bad": [
                    {"what": f.owner, "path": f.path, "problem": f.problem, "unreadable": f.is_unreadable} for f in bad
                ],
            }
        )
    else:
        print_table(f"files of {found.run_key}", _by_owner(files), ("what", "files", "bytes", "bad"))
    for file in bad:
        click.echo(f"error: {file.owner}: {file.path} {file.problem}", err=True)
    if bad:
        click.echo(way_out(found, folder, bad), err=True)
        sys.exit(StateCorruptedError.exit_code)


def way_out(run: RunRecord, folder: str, bad: Sequence[CheckedFile]) -> str:
    """Say what to do about bad files of a run, whose paths are below a folder or full ones."""
    if all(file.is_unreadable for file in bad):
        return "What cannot be read may be whole: verify again when it can be read."
    needed = f"`iteration plan {run.run_key}` says whether the next attempt needs it"
    return f"Put back what is bad (paths are below {folder}); {needed}."


def _by_owner(files: tuple[CheckedFile, ...]) -> list[Json]:
    owners = dict.fromkeys(file.owner for file in files)
    return [
        {
            "what": owner,
            "files": sum(file.owner == owner for file in files),
            "bytes": sum(file.size_bytes for file in files if file.owner == owner),
            "bad": sum(file.owner == owner and file.problem is not None for file in files),
        }
        for owner in owners
    ]
