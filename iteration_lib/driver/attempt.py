"""Who drives a run? An attempt: opened under a token of its own, kept alive by a heartbeat, ended in every case."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypedDict

from iteration_lib.coordinator import Coordinator, Publish
from iteration_lib.driver.keepable import printable
from iteration_lib.errors import IterationError, OperatorError, RunStoppedError, SupersededError, say
from iteration_lib.heartbeat import Heartbeat
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import AttemptEnded, AttemptOpened
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, AttemptId, FailedOperator, Holder, RunId
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.store.seam import Store

_logger = logging.getLogger(__name__)


class Guard(TypedDict):
    """What an event carries so that it is known whose it is (I2)."""

    attempt_id: AttemptId
    fencing_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who asks to drive, and by what right if another attempt still holds the run; see AttemptOpened."""

    attempt_id: AttemptId
    holder: Holder
    gone_attempt_id: AttemptId | None = None
    takeover: bool = False
    ignore_edges: bool = False
    lease_ttl_seconds: float = 30.0
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An open attempt. `opened` is the run as it was taken over."""

    run_id: RunId
    attempt_id: AttemptId
    fencing_token: int
    opened: RunState
    coordinator: Coordinator
    heartbeat: Heartbeat
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def guard(self) -> Guard:
        """Return what every event of this attempt carries."""
        return {"attempt_id": self.attempt_id, "fencing_token": self.fencing_token}

    @property
    def folder(self) -> str:
        """The attempt's own folder, relative to the run's: no two attempts ever write to the same path."""
        return attempt_folder(self.fencing_token, self.attempt_id)

    def apply(self, *events: Event, publish: Publish | None = None) -> RunState:
        """Apply events in one transaction; see Coordinator."""
        return self.coordinator.apply(self.run_id, *events, publish=publish)

    def end(
        self, outcome: AttemptOutcome, *, reason: str | None = None, failed: FailedOperator | None = None
    ) -> RunState:
        """Say the attempt's last word; what becomes of the run after that is none of its business."""
        self.heartbeat.stop()
        said = printable(reason) if reason is not None else None
        state = self.apply(AttemptEnded(**self.guard, outcome=outcome, reason=said, failed=failed))
        self._ended.set()
        return state

    @property
    def has_ended(self) -> bool:
        """Tell whether the last word was said; no matter by which copy of this."""
        return self._ended.is_set()

    def look(self) -> RunState:
        """Return the run as it is now; raises SupersededError when this attempt does not drive it any more."""
        state = self.coordinator.apply(self.run_id)
        live = state.attempt
        if live is None or live.fencing_token != self.fencing_token:
            current = live.fencing_token if live is not None else None
            raise SupersededError(run_id=self.run_id, held=self.fencing_token, current=current)
        return state


def attempt_folder(fencing_token: int, attempt_id: AttemptId) -> str:
    """Return the folder of an attempt, relative to the run's."""
    return f"{fencing_token:06d}-{attempt_id[:8]}"


@contextmanager
def open_attempt(
    store: Store,
    coordinator: Coordinator,
    run_id: RunId,
    claim: Claim,
    *,
    heartbeat_class: type[Heartbeat] = Heartbeat,
) -> Iterator[Attempt]:
    """Open an attempt and keep its lease; on the way out it has ended, FAILED when an error passed.

    A simulation gives a `heartbeat_class` that beats without a thread.

    Raises LeaseHeldError; RunStoppedError for a run that a person has stopped, or that is stopped now instead;
    SupersededError when another attempt took the run meanwhile.
    """
    state = coordinator.apply(
        run_id,
        AttemptOpened(
            attempt_id=claim.attempt_id,
            holder=claim.holder,
            lease_ttl_seconds=claim.lease_ttl_seconds,
            gone_attempt_id=claim.gone_attempt_id,
            takeover=claim.takeover,
            ignore_edges=claim.ignore_edges,
            policy=claim.policy,
        ),
    )
    if state.attempt is None:
        raise RunStoppedError(run_id)
    heartbeat = heartbeat_class(
        renew=lambda: store.renew_lease(
            run_id,
            claim.attempt_id,
            fencing_token=state.fencing_token,
            lease_ttl_seconds=claim.lease_ttl_seconds,
        ),
        interval_seconds=claim.lease_ttl_seconds / 3,
    )
    attempt = Attempt(
        run_id=run_id,
        attempt_id=claim.attempt_id,
        fencing_token=state.fencing_token,
        opened=state,
        coordinator=coordinator,
        heartbeat=heartbeat,
    )
    _logger.info("event=attempt_opened run_id=%s token=%s", run_id, attempt.fencing_token)
    try:
        with heartbeat:
            yield attempt
    except SupersededError:
        raise
    except BaseException as err:
        if heartbeat.is_superseded:
            raise SupersededError(run_id=run_id, held=attempt.fencing_token, current=None) from err
        if not attempt.has_ended:
            _end_after(attempt, err)
        raise
    if not attempt.has_ended:
        attempt.end(AttemptOutcome.RELEASED)


def _end_after(attempt: Attempt, err: BaseException) -> None:
    """End an attempt that an error stopped; an interrupt is no failure of the run.

    Raises SupersededError for an attempt that had lost its run by then: what it needed may have been let go.
    """
    is_interrupt = isinstance(err, KeyboardInterrupt | SystemExit)
    failed = None
    if is_interrupt:
        outcome, reason = AttemptOutcome.RELEASED, "interrupted"
    else:
        outcome, reason = AttemptOutcome.FAILED, str(err) if isinstance(err, IterationError) else say(err)
        if isinstance(err, OperatorError):
            failed = FailedOperator(operator_id=err.operator_id, epoch=NO_EPOCH if err.epoch is None else err.epoch)
    is_lost = False
    try:
        state = attempt.end(outcome, reason=reason, failed=failed)
        is_lost = state.status is RunStatus.DELETED  # which ended the attempt: this is taken for its last word again
    except SupersededError:
        is_lost = True
    except IterationError as second:  # the first error is the one to show
        _logger.warning("event=attempt_not_ended run_id=%s error=%s", attempt.run_id, second)
    if is_lost and not is_interrupt:
        raise SupersededError(run_id=attempt.run_id, held=attempt.fencing_token, current=None) from err
