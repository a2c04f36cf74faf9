"""What holds of a run, whatever happened to it? The invariants of iteration_lib/protocol as an oracle for tests.

A Ledger keeps what the commands wrote, row by row, as a store would, and refuses what the invariants forbid; it decides
nothing and shares no code with `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iteration_lib.protocol import Command, RunState
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AlignEpoch,
    CompleteCheckpoint,
    EndAttempt,
    FinishOperator,
    MakeEpochsDurable,
    OpenAttempt,
    OpenEpoch,
    PinData,
    PublishOutputs,
    RecordAcknowledgements,
    RecordReports,
    SetRunStatus,
    SubsumeCheckpoint,
    TriggerCheckpoint,
    VoidEpochs,
)
from iteration_lib.protocol.state import CheckpointState, Decision, EpochState, Reports
from iteration_lib.protocol.status import CheckpointStatus, EpochStatus, RunStatus, TerminatedBy

LEGAL_RUN_STEPS = {
    ("RUNNING", "TERMINATING"),
    ("TERMINATING", "FINISHED"),
    ("RUNNING", "FAILED"),
    ("TERMINATING", "FAILED"),
    ("FAILED", "RUNNING"),
    ("FAILED", "TERMINATING"),
}


@dataclass(slots=True)
class EpochRow:
    """An epoch under one token."""

    status: EpochStatus
    heads: tuple[Reports, ...]
    decision: Decision | None = None


@dataclass(slots=True)
class CheckpointRow:
    """A checkpoint."""

    trigger: TriggerCheckpoint
    participants: tuple[Reports, ...]
    status: CheckpointStatus = CheckpointStatus.PENDING
    manifest_sha256: str | None = None


@dataclass(slots=True)
class Ledger:
    """Every row of one run."""

    max_epochs: int | None
    status: RunStatus = RunStatus.RUNNING
    terminated_by: TerminatedBy | None = None
    last_durable_epoch: int = -1
    live: dict[int, str] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    epochs: dict[tuple[int, int], EpochRow] = field(default_factory=dict)
    checkpoints: dict[int, CheckpointRow] = field(default_factory=dict)
    finished: dict[str, FinishOperator] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)

    def record(self, commands: tuple[Command, ...]) -> None:
        """Write the commands of one decision, each only where the invariants allow it."""
        for command in commands:
            self._write(command)

    def check(self, state: RunState) -> None:
        """See that the invariants hold between two decisions, and that the state says what the rows say."""
        durable = sorted(epoch for (epoch, _), row in self.epochs.items() if row.status is EpochStatus.DURABLE)
        completed = [row for row in self.checkpoints.values() if row.status is CheckpointStatus.COMPLETED]
        assert len(self.live) <= 1, "I1: two attempts are live"
        assert set(self.live) <= {max(self.tokens, default=0)}, "I1: the live attempt lacks the greatest token"
        assert list(range(self._last_epoch() + 1)) == sorted(epoch for epoch, _ in self._in_force()), "I3: a gap"
        assert list(range(self.last_durable_epoch + 1)) == durable, "I6: the durable epochs are no prefix"
        assert len(completed) <= 1, "I8: two checkpoints are completed"
        assert [row.trigger.epoch for row in completed] == durable[-1:], "I6: the completed one is not of the last"
        if self.status is RunStatus.FINISHED:
            assert len(durable) == len(self._in_force()), "I10: finished, with epochs that are not durable"
            assert not self._pending(), "I10: finished, with a checkpoint pending"
        assert self._rebuilt(state) == state, "the commands and the state differ"

    def _write(self, command: Command) -> None:
        match command:
            case OpenAttempt():
                assert not self.live, "I1: another attempt is live"
                assert command.fencing_token == max(self.tokens, default=0) + 1, "I1: not the next token"
                self.tokens.append(command.fencing_token)
                self.live[command.fencing_token] = command.attempt_id
            case EndAttempt():
                del self.live[command.fencing_token]
            case SetRunStatus():
                self._move_to(command.status)
                self.terminated_by = command.terminated_by
                assert (command.status is RunStatus.FAILED) == bool(command.failure)
            case PublishOutputs():
                self._move_to(RunStatus.FINISHED)
            case PinData():
                assert command.name not in self.pins
                self.pins[command.name] = command.fingerprint
            case FinishOperator():
                assert command.operator_id not in self.finished, "I11: finished twice"
                self.finished[command.operator_id] = command
            case OpenEpoch() | RecordReports() | AlignEpoch() | VoidEpochs() | MakeEpochsDurable():
                self._write_epoch(command)
            case _:
                self._write_checkpoint(command)

    def _write_epoch(self, command: OpenEpoch | RecordReports | AlignEpoch | VoidEpochs | MakeEpochsDurable) -> None:
        match command:
            case OpenEpoch():
                assert self.status is RunStatus.RUNNING, "I9: the run terminates"
                assert all(not row.decision or not row.decision.terminated_by for row in self._in_force().values()), (
                    "I9"
                )
                assert command.epoch == self._last_epoch() + 1, "I3: not the next epoch"
                assert all(set(head.values) == {None} for head in command.heads)
                self.epochs[command.epoch, self._token()] = EpochRow(EpochStatus.OPEN, command.heads)
            case RecordReports():
                row = self._epoch(command.epoch, EpochStatus.OPEN)
                for before, after in zip(row.heads, command.heads, strict=True):
                    assert before.name == after.name
                    assert all(b in (None, a) for b, a in zip(before.values, after.values, strict=True)), "I4"
                row.heads = command.heads
            case AlignEpoch():
                row = self._epoch(command.epoch, EpochStatus.OPEN)
                assert None not in [value for head in row.heads for value in head.values], "I4: a report is missing"
                row.status, row.decision = EpochStatus.ALIGNED, command.decision
                assert self._expected_decision(command.epoch, row.heads) == command.decision, "I5"
            case VoidEpochs():
                assert command.after == self.last_durable_epoch, "I6: voids what is durable, or keeps what is not"
                for (epoch, _), row in self.epochs.items():
                    if epoch > command.after and row.status is not EpochStatus.VOIDED:
                        row.status = EpochStatus.VOIDED
            case MakeEpochsDurable():
                assert command.through > self.last_durable_epoch, "I6: durable again"
                for epoch in range(self.last_durable_epoch + 1, command.through + 1):
                    self._epoch(epoch, EpochStatus.ALIGNED).status = EpochStatus.DURABLE
                self.last_durable_epoch = command.through

    def _write_checkpoint(self, command: Command) -> None:
        match command:
            case TriggerCheckpoint():
                assert command.checkpoint_id == max(self.checkpoints, default=0) + 1, "I7: not a new id"
                self._epoch(command.epoch, EpochStatus.ALIGNED)
                self.checkpoints[command.checkpoint_id] = CheckpointRow(command, command.participants)
            case RecordAcknowledgements():
                self._checkpoint(command.checkpoint_id, CheckpointStatus.PENDING).participants = command.participants
            case CompleteCheckpoint():
                row = self._checkpoint(command.checkpoint_id, CheckpointStatus.PENDING)
                assert None not in [value for p in row.participants for value in p.values], "I8: one is missing"
                assert CheckpointStatus.COMPLETED not in [r.status for r in self.checkpoints.values()], "I8: two"
                row.status, row.manifest_sha256 = CheckpointStatus.COMPLETED, command.manifest_sha256
            case SubsumeCheckpoint():
                self._checkpoint(command.checkpoint_id, CheckpointStatus.COMPLETED).status = CheckpointStatus.SUBSUMED
            case AbortCheckpoint():
                assert command.reason
                self._checkpoint(command.checkpoint_id, CheckpointStatus.PENDING).status = CheckpointStatus.ABORTED
            case _:
                raise AssertionError(command)

    def _move_to(self, status: RunStatus) -> None:
        assert (self.status.value, status.value) in LEGAL_RUN_STEPS
        self.status = status

    def _token(self) -> int:
        return max(self.live)

    def _epoch(self, epoch: int, status: EpochStatus) -> EpochRow:
        row = self.epochs[epoch, self._token()]
        assert status is row.status
        return row

    def _checkpoint(self, checkpoint_id: int, status: CheckpointStatus) -> CheckpointRow:
        row = self.checkpoints[checkpoint_id]
        assert status is row.status
        return row

    def _in_force(self) -> dict[tuple[int, int], EpochRow]:
        return {key: row for key, row in self.epochs.items() if row.status is not EpochStatus.VOIDED}

    def _last_epoch(self) -> int:
        return max((epoch for epoch, _ in self._in_force()), default=-1)

    def _pending(self) -> list[int]:
        return [key for key, row in sorted(self.checkpoints.items()) if row.status is CheckpointStatus.PENDING]

    def _expected_decision(self, epoch: int, heads: tuple[Reports, ...]) -> Decision:
        records = {head.name: sum(value or 0 for value in head.values) for head in heads}
        by = TerminatedBy.MAX_EPOCHS if self.max_epochs is not None and epoch + 1 >= self.max_epochs else None
        if "criteria" in records and not records["criteria"]:
            by = TerminatedBy.CRITERIA
        if not any(records.values()):
            by = TerminatedBy.EMPTY_FEEDBACK
        return Decision(records=records, terminated_by=by)

    def _rebuilt(self, state: RunState) -> RunState:
        """Return the state that the rows make; what a row does not hold (leases, holders, ended ids) is the state's."""
        live = state.attempt
        assert self.live == ({live.fencing_token: live.attempt_id} if live is not None else {})
        known = {key: self._checkpoint_state(row) for key, row in sorted(self.checkpoints.items())}
        completed = [c for c in known.values() if c.status is CheckpointStatus.COMPLETED]
        return RunState(
            run_id=state.run_id,
            status=self.status,
            max_epochs=self.max_epochs,
            fencing_token=max(self.tokens, default=0),
            attempt=live,
            ended_attempt_id=state.ended_attempt_id,
            last_durable_epoch=self.last_durable_epoch,
            terminated_by=self.terminated_by,
            epochs=tuple(
                EpochState(epoch=epoch, status=row.status, heads=row.heads, decision=row.decision)
                for (epoch, _), row in sorted(self._in_force().items())
                if row.status is not EpochStatus.DURABLE
            ),
            last_checkpoint_id=max(self.checkpoints, default=0),
            pending=tuple(known[key] for key in self._pending()),
            completed=completed[0] if completed else None,
            finished_operators=frozenset(self.finished),
            pins=self.pins,
        )

    def _checkpoint_state(self, row: CheckpointRow) -> CheckpointState:
        return CheckpointState(
            checkpoint_id=row.trigger.checkpoint_id,
            epoch=row.trigger.epoch,
            kind=row.trigger.kind,
            status=row.status,
            participants=row.participants,
            manifest_sha256=row.manifest_sha256,
        )
