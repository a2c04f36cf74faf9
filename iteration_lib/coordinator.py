"""How does an event become committed rows? The one shell around the protocol.

Lock the run, read its state (or reuse the one of the last commit, when the run's revision says that nobody wrote
since), decide, write, commit. When the connection is lost at the commit the outcome is unknown: the same events are
sent again, which the protocol answers without a change if they were committed. What has to happen after a commit is
the caller's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from iteration_lib.errors import OutcomeUnknownError
from iteration_lib.protocol import Command, Event, RunState, decide
from iteration_lib.protocol.event import AttemptOpened
from iteration_lib.protocol.state import RunId
from iteration_lib.store.seam import Store

_logger = logging.getLogger(__name__)

_RETRY_DELAYS_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0)  # a restarted server is back within these


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    revision: int
    state: RunState


class Coordinator:
    """Applies events to runs of one store. Safe to share between threads."""

    def __init__(self, store: Store, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Write to `store`; `sleep` waits between two tries."""
        self._store = store
        self._sleep = sleep
        self._cache: dict[RunId, _Cached] = {}
        self._lock = threading.Lock()

    def apply(self, run_id: RunId, *events: Event) -> RunState:
        """Apply events in one transaction, all or none, and return the state that was committed.

        Raises what `protocol.decide` raises, RunNotFoundError, or OutcomeUnknownError when the store stays away.
        """
        for delay_seconds in _RETRY_DELAYS_SECONDS:
            try:
                return self._apply_once(run_id, events)
            except OutcomeUnknownError as err:
                _logger.warning("event=store_retry run_id=%s delay_seconds=%s error=%s", run_id, delay_seconds, err)
                self._sleep(delay_seconds)
        return self._apply_once(run_id, events)

    def _apply_once(self, run_id: RunId, events: tuple[Event, ...]) -> RunState:
        with self._lock:
            cached = self._cache.pop(run_id, None)
        with self._store.transaction(run_id) as transaction:
            is_known = cached is not None and cached.revision == transaction.revision and not _asks_for_lease(events)
            state = cached.state if cached is not None and is_known else transaction.read_state()
            commands: list[Command] = []
            for event in events:
                state, decided = decide(state, event, transaction.now)
                commands += decided
            transaction.write(commands, state.fencing_token)
            revision = transaction.revision
        with self._lock:
            self._cache[run_id] = _Cached(revision=revision, state=state)
        return state


def _asks_for_lease(events: tuple[Event, ...]) -> bool:
    """Tell whether the answer depends on a lease: renewing one does not count in the run's revision."""
    return any(isinstance(event, AttemptOpened) for event in events)
