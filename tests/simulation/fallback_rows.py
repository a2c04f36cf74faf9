"""Does a run go on from an older checkpoint only where it may, and what is left of what it gives up (I21)?

Which rows such a commit has to leave is worked out here from those before it, all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Violate, live_attempts, of_status

if TYPE_CHECKING:
    from tests.simulation.manifests import ManifestOracle
    from tests.simulation.programs import Program
    from tests.simulation.run import SimulatedRun

_KEPT = ("operators", "pins", "requests", "notices", "committables", "stops", "branch")


class FallbackOracle(Checks):
    """Looks at a commit by which an attempt falls back, and at a refusal."""

    def __init__(self, run: SimulatedRun, manifests: ManifestOracle, violate: Violate) -> None:
        super().__init__(violate)
        self._run = run
        self._manifests = manifests

    def check(self, change: Change) -> None:
        """Check a commit that says that the run falls back."""
        before, after, attempt = change.before, change.after, change.attempt
        new = [row for token, row in after.fallbacks.items() if token not in before.fallbacks]
        in_force = [live["attempt_id"] for live in live_attempts(before)]
        is_let = attempt is not None and attempt.allows_fallback and in_force == [attempt.attempt_id]
        if not is_let or [row["fencing_token"] for row in new] != [change.token]:
            self._violate("I21", f"{new} by somebody who may not, in force is {in_force}")
            return
        row = new[0]
        newest, older = before.checkpoints[row["from_checkpoint_id"]], before.checkpoints[row["to_checkpoint_id"]]
        statuses = (newest["status"], older["status"], older["epoch"])
        self._require(statuses == ("COMPLETED", "SUBSUMED", row["epoch"]), "I21", "it falls back by {}", row)
        going_on = [*of_status(before.epochs, "OPEN", "ALIGNED"), *of_status(before.checkpoints, "PENDING")]
        is_going = before.run["status"] == "RUNNING" and not going_on
        self._require(is_going, "I21", "it falls back, and {} go on", going_on)
        had = self.had_by(before, older["checkpoint_id"], row["epoch"])
        self._require(not had, "I21", "it falls back behind what {} have", had)
        self._is_broken_enough(change, older["checkpoint_id"])
        self._left(change, older["checkpoint_id"], row["epoch"])
        self._run.world.counters["fell back"] += 1
        given_up = [c for c in of_status(before.checkpoints, "SUBSUMED") if c["checkpoint_id"] > older["checkpoint_id"]]
        self._run.world.counters["fell back behind several checkpoints"] += bool(given_up)

    def had_by(self, rows: MemoryRun, checkpoint_id: int, epoch: int) -> list[str]:
        """Return who has had something of what lies behind a checkpoint."""
        heard = [f"listener {listener_id}" for listener_id, known in rows.notices if known > epoch]
        shown = [f"sink {output}" for known, output in rows.committables if known > epoch]
        branches = [f"branch of {known}" for known in self._run.pinned if known > checkpoint_id]
        persons = [f"pin of {known}" for known in rows.checkpoint_pins if known > checkpoint_id]
        return [*heard, *shown, *branches, *persons]

    def is_refused_rightly(self, rows: MemoryRun, read_by: Program) -> bool:
        """Tell whether there is nothing to fall back to, or somebody has had something of what comes after it."""
        older = {row["checkpoint_id"]: row["epoch"] for row in of_status(rows.checkpoints, "SUBSUMED")}
        whole = (known for known in older if not self._manifests.was_broken(known, read_by, rows))
        best = max(whole, default=None)
        return best is None or bool(self.had_by(rows, best, older[best]))

    def _is_broken_enough(self, change: Change, checkpoint_id: int) -> None:
        """See that all that is given up is broken, and that what is left is not."""
        attempt, rows, manifests = change.attempt, change.before, self._manifests
        if attempt is None:
            return
        there = [c["checkpoint_id"] for c in of_status(rows.checkpoints, "COMPLETED", "SUBSUMED")]
        given_up = [known for known in there if known > checkpoint_id]
        whole = [known for known in given_up if not manifests.was_broken(known, attempt.program, rows)]
        self._require(not whole, "I21", "the checkpoints {} are whole, and given up", whole)
        is_whole = not manifests.is_broken(checkpoint_id, attempt.program, rows)
        since = self._run.world.damages > attempt.damages_before
        self._require(is_whole or since, "I21", "checkpoint {} is broken", checkpoint_id)

    def _left(self, change: Change, checkpoint_id: int, through: int) -> None:
        """See that the rows are those from before, without anything of the epochs that are given up."""
        before, after = change.before, change.after
        checkpoints = {
            known: {**row, "status": "DISCARDED"}
            if known > checkpoint_id and row["status"] in ("COMPLETED", "SUBSUMED")
            else row
            for known, row in before.checkpoints.items()
        }
        checkpoints[checkpoint_id] = {**checkpoints[checkpoint_id], "status": "COMPLETED"}
        epochs = {
            key: {**row, "status": "VOIDED", "durable_at": None}
            if row["epoch"] > through and row["status"] != "VOIDED"
            else row
            for key, row in before.epochs.items()
        }
        parts = [
            {**row, "voided_at": change.now} if row["epoch"] > through and row["voided_at"] is None else row
            for row in before.parts
        ]
        run = {**before.run, "last_durable_epoch": through, "revision": after.run["revision"]}
        found = (after.checkpoints, after.epochs, after.parts, after.run)
        for name, wanted, got in zip(
            ("checkpoints", "epochs", "parts", "run"), (checkpoints, epochs, parts, run), found, strict=True
        ):
            self._require(wanted == got, "I21", "it fell back, and of its {} there are {}, not {}", name, got, wanted)
        changed = [name for name in _KEPT if getattr(before, name) != getattr(after, name)]
        grown = after.run["revision"] > before.run["revision"]
        self._require(grown and not changed, "I21", "it fell back, and changed {}", changed)
