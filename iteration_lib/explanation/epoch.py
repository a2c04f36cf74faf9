"""Why did an epoch align when it did, what was skipped in it, and why did the run go on after it, or not?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from iteration_lib.explanation.history import RunHistory
from iteration_lib.marker import edges_of
from iteration_lib.protocol.bucket_range import show_share
from iteration_lib.protocol.state import CRITERIA, EdgeState
from iteration_lib.protocol.status import (
    CheckpointFailure,
    CheckpointStatus,
    EpochStatus,
    OperatorStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
    UnalignedBy,
)
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord, PartRecord
from iteration_lib.view import Json, epoch_json, instant, show_numbered


def explain_epoch(history: RunHistory, epoch: EpochRecord) -> Json:
    """Return an epoch under one attempt, and sentences on how it came to be what it is."""
    held_by = held_by_checkpoints(history, epoch)
    cover = covering_checkpoint(history, epoch)
    is_held = bool(held_by) and epoch.held_at is not None and epoch.aligned_at is not None
    return {
        **epoch_json(epoch),
        "holder": history.describe_attempt(epoch.fencing_token),
        "heads": {head: _head_json(counts) for head, counts in epoch.records.items()},
        "skipped": [_edge_json(edge, marked_by) for edge, marked_by in found_edges(history, epoch)],
        "held_by": [known.checkpoint_id for known in held_by],
        "held_seconds": _seconds(epoch.held_at, epoch.aligned_at) if is_held else None,
        "decided_from": dict(epoch.decision_records) if epoch.decision_records is not None else None,
        "checkpoint_id": cover.checkpoint_id if cover is not None else None,
        "because": [
            *_opening(history, epoch),
            *_skipping(history, epoch),
            *_switching(history, epoch),
            *_aligning(history, epoch, held_by),
            *_ending(history, epoch, cover),
        ],
    }


def held_by_checkpoints(history: RunHistory, epoch: EpochRecord) -> tuple[CheckpointRecord, ...]:
    """Return the checkpoints that held an epoch all of whose heads had reported; none if nothing did (I14)."""
    attempt = history.attempt(epoch.fencing_token)
    reported_at = epoch.held_at
    if reported_at is None or attempt is None:
        return ()
    pending = tuple(
        known
        for known in history.checkpoints
        if known.fencing_token == epoch.fencing_token
        and known.epoch < epoch.epoch
        and known.triggered_at <= reported_at
        and (known.ended_at is None or known.ended_at > reported_at)
    )
    return pending if len(pending) >= attempt.policy.max_pending else ()


def covering_checkpoint(history: RunHistory, epoch: EpochRecord) -> CheckpointRecord | None:
    """Return the checkpoint that made an epoch durable."""
    if epoch.status is not EpochStatus.DURABLE:
        return None
    covering = [known for known in history.covers_of(epoch) if known.ended_at is not None]
    return min(covering, key=lambda known: (known.ended_at, known.checkpoint_id), default=None)


def found_edges(history: RunHistory, epoch: EpochRecord) -> tuple[tuple[EdgeState, tuple[int, ...]], ...]:
    """Return the durable edges that an attempt found when it opened an epoch, each with the attempts that marked it."""
    found = [
        part
        for part in history.parts
        if part.epoch == epoch.epoch
        and part.fencing_token < epoch.fencing_token
        and (part.voided_at is None or part.voided_at > epoch.opened_at)
    ]
    return tuple(
        (edge, tuple(sorted({part.fencing_token for part in found if part.operator_id == edge.operator_id})))
        for edge in edges_of(found)
    )


def _opening(history: RunHistory, epoch: EpochRecord) -> Iterator[str]:
    earlier = [
        known.fencing_token
        for known in history.epochs
        if known.epoch == epoch.epoch and known.fencing_token < epoch.fencing_token
    ]
    again = f", after {show_numbered('attempt', earlier)} had begun it" if earlier else ""
    yield f"opened {instant(epoch.opened_at)} by {history.describe_attempt(epoch.fencing_token)}{again}"


def _skipping(history: RunHistory, epoch: EpochRecord) -> Iterator[str]:
    for edge, marked_by in found_edges(history, epoch):
        what = "was not run" if edge.status is OperatorStatus.FINISHED else "went on"
        who, share = show_numbered("attempt", marked_by), show_share(edge.finished, edge.total)
        yield f"operator {edge.operator_id!r} {what}: {who} had left a durable edge of it, {share}"
    voided = [known for known in history.parts if known.epoch == epoch.epoch and known.voided_at is not None]
    for attempt in history.attempts if voided else ():
        has_others = attempt.definition_changes and not attempt.ignores_edges
        why = "with other operators" if has_others else "by --ignore-edges"
        for edge in edges_of(_voided_by(history, attempt, epoch, voided)):
            what = f"a durable edge of {edge.operator_id!r}, {show_share(edge.finished, edge.total)}"
            yield f"{what}, was voided when attempt {attempt.fencing_token} took the run, {why}"


def _voided_by(
    history: RunHistory, attempt: AttemptRecord, epoch: EpochRecord, voided: Sequence[PartRecord]
) -> list[PartRecord]:
    """Return what an attempt found of the first epoch that it was to run, and voided before it opened that.

    A fallback voids what lies behind it by itself.
    """
    fell_back = any(known.fencing_token == attempt.fencing_token for known in history.fallbacks)
    if attempt.fencing_token > epoch.fencing_token or fell_back or history.first_epoch_of(attempt) != epoch.epoch:
        return []
    after = history.attempt_after(attempt.fencing_token)
    until = after.started_at if after is not None and after.started_at <= epoch.opened_at else epoch.opened_at
    return [
        part
        for part in voided
        if part.fencing_token < attempt.fencing_token
        and part.voided_at is not None
        and attempt.started_at <= part.voided_at < until
    ]


def _switching(history: RunHistory, epoch: EpochRecord) -> Iterator[str]:
    if epoch.unaligned_by is None:
        return
    why = {
        UnalignedBy.TIMEOUT: "it took longer than the alignment timeout",
        UnalignedBy.PREEMPTION: "its process, or its task, was told to end",
    }[epoch.unaligned_by]
    yield f"switched to unaligned {instant(epoch.unaligned_at)}, because {why}"
    left = [part for part in history.parts if (part.epoch, part.fencing_token) == (epoch.epoch, epoch.fencing_token)]
    for edge in edges_of(left):
        yield f"left a durable edge of {edge.operator_id!r}, {show_share(edge.finished, edge.total)}"


def _aligning(history: RunHistory, epoch: EpochRecord, held_by: tuple[CheckpointRecord, ...]) -> Iterator[str]:
    for head, counts in epoch.records.items():
        records, reported = sum(count or 0 for count in counts), len(counts) - counts.count(None)
        yield f"{head}: {reported} of {len(counts)} subtasks reported, {records} records fed back"
    if held_by:
        yield _holding(epoch, held_by)
    if epoch.aligned_at is not None and epoch.decision_records is not None:
        yield f"aligned {instant(epoch.aligned_at)}; {explain_decision(history, epoch, epoch.decision_records)}"


def _holding(epoch: EpochRecord, held_by: tuple[CheckpointRecord, ...]) -> str:
    """Say what held an epoch, and until when: its own row may be older than those of the checkpoints."""
    first = _first_ended(held_by)
    if first is None:
        return f"is held: {_checkpoints(held_by, 'is', 'are')} not through"
    pending = f"while {_checkpoints(held_by, 'was', 'were')} pending"
    if epoch.aligned_at is None:
        return f"was held {pending}, until {_end_of(first)}"
    return f"held for {_seconds(epoch.held_at, epoch.aligned_at):.3f} s, {pending}; released when {_end_of(first)}"


def _first_ended(checkpoints: Sequence[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the first of some checkpoints to end; one that completes ends those that it subsumes in the same step."""
    ended = [known for known in checkpoints if known.ended_at is not None]
    return min(ended, key=lambda known: (known.ended_at, known.status is CheckpointStatus.ABORTED), default=None)


def _end_of(checkpoint: CheckpointRecord) -> str:
    """Say how a checkpoint ended, or that its attempt did: that aborts whatever is pending, and releases nothing."""
    if checkpoint.failure is CheckpointFailure.ATTEMPT_ENDED:
        return "its attempt ended"
    how = "was aborted" if checkpoint.status is CheckpointStatus.ABORTED else "completed"
    return f"checkpoint {checkpoint.checkpoint_id} {how}"


def explain_decision(history: RunHistory, epoch: EpochRecord, records: Mapping[str, int]) -> str:
    """Say what was decided after an aligned epoch, by which rule, and from what."""
    made_from = ", ".join(f"{head}={count}" for head, count in records.items())
    match epoch.terminated_by:
        case TerminatedBy.EMPTY_FEEDBACK:
            return f"decided that the run terminates, because nothing was fed back (from {made_from})"
        case TerminatedBy.CRITERIA:
            return f"decided that the run terminates, because the criteria is empty (from {made_from})"
        case TerminatedBy.MAX_EPOCHS:
            return (
                f"decided that the run terminates, because it is the last of max_epochs={history.run.max_epochs} "
                f"(from {made_from})"
            )
        case TerminatedBy.DRAINED:
            by = [stop.requested_by for stop in history.stops if stop.kind is StopKind.DRAIN]
            return f"decided that the run terminates, because {by[-1]} asked it to drain (from {made_from})"
    also = " and the criteria is not empty" if CRITERIA in records else ""
    return f"decided that the run goes on, because records were fed back{also} (from {made_from})"


def _ending(history: RunHistory, epoch: EpochRecord, cover: CheckpointRecord | None) -> Iterator[str]:
    if epoch.status is EpochStatus.VOIDED:
        after = history.attempt_after(epoch.fencing_token)
        stop, fell = history.stop_between(epoch, after), history.fallback_over(epoch)
        if fell is not None:
            who = history.describe_attempt(fell.fencing_token)
            yield f"voided: {who} fell back to checkpoint {fell.to_checkpoint_id} of epoch {fell.epoch}"
        elif stop is not None:
            yield f"voided: no checkpoint covered it when the run stopped, as {stop.requested_by} had asked"
        elif after is None and history.run.status is RunStatus.DELETED:
            yield f"voided: no checkpoint covered it when {history.run.deleted_by} deleted the run"
        else:
            who = history.describe_attempt(after.fencing_token) if after is not None else "a newer attempt"
            yield f"voided: no checkpoint covered it when {who} took the run"
    elif cover is not None:
        yield f"durable {instant(epoch.durable_at)}: checkpoint {cover.checkpoint_id} of epoch {cover.epoch} completed"
        yield from (
            f"listener {notice.listener_id!r} heard of it {instant(notice.noticed_at)}"
            for notice in history.notices
            if notice.epoch == epoch.epoch
        )
        yield from _publishing(history, epoch)
    elif epoch.status is EpochStatus.ALIGNED:
        pending = [
            known
            for known in history.checkpoints
            if known.status is CheckpointStatus.PENDING and known.epoch >= epoch.epoch
        ]
        waits_for = f"{_checkpoints(pending, 'is', 'are')} pending" if pending else "no checkpoint"
        yield f"not durable yet: {waits_for}"


def _publishing(history: RunHistory, epoch: EpochRecord) -> Iterator[str]:
    for known in history.committables:
        if known.epoch != epoch.epoch:
            continue
        if known.committed_at is None:
            is_deleted = history.run.status is RunStatus.DELETED
            follows = "its run was deleted before that was committed" if is_deleted else "the next attempt commits it"
            yield f"output {known.output!r} is prepared for {known.target}, and {follows}"
        else:
            yield f"output {known.output!r} was committed to {known.target} {instant(known.committed_at)}"


def _checkpoints(known: Sequence[CheckpointRecord], one: str, several: str) -> str:
    """Name checkpoints as the subject of a sentence, with the verb that fits one or several."""
    named = show_numbered("checkpoint", [checkpoint.checkpoint_id for checkpoint in known])
    return f"{named} {one if len(known) == 1 else several}"


def _head_json(counts: tuple[int | None, ...]) -> Json:
    return {
        "expected": len(counts),
        "reported": len(counts) - counts.count(None),
        "records": sum(count or 0 for count in counts),
    }


def _edge_json(edge: EdgeState, marked_by: tuple[int, ...]) -> Json:
    return {
        "operator_id": edge.operator_id,
        "buckets": [list(known) for known in edge.finished],
        "of": edge.total,
        "attempts": list(marked_by),
    }


def _seconds(since: datetime | None, until: datetime | None) -> float:
    return (until - since).total_seconds() if since is not None and until is not None else 0.0
