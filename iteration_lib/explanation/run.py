"""Why is a run where it is, and who drove it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iteration_lib.errors import UsageError
from iteration_lib.explanation.checkpoint import explain_checkpoint
from iteration_lib.explanation.epoch import covering_checkpoint, explain_decision, explain_epoch, held_by_checkpoints
from iteration_lib.explanation.history import RunHistory
from iteration_lib.marker import edges_of
from iteration_lib.process import is_gone
from iteration_lib.protocol.bucket_range import show_share
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import AttemptOutcome, EpochStatus, RunStatus, StopKind
from iteration_lib.state.copies import ORIGIN
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord, OperatorRecord, PartRecord
from iteration_lib.view import Json, attempt_json, checkpoint_json, instant, show_numbered


def explain_run(history: RunHistory, epoch: int | None = None) -> Json:
    """Return a run, or one epoch of it, with sentences that say why; raises UsageError for one that is not there."""
    epochs = [known for known in history.epochs if epoch in (None, known.epoch)]
    if epoch is not None and not epochs:
        begun = [known.epoch for known in history.epochs]
        shown = f"its epochs are {min(begun)} to {max(begun)}" if begun else "nobody has begun one"
        raise UsageError(f"run {history.run.run_key!r} has no epoch {epoch}; {shown}")
    tokens = {known.fencing_token for known in epochs}
    told = {known.checkpoint_id for found in epochs for known in _checkpoints_of(history, found)}
    return {
        "run_id": history.run.run_id,
        "run_key": history.run.run_key,
        "status": history.run.status.value,
        "because": list(_run(history)),
        "attempts": [
            {**attempt_json(known), "because": list(_attempt(history, known))}
            for known in history.attempts
            if epoch is None or known.fencing_token in tokens
        ],
        "operators": [
            {
                "operator_id": known.operator_id,
                "epoch": known.finished_epoch,
                "because": list(_operator(history, known)),
            }
            for known in history.operators
            if known.finished_epoch is not None
        ],
        "epochs": [explain_epoch(history, known) for known in epochs],
        "checkpoints": [
            {**checkpoint_json(known), "because": list(explain_checkpoint(history, known))}
            for known in history.checkpoints
            if epoch is None or known.checkpoint_id in told
        ],
    }


def _checkpoints_of(history: RunHistory, epoch: EpochRecord) -> Iterator[CheckpointRecord]:
    """Return the checkpoints of an epoch, those that held it, and the one that made it durable."""
    cover = covering_checkpoint(history, epoch)
    yield from (known for known in history.checkpoints if known.epoch == epoch.epoch)
    yield from held_by_checkpoints(history, epoch)
    yield from (cover,) if cover is not None else ()


def _run(history: RunHistory) -> Iterator[str]:
    run = history.run
    yield from _branching(history)
    yield from _stops(history)
    if run.terminated_by is not None:
        last = next(e for e in reversed(history.epochs) if e.status is EpochStatus.DURABLE)
        yield (
            f"after epoch {last.epoch}, {history.describe_attempt(last.fencing_token)} "
            f"{explain_decision(history, last, last.decision_records or {})}"
        )
    if run.finished_at is not None:
        yield f"its outputs were published {instant(run.finished_at)}"
    if run.status is RunStatus.DELETED:
        yield f"it was deleted by {run.deleted_by} {instant(run.deleted_at)}"
    if run.status in (RunStatus.FINISHED, RunStatus.DELETED):
        return
    if run.status is RunStatus.STOPPED:
        return
    if run.terminated_by is not None:
        yield "its outputs are still to be published"
    last_attempt = history.attempts[-1] if history.attempts else None
    if last_attempt is None:
        yield "nobody has driven it yet"
    elif last_attempt.ended_at is None:
        yield _driving(history, last_attempt)
    else:
        yield f"nobody drives it: {_outcome(last_attempt)}"


def _branching(history: RunHistory) -> Iterator[str]:
    branch = history.branch
    if branch is not None:
        where = f"of run {branch.origin_run_id}" if branch.origin_run_id is not None else f"in {branch.uri}"
        known = (
            f"checkpoint {branch.origin_checkpoint_id}" if branch.origin_checkpoint_id is not None else "a savepoint"
        )
        when = instant(branch.branched_at)
        yield f"{branch.branched_by} had it begin behind epoch {branch.epoch}, from {known} {where}, {when}"


def _driving(history: RunHistory, attempt: AttemptRecord) -> str:
    """Say whether an attempt that has not ended drives the run: its process may be gone, or its lease over."""
    who = history.describe_attempt(attempt.fencing_token)
    until = instant(attempt.lease_expires_at)
    if is_gone(attempt.holder):
        return f"nobody drives it: {who} is gone without a word, and the next attempt takes the run over"
    if attempt.is_lease_over:
        return f"nobody is known to drive it: the lease of {who} ran out {until}, and any attempt may take the run over"
    return f"{who} drives it; its lease runs out {until} unless it is renewed"


def _stops(history: RunHistory) -> Iterator[str]:
    """Say who asked the run to stop or to drain, what came of it, and who let it go on."""
    for stop in history.stops:
        what = "stop" if stop.kind is StopKind.STOP else "drain"
        said = f"{stop.requested_by} asked it to {what} {instant(stop.requested_at)}"
        if stop.resumed_at is not None:
            yield f"{said}; stopped {instant(stop.stopped_at)}; {stop.resumed_by} resumed it {instant(stop.resumed_at)}"
        elif stop.stopped_at is not None:
            run = history.run
            durable = f"after epoch {run.last_durable_epoch}" if run.epochs else "before its first epoch was durable"
            yield f"{said}; stopped {instant(stop.stopped_at)}, {durable}, until somebody resumes it"
        else:
            yield said


def _outcome(attempt: AttemptRecord) -> str:
    """Say how an attempt ended."""
    why = {
        AttemptOutcome.RELEASED: attempt.reason or "it had reached the last of the epochs that it was asked for",
        AttemptOutcome.FAILED: attempt.reason or "",
        AttemptOutcome.FINISHED: "the run was finished",
        AttemptOutcome.SUPERSEDED: attempt.reason or "",
    }
    outcome = attempt.outcome or AttemptOutcome.RELEASED
    return f"attempt {attempt.fencing_token} ended {instant(attempt.ended_at)} as {outcome.value}: {why[outcome]}"


def _attempt(history: RunHistory, attempt: AttemptRecord) -> Iterator[str]:
    driven = [known.epoch for known in history.epochs if known.fencing_token == attempt.fencing_token]
    yield f"opened epochs {min(driven)} to {max(driven)}" if driven else "opened no epoch"
    yield _pace(attempt.policy)
    yield from (
        f"fell back to checkpoint {fell.to_checkpoint_id} of epoch {fell.epoch} {instant(fell.fell_back_at)}, because "
        f"checkpoint {fell.from_checkpoint_id} is broken: {fell.reason}"
        for fell in history.fallbacks
        if fell.fencing_token == attempt.fencing_token
    )
    yield from (f"its iteration is another: {change}" for change in attempt.definition_changes or ())
    if attempt.ended_at is not None:
        yield _outcome(attempt)
    after = history.attempt_after(attempt.fencing_token)
    if attempt.outcome is AttemptOutcome.SUPERSEDED and after is not None and not history.was_stopped(attempt, after):
        yield f"superseded by {history.describe_attempt(after.fencing_token)}"


def _pace(policy: CheckpointPolicy) -> str:
    """Say how an attempt paces its checkpoints; what is as it is by default goes without saying."""
    usual, said = CheckpointPolicy(), []
    if policy.min_pause_seconds:
        said.append(f"at least {policy.min_pause_seconds:g} s apart")
    if policy.max_pending != usual.max_pending:
        said.append(f"up to {policy.max_pending} at once")
    if policy.timeout_seconds != usual.timeout_seconds:
        said.append(f"each within {policy.timeout_seconds:g} s")
    if policy.tolerable_failures != usual.tolerable_failures:
        said.append(f"up to {policy.tolerable_failures} failures in a row")
    every = "every epoch" if policy.every_epochs == 1 else f"every {policy.every_epochs} epochs"
    return ", ".join((f"takes a checkpoint {every}", *said))


def _operator(history: RunHistory, operator: OperatorRecord) -> Iterator[str]:
    marked_by = operator.fencing_token
    who = f" by {history.describe_attempt(marked_by)}" if marked_by is not None else ""
    yield f"finished for good before epoch {operator.finished_epoch} was durable, marked{who}"
    if _is_copied(operator):
        yield "was not run: it had finished in the checkpoint that the run began from, and its output was copied"
    yield from _going_on(history, operator)
    computed = {known.fencing_token for known in history.epochs}
    later = [token for token in sorted(computed) if marked_by is not None and token > marked_by]
    if later:
        yield f"skipped by {show_numbered('attempt', later)}: its output is read from its files"


def _is_copied(operator: OperatorRecord) -> bool:
    """Tell whether an operator's output is what a branch has copied: it lies where those copies do."""
    files: Any = (operator.output or {}).get("files", ())  # Any: JSON
    return any(file["path"].partition("/")[2].startswith(f"{ORIGIN}/") for file in files)


def _going_on(history: RunHistory, operator: OperatorRecord) -> Iterator[str]:
    """Say what earlier attempts had left of an operator that another one finished."""
    left: dict[int, list[PartRecord]] = {}
    for part in history.parts:
        is_of_it = (part.epoch, part.operator_id, part.voided_at) == (NO_EPOCH, operator.operator_id, None)
        if is_of_it and part.fencing_token != operator.fencing_token:
            left.setdefault(part.fencing_token, []).append(part)
    for token, parts in sorted(left.items()):
        for edge in edges_of(parts):
            share = show_share(edge.finished, edge.total)
            yield f"attempt {token} had left a durable edge of it, {share}, which was not run again"
