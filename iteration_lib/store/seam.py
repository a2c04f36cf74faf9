"""What do the coordinator and the readers ask of a store?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from iteration_lib.protocol.command import Command
from iteration_lib.protocol.retention import RetainedCheckpoint
from iteration_lib.protocol.state import AttemptId, CheckpointState, RunId, RunState
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    CommittableRecord,
    EpochRecord,
    FallbackRecord,
    NewRun,
    NoticeRecord,
    OperatorRecord,
    Origin,
    PartRecord,
    PinRecord,
    RequestRecord,
    RunRecord,
    StopRecord,
)


@dataclass(frozen=True, slots=True)
class RunVersion:
    """What tells whether a state that somebody keeps still is a run's.

    The revision alone does not: a store that was restored counts anew, under other attempts, and a server that has
    crashed may do so for the same attempt, without the last checkpoint that began.
    """

    revision: int
    attempt_id: AttemptId | None  # which attempt held the token in force, live or ended; None before the first
    last_checkpoint_id: int  # 0 before the first


class Transaction(Protocol):
    """One run, locked against every other writer until the transaction ends."""

    @property
    def revision(self) -> int:
        """Grows with every change of the run, also by `write`: a state of the same revision still holds."""
        ...

    @property
    def found(self) -> RunVersion:
        """The run's version when the lock was had."""
        ...

    @property
    def now(self) -> datetime:
        """The store's clock, read after the lock was had."""
        ...

    def read_state(self, *, locks_lease: bool = False) -> RunState:
        """Return the state, read after the lock was had.

        With `locks_lease` nobody renews a lease that is over before the transaction ends; the run's lock alone does not
        keep anybody from that.
        """
        ...

    def read_retained(self, metric: str | None) -> tuple[RetainedCheckpoint, ...]:
        """Return the checkpoints that were completed and are not discarded, by id, with one metric of their epochs."""
        ...

    def read_checkpoint(self, checkpoint_id: int) -> CheckpointState | None:
        """Return a checkpoint that was completed and is not discarded; None for any other."""
        ...

    def read_published(self, after_epoch: int) -> frozenset[str]:
        """Return the outputs of which sinks have something of later epochs, committed or not yet."""
        ...

    def write(self, commands: Sequence[Command], fencing_token: int) -> None:
        """Write commands for the token in force, all or none.

        Raises ProtocolViolationError, at the latest when the transaction ends or reads on, when a row does not go from
        where the protocol left it.
        """
        ...

    def lend(self, act: Callable[[Any], None], /) -> None:  # Any: a psycopg2 cursor, which no twin has
        """Let others write into their own tables in this transaction, which has read; ahead of what was written since.

        They hand it back as the store begins it in two things: what is deferrable is checked at the COMMIT, and no time
        limit of theirs holds for the store's own writes.

        Raises UsageError in a store that is no database.
        """
        ...


class Store(Protocol):
    """Where runs are written. Everything raises OutcomeUnknownError when the connection is lost.

    A run that another transaction does not let go raises RunLockedError.
    """

    def add_run(self, run: NewRun, origin: Origin | None = None) -> bool:
        """Create a run, atomically; False if its key is another run's, and then nothing has changed.

        To be repeated: a run that is there is not created again. With an origin it begins behind that checkpoint, which
        is pinned from then on. Raises OriginGoneError where that checkpoint is not there any more.
        """
        ...

    def transaction(self, run_id: RunId) -> AbstractContextManager[Transaction]:
        """Lock a run; commit at the end, roll back on an exception."""
        ...

    def write(
        self,
        run_id: RunId,
        commands: Sequence[Command],
        fencing_token: int,
        *,
        known: RunVersion,
        is_flushed: bool = True,
    ) -> int | None:
        """Write commands in a transaction of their own, if the run still is at a version.

        With `is_flushed` the commit is on the server's disk when this returns; without, it may be lost where the server
        crashes before a later commit that is, of whatever run, has returned.

        Returns the revision that it has then; None where it is at another one, or not there, and nothing is written.
        Raises as a transaction does.
        """
        ...

    def renew_lease(
        self, run_id: RunId, attempt_id: AttemptId, *, fencing_token: int, lease_ttl_seconds: float
    ) -> bool:
        """Extend a live attempt's lease without waiting for the run's lock; False if the attempt has ended.

        It waits for whoever finds that lease over, or changes the attempt, and lasts from then on.
        """
        ...

    def close(self) -> None:
        """Give back every connection. Repeatable."""
        ...


class History(Protocol):
    """Where runs are read: what was committed, without a lock. A read whose connection is lost is tried again."""

    def find_run(self, run: str) -> RunRecord | None:
        """Return the run with this key or id; one that was deleted by its id alone."""
        ...

    def list_runs(self) -> tuple[RunRecord, ...]:
        """Return every run, newest first."""
        ...

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """Return a run's attempts by token; whether their leases are over, the store's own clock says."""
        ...

    def list_epochs(self, run_id: RunId, first_epoch: int = 0) -> tuple[EpochRecord, ...]:
        """Return a run's epochs from `first_epoch` on, voided ones too, by epoch and token."""
        ...

    def list_operators(self, run_id: RunId) -> tuple[OperatorRecord, ...]:
        """Return a run's operators in running order."""
        ...

    def list_pins(self, run_id: RunId) -> tuple[PinRecord, ...]:
        """Return what a run's data streams read, by name."""
        ...

    def list_checkpoints(self, run_id: RunId, ids: Sequence[int] | None = None) -> tuple[CheckpointRecord, ...]:
        """Return a run's checkpoints, or those of some ids, by id."""
        ...

    def find_completed(self, run_id: RunId) -> CheckpointRecord | None:
        """Return a run's completed checkpoint, however many there were before it."""
        ...

    def find_branch(self, run_id: RunId) -> BranchRecord | None:
        """Return which checkpoint a run started from; None for one that started from nothing."""
        ...

    def list_branches(self, run_id: RunId) -> tuple[BranchRecord, ...]:
        """Return the runs that started from checkpoints of a run, by time."""
        ...

    def list_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """Return the parts of a run's durable edges, voided ones too, by epoch, operator and bucket."""
        ...

    def list_live_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """Return those that are not voided, of the epoch after the last durable one and of what finishes for good."""
        ...

    def list_requests(self, run_id: RunId) -> tuple[RequestRecord, ...]:
        """Return which checkpoints of a run persons asked for, by time."""
        ...

    def list_committables(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """Return what sinks prepared of a run's durable epochs, by epoch and output."""
        ...

    def list_uncommitted(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """Return what of it is not known to be committed."""
        ...

    def list_stops(self, run_id: RunId) -> tuple[StopRecord, ...]:
        """Return who asked a run to stop or to drain, and who resumed it, by time."""
        ...

    def list_fallbacks(self, run_id: RunId) -> tuple[FallbackRecord, ...]:
        """Return when a run fell back to an older checkpoint, by token."""
        ...

    def list_notices(self, run_id: RunId, listener_id: str | None = None) -> tuple[NoticeRecord, ...]:
        """Return what a run's listeners, or one of them, have heard, by epoch and listener."""
        ...


class StoreWithHistory(Store, History, Protocol):
    """A store that is written and read."""

    @property
    def url(self) -> str | None:
        """The address of its database, password included; None for a store that is none."""
        ...
