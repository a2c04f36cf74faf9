"""What does every store refuse, though no protocol would ask for it? Illegal writes, and writes under another token."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import cast, get_args

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import ProtocolViolationError, SupersededError
from iteration_lib.protocol import Command, Event
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    AlignEpoch,
    AnswerRequests,
    CompleteCheckpoint,
    DeleteRun,
    DiscardCheckpoints,
    EndAttempt,
    FallBack,
    FinishOperator,
    MakeEpochsDurable,
    MarkCommitted,
    OpenAttempt,
    OpenEpoch,
    PinCheckpoint,
    PinData,
    PublishOutputs,
    RecordAcknowledgements,
    RecordCommittables,
    RecordNotice,
    RecordParts,
    RecordReports,
    RecordRequest,
    RecordStop,
    ReleaseCheckpoint,
    ReleaseOrigin,
    ReplaceDefinition,
    ResumeRun,
    SetRunStatus,
    StopRun,
    SubsumeCheckpoint,
    SwitchToUnaligned,
    TriggerCheckpoint,
    VoidEdges,
    VoidEpochs,
    VoidParts,
)
from iteration_lib.protocol.event import FinishedPart
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, Decision, FailedOperator, Reports, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    RunStatus,
    StopKind,
    TerminatedBy,
    UnalignedBy,
)
from iteration_lib.store.seam import StoreWithHistory, Transaction
from tests.protocol_script import (
    DIGEST,
    HOLDER,
    LATER,
    MANIFEST,
    NOW,
    Sender,
    aborts,
    asks,
    attempt_id,
    claim,
    part,
    prepared,
    stop_id,
)
from tests.store_script import DEFINITION, WIRED, a_run, added, history, new_family, read_state, wired

pytestmark = pytest.mark.postgres


@pytest.fixture
def midway(store: StoreWithHistory, first: Sender) -> RunId:
    """A run whose epoch 0 is durable, 1 aligned with a part of an edge and its checkpoint pending, 2 open.

    There is one pin, one marker, a part of an operator that finishes, a notice. Its last epoch publishes.
    """
    run = a_run(definition={**WIRED, "sinks": {"model": False}})
    assert store.add_run(run)
    run_id = run.run_id
    Coordinator(store).apply(
        run_id,
        claim(family=first.family, max_pending=2, tolerable_failures=1),
        first.pins("points"),
        first.finishes("scaled"),
        first.marks(NO_EPOCH, part("norms", 0, 1, total=4)),
        *first.passes(0, 1),
        first.notifies(0),
        first.opens(1),
        first.switches(1),
        first.marks(1, part("y", 0, 2, total=4)),
        first.reports(1),
        first.triggers(1),
        first.opens(2),
    )
    return run_id


HEADS = (Reports(name="centroids", values=(3,)),)
SILENT = (Reports(name="centroids", values=(None,)),)
TWO = (Reports(name="centroids", values=(None, None)),)
ONE_OF_TWO = (Reports(name="centroids", values=(3, None)),)
ONE_OF_TWO_HEARD = (Reports(name="centroids", values=(1, None)),)
GOES_ON = Decision(records={"centroids": 3}, terminated_by=None)
ENDS = Decision(records={"centroids": 0}, terminated_by=TerminatedBy.EMPTY_FEEDBACK)
NOT_THERE = 7
ABORT = AbortCheckpoint(checkpoint_id=2, failure=CheckpointFailure.DECLINED, reason="x")
ABORT_3 = AbortCheckpoint(checkpoint_id=3, failure=CheckpointFailure.ABORTED_BY_USER, reason="x")
END = EndAttempt(fencing_token=1, outcome=AttemptOutcome.RELEASED, reason=None)
COMPLETE = CompleteCheckpoint(
    checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=1, completed_at=NOW
)
LATE = dataclasses.replace(COMPLETE, is_subsumed=True)
ACKNOWLEDGE = RecordAcknowledgements(checkpoint_id=2, participants=(Reports(name="centroids", values=(1,)),))
REPORT = RecordReports(epoch=2, heads=HEADS, metrics={}, seconds=0.0)
ALIGN = AlignEpoch(epoch=2, decision=GOES_ON)
REPORT_NOTHING = dataclasses.replace(REPORT, heads=(Reports(name="centroids", values=(0,)),))
ALIGN_LAST = AlignEpoch(epoch=2, decision=ENDS)
OPEN = OpenEpoch(epoch=3, heads=SILENT)
VOID = VoidEpochs(after=0)
NEXT = (REPORT, ALIGN, OPEN)
SWITCH = SwitchToUnaligned(epoch=3, by=UnalignedBy.TIMEOUT)
TERMINATE = SetRunStatus(status=RunStatus.TERMINATING, terminated_by=TerminatedBy.CRITERIA)
LAST = SetRunStatus(status=RunStatus.TERMINATING, terminated_by=TerminatedBy.EMPTY_FEEDBACK)
FAIL = SetRunStatus(status=RunStatus.FAILED, failure="x")
PUBLISH = PublishOutputs(outputs={}, state_digest="d")
STOP = RecordStop(stop_id=stop_id(9, 9), kind=StopKind.STOP, requested_by="ann")
STOPPED = StopRun(stop_id=stop_id(9, 9))
UNDRIVEN = (ABORT, dataclasses.replace(END, outcome=AttemptOutcome.FAILED, reason="x"))
REST = (ABORT, END, VOID)  # nobody drives the run, and nothing waits
SAME = ReplaceDefinition(definition=DEFINITION, changes=("none",), dropped=())
FEWER = dataclasses.replace(
    SAME, definition={"operators": {"x": {"name": "x", "role": "operator", "kind": "value", "inputs": []}}}
)


DROPPED = dataclasses.replace(FEWER, dropped=("scaled",))


def stopping(number: int) -> tuple[Command, ...]:
    """A request with an id of its own, and its answer."""
    return dataclasses.replace(STOP, stop_id=stop_id(number, 9)), StopRun(stop_id=stop_id(number, 9))


def opened(token: int, *, ignores_edges: bool = False) -> OpenAttempt:
    return OpenAttempt(
        attempt_id=attempt_id(8, new_family()),
        fencing_token=token,
        holder=HOLDER,
        lease_expires_at=LATER,
        policy=CheckpointPolicy(),
        ignores_edges=ignores_edges,
    )


def triggered(checkpoint_id: int, epoch: int, participants: tuple[Reports, ...] = SILENT) -> TriggerCheckpoint:
    return TriggerCheckpoint(
        checkpoint_id=checkpoint_id, epoch=epoch, kind=CheckpointKind.PERIODIC, participants=participants
    )


# A new attempt has begun, under token 2, and voided what the first one left.
OVER = (ABORT, END, opened(2), VOID)
# More checkpoints have failed in a row than the attempt puts up with, the last one that of epoch 2.
FAILED = (ABORT, REPORT, ALIGN, triggered(3, 2), dataclasses.replace(ABORT, checkpoint_id=3))
ASKED = RecordRequest(request_id=asks(9, 9).request_id, requested_by="ann")
MANUAL = dataclasses.replace(triggered(3, 2), kind=CheckpointKind.MANUAL)
BY_HAND = (REPORT, ALIGN, ASKED, MANUAL)
# Checkpoint 3, which was made by hand, is pending of epoch 2, and epoch 3 is open.
OPEN_BEHIND_HAND = (*BY_HAND, AnswerRequests(checkpoint_id=3), ABORT, OPEN)
# One that was made by hand has failed, which none puts up with; another one completes all the same.
FAILED_BY_HAND = (
    *(*BY_HAND, AnswerRequests(checkpoint_id=3)),
    *(dataclasses.replace(ABORT, checkpoint_id=3), SubsumeCheckpoint(checkpoint_id=1)),
    *(ACKNOWLEDGE, COMPLETE, MakeEpochsDurable(through=1)),
)
# Checkpoint 2 covers epoch 1, and a new attempt, under token 2, has voided the rest: it could go on from checkpoint 1.
COMPLETED_2 = (SubsumeCheckpoint(checkpoint_id=1), ACKNOWLEDGE, COMPLETE, MakeEpochsDurable(through=1))
BEHIND = (*COMPLETED_2, END, opened(2), VoidEpochs(after=1))
FALL = FallBack(from_checkpoint_id=2, to_checkpoint_id=1, epoch=0, reason="a file is missing")


def finish(operator_id: str, epoch: int) -> FinishOperator:
    return FinishOperator(operator_id=operator_id, epoch=epoch, output={"files": []})


def completed(checkpoint_id: int, *, instead_of: int = 1) -> tuple[Command, ...]:
    """A checkpoint takes the place of another one."""
    complete = (dataclasses.replace(command, checkpoint_id=checkpoint_id) for command in (ACKNOWLEDGE, COMPLETE))
    return SubsumeCheckpoint(checkpoint_id=instead_of), *complete


def parts(epoch: int, *made: FinishedPart) -> RecordParts:
    return RecordParts(epoch=epoch, parts=made or (part("x"),))


FINAL = dataclasses.replace(triggered(3, 2), kind=CheckpointKind.FINAL)
SUBSUME_2 = dataclasses.replace(ABORT, failure=CheckpointFailure.SUBSUMED)
# Checkpoint 3 covers epoch 2, which ends the run and publishes.
PREPARED = RecordCommittables(committables=(prepared(2, "model"),))
IN_STORE = RecordCommittables(committables=(prepared(2, "model", in_store=True),))
UNPUBLISHED = (
    *(REPORT_NOTHING, ALIGN_LAST, FINAL, *completed(3), SUBSUME_2),
    *(MakeEpochsDurable(through=2), LAST),
)
TERMINATED = (*UNPUBLISHED, IN_STORE)
# Checkpoint 4 covers epoch 3, which ends the run and publishes; checkpoint 3, which was made by hand, is pending still.
ENDED = (
    *(*OPEN_BEHIND_HAND, dataclasses.replace(REPORT_NOTHING, epoch=3), dataclasses.replace(ALIGN_LAST, epoch=3)),
    *(dataclasses.replace(FINAL, checkpoint_id=4, epoch=3), *completed(4), MakeEpochsDurable(through=3), LAST),
    RecordCommittables(committables=(prepared(3, "model", in_store=True),)),
)
LATE_3 = tuple(dataclasses.replace(command, checkpoint_id=3) for command in (ACKNOWLEDGE, LATE))
# Checkpoint 3 is pending of epoch 2, beside checkpoint 2, and every subtask of epoch 3 has reported.
HELD = (*(REPORT, ALIGN, triggered(3, 2), OPEN), dataclasses.replace(REPORT, epoch=3))
# The same once both have completed: epoch 3 comes after the last durable one.
BEHIND_2 = (
    *(*HELD[:-1], *COMPLETED_2, *completed(3, instead_of=2)),
    MakeEpochsDurable(through=2),
)


# The last command of each is refused, and only that.
WRONG: dict[str, tuple[Command, ...]] = {
    "an attempt beside the live one": (opened(2),),
    "an attempt under a token out of turn": (END, opened(3)),
    "the end of an attempt that is not there": (dataclasses.replace(END, fencing_token=NOT_THERE),),
    "the end of an attempt that has ended": (END, END),
    "an operator that failed in an attempt that did not": (
        dataclasses.replace(END, failed=FailedOperator(operator_id="x", epoch=0)),
    ),
    "a checkpoint that fails once its attempt has ended": (END, ABORT),
    "a checkpoint that is completed once its attempt has ended": (
        *(SubsumeCheckpoint(checkpoint_id=1), ACKNOWLEDGE, END),
        COMPLETE,
    ),
    "a checkpoint that begins once its attempt has ended": (ABORT, REPORT, ALIGN, END, triggered(3, 2)),
    "an epoch that opens once its attempt has ended": (REPORT, ALIGN, END, OPEN),
    "reports once their attempt has ended": (END, REPORT),
    "a switch once its attempt has ended": (*NEXT, END, SWITCH),
    "a part once its attempt has ended": (END, parts(1)),
    "a pin once its attempt has ended": (END, PinData(name="more", fingerprint="f", pin={})),
    "an operator that finishes once its attempt has ended": (
        END,
        finish("norms", 1),
    ),
    "what is prepared once its attempt has ended": (*UNPUBLISHED, END, PREPARED),
    "a notice once its attempt has ended": (END, RecordNotice(listener_id="other", epoch=0, effect=None)),
    **{
        f"a checkpoint that begins, and is aborted by {failure.value} that has not happened": (
            *(ABORT, REPORT, ALIGN, triggered(3, 2)),
            dataclasses.replace(ABORT, checkpoint_id=3, failure=failure),
        )
        for failure in CheckpointFailure
        if not failure.is_counted
    },
    "an attempt that fails without a reason": (ABORT, dataclasses.replace(END, outcome=AttemptOutcome.FAILED)),
    "a failure without a reason": (END, SetRunStatus(status=RunStatus.FAILED)),
    "a failure of a run that is driven": (FAIL,),
    "a failure that no attempt had": (ABORT, END, FAIL),
    "a failure for another reason than its attempt's": (*UNDRIVEN, dataclasses.replace(FAIL, failure="y")),
    "another failure": (*UNDRIVEN, FAIL, dataclasses.replace(FAIL, failure="y")),
    "a failed run that goes on, and nobody drives it": (*UNDRIVEN, FAIL, SetRunStatus(status=RunStatus.RUNNING)),
    "an ending without a rule": (SetRunStatus(status=RunStatus.TERMINATING),),
    **{
        f"a run that is {status.value} by that alone": (*TERMINATED, END, dataclasses.replace(LAST, status=status))
        for status in (RunStatus.FINISHED, RunStatus.DELETED)
    },
    "a status out of turn": (
        *TERMINATED,
        SetRunStatus(status=RunStatus.RUNNING),
    ),
    "outputs of a run that is not terminating": (*REST, PUBLISH),
    "outputs while a checkpoint is pending": (*ENDED, END, PUBLISH),
    "outputs of a run that is driven": (*TERMINATED, PUBLISH),
    "an ending that no epoch decided": (*OVER, TERMINATE),
    "an ending by another rule": (*UNPUBLISHED[:-1], TERMINATE),
    **{
        f"an ending by {by.value}, which does not hold": (
            REPORT,
            dataclasses.replace(ALIGN, decision=dataclasses.replace(GOES_ON, terminated_by=by)),
        )
        for by in TerminatedBy
    },
    "an ending by records that were not reported": (REPORT, ALIGN_LAST),
    "an ending by an epoch that is not durable": (REPORT_NOTHING, ALIGN_LAST, LAST),
    "an epoch that goes on by records that were not reported": (REPORT_NOTHING, ALIGN),
    "an epoch that goes on though nothing is fed back": (
        REPORT_NOTHING,
        dataclasses.replace(ALIGN, decision=dataclasses.replace(ENDS, terminated_by=None)),
    ),
    "an epoch that goes on though the run is to drain": (
        *(dataclasses.replace(STOP, kind=StopKind.DRAIN), REPORT),
        ALIGN,
    ),
    "other operators while an epoch is open": (SAME,),
    "other operators while an epoch is aligned": (REPORT, ALIGN, SAME),
    "other operators between durable epochs": (*BEHIND_2, SAME),
    "a second pin of a stream": (PinData(name="points", fingerprint="f9", pin={}),),
    "a second marker of an operator": (finish("scaled", 1),),
    "a marker of an operator that is not there": (finish("nobody", 1),),
    "an epoch that is there": (REPORT, ALIGN, OpenEpoch(epoch=1, heads=SILENT)),
    "a durable epoch again": (REPORT, ALIGN, OpenEpoch(epoch=0, heads=SILENT)),
    "a second open epoch": (OPEN,),
    "an epoch after a gap": (*NEXT[:-1], OpenEpoch(epoch=4, heads=SILENT)),
    "an epoch after a voided one": (*OVER, OPEN),
    "an epoch after one that another attempt has left": (
        *OVER[:-1],
        VoidEpochs(after=1),
        OpenEpoch(epoch=2, heads=SILENT),
    ),
    "a void epoch of an attempt that is live": (ABORT, VOID),
    "an epoch after the one that ends the run": (REPORT_NOTHING, ALIGN_LAST, OPEN),
    "an epoch after too many checkpoints have failed": (*FAILED, OPEN),
    "an epoch after a checkpoint too many has failed and another one completed": (*FAILED_BY_HAND, OPEN),
    "an operator that does not finish for good": (finish("x", 1),),
    "an operator that finishes in an epoch that is over": (finish("norms", 0),),
    "an operator that finishes before what it takes": (finish("q", 1),),
    "a marker without files": (FinishOperator(operator_id="norms", epoch=1, output={}),),
    "an epoch that begins with reports": (*NEXT[:-1], OpenEpoch(epoch=3, heads=ONE_OF_TWO)),
    "an epoch without subtasks": (*NEXT[:-1], OpenEpoch(epoch=3, heads=(Reports(name="centroids", values=()),))),
    "reports of an epoch that is not there": (RecordReports(epoch=NOT_THERE, heads=SILENT),),
    "reports of an epoch that is aligned": (RecordReports(epoch=1, heads=SILENT),),
    "every report of an epoch that is not there": (dataclasses.replace(REPORT, epoch=NOT_THERE),),
    "every report of an epoch that is aligned": (dataclasses.replace(REPORT, epoch=1),),
    "every report of an epoch that is durable": (dataclasses.replace(REPORT, epoch=0),),
    "every report without what was measured": (RecordReports(epoch=2, heads=HEADS),),
    "a report that is no count": (dataclasses.replace(REPORT, heads=(Reports(name="centroids", values=(-1,)),)),),
    "a measure that is no number": (dataclasses.replace(REPORT, metrics={"loss": "low"}),),  # type: ignore[dict-item]
    "another report of a subtask": (
        *(*NEXT[:-1], OpenEpoch(epoch=3, heads=TWO), RecordReports(epoch=3, heads=ONE_OF_TWO)),
        dataclasses.replace(REPORT, epoch=3, heads=(Reports(name="centroids", values=(4, 1)),)),
    ),
    "a report that is taken back": (
        *(*NEXT[:-1], OpenEpoch(epoch=3, heads=TWO), RecordReports(epoch=3, heads=ONE_OF_TWO)),
        RecordReports(epoch=3, heads=TWO),
    ),
    "an acknowledgement that is taken back": (
        *(ABORT, REPORT, ALIGN, triggered(3, 2, TWO)),
        RecordAcknowledgements(checkpoint_id=3, participants=ONE_OF_TWO_HEARD),
        RecordAcknowledgements(checkpoint_id=3, participants=TWO),
    ),
    "measures of an epoch that lacks a report": (dataclasses.replace(REPORT, heads=SILENT),),
    "every report twice": (REPORT, REPORT),
    "reports of another head": (dataclasses.replace(REPORT, heads=(Reports(name="more", values=(3,)),)),),
    "reports of more subtasks": (dataclasses.replace(REPORT, heads=(Reports(name="centroids", values=(3, 3)),)),),
    "alignment of an epoch that is not there": (dataclasses.replace(ALIGN, epoch=NOT_THERE),),
    "alignment of an epoch that is aligned": (dataclasses.replace(ALIGN, epoch=1),),
    "alignment of an epoch that lacks a report": (ALIGN,),
    "an epoch that nothing holds and that does not align": (REPORT, PinCheckpoint(checkpoint_id=1, pinned_by="ann")),
    "alignment of an epoch that is held": (*HELD, dataclasses.replace(ALIGN, epoch=3)),
    "a switch of an epoch that is not there": (SWITCH,),
    "a switch of an epoch that is aligned": (dataclasses.replace(SWITCH, epoch=1),),
    "a second switch of an epoch": (*NEXT, SWITCH, dataclasses.replace(SWITCH, by=UnalignedBy.PREEMPTION)),
    "a part in an epoch that is not there": (parts(NOT_THERE),),
    "a part in an epoch that is durable": (parts(0),),
    "a part behind an epoch that is not durable": (dataclasses.replace(SWITCH, epoch=2), parts(2)),
    "a part in an epoch that switched, and is durable": (*COMPLETED_2, parts(1)),
    "a part in an epoch that switched, and is voided": (*OVER, parts(1)),
    "a part in an epoch that has not switched": (*BEHIND_2, parts(3)),
    "a part in an epoch that aligned and had not switched": (*COMPLETED_2, REPORT, ALIGN, parts(2)),
    "a part before all epochs but one": (parts(NO_EPOCH - 1),),
    "a part of an operator that has finished": (parts(NO_EPOCH, part("scaled", total=4)),),
    "a part of an operator that the run does not have": (parts(1, part("nobody")),),
    "a part of more buckets than the run has": (parts(1, part("v", 0, 1, total=17)),),
    "a part that is there": (parts(1, part("y", 0, 2, total=4)),),
    "a part inside another": (parts(1, part("y", 1, 2, total=4)),),
    "a part around another": (parts(1, part("y", 0, 4, total=4)),),
    "a part that overlaps another": (parts(1, part("y", 1, 3, total=4)),),
    "a part that overlaps one of its own batch": (parts(1, part("v", 0, 2, total=4), part("v", 1, 3, total=4)),),
    "a part of another total": (parts(1, part("y", 2, 4, total=5)),),
    "a part of another total than one of its own batch": (
        parts(1, part("v", 0, 1, total=4), part("v", 1, 2, total=2)),
    ),
    "a part before the first bucket": (parts(1, part("x", -1, 1)),),
    "a part behind the last bucket": (parts(1, part("x", 0, 2)),),
    "a part without buckets": (parts(1, part("x", 1, 1)),),
    "a part without files": (parts(1, dataclasses.replace(part("x"), output={})),),
    "a part that measured a text": (parts(1, dataclasses.replace(part("x"), metrics={"rows": "many"})),),
    "a part of a value in halves": (parts(1, part("u", 0, 1, total=2)),),
    "a part of fewer buckets than the run has": (parts(1, part("v", 0, 1, total=2)),),
    "a part of a data stream": (parts(1, part("points")),),
    "a part of a variable that a checkpoint holds": (parts(1, part("p")),),
    "a part in an epoch of an operator that finishes for good": (parts(1, part("norms", 0, 1, total=4)),),
    "a part of an operator that does not finish for good": (parts(NO_EPOCH, part("v", total=4)),),
    "a part before its input": (parts(1, part("w", 0, 1, total=4)),),
    "a part before another bucket of its input": (
        parts(1, part("v", 0, 2, total=4)),
        parts(1, part("w", 1, 3, total=4)),
    ),
    "a value before a bucket of its input": (
        parts(1, part("v", 0, 2, total=4), part("w", 0, 2, total=4)),
        parts(1, part("v", 2, 4, total=4), part("w", 2, 3, total=4)),
        parts(1, part("u")),
    ),
    "a part before an operator that finishes for good": (parts(1, part("t")),),
    "voiding edges that an attempt does not ignore": (VoidEdges(after=0),),
    "voiding parts that an attempt does not ignore": (VoidParts(operators=("norms",)),),
    "voiding epochs where there are none": (VoidEpochs(after=2),),
    "durable epochs taken back": (MakeEpochsDurable(through=-1),),
    "durable epochs again": (MakeEpochsDurable(through=0),),
    "durable epochs that no completed checkpoint covers": (MakeEpochsDurable(through=1),),
    "durable epochs beyond the completed checkpoint": (
        *(SubsumeCheckpoint(checkpoint_id=1), ACKNOWLEDGE, COMPLETE),
        MakeEpochsDurable(through=2),
    ),
    "a final checkpoint of an epoch that does not end the run": (REPORT, ALIGN, FINAL),
    "a checkpoint of the last epoch that is not final": (REPORT_NOTHING, ALIGN_LAST, triggered(3, 2)),
    "a checkpoint that is made by hand, and nobody asked": (REPORT, ALIGN, MANUAL),
    "a checkpoint that is not made by hand where a person asked": (*BY_HAND[:-1], triggered(3, 2)),
    "a checkpoint that is not made by hand where a person stops the run": (REPORT, ALIGN, STOP, triggered(3, 2)),
    "a checkpoint of an epoch that is not there": (triggered(3, NOT_THERE),),
    "a checkpoint of an epoch that is open": (triggered(3, 2),),
    "a checkpoint of an epoch that is voided": (*OVER, triggered(3, 1)),
    "a second checkpoint of an epoch": (triggered(3, 1),),
    "a checkpoint of another epoch than the last": (ABORT, triggered(3, 1)),
    "a checkpoint id taken back": (REPORT, ALIGN, triggered(1, 2)),
    "a checkpoint id that leaves one out": (REPORT, ALIGN, triggered(4, 2)),
    "a checkpoint id again": (REPORT, ALIGN, triggered(2, 2)),
    "a checkpoint after too many have failed": (*FAILED, triggered(4, 2)),
    "a checkpoint without participants": (REPORT, ALIGN, triggered(3, 2, ())),
    "a checkpoint that begins with acknowledgements": (REPORT, ALIGN, triggered(3, 2, ONE_OF_TWO_HEARD)),
    "a request for a checkpoint of a run that terminates": (*TERMINATED, ASKED),
    "a request for a checkpoint of a run that is stopped": (*REST, *stopping(5), ASKED),
    "an answer by a checkpoint that is not there": (ASKED, AnswerRequests(checkpoint_id=NOT_THERE)),
    "an answer by a checkpoint that nobody asked for": (ASKED, AnswerRequests(checkpoint_id=2)),
    "an answer by a checkpoint that began before": (
        *(*BY_HAND, AnswerRequests(checkpoint_id=3), dataclasses.replace(ASKED, request_id=asks(7, 9).request_id)),
        AnswerRequests(checkpoint_id=3),
    ),
    "an answer by the final checkpoint, which began before and is pending": (
        *(REPORT_NOTHING, ALIGN_LAST, FINAL, ASKED),
        AnswerRequests(checkpoint_id=3),
    ),
    "an answer where nobody asked": (*BY_HAND, AnswerRequests(checkpoint_id=3), AnswerRequests(checkpoint_id=3)),
    "an abort beyond the next checkpoint": (ABORT, AbortThrough(checkpoint_id=4)),
    "an abort of more than what was aborted": (AbortThrough(checkpoint_id=3),),
    "an abort of what begins next in a run that is stopped": (*REST, *stopping(3), AbortThrough(checkpoint_id=3)),
    "an abort taken back": (ABORT, AbortThrough(checkpoint_id=3), AbortThrough(checkpoint_id=2)),
    "acknowledgements of a checkpoint that is not there": (
        RecordAcknowledgements(checkpoint_id=NOT_THERE, participants=HEADS),
    ),
    "acknowledgements of another participant": (
        RecordAcknowledgements(checkpoint_id=2, participants=(Reports(name="more", values=(1,)),)),
    ),
    "an acknowledgement that is another number": (
        RecordAcknowledgements(checkpoint_id=2, participants=(Reports(name="centroids", values=(2,)),)),
    ),
    "acknowledgements of a completed checkpoint": (RecordAcknowledgements(checkpoint_id=1, participants=HEADS),),
    "a second completed checkpoint": (ACKNOWLEDGE, COMPLETE),
    "a completed checkpoint that lacks an acknowledgement": (SubsumeCheckpoint(checkpoint_id=1), COMPLETE),
    "a completed checkpoint whose epoch is not durable": (SubsumeCheckpoint(checkpoint_id=1), ACKNOWLEDGE, COMPLETE),
    "a late checkpoint that lacks an acknowledgement": (LATE,),
    "a late checkpoint where none is newer": (ACKNOWLEDGE, LATE),
    "a subsumed checkpoint where none is newer": (SubsumeCheckpoint(checkpoint_id=1),),
    "a checkpoint that was aborted before it began": (
        *(ABORT, AbortThrough(checkpoint_id=3), REPORT, ALIGN, triggered(3, 2)),
    ),
    "a checkpoint that was aborted before it began, and expires": (
        *(ABORT, AbortThrough(checkpoint_id=3), REPORT, ALIGN, triggered(3, 2)),
        dataclasses.replace(ABORT_3, failure=CheckpointFailure.EXPIRED),
    ),
    "a manifest whose digest is none": (ACKNOWLEDGE, dataclasses.replace(LATE, manifest_sha256="x")),
    "a checkpoint without a size": (ACKNOWLEDGE, dataclasses.replace(LATE, size_bytes=-1)),
    "completing a completed checkpoint": (dataclasses.replace(COMPLETE, checkpoint_id=1),),
    "subsuming a pending checkpoint": (SubsumeCheckpoint(checkpoint_id=2),),
    "aborting a completed checkpoint": (dataclasses.replace(ABORT, checkpoint_id=1),),
    "aborting a checkpoint twice": (ABORT, ABORT),
    "aborting a checkpoint that is not there": (dataclasses.replace(ABORT, checkpoint_id=NOT_THERE),),
    "what is prepared of an epoch that is not durable": (REPORT_NOTHING, ALIGN_LAST, PREPARED),
    "what is prepared of an epoch that is not there": (
        *UNPUBLISHED,
        RecordCommittables(committables=(prepared(7, "model"),)),
    ),
    "what is prepared of an epoch that does not publish it": (
        *UNPUBLISHED,
        RecordCommittables(committables=(prepared(1, "model"),)),
    ),
    "what is prepared of an output that no sink takes": (
        *UNPUBLISHED,
        RecordCommittables(committables=(prepared(2, "rows"),)),
    ),
    "what is prepared twice": (*UNPUBLISHED, PREPARED, IN_STORE),
    "committing what is not stored": (MarkCommitted(committed=((2, "model"),)),),
    "committing again": (*ENDED, MarkCommitted(committed=((2, "model"),))),
    "finishing with what is not committed": (*UNPUBLISHED, PREPARED, END, PUBLISH),
    "a fallback while an epoch is open": (*BEHIND[:-1], FALL),
    "a fallback by the attempt that made durable what it gives up": (
        *(REPORT, ALIGN, triggered(3, 2), *COMPLETED_2, *completed(3, instead_of=2)),
        *(MakeEpochsDurable(through=2), dataclasses.replace(FALL, from_checkpoint_id=3)),
    ),
    "a fallback to a newer checkpoint": (*BEHIND, dataclasses.replace(FALL, from_checkpoint_id=1, to_checkpoint_id=2)),
    "a fallback to another epoch": (*BEHIND, dataclasses.replace(FALL, epoch=1)),
    "a fallback from a checkpoint that is not the newest": (*BEHIND, dataclasses.replace(FALL, from_checkpoint_id=7)),
    "a fallback behind what a listener has heard": (
        *BEHIND,
        RecordNotice(listener_id="log", epoch=1, effect=None),
        FALL,
    ),
    "a fallback of a run that terminates": (*TERMINATED, dataclasses.replace(FALL, from_checkpoint_id=3)),
    "a fallback by an attempt that has ended": (*BEHIND, dataclasses.replace(END, fencing_token=2), FALL),
    "a second stop": (STOP, dataclasses.replace(STOP, stop_id=stop_id(8, 9), kind=StopKind.DRAIN)),
    "a stop of a run that terminates": (*TERMINATED, STOP),
    "a stopped run that nobody asked to stop": (*REST, STOPPED),
    "a stopped run that was asked to drain": (*REST, dataclasses.replace(STOP, kind=StopKind.DRAIN), STOPPED),
    "a stopped run that is driven": (*OVER, STOP, STOPPED),
    "a stopped run that has something pending": (END, VOID, STOP, STOPPED),
    "a stopped run that has something open": (ABORT, END, STOP, STOPPED),
    "a run that is resumed and was not stopped": (STOP, ResumeRun(stop_id=STOP.stop_id, resumed_by="bob")),
    "an attempt of a stopped run": (*REST, STOP, STOPPED, opened(2)),
    "a run that drains and nobody asked it to": (
        *OVER,
        SetRunStatus(status=RunStatus.TERMINATING, terminated_by=TerminatedBy.DRAINED),
    ),
    "a notice of an epoch that is not durable": (RecordNotice(listener_id="log", epoch=1, effect=None),),
    "a notice that leaves out an epoch": (*COMPLETED_2, RecordNotice(listener_id="other", epoch=1, effect=None)),
    "a notice of the end for who hears of each epoch": (
        *TERMINATED,
        RecordNotice(listener_id="log", epoch=2, effect=None, is_final=True),
    ),
    "a notice of the end while the run goes on": (
        RecordNotice(listener_id="other", epoch=0, effect=None, is_final=True),
    ),
    "a notice of the end with another epoch than the last": (
        *TERMINATED,
        RecordNotice(listener_id="other", epoch=1, effect=None, is_final=True),
    ),
    "a notice of no epoch": (RecordNotice(listener_id="log", epoch=-1, effect=None),),
    "a second notice of an epoch": (RecordNotice(listener_id="log", epoch=0, effect={"a": 1}),),
}

# The last command of each is legal, but only under the token in force.
STALE: tuple[tuple[Command, ...], ...] = (
    (*UNDRIVEN, FAIL),
    (*TERMINATED, END, PUBLISH),
    (PinData(name="more", fingerprint="f", pin={}),),
    (finish("norms", 1),),
    NEXT,
    HELD,
    (REPORT, ALIGN),
    (*NEXT, SWITCH),
    (parts(1),),
    REST,
    (SubsumeCheckpoint(checkpoint_id=1), ACKNOWLEDGE, COMPLETE, MakeEpochsDurable(through=1)),
    (REPORT, ALIGN, triggered(3, 2)),
    (ASKED,),
    (*BY_HAND, AnswerRequests(checkpoint_id=3)),
    (ABORT, AbortThrough(checkpoint_id=3)),
    (ACKNOWLEDGE,),
    (*ENDED, *LATE_3),
    (ABORT,),
    (*UNPUBLISHED, PREPARED),
    (*UNPUBLISHED, PREPARED, MarkCommitted(committed=((2, "model"),))),
    (RecordNotice(listener_id="other", epoch=0, effect=None),),
    (*COMPLETED_2, DiscardCheckpoints(checkpoint_ids=(1,))),
    (PinCheckpoint(checkpoint_id=1, pinned_by="ann"),),
    (
        PinCheckpoint(checkpoint_id=1, pinned_by="ann"),
        ABORT,
        ReleaseCheckpoint(checkpoint_id=1),
    ),
    (*REST, DeleteRun(deleted_by="ann")),
    (*BEHIND, FALL),
    (STOP,),
    (*REST, *stopping(7)),
    (*REST, *stopping(6), ResumeRun(stop_id=stop_id(6, 9), resumed_by="bob")),
)

# By the statement that writes them: what comes before, commands that are written together, what makes them legal.
TOGETHER: dict[str, tuple[tuple[Command, ...], tuple[Command, ...], tuple[Command, ...]]] = {
    "measure_and_align_epoch": ((), (REPORT, ALIGN), ()),
    "trigger_aborted_checkpoint": (
        (ABORT, AbortThrough(checkpoint_id=3), REPORT, ALIGN),
        (triggered(3, 2), ABORT_3),
        (),
    ),
    "acknowledge_and_complete_checkpoint": (ENDED, LATE_3, ()),
    "subsume_and_complete_checkpoint": (
        (),
        (SubsumeCheckpoint(checkpoint_id=1), ACKNOWLEDGE, COMPLETE),
        (MakeEpochsDurable(through=1),),
    ),
}

# Legal only with what follows in the same transaction: the newer checkpoint that subsumes it.
HALF: tuple[tuple[Command, ...], ...] = ((SubsumeCheckpoint(checkpoint_id=1),),)

# Each command of these is legal where it stands, but not that the step ends with the last one.
HALF_DONE: dict[str, tuple[Command, ...]] = {
    "an attempt that ends and leaves its checkpoint pending": (END,),
    "an attempt that begins and leaves an epoch of another one": (ABORT, END, opened(2)),
    "an attempt of a run that has failed": (
        *(ABORT, dataclasses.replace(END, outcome=AttemptOutcome.FAILED, reason="x"), FAIL),
        *(opened(2), VOID),
    ),
    "an attempt that has failed, and its run goes on": (
        *(ABORT, dataclasses.replace(END, outcome=AttemptOutcome.FAILED, reason="x")),
    ),
    "an attempt that begins and ends, and leaves an epoch of another one": (
        *(ABORT, END, opened(2), dataclasses.replace(END, fencing_token=2)),
    ),
    "a stopped run that goes on, and stops again": (*(*REST, *stopping(4), SetRunStatus(status=RunStatus.RUNNING)),),
    "an attempt that has finished, and its run has not": (
        *(*TERMINATED, dataclasses.replace(END, outcome=AttemptOutcome.FINISHED)),
    ),
    "a run that is let go and asked to stop, and goes on": (STOP, ABORT, END),
    "a run that nobody drives, is asked to stop, and goes on": (*REST, STOP),
    "an epoch that ends the run, is durable, and the run goes on": (*UNPUBLISHED[:-1], IN_STORE),
    "a durable epoch of which nothing is stored that it publishes": UNPUBLISHED,
    "a checkpoint that completes and leaves an older one pending": (
        *(REPORT, ALIGN, triggered(3, 2), *completed(3), MakeEpochsDurable(through=2)),
    ),
    "a checkpoint by hand that answers nobody": BY_HAND,
    "a final checkpoint that completes and answers not all": (
        *(REPORT_NOTHING, ALIGN_LAST, FINAL, ASKED, *completed(3), SUBSUME_2),
        *(MakeEpochsDurable(through=2), LAST, IN_STORE),
    ),
}


@pytest.mark.parametrize("commands", HALF_DONE.values(), ids=HALF_DONE)
def test_step_that_is_half_done_at_the_end_of_its_transaction_is_refused(
    store: StoreWithHistory, midway: RunId, commands: tuple[Command, ...]
) -> None:
    before = history(store, midway), read_state(store, midway)

    refused_write(store, midway, commands, token_after(commands[:-1]))

    assert before == (history(store, midway), read_state(store, midway))


def name_of(commands: Sequence[Command]) -> str:
    return type(commands[-1]).__name__


@pytest.mark.parametrize("commands", WRONG.values(), ids=WRONG)
def test_write_that_breaks_the_protocol_is_refused_and_leaves_nothing(
    store: StoreWithHistory, midway: RunId, commands: tuple[Command, ...]
) -> None:
    before = history(store, midway), read_state(store, midway)

    refused_write(store, midway, commands, token_after(commands[:-1]))

    assert before == (history(store, midway), read_state(store, midway))


@pytest.mark.parametrize("later", [-1, 1, 2], ids=lambda later: f"token {later:+}")
@pytest.mark.parametrize("commands", [*STALE, *HALF], ids=name_of)
def test_write_under_another_token_is_refused_by_the_store_itself(
    store: StoreWithHistory, midway: RunId, commands: tuple[Command, ...], later: int
) -> None:
    """Though the protocol would have refused it before: this is the fence that a stale reader of states runs into."""
    before = history(store, midway), read_state(store, midway)

    refused_write(store, midway, commands, token_after(commands[:-1]) + later)

    assert before == (history(store, midway), read_state(store, midway))


@pytest.mark.parametrize("commands", STALE, ids=name_of)
def test_same_write_under_the_token_in_force_is_accepted(
    store: StoreWithHistory, midway: RunId, commands: tuple[Command, ...]
) -> None:
    before = history(store, midway), read_state(store, midway)

    with store.transaction(midway) as transaction:
        write_in_turn(transaction, asked_anew(commands))

    assert before != (history(store, midway), read_state(store, midway))


def asked_anew(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """The same commands, with ids of requests that no run of the other tests has."""
    return tuple(
        dataclasses.replace(command, request_id=str(uuid.uuid4())) if isinstance(command, RecordRequest) else command
        for command in commands
    )


@pytest.mark.parametrize("token", [0, 2, 3], ids=lambda token: f"token {token}")
@pytest.mark.parametrize("name", TOGETHER)
def test_statement_that_writes_several_commands_is_fenced_itself(
    store: StoreWithHistory, midway: RunId, name: str, token: int
) -> None:
    before, together, after = TOGETHER[name]

    def write(in_force: int) -> None:
        with store.transaction(midway) as transaction:
            transaction.write(asked_anew(before), 1)
            transaction.write(together, in_force)
            transaction.write(after, 1)

    with pytest.raises(ProtocolViolationError, match=f"{name} touched 0 rows|token {token} is not in force"):
        write(token)
    write(1)


def test_every_command_but_those_that_make_tokens_is_fenced() -> None:
    fenced = {type(commands[-1]) for commands in (*STALE, *HALF)}
    fenced |= {ReplaceDefinition, VoidEdges, VoidParts}  # fenced below
    assert set(get_args(Command)) - {OpenAttempt, EndAttempt, ReleaseOrigin} == fenced  # that of a branch is below


@pytest.fixture
def begun(store: StoreWithHistory, first: Sender) -> RunId:
    """A run whose attempt has opened no epoch, with one marker."""
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family), first.finishes("scaled"))
    return run_id


@pytest.mark.parametrize(
    ("commands", "token"),
    [((END, SAME), 1), ((FEWER,), 1), *(((DROPPED,), token) for token in (0, 2, 3))],
    ids=["an attempt that has ended", "a marker lost unasked", "token 0", "token 2", "token 3"],
)
def test_other_operators_are_refused(
    store: StoreWithHistory, begun: RunId, commands: tuple[Command, ...], token: int
) -> None:
    before = history(store, begun), read_state(store, begun)

    refused_write(store, begun, commands, token)

    assert before == (history(store, begun), read_state(store, begun))


@pytest.mark.parametrize(
    "commands",
    [
        (AbortThrough(checkpoint_id=3), ABORT),
        (
            *(ABORT, AbortThrough(checkpoint_id=3), REPORT, ALIGN, triggered(3, 2), *completed(3)),
            MakeEpochsDurable(through=2),
        ),
        (
            *(ABORT, AbortThrough(checkpoint_id=3), ASKED, REPORT, ALIGN),
            *(MANUAL, AnswerRequests(checkpoint_id=3), ABORT_3),
        ),
    ],
    ids=["aborted too late", "completed all the same", "aborted after the answer"],
)
def test_checkpoint_that_a_person_aborts_is_never_anything_else_in_between(
    store: StoreWithHistory, midway: RunId, commands: tuple[Command, ...]
) -> None:
    def write() -> None:
        with store.transaction(midway) as transaction:
            transaction.write(commands, 1)

    with pytest.raises(ProtocolViolationError):
        write()


def test_other_operators_are_accepted_before_the_first_epoch(store: StoreWithHistory, begun: RunId) -> None:
    with store.transaction(begun) as transaction:
        transaction.write([DROPPED], 1)

    assert ["x"] == [operator.operator_id for operator in store.list_operators(begun)]


def ignore_edges(transaction: Transaction) -> None:
    """Open an attempt that ignores edges, and has not voided them yet."""
    write_in_turn(transaction, (ABORT, END, opened(2, ignores_edges=True), VOID))


VOIDING = (VoidEdges(after=0), VoidParts(operators=("norms",)))


@pytest.mark.parametrize("token", [0, 1, 3], ids=lambda token: f"token {token}")
@pytest.mark.parametrize("command", VOIDING, ids=lambda command: type(command).__name__)
def test_edges_are_voided_under_the_token_of_the_attempt_that_ignores_them(
    store: StoreWithHistory, midway: RunId, command: Command, token: int
) -> None:
    def write(in_force: int) -> None:
        with store.transaction(midway) as transaction:
            ignore_edges(transaction)
            transaction.write([command], in_force)
            transaction.write([known for known in VOIDING if known is not command], 2)

    with pytest.raises(ProtocolViolationError):
        write(token)
    write(2)

    assert (2, True) == next((a.fencing_token, a.ignores_edges) for a in store.list_attempts(midway)[-1:])
    assert all(known.voided_at is not None for known in store.list_parts(midway))


@pytest.mark.parametrize("left", VOIDING, ids=lambda command: type(command).__name__)
def test_attempt_that_ignores_edges_and_leaves_some_is_refused(
    store: StoreWithHistory, midway: RunId, left: Command
) -> None:
    def write() -> None:
        with store.transaction(midway) as transaction:
            ignore_edges(transaction)
            transaction.write([known for known in VOIDING if known is not left], 2)

    with pytest.raises(ProtocolViolationError):
        write()


@pytest.mark.parametrize(
    "command", [VoidEdges(after=1), VoidParts(operators=("x",))], ids=lambda command: type(command).__name__
)
def test_voiding_where_there_is_nothing_is_refused(store: StoreWithHistory, midway: RunId, command: Command) -> None:
    with store.transaction(midway) as transaction:
        ignore_edges(transaction)
        transaction.write(VOIDING, 2)

    with pytest.raises(ProtocolViolationError), store.transaction(midway) as transaction:
        transaction.write([command], 2)


def test_edges_are_voided_before_the_attempt_opens_an_epoch(store: StoreWithHistory, midway: RunId) -> None:
    with store.transaction(midway) as transaction:
        ignore_edges(transaction)
        transaction.write((*VOIDING, OpenEpoch(epoch=1, heads=SILENT)), 2)
        transaction.write((dataclasses.replace(SWITCH, epoch=1), parts(1)), 2)

    with pytest.raises(ProtocolViolationError), store.transaction(midway) as transaction:
        transaction.write([VoidEdges(after=0)], 2)


def test_part_is_accepted_after_what_it_was_computed_from(store: StoreWithHistory, midway: RunId) -> None:
    """The same buckets of a bucketed input, all of another one; what finishes for good as a whole."""
    with store.transaction(midway) as transaction:
        transaction.write([parts(1, part("v", 0, 2, total=4), part("w", 0, 1, total=4))], 1)
        transaction.write([parts(1, part("w", 1, 2, total=4), part("v", 2, 4, total=4))], 1)
        transaction.write([parts(1, part("w", 2, 4, total=4), part("u"))], 1)
        transaction.write([finish("norms", 1), parts(1, part("t"))], 1)

    found = [known.operator_id for known in store.list_parts(midway) if known.epoch == 1]
    assert ["t", "u", "v", "v", "w", "w", "w", "y"] == sorted(found)


WIRED_BY_ID = {
    **DEFINITION,
    "format": 2,
    "operators": {
        **cast("dict[str, object]", DEFINITION["operators"]),
        **wired("p", "value", role="variable"),
        **wired("s", "value", role="variable", part_of="v"),
        **wired("v", "buckets", "points", "p", "s"),
    },
}


@pytest.mark.parametrize("definition", [WIRED, WIRED_BY_ID], ids=["by name", "by id"])
def test_part_in_epoch_0_comes_after_the_first_value_that_it_was_computed_from(
    store: StoreWithHistory, first: Sender, definition: dict[str, object]
) -> None:
    """No checkpoint holds that value; what an operator carries is nothing yet."""
    run = a_run(definition=definition)
    store.add_run(run)
    state = Coordinator(store).apply(run.run_id, claim(family=first.family), first.opens(0), first.switches(0))
    marks = [finish("scaled", 0), parts(0, part("v", 0, 2, total=4))]

    refused_write(store, run.run_id, marks, state.fencing_token)
    with store.transaction(run.run_id) as transaction:
        transaction.write([marks[0], parts(0, part("p")), marks[1]], state.fencing_token)

    assert ["p", "v"] == [known.operator_id for known in store.list_parts(run.run_id)]


def token_after(commands: Sequence[Command]) -> int:
    """Return the token that is in force behind commands: the second once they open an attempt."""
    return 2 if any(isinstance(command, OpenAttempt) for command in commands) else 1


def write_in_turn(transaction: Transaction, commands: Sequence[Command]) -> None:
    """Write each command under the token that is in force then."""
    begun = [command for number, command in enumerate(commands, 1) if token_after(commands[:number]) == 1]
    for token, written in ((1, begun), (2, commands[len(begun) :])):
        if written:
            transaction.write(written, token)


def refused_write(store: StoreWithHistory, run_id: RunId, commands: Sequence[Command], token: int) -> None:
    """See the last command refused under a token, after those before it were accepted under the one in force."""
    accepted = []

    def write() -> None:
        with store.transaction(run_id) as transaction:
            write_in_turn(transaction, commands[:-1])
            accepted.append(True)
            transaction.write(commands[-1:], token)

    with pytest.raises(ProtocolViolationError):
        write()
    assert [True] == accepted


def test_checkpoint_that_a_person_aborts_in_the_step_in_which_it_begins_is_aborted(
    store: StoreWithHistory, first: Sender
) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family), first.opens(0), first.reports(0))

    Coordinator(store).apply(run_id, first.triggers(0), aborts(1))

    assert [CheckpointFailure.ABORTED_BY_USER] == [known.failure for known in store.list_checkpoints(run_id)]


def test_fallback_behind_what_a_sink_publishes_is_refused(store: StoreWithHistory, first: Sender) -> None:
    run = a_run(definition={**DEFINITION, "sinks": {"rows": True}})
    store.add_run(run)
    published = [
        event
        for epoch in range(2)
        for event in (
            *(first.opens(epoch), first.reports(epoch), first.triggers(epoch)),
            first.completes(epoch + 1, committables=(prepared(epoch, "rows", in_store=True),)),
        )
    ]
    Coordinator(store).apply(run.run_id, claim(family=first.family), *published)

    refused_write(store, run.run_id, (END, opened(2), FALL), 2)

    assert 1 == getattr(store.find_run(run.run_id), "last_durable_epoch", None)


def test_attempt_id_of_another_run_is_refused(store: StoreWithHistory, first: Sender) -> None:
    one, other = added(store), added(store)
    Coordinator(store).apply(one, claim(family=first.family))

    with pytest.raises(SupersededError):
        Coordinator(store).apply(other, claim(family=first.family))

    assert () == store.list_attempts(other)


def test_request_of_another_run_is_refused(store: StoreWithHistory, family: int) -> None:
    one, other = added(store), added(store)
    Coordinator(store).apply(one, asks(1, family))
    before = store.list_requests(one)

    with pytest.raises(ProtocolViolationError):
        Coordinator(store).apply(other, asks(1, family))

    assert (before, ()) == (store.list_requests(one), store.list_requests(other))


def test_claim_of_an_attempt_that_ended_before_the_last_is_refused(store: StoreWithHistory, family: int) -> None:
    """The protocol remembers the last attempt that ended, the store all of them."""
    run_id = added(store)
    first, second = Sender(1, 1, family), Sender(2, 2, family)
    Coordinator(store).apply(run_id, claim(1, family=family), first.ends())
    Coordinator(store).apply(run_id, claim(2, family=family), second.ends())

    with pytest.raises(SupersededError):
        Coordinator(store).apply(run_id, claim(1, family=family))

    assert [1, 2] == [found.fencing_token for found in store.list_attempts(run_id)]


def _spoiled(first: Sender, number: float) -> dict[str, Event]:
    return {
        "metric": first.reports(0, loss=number),
        "part": first.marks(0, dataclasses.replace(part("x"), metrics={"loss": number})),
        "output": first.marks(0, dataclasses.replace(part("x"), output={"loss": number})),
    }


@pytest.mark.parametrize("where", ["metric", "part", "output"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_number_that_json_does_not_know_is_refused(
    store: StoreWithHistory, first: Sender, where: str, number: float
) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family), first.opens(0), first.switches(0))
    before = history(store, run_id)

    with pytest.raises(ProtocolViolationError):
        Coordinator(store).apply(run_id, _spoiled(first, number)[where])

    assert before == history(store, run_id)
