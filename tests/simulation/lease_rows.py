"""May whoever takes over do so, and is a lease renewed for its holder alone?"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Row, Violate, live_attempts
from tests.simulation.claims import LEASE_SECONDS

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt


class LeaseOracle(Checks):
    """Looks at claims, granted or refused, and at renewals."""

    def __init__(self, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self._counters = counters

    def check(self, change: Change) -> None:
        """See that whoever took over had the right to."""
        before, attempt = change.before, change.attempt
        if attempt is None or not change.is_takeover:
            return
        status = before.run["status"]
        self._require(status != "FINISHED", "I10", "a FINISHED run was taken over")
        if status in ("TERMINATING", "FAILED"):
            self._counters[f"resumed {'in' if status == 'TERMINATING' else 'from'} {status}"] += 1
        self._is_new(change.after.attempts[change.token], change.now)
        claim = attempt.claim
        for live in live_attempts(before):
            rights = {
                "word": claim is not None and claim.takeover,
                "proof": claim is not None and claim.gone_attempt_id == live["attempt_id"],
                "lease": live["lease_expires_at"] <= change.now,
            }
            right = next((name for name, holds in rights.items() if holds), None)
            self._require(right, "lease", "{} took the run from {}", attempt.attempt_id, live["attempt_id"])
            self._counters[f"takeover by {right}"] += 1
            if live["lease_expires_at"] == change.now:
                self._counters["takeover at the instant the lease ran out"] += 1

    def was_held(self, attempt: SimulatedAttempt | None, rows: MemoryRun, now: datetime) -> None:
        """See that a claim was refused with reason."""
        self._counters["lease held"] += 1
        live = live_attempts(rows)
        self._require(live, "lease", "a claim was refused, and nobody holds the run")
        claim = attempt.claim if attempt is not None else None
        if not live or claim is None:
            return
        if claim.gone_attempt_id is not None:
            self._counters["proof of another attempt refused"] += 1
        is_proof = claim.gone_attempt_id == live[0]["attempt_id"]
        by_right = claim.takeover or is_proof or live[0]["lease_expires_at"] <= now
        self._require(not by_right, "lease", "a claim by right was refused")

    def was_renewed(self, row: Row, *, renewed: bool, now: datetime) -> None:
        """See that the live attempt's lease is renewed, and nobody else's."""
        is_live = row["ended_at"] is None
        self._require(
            is_live is renewed, "lease", "token {} renewed: {}, live: {}", row["fencing_token"], renewed, is_live
        )
        if renewed:
            self._is_new(row, now)

    def _is_new(self, attempt: Row, now: datetime) -> None:
        lasts = attempt["lease_expires_at"] == now + timedelta(seconds=LEASE_SECONDS)
        token, until = attempt["fencing_token"], attempt["lease_expires_at"]
        self._require(lasts, "lease", "the lease of token {} is for {}", token, until)
