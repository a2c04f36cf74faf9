"""What stands between the driver and the world? The real store, coordinator and heartbeat, stopped at each call.

Nothing here decides anything about a run: each port asks for its fate and then does what the production class does.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from iteration_lib.coordinator import Coordinator, Publish, _Unflushed
from iteration_lib.crash_point import CrashPlan, CrashPoint
from iteration_lib.errors import CommitLostError, LeaseHeldError, OutcomeUnknownError, SupersededError
from iteration_lib.heartbeat import Heartbeat
from iteration_lib.protocol import Command, Event, RunState
from iteration_lib.protocol.event import (
    AlignmentTimedOut,
    CheckpointAcknowledged,
    CheckpointTriggered,
    EpochOpened,
    OutputsPublished,
    SubtasksAligned,
)
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import AttemptId, RunId
from iteration_lib.store.memory import MemoryStore, MemoryTransaction
from iteration_lib.store.memory_rows import MemoryRun
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    CommittableRecord,
    EpochRecord,
    NewRun,
    OperatorRecord,
    Origin,
    PartRecord,
    PinRecord,
    RunRecord,
)
from iteration_lib.store.retry import Sleep
from iteration_lib.store.seam import RunVersion, Store
from tests.simulation.change import is_held
from tests.simulation.fiber import Call, Fate, ask, current_attempt, current_fiber, noting_loss
from tests.store_script import timeless_state

if TYPE_CHECKING:
    from tests.simulation.world import World

FORGOTTEN = "forgotten"  # what hurts an attempt whose commit is lost with the server
_BIRTH = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedClock:
    """The store's clock, which may jump, and the machines' clock, which only goes on."""

    def __init__(self) -> None:
        self.store_seconds = 0.0
        self.local_seconds = 0.0

    def now(self) -> datetime:
        """Return the store's instant."""
        return _BIRTH + timedelta(seconds=self.store_seconds)

    def monotonic_seconds(self) -> float:
        """Return the machines' time."""
        return self.local_seconds

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.store_seconds += seconds
        self.local_seconds += seconds

    def set_store_to(self, instant: datetime) -> None:
        """Set the store's clock, forwards or back."""
        self.store_seconds = (instant - _BIRTH).total_seconds()


class _NotKeptError(Exception):
    """The run is not what its coordinator knew, or the server forgets what it answered; nothing is committed."""


class SimulatedStore:
    """The store in memory, over a connection that is lost before a commit, or after it and before the answer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._inner: MemoryStore = world.store

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[MemoryTransaction]:
        """See Store."""
        with self._transaction(run_id, ask(Call.TRANSACTION)) as transaction:
            yield transaction

    @contextmanager
    def _transaction(self, run_id: RunId, fate: Fate) -> Iterator[MemoryTransaction]:
        fiber, attempt, oracle = current_fiber(), current_attempt(), self._world.run_of(run_id).oracle
        if fate is Fate.LOST:
            self._lose("unknown outcome, not committed")
        try:
            with self._inner.transaction(run_id) as transaction:
                yield transaction
        except LeaseHeldError:
            oracle.claim_was_held(attempt)
            raise
        except SupersededError:
            self._world.counters["fenced commit refused"] += 1
            oracle.nothing_changed("a refused event", attempt)
            raise
        saying = fiber.saying if fiber is not None else None
        if saying is not None and saying.waits_for_lost:
            saying.waits_for_lost = False  # what was to be said, or seen, has yet to be
        else:
            if saying is not None:
                saying.note_commit(oracle.rows)
            if attempt is not None:
                attempt.looks += fiber is attempt.main
        oracle.observe(attempt, keeping=fiber.keeping if fiber is not None else None)
        if attempt is not None and fiber is attempt.main:
            attempt.has_failed = oracle.has_failed(attempt)
        if ask(Call.COMMITTED) is Fate.LOST:
            self._lose("unknown outcome, committed")

    def write(
        self,
        run_id: RunId,
        commands: Sequence[Command],
        fencing_token: int,
        *,
        known: RunVersion,
        is_flushed: bool = True,
    ) -> int | None:
        """See Store; a commit that is not flushed may be lost, before anybody else has seen it."""
        written, fate = None, ask(Call.TRANSACTION)
        with suppress(_NotKeptError), self._transaction(run_id, fate) as transaction:
            if transaction.found != known:
                raise _NotKeptError
            transaction.write(commands, fencing_token)
            written = transaction.revision
            if fate is Fate.FORGET and not is_flushed:
                self._note("commit forgotten by the server", FORGOTTEN)
                raise _NotKeptError
        self._world.counters["decided in vain"] += written is None
        return written

    def renew_lease(
        self, run_id: RunId, attempt_id: AttemptId, *, fencing_token: int, lease_ttl_seconds: float
    ) -> bool:
        """See Store."""
        if ask(Call.RENEW) is Fate.LOST:
            self._lose("lease renewal lost")
        renewed = self._inner.renew_lease(
            run_id, attempt_id, fencing_token=fencing_token, lease_ttl_seconds=lease_ttl_seconds
        )
        self._world.run_of(run_id).oracle.lease_was_renewed(current_attempt(), renewed=renewed)
        if ask(Call.RENEWED) is Fate.LOST:
            self._lose("lease renewal lost")
        return renewed

    def add_run(self, run: NewRun, origin: Origin | None = None) -> bool:
        """See Store; the run gets an id that is the same in every replay."""
        if ask(Call.TRANSACTION) is Fate.LOST:
            self._lose("unknown outcome, not committed")
        numbered = dataclasses.replace(run, run_id=self._world.next_run_id())
        source = self._world.run_of(origin.origin_run_id) if origin is not None and origin.origin_run_id else None
        revision = source.rows.run["revision"] if source is not None else 0
        if (is_new := self._inner.add_run(numbered, origin)) and source is not None:
            source.oracle.was_branched(revision)
            self._world.branched(numbered, source)
        if ask(Call.COMMITTED) is Fate.LOST:
            self._lose("unknown outcome, committed")
        return is_new

    def find_run(self, run: str) -> RunRecord | None:
        """See History."""
        self._read("runs")
        return self._inner.find_run(run)

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """See History."""
        self._read("attempts")
        return self._inner.list_attempts(run_id)

    def list_operators(self, run_id: RunId) -> tuple[OperatorRecord, ...]:
        """See History."""
        self._read("operators")
        return self._inner.list_operators(run_id)

    def list_pins(self, run_id: RunId) -> tuple[PinRecord, ...]:
        """See History."""
        self._read("pins")
        return self._inner.list_pins(run_id)

    def list_epochs(self, run_id: RunId, first_epoch: int = 0) -> tuple[EpochRecord, ...]:
        """See History."""
        self._read("epochs")
        return self._inner.list_epochs(run_id, first_epoch)

    def list_live_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """See History."""
        self._read("parts")
        return self._inner.list_live_parts(run_id)

    def list_uncommitted(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """See History."""
        self._read("what is not committed")
        return self._inner.list_uncommitted(run_id)

    def list_committables(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """See History."""
        self._read("what is to be committed")
        return self._inner.list_committables(run_id)

    def list_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """See History."""
        self._read("all parts")
        return self._inner.list_parts(run_id)

    def list_checkpoints(self, run_id: RunId, ids: Sequence[int] | None = None) -> tuple[CheckpointRecord, ...]:
        """See History."""
        self._read("checkpoints")
        return self._inner.list_checkpoints(run_id, ids)

    def find_branch(self, run_id: RunId) -> BranchRecord | None:
        """See History."""
        self._read("the branch")
        return self._inner.find_branch(run_id)

    def find_completed(self, run_id: RunId) -> CheckpointRecord | None:
        """See History."""
        self._read("the completed checkpoint")
        return self._inner.find_completed(run_id)

    def _read(self, what: str) -> None:
        if ask(Call.READ_ROWS, what) is Fate.LOST:
            self._lose("read lost")

    def _lose(self, what: str) -> None:
        self._note(what, "store")
        raise OutcomeUnknownError(f"{what}: injected")

    def _note(self, what: str, hurt: str) -> None:
        self._world.counters[what] += 1
        if (fiber := current_fiber()) is not None:
            fiber.process.fail(hurt)


@dataclasses.dataclass(slots=True, eq=False)
class Said:
    """Events that an attempt sent in one transaction; `committed` once that is known to the simulation.

    What `was_held` then has to be said again once the epoch is released, and may come true by a repetition as well.
    What `stays_unheard` is lost however often it is repeated: the store went away with the first answer. It
    `waits_for_lost` while the transaction only repeats what the server has forgotten.
    """

    events: tuple[Event, ...]
    committed: bool = False
    was_held: bool = False
    stays_unheard: bool = False
    waits_for_lost: bool = False

    def note_commit(self, rows: MemoryRun) -> None:
        """Note that it was committed, and whether an epoch is held that keeps some of it from coming true."""
        goes_on = any(isinstance(event, SubtasksAligned | CheckpointTriggered | EpochOpened) for event in self.events)
        self.committed, self.was_held = True, goes_on and is_held(rows)

    @property
    def publishes(self) -> bool:
        """Whether it is an attempt's word that the run is finished."""
        return bool(self.events) and isinstance(self.events[-1], OutputsPublished)


class CheckedCoordinator(Coordinator):
    """A coordinator that sees whether what it keeps is what the rows say."""

    def __init__(self, world: World, store: Store | None = None, *, sleep: Sleep = time.sleep) -> None:
        super().__init__(store if store is not None else world.store, sleep=sleep)
        self._world = world

    def _keep(self, run_id: RunId, revision: int, state: RunState) -> RunState:
        """See Coordinator; what is kept is what anybody reads from the rows, where nobody has changed them since."""
        run = self._world.run_of(run_id)
        if (run.rows.run["revision"], run.rows.run["last_checkpoint_id"]) == (revision, state.last_checkpoint_id):
            branches, now = self._world.store._branches(run_id), self._world.clock.now()
            stored = timeless_state(MemoryTransaction(run.rows, branches, now).read_state())
            mine = timeless_state(state)
            for name in RunState.__dataclass_fields__ if mine != stored else ():
                kept, said = getattr(mine, name), getattr(stored, name)
                if kept != said and not (name == "pinned" and kept > said):  # a branch lets go, and tells nobody
                    run.oracle.violate("state", f"{name} is {kept} by the coordinator, {said} by the rows")
        return super()._keep(run_id, revision, state)

    def _decide_again(
        self, state: RunState, unflushed: tuple[_Unflushed, ...], *, now: datetime
    ) -> tuple[RunState, list[Command]]:
        """See Coordinator; counted."""
        try:
            decided, repeated = super()._decide_again(state, unflushed, now=now)
        except CommitLostError:
            self._world.counters["forgotten commit that cannot be repeated"] += 1
            if (fiber := current_fiber()) is not None:
                fiber.process.fail(FORGOTTEN)
            raise
        self._world.counters["forgotten commit repeated"] += bool(repeated)
        if (fiber := current_fiber()) is not None and fiber.saying is not None:
            fiber.saying.waits_for_lost = bool(repeated)
        return decided, repeated


class SimulatedCoordinator(CheckedCoordinator):
    """The coordinator of one process. Keeps what was said; now and then reports come first in parts."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.ports, sleep=lambda seconds: ask(Call.WAIT, seconds))  # type: ignore[arg-type]  # see SimulatedStore

    def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:  # noqa: ARG002
        """See Coordinator; nothing is published in a store that is no database."""
        for part in self._parts(events):
            self._say(run_id, part)
        return self._say(run_id, events)

    def discard(
        self, run_id: RunId, policy: CheckpointPolicy, *, attempt_id: AttemptId | None = None
    ) -> tuple[int, ...]:
        """See Coordinator."""
        fiber = current_fiber()
        if fiber is None:
            return super().discard(run_id, policy, attempt_id=attempt_id)
        fiber.saying, fiber.keeping = None, policy
        try:
            return super().discard(run_id, policy, attempt_id=attempt_id)
        finally:
            fiber.keeping = None

    def fall_back(
        self, run_id: RunId, attempt_id: AttemptId, fencing_token: int, *, checkpoint_id: int, reason: str
    ) -> RunState:
        """See Coordinator."""
        fiber = current_fiber()
        if fiber is not None:
            fiber.saying = None
        return super().fall_back(run_id, attempt_id, fencing_token, checkpoint_id=checkpoint_id, reason=reason)

    def _say(self, run_id: RunId, events: tuple[Event, ...]) -> RunState:
        fiber = current_fiber()
        if fiber is not None:
            fiber.saying = Said(events)
            if events and fiber.process.attempt is not None:
                fiber.process.attempt.said.append(fiber.saying)
        with noting_loss():
            state = super().apply(run_id, *events)
        self._world.counters["events answered"] += 1
        last = events[-1] if events else None
        if isinstance(last, CheckpointAcknowledged) and last.manifest_path is not None:
            status = self._world.run_of(run_id).rows.checkpoints[last.checkpoint_id]["status"]
            self._world.counters["stale upload refused"] += status == "ABORTED"
        return state

    def _parts(self, events: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
        random = self._world.random
        if not events or random.random() >= self._world.swarm.splits:
            return
        first = events[0]
        if isinstance(first, AlignmentTimedOut):
            yield (first,)
        elif isinstance(first, SubtasksAligned):
            for _ in range(random.randint(1, 2)):
                reports = {
                    head: {index: count for index, count in counts.items() if random.random() < 0.6}
                    for head, counts in first.reports.items()
                }
                self._world.counters["reports in parts"] += 1
                yield (dataclasses.replace(first, reports=reports),)
        elif isinstance(first, CheckpointAcknowledged):
            named = {
                name: tuple(i for i in indexes if random.random() < 0.6)
                for name, indexes in first.acknowledgements.items()
            }
            self._world.counters["acknowledgements in parts"] += 1
            yield (
                dataclasses.replace(
                    first, acknowledgements=named, manifest_path=None, manifest_sha256=None, size_bytes=0
                ),
            )


class SimulatedHeartbeat(Heartbeat):
    """The heartbeat, beaten by the scheduler instead of a thread."""

    def __enter__(self) -> Self:
        """Have the scheduler beat."""
        attempt = current_attempt()
        if attempt is not None:
            attempt.start_beating(self, interval_seconds=self._interval_seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for a beat under way."""
        self.stop()
        attempt = current_attempt()
        if attempt is not None:
            while attempt.beat is not None:
                ask(Call.JOIN)

    def stop(self) -> None:
        """See Heartbeat; no beat begins any more."""
        super().stop()
        attempt = current_attempt()
        if attempt is not None:
            attempt.stop_beating()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCrashPlan(CrashPlan):
    """Every crash point is a place where the scheduler may end the process."""

    def reach(self, point: CrashPoint, epoch: int | None = None) -> None:
        """See CrashPlan."""
        attempt = current_attempt()
        if point is CrashPoint.EPOCH_ALIGNED and attempt is not None and attempt.has_failed:
            text = f"attempt {attempt.number} goes on behind epoch {epoch}, and was told that it has failed"
            attempt.run.oracle.violate("I13", text)
        ask(Call.POINT, point)
