"""Is what happened allowed? Hears of every commit, file, operator, listener and end, and notes the first violation.

It never raises: an exception in the middle of the production code could be caught there. The scheduler asks the world
for its violation after each step. Each run has an oracle of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iteration_lib.driver.attempt import Attempt, attempt_folder
from iteration_lib.model.operator import Operator, Role
from iteration_lib.protocol.event import OpenEvent, RunDeleted, RunResumed, StopRequested
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.topology import Vertex
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, is_same, live_attempts
from tests.simulation.checkpoint_rows import CheckpointOracle
from tests.simulation.durable import DurableOracle
from tests.simulation.edge_rows import FOR_GOOD, EdgeOracle, finished_buckets
from tests.simulation.ends import check_end
from tests.simulation.evolution_rows import EvolutionOracle
from tests.simulation.fallback_rows import FallbackOracle
from tests.simulation.fiber import current_attempt, current_fiber
from tests.simulation.lease_rows import LeaseOracle
from tests.simulation.manifests import STRAY_POINTER, ManifestOracle
from tests.simulation.notice_rows import NoticeOracle
from tests.simulation.origin_rows import OriginOracle
from tests.simulation.person_rows import PersonOracle
from tests.simulation.planned import Run, planned_runs
from tests.simulation.reference import reference_of
from tests.simulation.retention_rows import RetentionOracle
from tests.simulation.rows import RowOracle
from tests.simulation.sinking import SinkOracle
from tests.simulation.stop_rows import StopOracle, drained_in
from tests.simulation.versions import EvolvingProgram

if TYPE_CHECKING:
    from iteration_lib.errors import FallbackRefusedError
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.run import SimulatedRun


@dataclass(slots=True)
class Life:
    """What the oracle keeps of an attempt that was opened.

    Of what was there by then: the last durable epoch, the operators that had finished for good, the data streams that
    were pinned. `ran` is what it has run, bucket by bucket; `kept` what it need not, because an edge holds it, and
    `planned` what the dry run says of its first epoch.
    """

    token: int
    durable: int
    finished: frozenset[str]
    pinned: frozenset[str]
    kept: frozenset[Run]
    planned: Mapping[Run, Vertex]
    opened_at: int | None  # the run's revision before
    ran: set[Run]


class Oracle:
    """Watches one run."""

    def __init__(self, run: SimulatedRun) -> None:
        world = run.world
        legs = run.lineage.legs(run.rows)
        self.reference = whole = reference_of(legs)
        for epoch in range(whole.last_epoch + 1):  # now: later it is an attempt that would be heard to call listeners
            reference_of(legs, drained_in=epoch)
        self._expected = whole
        self._run = run
        self._world = world
        self.counters: Counter[str] = world.counters
        self._rows = RowOracle(whole, self.violate, world.counters)
        self._checkpoints = CheckpointOracle(whole, self.violate, world.counters)
        self._edges = EdgeOracle(run.program, self.violate, world.counters)
        self._notices = NoticeOracle(run.program, whole, self.violate, world.counters)
        self.sinks = SinkOracle(run.program, whole, self.violate, world.counters)
        self._stops = StopOracle(whole, self.violate, world.counters)
        self._leases = LeaseOracle(self.violate, world.counters)
        self._persons = PersonOracle(self.violate)
        self._retention = RetentionOracle(run, whole, self.violate)
        self._manifests = ManifestOracle(run, whole, self.violate)
        self.fallbacks = FallbackOracle(run, self._manifests, self.violate)
        self.evolution = EvolutionOracle(run, self.violate)
        self._known: MemoryRun = run.rows
        self.lives: dict[SimulatedAttempt, Life] = {}
        self._opened_at: dict[int, int] = {}  # by token
        self._origin = OriginOracle(run, self.violate)
        self._pinned = dict.fromkeys(self._origin.kept, 0)  # data streams, by the token that pinned them
        run.disk.on_write = self._file_written
        run.disk.on_remove = self._file_removed
        run.disk.on_read = self._file_read

    @property
    def rows(self) -> MemoryRun:
        """The rows as they are."""
        return self._run.rows

    @property
    def revision(self) -> int:
        """The revision of the rows that were checked last."""
        return int(self._known.run["revision"])

    def violate(self, rule: str, text: str) -> None:
        """Note a violation; the first one of the schedule counts."""
        self._world.violate(rule, text if self._run.origin is None else f"{self._run.name}: {text}")

    def observe(
        self,
        attempt: SimulatedAttempt | None,
        *,
        said: OpenEvent | None = None,
        keeping: CheckpointPolicy | None = None,
    ) -> None:
        """Check what a commit changed, of an attempt or of a person, or of anybody who discards by a policy."""
        before, after = self._known, self.rows
        self._known = after
        if is_same(before, after):
            if before.run["revision"] != after.run["revision"]:
                self.violate("I12", "the revision grew, and nothing changed")
            self.counters["commit without a change"] += 1
            return
        change = Change(before=before, after=after, attempt=attempt, said=said, now=self._world.clock.now())
        if self._stands_alone(change):
            return
        self._retention.check(change, keeping)
        if change.only_discards or isinstance(said, RunDeleted):
            return
        self._expect(after)
        if said is not None and not isinstance(said, StopRequested | RunResumed):
            self._persons.check(change)
        for part in (self._rows, self._leases, self._checkpoints, self._edges, self._notices, self.sinks, self._stops):
            if self._world.violation is None:
                part.check(change)
        if self._world.violation is not None:
            return
        self._manifests.check(change)
        self._count_restored(change)
        self._check_planned(change)
        for name in after.pins.keys() - before.pins.keys():
            self._pinned[name] = after.run["fencing_token"]
        self._origin.check(before, after)

    def _stands_alone(self, change: Change) -> bool:
        """Check a commit in which nothing else may be, if it is one: a fallback, or another definition."""
        before, after = change.before, change.after
        if len(after.fallbacks) > len(before.fallbacks):
            self._fell_back(change)
        elif after.run["definition"] is not before.run["definition"]:
            self._evolved(change)
        elif after.checkpoint_pins != before.checkpoint_pins:
            self._retention.check_pin(change)
        else:
            return False
        return True

    def _expect(self, rows: MemoryRun) -> None:
        """Expect what the programs give, or only what they give up to an epoch, which may be voided yet."""
        legs, drained = self._run.lineage.legs(rows), drained_in(rows)
        self.reference = self._retention.reference = reference_of(legs)
        is_drained = drained is not None and drained <= self.reference.last_epoch
        expected = reference_of(legs, drained_in=drained) if is_drained else self.reference
        if expected is self._expected:
            return
        self._expected = expected
        for part in (self._rows, self._checkpoints, self._notices, self.sinks, self._manifests):
            part.reference = expected

    def _evolved(self, change: Change) -> None:
        """Check that the run goes on with another version; from then on its program is that one."""
        self.evolution.check(change)
        attempt, after = change.attempt, change.after
        if attempt is None or not isinstance(attempt.program, EvolvingProgram) or self._world.violation is not None:
            return
        self._run.lineage.evolve(change.token, attempt.program)
        self._run.program = self._edges.program = self._manifests.program = attempt.program
        self._pinned = {
            name: token for name, token in self._pinned.items() if self._origin.is_as_it_was(name) or token > 0
        }
        self._expect(after)
        life = self.lives[attempt]
        life.finished = self._finished(after, life.token)
        life.pinned = frozenset(name for name, token in self._pinned.items() if token < life.token)
        life.kept = frozenset(self._kept(after, life.durable + 1, life.token))
        life.planned = self._planned(after, life.durable + 1, life.token, life.finished)

    def _fell_back(self, change: Change) -> None:
        """Check a fallback: nothing else is in such a commit; what is given up is run again by who is in force."""
        self.fallbacks.check(change)
        life = self.lives.get(change.attempt) if change.attempt is not None else None
        if life is not None:
            life.durable = change.after.run["last_durable_epoch"]
            life.kept = frozenset(self._kept(change.after, life.durable + 1, life.token))
            life.planned = self._planned(change.after, life.durable + 1, life.token, life.finished)

    def files_of(self, checkpoint_id: int) -> list[str]:
        """Return the files that a checkpoint names."""
        return self._manifests.files_of(checkpoint_id)

    def _finished(self, rows: MemoryRun, token: int) -> frozenset[str]:
        """Return the operators that had finished for good when an attempt was opened."""
        operators = rows.operators.values()
        return frozenset(o["operator_id"] for o in operators if (o["fencing_token"] or token) < token)

    def _count_restored(self, change: Change) -> None:
        """Count the operators whose edges an attempt read instead of running them."""
        life = self.lives.get(change.attempt) if change.attempt is not None else None
        for known, epoch in change.epochs if life is not None else ():
            if life is not None and known is not None and known["held_at"] != epoch["held_at"]:
                kept = {operator_id for operator_id, number, _ in life.kept if number == epoch["epoch"]}
                ran = {operator_id for operator_id, number, _ in life.ran if number == epoch["epoch"]}
                self.counters["edge restored"] += len(kept - ran)
                self.counters["part continued"] += len(kept & ran)

    def has_failed(self, attempt: SimulatedAttempt) -> bool:
        """Tell whether more checkpoints have failed in a row than the attempt puts up with."""
        life = self.lives.get(attempt)
        return life is not None and self._checkpoints.failures[life.token] > attempt.pace.policy.tolerable_failures

    def claim_was_held(self, attempt: SimulatedAttempt | None) -> None:
        """See that a claim was refused with reason."""
        self.nothing_changed("a refused claim", attempt)
        self._leases.was_held(attempt, self.rows, self._world.clock.now())

    def fallback_was_refused(self, attempt: SimulatedAttempt, error: FallbackRefusedError) -> None:
        """I21: see that it was refused with reason, as far as the attempt could read, and nobody came after it."""
        self.nothing_changed("a refused fallback", attempt)
        self.counters["fallback refused"] += 1
        life = self.lives.get(attempt)
        is_last = life is not None and life.token == self.rows.run["fencing_token"]
        can_tell = is_last and "get" not in attempt.hurt
        if can_tell and not self.fallbacks.is_refused_rightly(self.rows, attempt.program):
            self.violate("I21", f"attempt {attempt.number} may fall back, and was told {error!r}")

    def deletion_was_held(self, said: RunDeleted) -> None:
        """See that a deletion was refused with reason."""
        self.nothing_changed("a refused deletion")
        self._retention.was_held(said, self.rows, self._world.clock.now())

    def nothing_changed(self, what: str, attempt: SimulatedAttempt | None = None) -> None:
        """I12: whatever was refused left the rows as they were."""
        if not is_same(self.rows, self._known):
            who = f" of attempt {attempt.number}" if attempt is not None else ""
            self.violate("I12", f"{what}{who} changed rows")

    def was_branched(self, revision: int) -> None:
        """See that a branch changes nothing of its origin but the revision: whoever knows it looks again."""
        self.nothing_changed("a branch")
        if self.rows.run["revision"] <= revision:
            self.violate("I18", "a branch was made, and nobody who knows its origin would hear of it")
        self._known = self.rows

    def lease_was_renewed(self, attempt: SimulatedAttempt | None, *, renewed: bool) -> None:
        """See that the live attempt's lease is renewed, and nobody else's."""
        life = self.lives.get(attempt) if attempt is not None else None
        if life is None:
            return
        self._leases.was_renewed(self.rows.attempts[life.token], renewed=renewed, now=self._world.clock.now())
        self._known = self.rows

    def attempt_opened(self, attempt: SimulatedAttempt, opened: Attempt) -> None:
        """Keep what an attempt found; it may have been superseded by now."""
        rows = self.rows
        row = rows.attempts.get(opened.fencing_token)
        if row is None or row["attempt_id"] != attempt.attempt_id:
            self.violate("I1", f"attempt {attempt.number} was told the token {opened.fencing_token} of another")
            return
        mine = opened.fencing_token
        durable = max(_last_durable_before(rows, mine), self._run.origin_epoch)
        finished = self._finished(rows, mine)
        self.lives[attempt] = Life(
            token=mine,
            durable=durable,
            finished=finished,
            pinned=frozenset(name for name, token in self._pinned.items() if token < mine),
            kept=frozenset(self._kept(rows, durable + 1, mine)),
            planned=self._planned(rows, durable + 1, mine, finished),
            opened_at=self._opened_at.get(mine),
            ran=set(),
        )

    def went_on(self, attempt: SimulatedAttempt) -> None:
        """See that an attempt begins as was foreseen before it opened, unless anything else came between."""
        life, (revision, runs) = self.lives[attempt], attempt.foreseen
        is_last = life.token == self.rows.run["fencing_token"]
        if not is_last or revision != life.opened_at or attempt.allows_fallback:
            return
        self.counters["foreseen before it opened"] += 1
        if set(runs) != set(life.planned):
            text = f"attempt {attempt.number} begins with {sorted(life.planned, key=str)}, not {sorted(runs, key=str)}"
            self.violate("plan", text)

    def _planned(self, rows: MemoryRun, epoch: int, token: int, finished: frozenset[str]) -> Mapping[Run, Vertex]:
        return planned_runs(self._run.program, rows, epoch=epoch, token=token, finished=finished)

    def _check_planned(self, change: Change) -> None:
        """Keep when a takeover came, and see that a first epoch that has aligned left out nothing of its dry run."""
        if change.is_takeover:
            self._opened_at[change.token] = change.before.run["revision"]
        attempt = change.attempt
        life = self.lives.get(attempt) if attempt is not None else None
        if attempt is None or life is None or attempt.pace.alignment_timeout_seconds is None:
            return  # else what nobody has asked for yet may not be computed yet
        for known, epoch in change.epochs:
            if known is None or known["status"] != "OPEN" or epoch["status"] != "ALIGNED":
                continue
            if epoch["epoch"] != life.durable + 1:
                continue
            asked = {run for run, vertex in life.planned.items() if vertex.is_capturable and vertex.is_per_epoch}
            left = asked - life.ran
            if left:
                self.violate("plan", f"attempt {attempt.number} aligned, and {sorted(left)} did not run")
            self.counters["first epoch held against its plan"] += 1

    def _kept(self, rows: MemoryRun, epoch: int, token: int) -> list[Run]:
        """Return the buckets of edges that older tokens left to the attempt that runs this epoch next."""
        if not rows.parts:
            return []
        found = []
        for operator in self._run.program.graph.operators:
            is_before = operator.finishes or (operator.role is Role.VARIABLE and epoch == 0)
            where = FOR_GOOD if operator.finishes else epoch
            buckets = finished_buckets(rows, where, operator, below_token=token)
            found += [(operator.operator_id, None if is_before else epoch, bucket) for bucket in buckets]
        return found

    def _still_kept(self, life: Life) -> list[Run]:
        """Return what an attempt that was superseded may still find; of the rest nothing is live, and it wastes."""
        return self._kept(self.rows, self.rows.run["last_durable_epoch"] + 1, life.token)

    def operator_ran(
        self, attempt: SimulatedAttempt, operator: Operator, epoch: int | None, buckets: Sequence[int]
    ) -> None:
        """See that nothing durable, nothing finished and nothing twice is run."""
        life = self.lives[attempt]
        what = f"operator {operator.operator_id} of attempt {attempt.number} (token {life.token})"
        for bucket in buckets:
            run = (operator.operator_id, epoch, bucket)
            if run in life.ran:
                self.violate("runs", f"{what} ran bucket {bucket} twice in epoch {epoch}")
            if run in life.kept and (life.token == self.rows.run["fencing_token"] or run in self._still_kept(life)):
                self.violate("I15", f"{what} ran bucket {bucket} in epoch {epoch}, which its edge holds")
            life.ran.add(run)
            self._check_foreseen(life, operator, run, what)
        if attempt.grace_calls is not None:
            self.violate("runs", f"{what} ran in epoch {epoch}, after it was told to end")
        if epoch is not None and attempt.until_epoch is not None and epoch >= attempt.until_epoch:
            self.violate("runs", f"{what} ran epoch {epoch}, but was to stop before {attempt.until_epoch}")
        if epoch is not None and epoch <= life.durable:
            self.violate("I6", f"{what} ran epoch {epoch} again, durable before it was opened")
        if operator.finishes and operator.operator_id in life.finished | self._origin.taken():
            self.violate("I11", f"{what} had finished for good, and ran again")
        if operator.role is Role.DATA and operator.operator_id in life.pinned:
            self.violate("pins", f"{what} was pinned, and asked for its source again")
        if operator.role is Role.VARIABLE and life.durable >= 0 and self._has_value(attempt, operator):
            self.violate("I6", f"{what} gave a variable's first value again")

    def _check_foreseen(self, life: Life, operator: Operator, run: Run, what: str) -> None:
        """See that the dry run says of a first epoch, or of what comes before it, that it would be run."""
        is_first = run[1] in (None, life.durable + 1)
        is_state = operator.role is Role.VARIABLE and operator.part_of is not None
        if not is_first or is_state or operator.role is Role.DATA or life.token != self.rows.run["fencing_token"]:
            return
        if run not in life.planned:
            self.violate("plan", f"{what} ran bucket {run[2]} in epoch {run[1]}, and no plan says so")

    def _has_value(self, attempt: SimulatedAttempt, operator: Operator) -> bool:
        """Tell whether a durable epoch left a value; of an operator that carries state another one may have left it."""
        if operator.part_of is None or self._world.file is None:
            return True
        if not self.is_in_force(attempt):
            return False
        has_state = self._run.lineage.has_state(self.rows, operator.part_of)
        is_taken = operator.part_of in self._run.lineage.dropped
        self.counters["state begins anew, and another one of its id had one"] += is_taken and not has_state
        self.counters["state begins anew in a branch"] += is_taken and not has_state and self._run.origin is not None
        return has_state

    def listener_was_called(
        self, attempt: SimulatedAttempt, listener_id: str, epoch: int, effect_id: str | None
    ) -> None:
        """See that a listener is called of what has happened."""
        self._notices.called(attempt, listener_id, epoch, effect_id, rows=self.rows)

    def observer(self, attempt: SimulatedAttempt) -> DurableOracle:
        """Return what hears from the driver how the run goes on."""
        return DurableOracle(self, attempt)

    def epoch_was_called_durable(self, attempt: SimulatedAttempt, epoch: int) -> None:
        """See that an epoch is durable when the driver says so."""
        row = self.rows.epochs.get((epoch, self.lives[attempt].token))
        is_given_up = max(self.rows.fallbacks, default=0) > self.lives[attempt].token
        if (row is None or row["status"] != "DURABLE") and not is_given_up:
            self.violate("I6", f"attempt {attempt.number} calls epoch {epoch} durable, which is not")

    def attempt_ended(self, attempt: SimulatedAttempt) -> None:
        """See that an attempt ended as it had to."""
        check_end(self, self._world, attempt)

    def _file_written(self, path: str, content: bytes, before: bytes | None) -> None:
        self._manifests.file_written(path, content, before, self.rows)
        attempt = current_attempt()
        life = self.lives.get(attempt) if attempt is not None else None
        if life is not None and life.token < self.rows.run["fencing_token"]:
            self.counters["file written after the takeover"] += 1

    def _file_removed(self, path: str) -> None:
        self.counters["file removed"] += 1
        self._world.let_go.add(path)
        if current_attempt() is None and live_attempts(self.rows):
            self.counters["file removed beside a live attempt"] += 1
        self._manifests.file_removed(path, self.rows, by=current_attempt())

    def _file_read(self, path: str) -> None:
        """See that no attempt in force restores what was discarded; what reads beside it removes files."""
        fiber, attempt = current_fiber(), current_attempt()
        if fiber is None or attempt is None or fiber is not attempt.main or attempt.verifies:
            return
        if not self.is_in_force(attempt):
            return
        if self._manifests.is_discarded(path, self.rows):
            self.violate("I18", f"attempt {attempt.number} reads {path}, which was discarded")

    def is_in_force(self, attempt: SimulatedAttempt) -> bool:
        """Tell whether an attempt is live."""
        return any(live["attempt_id"] == attempt.attempt_id for live in live_attempts(attempt.run.rows))

    def finished(self) -> None:
        """See that the run is at its end, and that everything of it is there; a person may have deleted it."""
        if self.rows.run["status"] == "DELETED":
            return
        if self.rows.run["status"] != "FINISHED":
            self.violate("liveness", f"the run is {self.rows.run['status']} after it was healed")
            return
        self._manifests.finished(self.rows)
        self.sinks.finished(self.rows)
        by = next(reversed(self.lives), None)
        if by is not None and self.lives[by].ran:
            left = self._run.disk.list_below(f"{attempt_folder(self.lives[by].token, by.attempt_id)}/fresh")
            if left and by.error is None and "remove" not in by.hurt:
                self.violate("files", f"{left} are left of an epoch's scratch")

    def collected(self) -> None:
        """See that nothing is left, after the last collection, but what somebody needs, and what nobody here wrote."""
        tokens = self.rows.attempts
        policy = CheckpointPolicy(**tokens[max(tokens)]["policy"]) if tokens else CheckpointPolicy()
        beyond = self._retention.beyond(self.rows, policy)
        if beyond:
            self.violate("I18", f"the checkpoints {beyond} are left, and nobody keeps them")
        for path in sorted(self._run.disk.files):
            if self._manifests.needed_by(path, self.rows) is None and path != STRAY_POINTER:
                self.violate("garbage", f"{path} is left, and nobody needs it")
        self.finished()


def _last_durable_before(rows: MemoryRun, token: int) -> int:
    durable = [e["epoch"] for e in rows.epochs.values() if e["status"] == "DURABLE" and e["fencing_token"] < token]
    return max(durable, default=-1)
