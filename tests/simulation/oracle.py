"""Is what happened allowed? Hears of every commit, file, operator and error, and notes the first violation.

It never raises: an exception in the middle of the production code could be caught there. The scheduler asks for
`violation` after each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from iteration_lib.driver.attempt import Attempt
from iteration_lib.errors import (
    ExecutionLostError,
    InputError,
    LeaseHeldError,
    OperatorFailedError,
    OutcomeUnknownError,
    ProtocolViolationError,
    RunFinishedError,
    StateCorruptedError,
    StateLocationError,
    SupersededError,
)
from iteration_lib.model.operator import Operator, Role
from iteration_lib.store.memory_write import MemoryRun
from iteration_lib.store.record import RunRecord
from tests.simulation.claims import LEASE_SECONDS
from tests.simulation.fiber import current_attempt
from tests.simulation.manifests import ManifestOracle
from tests.simulation.programs import Reference
from tests.simulation.rows import RowOracle, live_attempts

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.world import World

# To each error that the driver may end with, the ports of which one must have failed the attempt.
_DUE_TO: dict[type[BaseException], frozenset[str]] = {
    OutcomeUnknownError: frozenset({"store"}),
    ExecutionLostError: frozenset({"run"}),
    OperatorFailedError: frozenset({"run"}),
    StateLocationError: frozenset({"put"}),
    StateCorruptedError: frozenset({"get"}),
    InputError: frozenset({"get"}),
}

_TABLES = ("epochs", "checkpoints", "operators", "pins")


@dataclass(slots=True)
class Life:
    """What the oracle keeps of an attempt that was opened."""

    token: int
    durable: int  # the last durable epoch when it was opened
    finished: frozenset[str]  # the operators that had finished for good by then
    pinned: frozenset[str]
    ran: set[tuple[str, int | None]]


class Oracle:
    """Watches one schedule."""

    def __init__(self, world: World, reference: Reference) -> None:
        self._world = world
        self.violation: str | None = None
        self._counters: Counter[str] = world.counters
        self._reference = reference
        self._rows = RowOracle(reference, self.violate, world.counters)
        self._manifests = ManifestOracle(world.disk, world.program, reference, self.violate)
        self._known: MemoryRun = self.rows
        self._lives: dict[SimulatedAttempt, Life] = {}
        self._pinned: dict[str, int] = {}  # data streams, by the token that pinned them
        world.disk.on_write = self._file_written
        world.disk.on_remove = self._file_removed

    @property
    def rows(self) -> MemoryRun:
        """The rows as they are."""
        return self._world.store._runs[self._world.run_id]

    @property
    def revision(self) -> int:
        """The revision of the rows that were checked last."""
        return int(self._known.run["revision"])

    def violate(self, rule: str, text: str) -> None:
        """Note a violation; the first one counts."""
        if self.violation is None:
            self.violation = f"{rule}: {text}"

    def observe(self, attempt: SimulatedAttempt | None) -> None:
        """Check what a commit changed."""
        before, after = self._known, self.rows
        self._known = after
        if _same(before, after):
            if before.run["revision"] != after.run["revision"]:
                self.violate("I12", "the revision grew, and nothing changed")
            self._counters["commit without a change"] += 1
            return
        actor = attempt.attempt_id if attempt is not None else None
        self._rows.check(before, after, actor=actor, now=self._world.clock.now())
        if self.violation is not None:
            return
        if attempt is not None and after.run["fencing_token"] > before.run["fencing_token"]:
            self._taken_over(before, attempt)
        self._manifests.check(before, after)
        for name in after.pins.keys() - before.pins.keys():
            self._pinned[name] = after.run["fencing_token"]

    def _taken_over(self, before: MemoryRun, attempt: SimulatedAttempt) -> None:
        """See that whoever takes over had the right to."""
        if before.run["status"] == "FINISHED":
            self.violate("I10", "a FINISHED run was taken over")
        if before.run["status"] == "TERMINATING":
            self._counters["resumed in TERMINATING"] += 1
        if before.run["status"] == "FAILED":
            self._counters["resumed from FAILED"] += 1
        self._lease_is_new(self.rows.attempts[self.rows.run["fencing_token"]])
        for live in live_attempts(before):
            claim = attempt.claim
            rights = {
                "word": claim is not None and claim.takeover,
                "proof": claim is not None and claim.gone_attempt_id == live["attempt_id"],
                "lease": live["lease_expires_at"] <= self._world.clock.now(),
            }
            if not any(rights.values()):
                self.violate("lease", f"{attempt.attempt_id} took the run from {live['attempt_id']} without a right")
            right = next((name for name, holds in rights.items() if holds), "none")
            self._counters[f"takeover by {right}"] += 1
            if live["lease_expires_at"] == self._world.clock.now():
                self._counters["takeover at the instant the lease ran out"] += 1

    def _lease_is_new(self, attempt: Mapping[str, object]) -> None:
        if attempt["lease_expires_at"] != self._world.clock.now() + timedelta(seconds=LEASE_SECONDS):
            self.violate("lease", f"the lease of token {attempt['fencing_token']} is for {attempt['lease_expires_at']}")

    def claim_was_held(self, attempt: SimulatedAttempt | None) -> None:
        """See that a claim was refused with reason."""
        self._counters["lease held"] += 1
        self.nothing_changed("a refused claim", attempt)
        for live in live_attempts(self.rows):
            claim = attempt.claim if attempt is not None else None
            gone = claim.gone_attempt_id if claim is not None else None
            if gone is not None:
                self._counters["proof of another attempt refused"] += 1
            word = claim is not None and claim.takeover
            if word or gone == live["attempt_id"] or live["lease_expires_at"] <= self._world.clock.now():
                self.violate("lease", "a claim by right was refused")
            return
        self.violate("lease", "a claim was refused, and nobody holds the run")

    def nothing_changed(self, what: str, attempt: SimulatedAttempt | None = None) -> None:
        """I12: whatever was refused left the rows as they were."""
        if not _same(self.rows, self._known):
            who = f" of attempt {attempt.number}" if attempt is not None else ""
            self.violate("I12", f"{what}{who} changed rows")

    def lease_was_renewed(self, attempt: SimulatedAttempt | None, *, renewed: bool) -> None:
        """See that the live attempt's lease is renewed, and nobody else's."""
        life = self._lives.get(attempt) if attempt is not None else None
        if life is None:
            return
        is_live = self.rows.attempts[life.token]["ended_at"] is None
        if is_live is not renewed:
            self.violate("lease", f"token {life.token} renewed: {renewed}, live: {is_live}")
        if renewed:
            self._lease_is_new(self.rows.attempts[life.token])
        self._known = self.rows

    def attempt_opened(self, attempt: SimulatedAttempt, opened: Attempt) -> None:
        """Keep what an attempt found; it may have been superseded by now."""
        rows = self.rows
        row = rows.attempts.get(opened.fencing_token)
        if row is None or row["attempt_id"] != attempt.attempt_id:
            self.violate("I1", f"attempt {attempt.number} was told the token {opened.fencing_token} of another")
            return
        mine = opened.fencing_token
        self._lives[attempt] = Life(
            token=mine,
            durable=_last_durable_before(rows, mine),
            finished=frozenset(
                o["operator_id"] for o in rows.operators.values() if (o["fencing_token"] or mine) < mine
            ),
            pinned=frozenset(name for name, token in self._pinned.items() if token < mine),
            ran=set(),
        )

    def operator_ran(self, attempt: SimulatedAttempt, operator: Operator, epoch: int | None) -> None:
        """See that nothing durable, nothing finished and nothing twice is run."""
        life = self._lives[attempt]
        what = f"operator {operator.operator_id} of attempt {attempt.number} (token {life.token})"
        if (operator.operator_id, epoch) in life.ran:
            self.violate("runs", f"{what} ran twice in epoch {epoch}")
        life.ran.add((operator.operator_id, epoch))
        if epoch is not None and attempt.until_epoch is not None and epoch >= attempt.until_epoch:
            self.violate("runs", f"{what} ran epoch {epoch}, but was to stop before {attempt.until_epoch}")
        if epoch is not None and epoch <= life.durable:
            self.violate("I6", f"{what} ran epoch {epoch} again, durable before it was opened")
        if operator.finishes and operator.operator_id in life.finished:
            self.violate("I11", f"{what} had finished for good, and ran again")
        if operator.role is Role.DATA and operator.name in life.pinned:
            self.violate("pins", f"{what} was pinned, and asked for its source again")
        if operator.role is Role.VARIABLE and life.durable >= 0:
            self.violate("I6", f"{what} gave a variable's first value again")

    def observer(self, attempt: SimulatedAttempt) -> DurableOracle:
        """Return what hears from the driver how the run goes on."""
        return DurableOracle(self, attempt)

    def epoch_was_called_durable(self, attempt: SimulatedAttempt, epoch: int) -> None:
        """See that an epoch is durable when the driver says so."""
        row = self.rows.epochs.get((epoch, self._lives[attempt].token))
        if row is None or row["status"] != "DURABLE":
            self.violate("I6", f"attempt {attempt.number} calls epoch {epoch} durable, which is not")

    def attempt_ended(self, attempt: SimulatedAttempt) -> None:
        """See that an attempt ended as it had to."""
        error = attempt.error
        self._counters[f"ended: {type(error).__name__ if error is not None else 'well'}"] += 1
        if error is None:
            self._ended_well(attempt)
        elif isinstance(error, SupersededError):
            self._was_superseded(attempt)
        elif isinstance(error, RunFinishedError):
            if self.rows.run["status"] != "FINISHED":
                self.violate("errors", f"attempt {attempt.number} was told that the run is FINISHED")
        elif isinstance(error, ProtocolViolationError) and self._is_a_known_race(attempt):
            self._counters["claim of an attempt that has ended"] += 1
        elif isinstance(error, ProtocolViolationError) or type(error) not in {*_DUE_TO, LeaseHeldError}:
            self.violate("errors", f"attempt {attempt.number} ended with {error!r}")
        elif not isinstance(error, LeaseHeldError) and not self._is_due(attempt, error):
            self.violate("errors", f"attempt {attempt.number} ended with {error!r}, and nothing had failed it")

    def _was_superseded(self, attempt: SimulatedAttempt) -> None:
        """See that another attempt took the run, or ended this one's row."""
        row = self._row_of(attempt)
        if row is None or row["outcome"] == "SUPERSEDED" or row["fencing_token"] != self.rows.run["fencing_token"]:
            return
        state = "is in force" if row["ended_at"] is None else f"has ended as {row['outcome']} by itself"
        self.violate("errors", f"attempt {attempt.number} took itself for superseded, and {state}")

    def _is_a_known_race(self, attempt: SimulatedAttempt) -> bool:
        """Tell whether a claim was sent again too late.

        The attempt was opened, did not hear so, and was superseded before it asked again. Only the store knows its id
        then, and calls it taken, which reads like a bug and is none.
        """
        row = self._row_of(attempt)
        return attempt not in self._lives and row is not None and row["ended_at"] is not None

    def _is_due(self, attempt: SimulatedAttempt, error: BaseException) -> bool:
        if _DUE_TO[type(error)] & attempt.hurt:
            return True
        if isinstance(error, StateCorruptedError | InputError | StateLocationError) and self._world.damages:
            self._counters["damaged file seen"] += 1
            return True
        return False

    def _ended_well(self, attempt: SimulatedAttempt) -> None:
        row, run = self._row_of(attempt), self.rows.run
        if row is None:
            if run["status"] != "FINISHED":
                self.violate("errors", f"attempt {attempt.number} went away from a run that is {run['status']}")
            return
        if row["outcome"] not in ("RELEASED", "FINISHED"):
            self.violate("errors", f"attempt {attempt.number} ended well, but its row says {row['outcome']}")
        until = attempt.until_epoch
        reached = run["terminated_by"] is not None or (until is not None and run["last_durable_epoch"] >= until - 1)
        if not reached:
            self.violate("I6", f"attempt {attempt.number} ended well, and its last epoch is not durable")
        if attempt.publishes and run["terminated_by"] is not None and run["status"] != "FINISHED":
            self.violate("I10", f"attempt {attempt.number} ended well, and published nothing")

    def _row_of(self, attempt: SimulatedAttempt) -> Mapping[str, object] | None:
        rows = [row for row in self.rows.attempts.values() if row["attempt_id"] == attempt.attempt_id]
        return rows[-1] if rows else None

    def _file_written(self, path: str, content: bytes, before: bytes | None) -> None:
        self._manifests.file_written(path, content, before, self.rows)
        attempt = current_attempt()
        life = self._lives.get(attempt) if attempt is not None else None
        if life is not None and life.token < self.rows.run["fencing_token"]:
            self._counters["file written after the takeover"] += 1

    def _file_removed(self, path: str) -> None:
        self._counters["file removed"] += 1
        self._manifests.file_removed(path)

    def finished(self) -> None:
        """See that the run is at its end, and that everything of it is there."""
        if self.rows.run["status"] != "FINISHED":
            self.violate("liveness", f"the run is {self.rows.run['status']} after it was healed")
            return
        self._manifests.finished(self.rows)


class DurableOracle:
    """See driver.context.Observer."""

    def __init__(self, oracle: Oracle, attempt: SimulatedAttempt) -> None:
        self._oracle = oracle
        self._attempt = attempt

    def run_restored(self, run: RunRecord, *, next_epoch: int) -> None:
        """Do nothing."""

    def epoch_durable(self, epoch: int, *, metrics: Mapping[str, float], seconds: float) -> None:  # noqa: ARG002
        """Check it."""
        self._oracle.epoch_was_called_durable(self._attempt, epoch)


def _same(before: MemoryRun, after: MemoryRun) -> bool:
    """Tell whether two rows are the same, without leases, which are renewed beside every commit."""
    if before is after:
        return True
    unchanged = all(getattr(before, table) == getattr(after, table) for table in _TABLES)
    if not unchanged or {**before.run, "revision": None} != {**after.run, "revision": None}:
        return False
    leases = [[{**row, "lease_expires_at": None} for row in rows.attempts.values()] for rows in (before, after)]
    return leases[0] == leases[1]


def _last_durable_before(rows: MemoryRun, token: int) -> int:
    durable = [e["epoch"] for e in rows.epochs.values() if e["status"] == "DURABLE" and e["fencing_token"] < token]
    return max(durable, default=-1)
