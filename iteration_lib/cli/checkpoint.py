"""The commands on checkpoints: list them, ask for one, abort one."""

from __future__ import annotations

import time

import click

from iteration_lib import view
from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_fields, print_json, print_sentences, print_table
from iteration_lib.cli.person import this_person
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol.event import CheckpointAborted
from iteration_lib.protocol.status import CheckpointStatus, RunStatus
from iteration_lib.requesting import find_answer, request_checkpoint
from iteration_lib.stopping import is_driven
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import CheckpointRecord, RunRecord
from iteration_lib.store.seam import StoreWithHistory

CHECKPOINT_COLUMNS = ("checkpoint_id", "epoch", "attempt", "kind", "status", "size_bytes", "seconds")
_POLL_SECONDS = 0.2


@click.command()
@click.argument("run_name", metavar="RUN")
@store_options
def checkpoints(run_name: str, store_url: str | None, *, as_json: bool) -> None:
    """List a run's checkpoints. It says what they failed of, who pins them, and whether they are safe to delete.

    What was asked for and has not begun stands below, and which one is skipped when its turn comes.
    """
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        listed = store.list_checkpoints(found.run_id)
        requests = store.list_requests(found.run_id)
        pinned_by = [", ".join(_pinned_by(store, known)) for known in listed if not as_json]
    rows = [view.checkpoint_json(known) for known in listed]
    if as_json:
        print_json(rows)
    else:
        shown = [{**row, "pinned_by": who} for row, who in zip(rows, pinned_by, strict=True)]
        columns = [name for name in ("pinned_by", "failure", "reason") if any(row[name] for row in shown)]
        print_table(f"checkpoints of {found.run_key}", shown, (*CHECKPOINT_COLUMNS, "safe_to_delete", *columns))
    if not as_json and found.status is not RunStatus.DELETED:
        waiting = [known for known in requests if known.checkpoint_id is None]
        print_sentences(
            "asked for", [f"by {known.requested_by}, {view.instant(known.requested_at)}" for known in waiting]
        )
        skipped = range(found.last_checkpoint_id + 1, found.aborted_through + 1)
        print_sentences("aborted beforehand", [f"checkpoint {known}" for known in skipped])


def _pinned_by(store: StoreWithHistory, checkpoint: CheckpointRecord) -> list[str]:
    persons = [checkpoint.by_person] if checkpoint.by_person is not None else []
    return [*(find_run(store, run_id).run_key for run_id in checkpoint.by_branches), *persons]


@click.command()
@click.argument("run_name", metavar="RUN")
@click.argument("checkpoint_id", metavar="CHECKPOINT", type=click.IntRange(min=1))
@store_options
def abort(run_name: str, checkpoint_id: int, store_url: str | None, *, as_json: bool) -> None:
    """Abort a CHECKPOINT and all that are pending before it. The one that comes next may be aborted beforehand."""
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        before = store.list_checkpoints(found.run_id)
        event = CheckpointAborted(checkpoint_id=checkpoint_id, aborted_by=this_person())
        Coordinator(store).apply(found.run_id, event)
        answer = _aborted(found, checkpoint_id, before, store.list_checkpoints(found.run_id))
    if as_json:
        print_json(answer)
    else:
        click.echo(answer["said"])


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--wait", "wait_seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for it that long.")
@store_options
def checkpoint(run_name: str, store_url: str | None, *, wait_seconds: float | None, as_json: bool) -> None:
    """Ask for a checkpoint of the next epoch that aligns.

    It is taken whatever the pace; an attempt that has failed leaves it to the next one.
    """
    with open_store(settings_of(store_url)) as store:
        found = find_run(store, run_name)
        request_id = request_checkpoint(store, found, by=this_person())
        if not as_json:
            when = "" if is_driven(store, found) else ", once somebody drives the run"
            click.echo(f"the next epoch of {found.run_key} that aligns gets a checkpoint{when}")
        taken = _waited(store, found, request_id, wait_seconds) if wait_seconds is not None else None
    answer = {"run_id": found.run_id, "run_key": found.run_key, "request_id": request_id}
    if as_json:
        print_json({**answer, "checkpoint": view.checkpoint_json(taken) if taken is not None else None})
    elif taken is not None:
        print_fields(view.checkpoint_json(taken))


def _aborted(
    run: RunRecord, checkpoint_id: int, before: tuple[CheckpointRecord, ...], after: tuple[CheckpointRecord, ...]
) -> view.Json:
    """Say what became of an abort, by the rows before and after it."""
    were_open = {known.checkpoint_id for known in before if known.status is CheckpointStatus.PENDING}
    known_before = {known.checkpoint_id for known in before}
    aborted = [
        known.checkpoint_id
        for known in after
        if known.status is CheckpointStatus.ABORTED
        and known.checkpoint_id <= checkpoint_id
        and (known.checkpoint_id in were_open or known.checkpoint_id not in known_before)
    ]
    named = next((known for known in after if known.checkpoint_id == checkpoint_id), None)
    said = [f"checkpoint {known} is aborted" for known in aborted]
    if named is None:
        said.append(f"checkpoint {checkpoint_id} will be skipped when its turn comes")
    elif checkpoint_id not in aborted:
        said.append(f"checkpoint {checkpoint_id} was {named.status.value} already")
    return {
        "run_id": run.run_id,
        "run_key": run.run_key,
        "checkpoint_id": checkpoint_id,
        "status": named.status.value if named is not None else None,
        "aborted": aborted,
        "said": "; ".join(said),
    }


def wait_for(
    store: StoreWithHistory, run: RunRecord, request_id: str, wait_seconds: float, *, while_driven: bool = False
) -> CheckpointRecord | None:
    """Wait until the checkpoint that answers a request is completed; None where the run goes no further without it.

    That is a run of which no epoch aligns any more, and `while_driven` one that nobody drives any more. Raises
    IterationError when the checkpoint was aborted, or is not there in time.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        # Read before the answer: what has ended the run, or the attempt, may have given one.
        status, is_left = find_run(store, run.run_id).status, while_driven and not is_driven(store, run)
        found = find_answer(store, run, request_id)
        if found is not None and found.status is not CheckpointStatus.PENDING:
            return found
        if is_left or (found is None and status is not RunStatus.RUNNING):
            return None
        if time.monotonic() >= deadline:
            where = f"checkpoint {found.checkpoint_id} is pending" if found is not None else "none has begun since"
            raise IterationError(
                f"the checkpoint that was asked for is not completed after {wait_seconds:g} s ({where}); the request "
                f"stays, see: iteration checkpoints {run.run_id}"
            )
        time.sleep(_POLL_SECONDS)


def _waited(store: StoreWithHistory, run: RunRecord, request_id: str, wait_seconds: float) -> CheckpointRecord:
    taken = wait_for(store, run, request_id, wait_seconds)
    if taken is None:
        status = find_run(store, run.run_id).status.value
        raise IterationError(
            f"run {run.run_key} is {status} without the checkpoint that was asked for, see: iteration show {run.run_id}"
        )
    return taken
