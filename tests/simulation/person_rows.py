"""Does a person change only what a person may: requests, and what is pending or comes next?"""

from __future__ import annotations

from iteration_lib.protocol.event import CheckpointAborted, CheckpointRequested
from tests.simulation.change import Change, Checks

_MAY_CHANGE = ("revision", "aborted_through")


class PersonOracle(Checks):
    """Looks at the commits that persons make."""

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        before, after = change.before, change.after
        for table in ("operators", "pins", "parts", "notices"):
            self._require(getattr(before, table) == getattr(after, table), "I2", "a person changed {}", table)
        run = [{**rows.run, **dict.fromkeys(_MAY_CHANGE)} for rows in (before, after)]
        self._require(run[0] == run[1], "I2", "a person changed the run to {}", run[1])
        leases = [[{**row, "lease_expires_at": None} for row in rows.attempts.values()] for rows in (before, after)]
        self._require(leases[0] == leases[1], "I2", "a person changed an attempt")
        over = before.run["terminated_by"] is not None or before.run["status"] == "STOPPED"
        kept = before.requests == after.requests
        kept = kept and after.run["aborted_through"] <= max(
            before.run["aborted_through"], before.run["last_checkpoint_id"]
        )
        self._require(kept or not over, "I17", "a person asks for what a run that is {} has not", before.run["status"])
        if isinstance(change.said, CheckpointRequested):
            same = before.checkpoints == after.checkpoints and before.epochs == after.epochs
            self._require(same, "I2", "a request changed checkpoints or epochs")
            once = change.said.request_id not in before.requests
            self._require(once, "requests", "request {} is made once more", change.said.request_id)
            asked = after.requests[change.said.request_id]["checkpoint_id"] is None
            self._require(asked, "requests", "request {} is answered as it is made", change.said.request_id)
        if isinstance(change.said, CheckpointAborted):
            self._require(before.requests == after.requests, "I2", "an abort changed requests")
            self._aborted(change)

    def _aborted(self, change: Change) -> None:
        """See that a person's abort ends checkpoints, and lets at most one epoch align that waited for one of them."""
        for known, checkpoint in change.checkpoints:
            steps = (known["status"] if known is not None else None, checkpoint["status"])
            self._require(steps == ("PENDING", "ABORTED"), "I2", "a person's abort took one from {} to {}", *steps)
        for known, epoch in change.epochs:
            held = known is not None and known["status"] == "OPEN" and known["held_at"] is not None
            aligned = held and epoch["status"] == "ALIGNED" and bool(change.checkpoints)
            self._require(aligned, "I2", "a person's abort changed epoch {}", epoch["epoch"])
