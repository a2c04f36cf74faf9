"""How do tests say what an attempt says? Short makers of events, and the means to play them to the protocol."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest

from iteration_lib.errors import IterationError
from iteration_lib.protocol import Command, Event, RunState, decide
from iteration_lib.protocol.event import (
    AlignmentTimedOut,
    AttemptEnded,
    AttemptOpened,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointPinned,
    CheckpointReleased,
    CheckpointRequested,
    CheckpointsDiscarded,
    CheckpointTriggered,
    Committable,
    CommittablesCommitted,
    DataPinned,
    DefinitionChanged,
    EpochOpened,
    FellBack,
    FinishedPart,
    ListenerNotified,
    OperatorFinished,
    OutputsPublished,
    PartsFinished,
    RunDeleted,
    RunResumed,
    StopRequested,
    SubtasksAligned,
)
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, AttemptId, CheckpointState, FailedOperator, Holder, RunId
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure, CheckpointStatus, StopKind, UnalignedBy

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LEASE_SECONDS = 30.0
LATER = NOW + timedelta(seconds=LEASE_SECONDS)  # the first instant at which a lease taken NOW has run out
RUN_ID = RunId("00000000-0000-4000-8000-0000000000aa")
HOLDER = Holder(host="here", pid=7, process_started="1.00")
DIGEST = "ab" * 32
MANIFEST = "000001-00000000/checkpoint-000001.json"


def attempt_id(number: int, family: int = 0) -> AttemptId:
    """Return the id of the attempt that a test calls by a number; runs of one store need families of their own."""
    return AttemptId(f"{family:08x}-0000-4000-8000-{number:012d}")


@dataclass(frozen=True, slots=True)
class Sender:
    """An attempt as a test sees it: each method returns what this attempt would send."""

    number: int
    token: int
    family: int = 0

    @property
    def attempt_id(self) -> AttemptId:
        """Its id."""
        return attempt_id(self.number, self.family)

    def pins(self, name: str = "points", fingerprint: str = "f1") -> DataPinned:
        """A data stream was pinned."""
        return DataPinned(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            name=name,
            fingerprint=fingerprint,
            pin={"files": [f"{name}.parquet"]},
        )

    def opens(self, epoch: int, **heads: int) -> EpochOpened:
        """An epoch begins, by default with one head of one subtask."""
        return EpochOpened(
            attempt_id=self.attempt_id, fencing_token=self.token, epoch=epoch, heads=heads or {"centroids": 1}
        )

    def opens_if_ready(self, epoch: int, **heads: int) -> EpochOpened:
        """An epoch begins, if the one before lets it."""
        return replace(self.opens(epoch, **heads), if_ready=True)

    def reports(
        self, epoch: int, reports: Mapping[str, Mapping[int, int]] | None = None, **metrics: float
    ) -> SubtasksAligned:
        """Subtasks are done with an epoch, by default the one subtask of the one head, with three records."""
        return SubtasksAligned(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            epoch=epoch,
            reports={"centroids": {0: 3}} if reports is None else reports,
            metrics=metrics,
            seconds=0.25,
        )

    def switches(self, epoch: int, by: UnalignedBy = UnalignedBy.TIMEOUT) -> AlignmentTimedOut:
        """An open epoch switches to the unaligned checkpoint."""
        return AlignmentTimedOut(attempt_id=self.attempt_id, fencing_token=self.token, epoch=epoch, by=by)

    def marks(self, epoch: int, *parts: FinishedPart) -> PartsFinished:
        """Parts of durable edges are complete."""
        return PartsFinished(attempt_id=self.attempt_id, fencing_token=self.token, epoch=epoch, parts=parts)

    def finishes(self, operator_id: str = "scaled", output: str = "scaled-0.arrow") -> OperatorFinished:
        """An operator finished for good."""
        return OperatorFinished(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            operator_id=operator_id,
            output={"files": [{"path": output}]},
        )

    def triggers(self, epoch: int, **participants: int) -> CheckpointTriggered:
        """A checkpoint begins after the run's last one, by default with one participant of one subtask."""
        return CheckpointTriggered(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            epoch=epoch,
            participants=participants or {"centroids": 1},
            last_checkpoint_id=ANY,  # whichever the run has: triggers_after says which one the sender knows of
        )

    def triggers_last(self, epoch: int, **participants: int) -> CheckpointTriggered:
        """A checkpoint of the attempt's last epoch begins."""
        return replace(self.triggers(epoch, **participants), is_last=True)

    def triggers_after(self, last_checkpoint_id: int, epoch: int, **participants: int) -> CheckpointTriggered:
        """A checkpoint begins, the next one after the last that the sender knows of."""
        return replace(self.triggers(epoch, **participants), last_checkpoint_id=last_checkpoint_id)

    def acknowledges(self, checkpoint_id: int, **acknowledgements: tuple[int, ...]) -> CheckpointAcknowledged:
        """Participants have written their part of a checkpoint; there is no manifest yet."""
        return CheckpointAcknowledged(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            checkpoint_id=checkpoint_id,
            acknowledgements=acknowledgements,
        )

    def completes(
        self,
        checkpoint_id: int,
        *,
        sha256: str = DIGEST,
        path: str = MANIFEST,
        committables: tuple[Committable, ...] = (),
        **acknowledgements: tuple[int, ...],
    ) -> CheckpointAcknowledged:
        """The manifest is written, by default together with the part of the one participant."""
        return CheckpointAcknowledged(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            checkpoint_id=checkpoint_id,
            acknowledgements=acknowledgements or {"centroids": (0,)},
            manifest_path=path,
            manifest_sha256=sha256,
            size_bytes=64,
            committables=committables,
        )

    def declines(
        self,
        checkpoint_id: int,
        reason: str = "disk full",
        failure: CheckpointFailure = CheckpointFailure.DECLINED,
    ) -> CheckpointDeclined:
        """A participant cannot take part in a checkpoint."""
        return CheckpointDeclined(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            checkpoint_id=checkpoint_id,
            reason=reason,
            failure=failure,
        )

    def lets_expire(self, checkpoint_id: int) -> CheckpointDeclined:
        """A checkpoint took longer than it may."""
        return self.declines(checkpoint_id, "took longer than 600 s", CheckpointFailure.EXPIRED)

    def commits(self, *committed: tuple[int, str]) -> CommittablesCommitted:
        """Sinks show what was prepared, each by its epoch and output."""
        return CommittablesCommitted(attempt_id=self.attempt_id, fencing_token=self.token, committed=committed)

    def notifies(
        self,
        epoch: int,
        listener_id: str = "log",
        *,
        is_final: bool = False,
        effect: Mapping[str, object] | None = None,
    ) -> ListenerNotified:
        """A listener has heard of an epoch."""
        return ListenerNotified(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            listener_id=listener_id,
            epoch=epoch,
            is_final=is_final,
            effect=effect,
        )

    def changes(
        self,
        *operator_ids: str,
        dropped: tuple[str, ...] = (),
        kept: tuple[str, ...] = (),
        sinks: Mapping[str, bool] | None = None,
    ) -> DefinitionChanged:
        """The user's file has these operators now, and sends these outputs to sinks, those of every epoch or not."""
        return DefinitionChanged(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            definition={
                "iteration": "km",
                "operators": {known: operator(known) for known in operator_ids},
                "sinks": dict(sinks or {}),
            },
            changes=(f"operators: {', '.join(operator_ids)}",),
            dropped=dropped,
            kept=kept,
        )

    def falls_back(
        self, checkpoint: CheckpointState, reason: str = "a file is missing", *, published: Collection[str] = ()
    ) -> FellBack:
        """A person lets the run go on from an older checkpoint; these outputs are published of later epochs."""
        return FellBack(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            checkpoint=checkpoint,
            reason=reason,
            published=frozenset(published),
        )

    def publishes(self, state_digest: str = "cd" * 32) -> OutputsPublished:
        """The outputs are where readers look for them."""
        return OutputsPublished(
            attempt_id=self.attempt_id,
            fencing_token=self.token,
            outputs={"model": "/state/model"},
            state_digest=state_digest,
        )

    def ends(
        self,
        outcome: AttemptOutcome = AttemptOutcome.RELEASED,
        reason: str | None = None,
        failed: FailedOperator | None = None,
    ) -> AttemptEnded:
        """The attempt stops."""
        return AttemptEnded(
            attempt_id=self.attempt_id, fencing_token=self.token, outcome=outcome, reason=reason, failed=failed
        )

    def fails(self, reason: str = "operator 'sums' failed", *, failed: FailedOperator | None = None) -> AttemptEnded:
        """The attempt stops with an error."""
        return self.ends(AttemptOutcome.FAILED, reason, failed)

    def passes(self, epoch: int, checkpoint_id: int, records: int = 3) -> tuple[Event, ...]:
        """Everything that makes one epoch durable."""
        return (
            self.opens(epoch),
            self.reports(epoch, {"centroids": {0: records}}),
            self.triggers(epoch),
            self.completes(checkpoint_id),
        )


# Operators of the scripts that finish for good, and those on buckets; the others are on values, in every epoch.
FOR_GOOD = ("scaled", "norms", "z")
ON_BUCKETS = ("scaled", "norms", "y", "pairs", "sums", "words")


def operator(operator_id: str, *inputs: str) -> dict[str, object]:
    """Return an operator of a definition."""
    return {
        "name": operator_id,
        "role": "operator",
        "kind": "buckets" if operator_id in ON_BUCKETS else "value",
        "inputs": list(inputs),
        "finishes": operator_id in FOR_GOOD,
        "code": "00",
    }


FIRST = Sender(1, 1)
SECOND = Sender(2, 2)


def claim(
    number: int = 1,
    *,
    takeover: bool = False,
    ignore_edges: bool = False,
    gone: int | None = None,
    lease_ttl_seconds: float = LEASE_SECONDS,
    family: int = 0,
    **policy: float,
) -> AttemptOpened:
    """The attempt of this number wants to drive the run, with these fields of a policy."""
    return AttemptOpened(
        attempt_id=attempt_id(number, family),
        holder=HOLDER,
        lease_ttl_seconds=lease_ttl_seconds,
        gone_attempt_id=attempt_id(gone, family) if gone is not None else None,
        takeover=takeover,
        ignore_edges=ignore_edges,
        policy=CheckpointPolicy(**policy),  # type: ignore[arg-type]  # whole numbers, where its fields are
    )


def asks(number: int = 1, family: int = 0) -> CheckpointRequested:
    """A person asks for a checkpoint by hand; the number tells the requests of a run apart."""
    return CheckpointRequested(request_id=f"{family:08x}-0000-4000-8001-{number:012d}", requested_by="ann")


def stop_id(number: int = 1, family: int = 0) -> str:
    """Return the id of a request to stop; the number tells the requests of a run apart."""
    return f"{family:08x}-0000-4000-8002-{number:012d}"


def stops(
    number: int = 1, kind: StopKind = StopKind.STOP, *, gone: int | None = None, by: str = "ann", family: int = 0
) -> StopRequested:
    """A person asks the run to stop, or to drain."""
    return StopRequested(
        stop_id=stop_id(number, family),
        kind=kind,
        requested_by=by,
        gone_attempt_id=attempt_id(gone, family) if gone is not None else None,
    )


def drains(number: int = 1, *, family: int = 0) -> StopRequested:
    """A person asks the run to drain."""
    return stops(number, StopKind.DRAIN, family=family)


def resumes(number: int = 1, family: int = 0) -> RunResumed:
    """A person lets the run go on."""
    return RunResumed(stop_id=stop_id(number, family), resumed_by="bob")


def aborts(checkpoint_id: int, by: str = "ann") -> CheckpointAborted:
    """A person aborts every checkpoint up to an id."""
    return CheckpointAborted(checkpoint_id=checkpoint_id, aborted_by=by)


def discards(*checkpoint_ids: int, sender: Sender | None = None) -> CheckpointsDiscarded:
    """Somebody lets checkpoints go, or an attempt does."""
    return CheckpointsDiscarded(checkpoint_ids=checkpoint_ids, attempt_id=sender.attempt_id if sender else None)


def keeps(checkpoint_id: int, status: CheckpointStatus = CheckpointStatus.SUBSUMED) -> CheckpointPinned:
    """A person pins a checkpoint."""
    return CheckpointPinned(checkpoint_id=checkpoint_id, status=status, pinned_by="ann")


def releases(checkpoint_id: int) -> CheckpointReleased:
    """A person releases a checkpoint."""
    return CheckpointReleased(checkpoint_id=checkpoint_id)


def deletes(*, gone: int | None = None, family: int = 0) -> RunDeleted:
    """A person deletes the run."""
    return RunDeleted(deleted_by="ann", gone_attempt_id=attempt_id(gone, family) if gone is not None else None)


def prepared(epoch: int, output: str, *, in_store: bool = False) -> Committable:
    """What a sink prepared of an output of an epoch."""
    content = {"files": [f"{output}-{epoch}.parquet"]}
    return Committable(epoch=epoch, output=output, target="the folder rows", content=content, in_store=in_store)


def part(
    operator_id: str,
    first_bucket: int = 0,
    end_bucket: int = 1,
    *,
    total: int = 1,
    narrow: tuple[str, ...] = (),
    wide: tuple[str, ...] = (),
) -> FinishedPart:
    """Some buckets of an operator's output are durable, by default the only one there is."""
    return FinishedPart(
        operator_id=operator_id,
        total=total,
        first_bucket=first_bucket,
        end_bucket=end_bucket,
        output={"files": [f"{operator_id}-{first_bucket}.arrow"]},
        after_narrow=narrow,
        after_wide=wide,
        metrics={"rows": 2.0},
    )


def new_run(
    *, max_epochs: int | None = None, origin_epoch: int = NO_EPOCH, sinks: Mapping[str, bool] | None = None
) -> RunState:
    """A run that nobody has driven yet; with an origin's epoch, a branch."""
    return RunState(
        run_id=RUN_ID,
        max_epochs=max_epochs,
        last_durable_epoch=origin_epoch,
        origin_epoch=origin_epoch,
        holds_origin=origin_epoch != NO_EPOCH,
        sinks=sinks or {},
    )


def play(state: RunState, *events: Event, now: datetime = NOW) -> RunState:
    """Return the state after events that are all accepted."""
    for event in events:
        state, _ = decide(state, event, now)
    return state


def started(*events: Event, max_epochs: int | None = None, **policy: float) -> RunState:
    """Return a run that the first attempt holds, after these events of it."""
    return play(new_run(max_epochs=max_epochs), claim(**policy), *events)  # type: ignore[arg-type]  # fields of a policy


def commands_of(state: RunState, event: Event, now: datetime = NOW) -> tuple[Command, ...]:
    """Return what has to be written for an event."""
    return decide(state, event, now)[1]


def refusal(state: RunState, event: Event, now: datetime = NOW) -> IterationError:
    """Return the error with which an event is refused, having seen that the state stays what it was (I12)."""
    before = copy.deepcopy(state)

    with pytest.raises(IterationError) as caught:
        decide(state, event, now)

    assert before == state
    return caught.value


def is_written(kind: type[Command], commands: tuple[Command, ...]) -> bool:
    """Tell whether there is a command of a kind."""
    return any(isinstance(command, kind) for command in commands)


def assert_harmless_again(state: RunState, *events: Event) -> RunState:
    """Play events, each twice, and see that the second time changes and writes nothing; return the last state."""
    for event in events:
        state, _ = decide(state, event, NOW)

        assert (state, ()) == decide(state, event, NOW)
    return state
