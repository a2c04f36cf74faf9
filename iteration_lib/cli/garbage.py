"""The commands that let things go: delete a run, and remove the files that nobody needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_json, print_table
from iteration_lib.cli.person import this_person
from iteration_lib.cli.waiting import waiting_outputs
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError, StateCorruptedError, UsageError
from iteration_lib.garbage import Fate, check_newest, collect_garbage
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.status import RunStatus
from iteration_lib.stopping import gone_attempt
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory
from iteration_lib.view import Json

_RARE = ("unknown_files", "left", "problem")


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
@store_options
def delete(run_name: str, store_url: str | None, *, yes: bool, as_json: bool) -> None:
    """Delete a RUN that nobody drives. Its key is free then, and `iteration gc` removes its files.

    What branches still need of it stays until they have full checkpoints of their own, and what persons pinned until it
    is released. Published outputs that lie in
    the run's own folder go with it.
    """
    with open_store(settings_of(store_url)) as store:
        run = find_run(store, run_name)
        pinned = [
            known.checkpoint_id
            for known in store.list_checkpoints(run.run_id)
            if known.by_branches or known.by_person is not None
        ]
        if not yes:
            waiting = waiting_outputs(store, run)
            lost = f", for ever: {waiting}" if waiting else ""
            raise UsageError(f"this deletes run {run.run_key!r} with its outputs{lost}; give --yes to do it")
        event = RunDeleted(deleted_by=this_person(), gone_attempt_id=gone_attempt(store, run))
        Coordinator(store).apply(run.run_id, event)
    answer = {"run_id": run.run_id, "run_key": run.run_key, "status": "DELETED", "pinned_checkpoints": pinned}
    if as_json:
        print_json(answer)
        return
    kept = f", but not those of checkpoint {', '.join(map(str, pinned))}, which is pinned" if pinned else ""
    click.echo(f"run {run.run_key} is deleted; `iteration gc` removes its files{kept}")


@click.command()
@click.argument("run_names", metavar="[RUN]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@store_options
def gc(run_names: tuple[str, ...], store_url: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Remove every file that nobody needs. Of all runs, or of these; first it discards what retention lets go.

    It may be called at any time, also while runs go on.
    """
    with open_store(settings_of(store_url)) as store:
        runs = [find_run(store, name) for name in run_names] or [*store.list_runs()]
        rows = [_collect(store, run, dry_run=dry_run) for run in runs]
    if as_json:
        print_json(rows)
    else:
        _print(rows, dry_run=dry_run)
    if any(row["problem"] for row in rows):
        sys.exit(IterationError.exit_code)


def _print(rows: Sequence[Json], *, dry_run: bool) -> None:
    title = "what would go" if dry_run else "what went"
    columns = ["run_key", "status", "discarded", "files", "bytes", "kept_files"]
    print_table(title, rows, (*columns, *(name for name in _RARE if any(row.get(name) for row in rows))))


def _collect(store: StoreWithHistory, run: RunRecord, *, dry_run: bool) -> Json:
    """Collect the garbage of one run; what is wrong with one does not keep the others from it."""
    attempts = store.list_attempts(run.run_id)
    policy = attempts[-1].policy if attempts else CheckpointPolicy()
    coordinator = Coordinator(store)
    answer: Json = {"run_id": run.run_id, "run_key": run.run_key, "status": run.status.value}
    is_deleted = run.status is RunStatus.DELETED
    try:
        discarded = coordinator.discardable(run.run_id, policy)
        problem = _problem_of_newest(store, run) if discarded and not is_deleted else None
        if problem is not None:
            discarded = ()
        elif discarded and not dry_run:
            discarded = coordinator.discard(run.run_id, policy)
        collected = collect_garbage(
            store, run, dry_run=dry_run, is_deleted=is_deleted, as_discarded=frozenset(discarded)
        )
    except IterationError as err:
        return {**answer, "problem": str(err)}
    kept = [file for file in collected.files if file.fate in (Fate.REFERENCED, Fate.LIVE)]
    return {
        **answer,
        "discarded": list(discarded),
        "files": len(collected.garbage),
        "bytes": sum(file.size_bytes for file in collected.garbage),
        "kept_files": len(kept),
        "kept_bytes": sum(file.size_bytes for file in kept),
        "unknown_files": [file.path for file in collected.files if file.fate is Fate.UNKNOWN],
        "garbage": [{"path": file.path, "bytes": file.size_bytes, "reason": file.reason} for file in collected.garbage],
        "left": dict(collected.left),
        "problem": problem,
    }


def _problem_of_newest(store: StoreWithHistory, run: RunRecord) -> str | None:
    """Say what is wrong with a run's newest checkpoint: until that is mended the older ones are its way back."""
    try:
        check_newest(store, run)
    except StateCorruptedError as err:
        return f"state file {err.uri} {err.problem}; restore the file, no checkpoint is discarded before"
    return None
