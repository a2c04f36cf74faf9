"""How does an event become committed rows? The one shell around the protocol.

Lock the run, read its state (or reuse the one of the last commit, when the run's version says that nobody wrote
since), decide, write, commit. What needs no clock is decided on the state of the last commit before the run is
locked: one message then locks it, makes sure that nobody wrote since, writes and commits. When the connection is lost
at the commit the outcome is unknown: the same events are sent again, which the protocol answers without a change if
they were committed. What has to happen after a commit is the caller's.

A commit in one message that only begins a checkpoint is not awaited on the server's disk: the one that completes the
checkpoint is, and the disk gets them in order. Where the server crashes in between, the run is not as that commit left
it: its events, which are kept until a later commit is on the disk, are sent again before anything else is. What sinks
prepare goes by the alignment alone: a run that has any waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from iteration_lib.errors import (
    CheckpointNotFoundError,
    CommitLostError,
    IterationError,
    RunLockedError,
    SupersededError,
)
from iteration_lib.protocol import Command, Event, RunState, decide, needs_clock
from iteration_lib.protocol.command import RecordCommittables
from iteration_lib.protocol.event import (
    AttemptEnded,
    AttemptOpened,
    CheckpointPinned,
    CheckpointsDiscarded,
    Committable,
    FellBack,
    RunDeleted,
    StopRequested,
)
from iteration_lib.protocol.fallback import check_unheard
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.retention import discardable
from iteration_lib.protocol.state import AttemptId, CheckpointState, RunId
from iteration_lib.store.retry import Sleep, retry
from iteration_lib.store.seam import RunVersion, Store, Transaction

# What is decided on in a locked run; it may read more of it first.
Choose: TypeAlias = Callable[[Transaction, RunState], tuple[Event, ...]]
# Publishes what a sink prepared in the store's own database, with a cursor (of psycopg2) that is in the transaction.
Publish: TypeAlias = Callable[[Committable, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    revision: int
    state: RunState

    @property
    def version(self) -> RunVersion:
        """The version of the run that the state is of."""
        return RunVersion(self.revision, self.state.last_attempt_id, self.state.last_checkpoint_id)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Unflushed:
    """Events whose commit a crash of the server may have undone, what they changed, and the answer to them."""

    events: tuple[Event, ...]
    commands: tuple[Command, ...]
    state: RunState


class Coordinator:
    """Applies events to runs of one store. Safe to share between threads."""

    def __init__(self, store: Store, *, sleep: Sleep = time.sleep) -> None:
        """Write to `store`; `sleep` waits between two tries."""
        self._store = store
        self._sleep = sleep
        self._cache: dict[RunId, _Cached] = {}
        self._unflushed: dict[RunId, tuple[_Unflushed, ...]] = {}
        self._lock = threading.Lock()
        self._publishing: list[RunId] = []  # once for each thread that does

    def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
        """Apply events in one transaction, all or none, and return the state that was committed.

        In the same transaction `publish` is called for what is stored and committed at once.

        Raises what `protocol.decide` raises, RunNotFoundError, RunLockedError when others do not let the run go,
        OutcomeUnknownError when the store stays away, or CommitLostError when its server has lost what was answered
        and that cannot be had again.
        """
        while True:
            is_own = run_id in self._publishing
            try:
                return retry(lambda: self._apply_once(run_id, events, publish), f"run_id={run_id}", sleep=self._sleep)
            except RunLockedError:  # by another thread's rows: the sink's time limit ends that, or its connection
                if not is_own and run_id not in self._publishing:
                    raise

    def discard(
        self, run_id: RunId, policy: CheckpointPolicy, *, attempt_id: AttemptId | None = None
    ) -> tuple[int, ...]:
        """Discard, in one transaction, what nobody needs and a policy does not keep; return the checkpoints' ids.

        Of a run that was deleted everything goes that nobody pins. An attempt whose policy it is says who it is.
        Raises as `apply` does.
        """
        return retry(lambda: self._discard_once(run_id, policy, attempt_id), f"run_id={run_id}", sleep=self._sleep)

    def fall_back(
        self, run_id: RunId, attempt_id: AttemptId, fencing_token: int, *, checkpoint_id: int, reason: str
    ) -> RunState:
        """Let a run go on from an older checkpoint; see FellBack.

        Raises as `apply` does, and CheckpointNotFoundError where the checkpoint is not there any more.
        """

        def choose(transaction: Transaction, state: RunState) -> tuple[Event, ...]:
            found = _read_checkpoint(transaction, state, checkpoint_id)
            event = FellBack(
                attempt_id=attempt_id,
                fencing_token=fencing_token,
                checkpoint=found,
                reason=reason,
                published=transaction.read_published(found.epoch),
            )
            return (event,)

        def fall_back_once() -> RunState:
            return self._transact(run_id, choose, self._take_unpinned(run_id))

        return retry(fall_back_once, f"run_id={run_id}", sleep=self._sleep)

    def check_fallback(self, run_id: RunId, checkpoint_id: int) -> None:
        """Raise FallbackRefusedError where somebody has had something of what would be given up; change nothing.

        Raises CheckpointNotFoundError, too, as `fall_back` does.
        """

        def look() -> None:
            with self._store.transaction(run_id) as transaction:
                state = transaction.read_state()
                found = _read_checkpoint(transaction, state, checkpoint_id)
                check_unheard(state, found, transaction.read_published(found.epoch))

        retry(look, f"run_id={run_id}", sleep=self._sleep)

    def pin(self, run_id: RunId, checkpoint_id: int, *, pinned_by: str) -> RunState:
        """Keep a checkpoint for a person, until CheckpointReleased.

        Raises as `apply` does, and CheckpointNotFoundError where the checkpoint is not there, or not any more.
        """

        def choose(transaction: Transaction, state: RunState) -> tuple[Event, ...]:
            found = _read_checkpoint(transaction, state, checkpoint_id)
            return (CheckpointPinned(checkpoint_id=checkpoint_id, status=found.status, pinned_by=pinned_by),)

        return retry(lambda: self._transact(run_id, choose, self._take(run_id)), f"run_id={run_id}", sleep=self._sleep)

    def discardable(self, run_id: RunId, policy: CheckpointPolicy) -> tuple[int, ...]:
        """Return what `discard` would discard, and discard nothing."""

        def look() -> tuple[int, ...]:
            with self._store.transaction(run_id) as transaction:
                return discardable(transaction.read_state(), transaction.read_retained(policy.retain_metric), policy)

        return retry(look, f"run_id={run_id}", sleep=self._sleep)

    def _apply_once(self, run_id: RunId, events: tuple[Event, ...], publish: Publish | None) -> RunState:
        cached = self._take(run_id)
        if cached is not None and (foreseen := self._write_foreseen(run_id, cached, events, publish)) is not None:
            return foreseen
        asks = _asks_for_lease(events)
        return self._transact(run_id, lambda *_: events, cached, publish=publish, asks_for_lease=asks)

    def _write_foreseen(
        self, run_id: RunId, cached: _Cached, events: tuple[Event, ...], publish: Publish | None
    ) -> RunState | None:
        """Commit what follows from the state of the last commit; None where that has to be decided behind the lock.

        That is what needs the clock, what would be refused, what others write with it, and whatever comes after
        somebody else's commit.
        """
        unflushed = self._unflushed.get(run_id, ())
        if any(needs_clock(cached.state, event) for event in events) or not _includes(cached.state, unflushed):
            return None
        try:
            state, commands = _decide_all(cached.state, events, now=None)
        except IterationError:
            return None
        if publish is not None and _in_store(commands):
            return None
        is_flushed = not _may_be_flushed_later(cached.state, state)
        revision = self._store.write(run_id, commands, state.fencing_token, known=cached.version, is_flushed=is_flushed)
        if revision is None:
            return None
        if is_flushed:
            self._note_flushed(run_id, unflushed)
        else:
            self._note_unflushed(run_id, _Unflushed(events=events, commands=tuple(commands), state=state))
        return self._keep(run_id, revision, state)

    @contextmanager
    def _locking(self, run_id: RunId) -> Iterator[None]:
        """Say that a thread of this process holds the run's lock for as long as a sink needs, until the COMMIT."""
        self._publishing.append(run_id)
        try:
            yield
        finally:
            self._publishing.remove(run_id)

    def _discard_once(self, run_id: RunId, policy: CheckpointPolicy, attempt_id: AttemptId | None) -> tuple[int, ...]:
        discarded: tuple[int, ...] = ()

        def choose(transaction: Transaction, state: RunState) -> tuple[Event, ...]:
            nonlocal discarded
            discarded = discardable(state, transaction.read_retained(policy.retain_metric), policy)
            return (CheckpointsDiscarded(checkpoint_ids=discarded, attempt_id=attempt_id),)

        self._transact(run_id, choose, self._take_unpinned(run_id))
        return discarded

    def _take(self, run_id: RunId) -> _Cached | None:
        """Return what the last commit left, and forget it until the next."""
        with self._lock:
            return self._cache.pop(run_id, None)

    def _take_unpinned(self, run_id: RunId) -> _Cached | None:
        """Do as `_take`, but only where no branch pins: that one lets go counts in no revision of this run."""
        cached = self._take(run_id)
        return cached if cached is not None and not cached.state.pinned else None

    def _keep(self, run_id: RunId, revision: int, state: RunState) -> RunState:
        with self._lock:
            self._cache[run_id] = _Cached(revision=revision, state=state)
        return state

    def _note_unflushed(self, run_id: RunId, committed: _Unflushed) -> None:
        with self._lock:
            self._unflushed[run_id] = (*self._unflushed.get(run_id, ()), committed)

    def _note_flushed(self, run_id: RunId, known: tuple[_Unflushed, ...]) -> None:
        """Forget what was there before a transaction began that is on the disk now."""
        if known:
            with self._lock:
                self._unflushed[run_id] = tuple(kept for kept in self._unflushed[run_id] if kept not in known)

    def _transact(
        self,
        run_id: RunId,
        choose: Choose,
        cached: _Cached | None,
        *,
        publish: Publish | None = None,
        asks_for_lease: bool = False,
    ) -> RunState:
        with ExitStack() as until_commit, self._store.transaction(run_id) as transaction:
            unflushed = self._unflushed.get(run_id, ())  # behind the lock: what is noted by now was committed before
            known = _still_known(cached, transaction.found, unflushed) if not asks_for_lease else None
            state = known if known is not None else transaction.read_state(locks_lease=asks_for_lease)
            events = choose(transaction, state)
            repeated: list[Command] = []
            if known is None and not any(isinstance(event, AttemptEnded) for event in events):  # which voids all of it
                state, repeated = self._decide_again(state, unflushed, now=transaction.now)
            commands = repeated
            if not repeated:
                state, commands = _decide_all(state, events, now=transaction.now)
            if publish is not None and (published := _in_store(commands)):
                # Before anything is written: rows take long, and a lease is not renewed once its attempt is changed.
                until_commit.enter_context(self._locking(run_id))
                for committable in published:
                    transaction.lend(partial(publish, committable))
            transaction.write(commands, state.fencing_token)
            revision = transaction.revision
        if not repeated:
            self._note_flushed(run_id, unflushed)
            return self._keep(run_id, revision, state)
        return self._transact(run_id, choose, None, publish=publish, asks_for_lease=asks_for_lease)

    def _decide_again(
        self, state: RunState, unflushed: tuple[_Unflushed, ...], *, now: datetime
    ) -> tuple[RunState, list[Command]]:
        """Decide on what may be lost as if it were; return what follows from the first that is.

        Nothing follows from what is not lost, the same as before from what is. Who was superseded since hears so by
        what he says next. Raises CommitLostError where anything else follows, and where the run lacks what was answered
        all the same: it was changed in between, and whoever was answered goes by what is not true any more.
        """
        for committed in unflushed:
            try:
                state, commands = _decide_all(state, committed.events, now=now)
            except SupersededError:
                break
            except IterationError as err:
                raise CommitLostError(state.run_id, str(err)) from err
            is_same = not commands or tuple(commands) == committed.commands
            if not is_same or _is_behind(state, committed.state):
                raise CommitLostError(state.run_id, "the run was changed in between")
            if commands:
                return state, commands
        return state, []


def _is_behind(state: RunState, answer: RunState) -> bool:
    """Tell whether a state lacks what was answered: a checkpoint, an epoch, or a decision as it was.

    Where nothing follows from the lost events it may still: the attempt has failed since, or a copy of them was
    decided on after another change.
    """
    decided = [(known, state.epoch_state(known.epoch)) for known in answer.epochs if known.decision is not None]
    return (
        state.last_checkpoint_id < answer.last_checkpoint_id
        or state.last_epoch < answer.last_epoch
        or any(found is not None and found.decision != known.decision for known, found in decided)
    )


def _decide_all(state: RunState, events: tuple[Event, ...], *, now: datetime | None) -> tuple[RunState, list[Command]]:
    commands: list[Command] = []
    for event in events:
        state, decided = decide(state, event, now)
        commands += decided
    return state, commands


def _may_be_flushed_later(before: RunState, after: RunState) -> bool:
    """Tell whether a commit begins checkpoints, whose ends will be flushed, and ends none; and no sink goes by it."""
    known, pending = ({found.checkpoint_id for found in state.pending} for state in (before, after))
    begun = set(range(before.last_checkpoint_id + 1, after.last_checkpoint_id + 1))
    return bool(begun) and known | begun <= pending and not after.sinks


def _still_known(cached: _Cached | None, found: RunVersion, unflushed: tuple[_Unflushed, ...]) -> RunState | None:
    """Return the state that was kept, if it still is the run's."""
    if cached is not None and cached.version == found and _includes(cached.state, unflushed):
        return cached.state
    return None


def _includes(state: RunState, unflushed: tuple[_Unflushed, ...]) -> bool:
    """Tell whether a state has what may be lost: it may be older, where a thread heard late of what it committed."""
    return all(committed.state.last_checkpoint_id <= state.last_checkpoint_id for committed in unflushed)


def _read_checkpoint(transaction: Transaction, state: RunState, checkpoint_id: int) -> CheckpointState:
    """Read a checkpoint that is there; an id beyond the last is not asked for: no database might hold it."""
    last = state.last_checkpoint_id
    found = transaction.read_checkpoint(checkpoint_id) if checkpoint_id <= last else None
    if found is None:
        raise CheckpointNotFoundError(state.run_id, checkpoint_id, last=last)
    return found


def _in_store(commands: Sequence[Command]) -> list[Committable]:
    """Return what is committed by the very transaction that stores it."""
    stored = [command for command in commands if isinstance(command, RecordCommittables)]
    return [known for command in stored for known in command.committables if known.in_store]


def _asks_for_lease(events: tuple[Event, ...]) -> bool:
    """Tell whether the answer depends on a lease: renewing one does not count in the run's revision."""
    return any(isinstance(event, AttemptOpened | RunDeleted | StopRequested) for event in events)
