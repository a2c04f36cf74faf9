"""What holds of a run, whatever happened to it? The invariants of iteration_lib/protocol as an oracle for tests.

A Ledger writes the commands, row by row, as a store would, and refuses what the invariants forbid; it decides nothing
and shares no code with `decide`. What the rules leave no choice in (is a checkpoint due, of which kind, is an epoch
held, how many failures are there) it works out anew from its rows, in its own way.
"""

from __future__ import annotations

from datetime import datetime

from iteration_lib.protocol import Command, Event, RunState
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
from iteration_lib.protocol.event import (
    AttemptOpened,
    CheckpointTriggered,
    DefinitionChanged,
    FinishedPart,
    ListenerNotified,
)
from iteration_lib.protocol.state import Decision, Reports
from iteration_lib.protocol.status import (
    CheckpointFailure,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
)
from tests.protocol_rows import FOR_GOOD, AttemptRow, CheckpointRow, EpochRow, PartRow, Rows, StopRow

LEGAL_RUN_STEPS = {
    ("RUNNING", "TERMINATING"),
    ("TERMINATING", "FINISHED"),
    ("RUNNING", "FAILED"),
    ("TERMINATING", "FAILED"),
    ("FAILED", "RUNNING"),
    ("FAILED", "TERMINATING"),
    ("RUNNING", "STOPPED"),
    ("FAILED", "STOPPED"),
    ("STOPPED", "RUNNING"),
    *((status, "DELETED") for status in ("RUNNING", "TERMINATING", "FAILED", "FINISHED", "STOPPED")),
}


class Ledger(Rows):
    """Writes the rows of one run, and checks what is written."""

    def record(self, event: Event, commands: tuple[Command, ...], now: datetime) -> None:
        """Write the commands of one decision, each only where the invariants allow it."""
        due = self._due(event, now)
        for command in commands:
            self._write(event, command)
        assert due == self._begun(commands), "what was due did not begin, or something else did"
        assert not self.unpublished, "I19: durable, and not stored"

    def check(self, state: RunState) -> None:
        """See that the invariants hold between two decisions, and that the state says what the rows say."""
        self._check_epochs()
        self._check_checkpoints()
        self._check_parts()
        assert all(epoch <= self.last_durable_epoch for epoch, _ in self.committables), "I19: not durable"
        live = [token for token, row in self.attempts.items() if row.is_live]
        assert len(live) <= 1, "I1: two attempts are live"
        assert set(live) <= {max(self.attempts, default=0)}, "I1: the live attempt lacks the greatest token"
        assert list(range(1, len(self.attempts) + 1)) == list(self.attempts), "I1: a token is missing"
        if self.status is RunStatus.FINISHED:
            assert not self.last_epoch() > self.last_durable_epoch, "I10: finished, with epochs that are not durable"
            assert not self.pending(), "I10: finished, with a checkpoint pending"
            assert not live, "I10: finished, with a live attempt"
            assert all(self.committables.values()), "I19: finished, with something that is not committed"
        if self.status in (RunStatus.DELETED, RunStatus.STOPPED):
            assert not live, f"{self.status.value}, with a live attempt"
            assert self.last_epoch() == self.last_durable_epoch, f"{self.status.value}, with epochs that wait"
        self._check_stops()
        assert self.rebuilt(state) == state, "the commands and the state differ"

    def _check_stops(self) -> None:
        in_force = [row for row in self.stops.values() if not row.is_resumed]
        assert len(in_force) <= 1, "two requests are in force"
        is_stopped = [row.is_stopped for row in in_force] == [True]
        assert is_stopped == (self.status is RunStatus.STOPPED) or self.status is RunStatus.DELETED, "I20"

    def _check_epochs(self) -> None:
        in_force = self.in_force()
        durable = sorted(epoch for (epoch, _), row in self.epochs.items() if row.status is EpochStatus.DURABLE)
        first = self.origin_epoch + 1
        assert list(range(first, self.last_epoch() + 1)) == sorted(epoch for epoch, _ in in_force), "I3: a gap"
        assert list(range(first, self.last_durable_epoch + 1)) == durable, "I6: the durable epochs are no prefix"
        for (epoch, token), row in in_force.items():
            assert row.is_measured == row.is_complete, "I4: measured before all have reported, or not at all"
            assert (row.decision is None) == (row.status is EpochStatus.OPEN), "I5: decided too early, or too late"
            if row.status is EpochStatus.OPEN and row.is_complete and self.attempts[token].is_live:
                assert epoch == self.last_epoch()
                assert len(self.pending()) >= self.policy().max_pending, "I14: held by nothing"

    def _check_checkpoints(self) -> None:
        rows = self.checkpoints.values()
        completed = [row.trigger.epoch for row in rows if row.status is CheckpointStatus.COMPLETED]
        assert len(completed) <= 1, "I8: two checkpoints are completed"
        newest = [self.last_durable_epoch] if self.last_durable_epoch > self.origin_epoch else []
        assert completed == newest or (completed == [] and self.status is RunStatus.DELETED), "I6: not of the last"
        is_released = bool(newest) or self.status is RunStatus.DELETED or self.origin_epoch < 0
        assert self.holds_origin is not is_released, "I18: it holds its origin too long, or not long enough"
        pending = self.pending()
        assert len(pending) <= self.policy().max_pending, "I14: more are pending than the policy allows"
        assert not pending or min(pending) > self.aborted_through, "I17: aborted before, and pending all the same"
        assert not pending or self.is_live(), "a checkpoint is pending, and nobody completes it"

    def _check_parts(self) -> None:
        for row in self.live_parts():
            assert row.part.operator_id not in self.finished or row.epoch != FOR_GOOD
            if row.epoch > self.last_durable_epoch + 1:
                assert row.token == max(self.attempts), "I15: an edge of a later epoch outlived its attempt"

    def _write(self, event: Event, command: Command) -> None:
        match command:
            case OpenAttempt() | EndAttempt() | SetRunStatus() | PublishOutputs():
                self._write_run(command)
            case OpenEpoch() | RecordReports() | AlignEpoch():
                self._write_epoch(command)
            case VoidEpochs() | MakeEpochsDurable():
                self._end_epochs(command)
            case (
                SwitchToUnaligned() | RecordParts() | VoidEdges() | VoidParts() | ReplaceDefinition() | FinishOperator()
            ):
                self._write_edge(event, command)
            case PinData():
                assert command.name not in self.pins
                self.pins[command.name] = command.fingerprint
            case RecordNotice() | RecordCommittables() | MarkCommitted():
                self._write_told(event, command)
            case RecordRequest() | AnswerRequests() | AbortThrough():
                self._write_request(command)
            case RecordStop() | StopRun() | ResumeRun() | DeleteRun() | ReleaseOrigin():
                self._write_end(command)
            case FallBack():
                self._fall_back(command)
            case _:
                self._write_checkpoint(command)

    def _write_run(self, command: OpenAttempt | EndAttempt | SetRunStatus | PublishOutputs) -> None:
        match command:
            case OpenAttempt():
                assert not self.is_live(), "I1: another attempt is live"
                assert command.fencing_token == max(self.attempts, default=0) + 1, "I1: not the next token"
                self.attempts[command.fencing_token] = AttemptRow(command.attempt_id, command.policy)
            case EndAttempt():
                assert self.attempts[command.fencing_token].is_live
                self.attempts[command.fencing_token].is_live = False
            case SetRunStatus():
                self._move_to(command.status)
                assert self.terminated_by in (None, command.terminated_by), "the rule that terminated it changed"
                self.terminated_by = command.terminated_by
                assert (command.status is RunStatus.FAILED) == bool(command.failure)
            case PublishOutputs():
                self._move_to(RunStatus.FINISHED)

    def _write_epoch(self, command: OpenEpoch | RecordReports | AlignEpoch) -> None:
        match command:
            case OpenEpoch():
                self._open_epoch(command)
            case RecordReports():
                row = self.epoch(command.epoch, EpochStatus.OPEN)
                for before, after in zip(row.heads, command.heads, strict=True):
                    assert before.name == after.name
                    assert all(b in (None, a) for b, a in zip(before.values, after.values, strict=True)), "I4"
                row.heads = command.heads
                assert not row.is_measured, "I4: measured twice"
                assert row.is_complete == (command.metrics is not None), (
                    "I4: measured before its last report, or not then"
                )
                row.is_measured = row.is_complete
            case AlignEpoch():
                row = self.epoch(command.epoch, EpochStatus.OPEN)
                assert row.is_complete, "I4: a report is missing"
                assert len(self.pending()) < self.policy().max_pending, "I14: a pending checkpoint holds it"
                row.status, row.decision = EpochStatus.ALIGNED, command.decision
                assert self._expected_decision(command.epoch, row.heads) == command.decision, "I5"

    def _end_epochs(self, command: VoidEpochs | MakeEpochsDurable) -> None:
        match command:
            case VoidEpochs():
                assert command.after == self.last_durable_epoch, "I6: voids what is durable, or keeps what is not"
                for (epoch, _), row in self.epochs.items():
                    if epoch > command.after and row.status is not EpochStatus.VOIDED:
                        row.status = EpochStatus.VOIDED
            case MakeEpochsDurable():
                assert command.through > self.last_durable_epoch, "I6: durable again"
                for epoch in range(self.last_durable_epoch + 1, command.through + 1):
                    row = self.epoch(epoch, EpochStatus.ALIGNED)
                    row.status = EpochStatus.DURABLE
                    is_last = row.decision is not None and row.decision.terminated_by is not None
                    self.unpublished |= {(epoch, name) for name, each in self.sinks.items() if each or is_last}
                self.last_durable_epoch = command.through

    def _open_epoch(self, command: OpenEpoch) -> None:
        attempt = self.attempts[self.token()]
        in_force = self.in_force().values()
        assert self.status is RunStatus.RUNNING, "I9: the run terminates"
        assert all(not row.decision or not row.decision.terminated_by for row in in_force), "I9: it will terminate"
        assert attempt.failures <= attempt.policy.tolerable_failures, "I13: too many checkpoints have failed"
        assert all(row.status is not EpochStatus.OPEN for row in in_force), "I3: another one is open"
        assert command.epoch == self.last_epoch() + 1, "I3: not the next epoch"
        if self.asked_to() is StopKind.STOP:
            waiting = [row for row in in_force if row.status is not EpochStatus.DURABLE]
            assert not waiting, "I20: an epoch opens after another one, though the run is asked to stop"
        assert all(set(head.values) == {None} for head in command.heads)
        self.epochs[command.epoch, self.token()] = EpochRow(EpochStatus.OPEN, command.heads)

    def _write_edge(
        self,
        event: Event,
        command: SwitchToUnaligned | RecordParts | VoidEdges | VoidParts | ReplaceDefinition | FinishOperator,
    ) -> None:
        match command:
            case SwitchToUnaligned():
                row = self.epoch(command.epoch, EpochStatus.OPEN)
                assert row.unaligned_by is None, "I15: switched twice"
                row.unaligned_by = command.by
            case RecordParts():
                for part in command.parts:
                    self._mark(command.epoch, part)
            case VoidEdges() | VoidParts():
                self._void(event, command)
            case ReplaceDefinition():
                assert self.last_epoch() == self.last_durable_epoch, "an epoch has begun with other operators"
                assert self.status is RunStatus.RUNNING, "no epoch will be computed with them"
                attempt = self.attempts[self.token()]
                assert attempt.definition_changes is None, "the operators changed twice"
                attempt.definition_changes = command.changes
                self.sinks = command.definition.get("sinks", {})
                for written in self.live_parts():
                    written.is_live = written.part.operator_id not in command.dropped
                    assert written.epoch == FOR_GOOD or written.part.operator_id in command.definition["operators"], (
                        "I15: an edge of an operator that is gone"
                    )
                self.finished = {key: row for key, row in self.finished.items() if key not in command.dropped}
            case FinishOperator():
                assert command.operator_id not in self.finished, "I11: finished twice"
                self.finished[command.operator_id] = command
                for written in self.live_parts():
                    written.is_live = (written.epoch, written.part.operator_id) != (FOR_GOOD, command.operator_id)

    def _void(self, event: Event, command: VoidEdges | VoidParts) -> None:
        is_ignored = isinstance(event, AttemptOpened) and event.ignore_edges
        match command:
            case VoidEdges():
                assert is_ignored or isinstance(event, DefinitionChanged), "I15: edges are voided by nobody's word"
                assert command.after == self.last_durable_epoch, "I15: voids what it must keep, or too little"
                kept = set(event.kept) - set(event.dropped) if isinstance(event, DefinitionChanged) else set[str]()
                assert kept == set(command.keeping), "I15: keeps edges by nobody's word, or too few"
                for written in self.live_parts():
                    written.is_live = written.epoch <= command.after or written.part.operator_id in kept
            case VoidParts():
                assert is_ignored, "I15: parts are voided by nobody's word"
                for written in self.live_parts():
                    assert written.epoch == FOR_GOOD, "I15: an edge that was to be ignored"
                    assert written.part.operator_id in command.operators, "I15: a part that was to be ignored"
                    written.is_live = False

    def _mark(self, epoch: int, part: FinishedPart) -> None:
        if epoch != FOR_GOOD:
            assert epoch == self.last_durable_epoch + 1, "I15: not behind a durable epoch"
            row = self.epochs[epoch, self.token()]
            assert row.status in (EpochStatus.OPEN, EpochStatus.ALIGNED), "I15: durable, or void"
            assert row.unaligned_by is not None, "I15: not switched"
        added = PartRow(epoch, self.token(), part)
        known = [row for row in self.live_parts() if (row.epoch, row.part.operator_id) == (epoch, part.operator_id)]
        assert added.buckets, "I15: no buckets"
        assert added.buckets <= set(range(part.total)), "I15: buckets that are not there"
        assert all(row.part.total == part.total and not row.buckets & added.buckets for row in known), "I15: twice"
        for source in {*part.after_narrow, *part.after_wide} - set(self.finished):
            edge = [row for row in self.live_parts() if (row.epoch, row.part.operator_id) == (epoch, source)]
            there = {bucket for row in edge for bucket in row.buckets}
            total = edge[0].part.total if edge else 1
            wanted = added.buckets if source not in part.after_wide and total == part.total else set(range(total))
            assert wanted <= there, "I15: before what it was computed from"
        self.parts.append(added)

    def _write_told(self, event: Event, command: RecordNotice | RecordCommittables | MarkCommitted) -> None:
        match command:
            case RecordNotice():
                self._write_notice(event, command)
            case RecordCommittables():
                for known in command.committables:
                    self.unpublished.remove((known.epoch, known.output))  # I19: once, and only what is published
                    self.committables[known.epoch, known.output] = known.in_store
            case MarkCommitted():
                for key in command.committed:
                    assert not self.committables[key], "I19: committed twice"
                    self.committables[key] = True

    def _write_notice(self, event: Event, command: RecordNotice) -> None:
        assert isinstance(event, ListenerNotified)
        assert command.epoch <= self.last_durable_epoch, "I16: heard before it was durable"
        assert (command.listener_id, command.epoch) not in self.notices, "I16: heard twice"
        if event.is_final:
            assert self.status is RunStatus.TERMINATING, "I16: the run goes on"
            assert command.epoch == self.last_durable_epoch, "I16: not the end"
        else:
            is_first = command.epoch == self.origin_epoch + 1
            assert is_first or (command.listener_id, command.epoch - 1) in self.notices, "I16: left one out"
        self.notices.append((command.listener_id, command.epoch))

    def _write_request(self, command: RecordRequest | AnswerRequests | AbortThrough) -> None:
        match command:
            case RecordRequest():
                assert command.request_id not in self.requests, "asked twice"
                self.requests[command.request_id] = None
            case AnswerRequests():
                assert command.checkpoint_id == max(self.checkpoints)
                assert None in self.requests.values()
                self.requests = {key: known or command.checkpoint_id for key, known in self.requests.items()}
            case AbortThrough():
                assert self.aborted_through < command.checkpoint_id <= max(self.checkpoints, default=0) + 1
                self.aborted_through = command.checkpoint_id

    def _write_end(self, command: RecordStop | StopRun | ResumeRun | DeleteRun | ReleaseOrigin) -> None:
        match command:
            case DeleteRun():
                assert not self.is_live(), "a run that is driven was deleted"
                self._move_to(RunStatus.DELETED)
            case ReleaseOrigin():
                assert self.holds_origin, "I18: released twice"
                self.holds_origin = False
            case RecordStop():
                assert self.status is RunStatus.RUNNING, "I20: it does not go on"
                assert self.asked_to() is None, "I20: another request is in force"
                assert command.stop_id not in self.stops, "I20: asked twice"
                self.stops[command.stop_id] = StopRow(command.kind)
            case StopRun():
                row = self.stops[command.stop_id]
                assert (row.kind, row.is_stopped, row.is_resumed) == (StopKind.STOP, False, False), "I20: unasked"
                assert not self.is_live(), "I20: stopped while somebody drives it"
                self._move_to(RunStatus.STOPPED)
                row.is_stopped = True
            case ResumeRun():
                self._move_to(RunStatus.RUNNING)
                self.stops[command.stop_id].is_resumed = True

    def _fall_back(self, command: FallBack) -> None:
        assert self.status is RunStatus.RUNNING, "I21: it does not go on"
        assert self.last_epoch() == self.last_durable_epoch, "I21: an epoch is open"
        assert all(epoch <= command.epoch for _, epoch in self.notices), "I21: somebody has heard of more"
        self.checkpoint(command.from_checkpoint_id, CheckpointStatus.COMPLETED)
        older = self.checkpoint(command.to_checkpoint_id, CheckpointStatus.SUBSUMED)
        assert command.to_checkpoint_id < command.from_checkpoint_id, "I21: not an older one"
        assert command.epoch == older.trigger.epoch < self.last_durable_epoch, "I21: not an earlier epoch"
        for number, row in self.checkpoints.items():
            if number > command.to_checkpoint_id and row.status is not CheckpointStatus.ABORTED:
                assert number not in self.pinned_by_hand, "I18: what a person pins was given up"
                row.status = CheckpointStatus.DISCARDED
        older.status = CheckpointStatus.COMPLETED
        for (epoch, _), written in self.epochs.items():
            if epoch > command.epoch:
                written.status = EpochStatus.VOIDED
        for part in self.parts:
            part.is_live = part.is_live and part.epoch <= command.epoch
        self.last_durable_epoch = command.epoch

    def _write_checkpoint(self, command: Command) -> None:
        match command:
            case TriggerCheckpoint():
                attempt = self.attempts[self.token()]
                assert command.checkpoint_id == max(self.checkpoints, default=0) + 1, "I7: not a new id"
                assert attempt.failures <= attempt.policy.tolerable_failures, "I13: nobody would write it"
                self.epoch(command.epoch, EpochStatus.ALIGNED)
                self.checkpoints[command.checkpoint_id] = CheckpointRow(command, command.participants)
            case RecordAcknowledgements():
                self.checkpoint(command.checkpoint_id, CheckpointStatus.PENDING).participants = command.participants
            case CompleteCheckpoint():
                self._complete(command)
            case SubsumeCheckpoint():
                self.checkpoint(command.checkpoint_id, CheckpointStatus.COMPLETED).status = CheckpointStatus.SUBSUMED
            case DiscardCheckpoints():
                for checkpoint_id in command.checkpoint_ids:
                    self._discard(self.checkpoints[checkpoint_id])
            case PinCheckpoint():
                there = (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED)
                assert self.checkpoints[command.checkpoint_id].status in there, "I18: pinned, and not there"
                assert command.checkpoint_id not in self.pinned_by_hand, "I18: pinned twice"
                self.pinned_by_hand.add(command.checkpoint_id)
            case ReleaseCheckpoint():
                self.pinned_by_hand.remove(command.checkpoint_id)
            case AbortCheckpoint():
                self._abort(command)
            case _:
                raise AssertionError(command)

    def _complete(self, command: CompleteCheckpoint) -> None:
        row = self.checkpoint(command.checkpoint_id, CheckpointStatus.PENDING)
        assert None not in [value for p in row.participants for value in p.values], "I8: one is missing"
        assert command.is_subsumed == (row.trigger.epoch <= self.last_durable_epoch), "I8: covers less than another"
        row.status, row.manifest_sha256 = CheckpointStatus.SUBSUMED, command.manifest_sha256
        row.completed_at = command.completed_at
        if not command.is_subsumed:
            assert CheckpointStatus.COMPLETED not in [r.status for r in self.checkpoints.values()], "I8: two"
            row.status = CheckpointStatus.COMPLETED
            attempt = self.attempts[self.token()]
            if attempt.failures <= attempt.policy.tolerable_failures:
                attempt.failures = 0

    def _discard(self, row: CheckpointRow) -> None:
        assert row.trigger.checkpoint_id not in self.pinned_by_hand, "I18: what a person pins was discarded"
        if row.status is CheckpointStatus.COMPLETED:
            assert self.status is RunStatus.DELETED, "I18: the newest checkpoint of a run that is there was discarded"
        if row.status in (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED):
            row.status = CheckpointStatus.DISCARDED

    def _abort(self, command: AbortCheckpoint) -> None:
        row = self.checkpoint(command.checkpoint_id, CheckpointStatus.PENDING)
        row.status = CheckpointStatus.ABORTED
        assert command.reason
        if command.failure is CheckpointFailure.SUBSUMED:
            assert row.trigger.kind is not CheckpointKind.MANUAL, "I8: a hand-made one was subsumed"
            newer = [known for number, known in self.checkpoints.items() if number > command.checkpoint_id]
            assert CheckpointStatus.COMPLETED in [known.status for known in newer], "I8: subsumed by nothing"
        if command.failure in (CheckpointFailure.DECLINED, CheckpointFailure.EXPIRED):
            attempt = self.attempts[self.token()]
            attempt.failures += 1
            if row.trigger.kind is not CheckpointKind.PERIODIC:
                attempt.failures = max(attempt.failures, attempt.policy.tolerable_failures + 1)

    def _due(self, event: Event, now: datetime) -> tuple[int, CheckpointKind] | None:
        """Return the epoch and the kind of the checkpoint that an event has to begin, if any."""
        if not isinstance(event, CheckpointTriggered) or not self.is_live():
            return None
        row = self.epochs.get((event.epoch, self.token()))
        policy, pending = self.policy(), [self.checkpoints[number] for number in self.pending()]
        covered = max([self.last_durable_epoch, *(known.trigger.epoch for known in pending)])
        if row is None or row.decision is None or event.epoch <= covered or len(pending) >= policy.max_pending:
            return None
        is_repeated = event.epoch < self.last_epoch() or event.last_checkpoint_id != max(self.checkpoints, default=0)
        if is_repeated or self.attempts[self.token()].failures > policy.tolerable_failures:
            return None
        if row.decision.terminated_by is not None:
            return event.epoch, CheckpointKind.FINAL
        if None in self.requests.values() or self.asked_to() is StopKind.STOP:
            return event.epoch, CheckpointKind.MANUAL
        is_due = event.epoch >= covered + policy.every_epochs and self._has_paused(now)
        return (event.epoch, CheckpointKind.PERIODIC) if event.is_last or is_due else None

    def _has_paused(self, now: datetime) -> bool:
        pause_seconds = self.policy().min_pause_seconds
        if pause_seconds == 0:
            return True
        done = [r.completed_at for r in self.checkpoints.values() if r.status is CheckpointStatus.COMPLETED]
        elapsed = [(now - at).total_seconds() for at in done if at is not None]
        return not self.pending() and not any(0 <= seconds < pause_seconds for seconds in elapsed)

    def _begun(self, commands: tuple[Command, ...]) -> tuple[int, CheckpointKind] | None:
        begun = [(c.epoch, c.kind) for c in commands if isinstance(c, TriggerCheckpoint)]
        assert len(begun) <= 1
        return begun[0] if begun else None

    def _move_to(self, status: RunStatus) -> None:
        assert (self.status.value, status.value) in LEGAL_RUN_STEPS
        self.status = status

    def _expected_decision(self, epoch: int, heads: tuple[Reports, ...]) -> Decision:
        records = {head.name: sum(value or 0 for value in head.values) for head in heads}
        by = TerminatedBy.DRAINED if self.asked_to() is StopKind.DRAIN else None
        if self.max_epochs is not None and epoch + 1 >= self.max_epochs:
            by = TerminatedBy.MAX_EPOCHS
        if "criteria" in records and not records["criteria"]:
            by = TerminatedBy.CRITERIA
        if not any(records.values()):
            by = TerminatedBy.EMPTY_FEEDBACK
        return Decision(records=records, terminated_by=by)
