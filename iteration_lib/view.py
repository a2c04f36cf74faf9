"""How are a run and its history shown? Pure: records in, plain JSON out, for the command line and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from iteration_lib.marker import edges_of
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import EpochStatus, OperatorStatus, RunStatus
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    EpochRecord,
    OperatorRecord,
    PartRecord,
    RunRecord,
    StopRecord,
)

Json = dict[str, object]


def result_json(run: RunRecord) -> Json:
    """Return what `iteration run` answers with. `epochs` is the number of durable passes."""
    return {
        "run_id": run.run_id,
        "run_key": run.run_key,
        "status": run.status.value,
        "epochs": run.epochs,
        "terminated_by": run.terminated_by.value if run.terminated_by is not None else None,
        "outputs": dict(run.outputs or {}),
        "state_digest": run.state_digest,
    }


def run_json(run: RunRecord) -> Json:
    """Return a run."""
    return {
        **result_json(run),
        "reference": run.reference,
        "params": dict(run.params),
        "state_uri": run.state_uri,
        "max_buckets": run.max_buckets,
        "failure": run.failure,
        "asked_to": run.asked_to.value if run.asked_to is not None else None,
        "created_at": instant(run.created_at),
        "finished_at": instant(run.finished_at),
    }


def attempt_json(attempt: AttemptRecord) -> Json:
    """Return an attempt; `outcome` is None while it is live."""
    return {
        "attempt": attempt.fencing_token,
        "attempt_id": attempt.attempt_id,
        "holder": attempt.holder.describe(),
        "started_at": instant(attempt.started_at),
        "lease_expires_at": instant(attempt.lease_expires_at),
        "ended_at": instant(attempt.ended_at),
        "outcome": attempt.outcome.value if attempt.outcome is not None else None,
        "reason": attempt.reason,
        "failed": asdict(attempt.failed) if attempt.failed is not None else None,
        "policy": asdict(attempt.policy),
        "definition_changes": list(attempt.definition_changes or ()),
    }


def epoch_json(epoch: EpochRecord) -> Json:
    """Return an epoch; `attempt` is the fencing token it ran under, `records` the feedback per head."""
    return {
        "epoch": epoch.epoch,
        "status": epoch.status.value,
        "attempt": epoch.fencing_token,
        "seconds": epoch.seconds,
        "records": {head: sum(count or 0 for count in counts) for head, counts in epoch.records.items()},
        "metrics": dict(epoch.metrics),
        "unaligned_by": epoch.unaligned_by.value if epoch.unaligned_by is not None else None,
        "terminated_by": epoch.terminated_by.value if epoch.terminated_by is not None else None,
    }


def operators_json(
    run: RunRecord,
    operators: Sequence[OperatorRecord],
    epochs: Sequence[EpochRecord],
    parts: Sequence[PartRecord] = (),
) -> list[Json]:
    """Return the operators: FINISHED in the epoch that they finished in, or as far as the epoch at hand has come.

    That is the open one, else the last that aligned; what is finished inside an open epoch is what is durable of it.
    """
    at_hand = _epoch_at_hand(epochs)
    live = [part for part in parts if part.voided_at is None and part.epoch in (NO_EPOCH, at_hand)]
    statuses = {edge.operator_id: edge.status for edge in edges_of(live)}
    over = run.status is RunStatus.FINISHED
    return [
        {
            "operator_id": operator.operator_id,
            "role": operator.role,
            "epoch": operator.finished_epoch if operator.finished_epoch is not None else at_hand,
            "status": (
                OperatorStatus.FINISHED
                if over or operator.finished_epoch is not None
                else statuses.get(operator.operator_id, OperatorStatus.RUNNING)
            ).value,
        }
        for operator in operators
        if operator.role == "operator"
    ]


def _epoch_at_hand(epochs: Sequence[EpochRecord]) -> int | None:
    reached = (EpochStatus.OPEN, EpochStatus.ALIGNED, EpochStatus.DURABLE)
    return max((known.epoch for known in epochs if known.status in reached), default=None)


def checkpoint_json(checkpoint: CheckpointRecord) -> Json:
    """Return a checkpoint; `seconds` is how long it was pending."""
    seconds = (checkpoint.ended_at - checkpoint.triggered_at).total_seconds() if checkpoint.ended_at else None
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "epoch": checkpoint.epoch,
        "attempt": checkpoint.fencing_token,
        "kind": checkpoint.kind.value,
        "status": checkpoint.status.value,
        "size_bytes": checkpoint.size_bytes,
        "seconds": seconds,
        "manifest": checkpoint.manifest_path,
        "failure": checkpoint.failure.value if checkpoint.failure is not None else None,
        "reason": checkpoint.reason,
        "safe_to_delete": checkpoint.safe_to_delete,
        "pinned_by": list(checkpoint.by_branches),
        "pinned_by_person": checkpoint.by_person,
        "triggered_at": instant(checkpoint.triggered_at),
    }


def stop_json(stop: StopRecord) -> Json:
    """Return a request to stop or to drain."""
    return {
        "kind": stop.kind.value,
        "requested_by": stop.requested_by,
        "requested_at": instant(stop.requested_at),
        "stopped_at": instant(stop.stopped_at),
        "resumed_by": stop.resumed_by,
        "resumed_at": instant(stop.resumed_at),
    }


def show_numbered(kind: str, numbers: Sequence[int]) -> str:
    """Return in words one or several of a kind: `checkpoint 1`, or `checkpoints 1, 2 and 3`."""
    *others, last = map(str, numbers)
    return f"{kind}s {', '.join(others)} and {last}" if others else f"{kind} {last}"


def instant(at: datetime | None) -> str | None:
    """Return a time as text, to the millisecond."""
    return at.isoformat(timespec="milliseconds") if at is not None else None
