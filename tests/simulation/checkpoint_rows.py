"""Do a run's checkpoints keep the invariants I6 to I8, I13, I14 and I17, and does each come when it is due?

When one is due is worked out from the rows and the policy alone: a final one for the epoch that terminates the run, a
manual one where somebody waits for it, else every so many epochs, and for an attempt's last epoch.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from iteration_lib.protocol.event import CheckpointAborted, CheckpointRequested
from tests.simulation.change import Change, Checks, Row, Violate, of_status, origin_epoch
from tests.simulation.fiber import current_fiber
from tests.simulation.reference import Reference
from tests.simulation.stop_rows import is_asked_to_stop

CHECKPOINT_STEPS = {
    ("PENDING", "PENDING"),
    ("PENDING", "COMPLETED"),
    ("PENDING", "ABORTED"),
    ("PENDING", "SUBSUMED"),
    ("COMPLETED", "SUBSUMED"),
}
_FAILURES = ("DECLINED", "EXPIRED")


class CheckpointOracle(Checks):
    """Compares the checkpoints after a commit with those before it. `failures` counts those in a row now, by token."""

    def __init__(self, reference: Reference, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self.reference = reference
        self._counters = counters
        self.failures: Counter[int] = Counter()

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        if not change.moves_the_run:
            return
        after = change.after
        ids = sorted(after.checkpoints)
        self._require(ids == list(range(1, len(ids) + 1)), "I7", "checkpoint ids are {}", ids)
        self._require(after.run["last_checkpoint_id"] == len(ids), "I7", "last_checkpoint_id is another")
        gone = change.before.checkpoints.keys() - after.checkpoints.keys()
        self._require(not gone, "I7", "the rows of the checkpoints {} are gone", gone)
        completed = [c["epoch"] for c in of_status(after.checkpoints, "COMPLETED")]
        self._require(len(completed) <= 1, "I8", "two checkpoints are COMPLETED")
        last = after.run["last_durable_epoch"]
        wanted = [last] if last > origin_epoch(after) else []
        self._require(completed == wanted, "I6", "{} is completed, {} is durable", completed, last)
        for known, checkpoint in change.checkpoints:
            what = f"checkpoint {checkpoint['checkpoint_id']}"
            if known is None:
                self._began(change, checkpoint, what)
            else:
                self._went_on(change, known, checkpoint, what)
            self._is_sound(checkpoint, what)
        self._pending(change)
        self._failed(change)
        self._held(change)
        self._requested(change)
        self._opened(change)
        self._aborted_through(change)

    def _began(self, change: Change, checkpoint: Row, what: str) -> None:
        """I6, I7, I17, and the pace: a checkpoint begins, or is used up, where one is due and of the kind that is."""
        number, kind = checkpoint["epoch"], checkpoint["kind"]
        self._require(checkpoint["fencing_token"] == change.token, "I2", "{} has another token", what)
        epoch = change.after.epochs.get((number, change.token))
        self._require(
            epoch is not None and epoch["status"] == "ALIGNED", "I6", "{} is of {}, which is not aligned", what, number
        )
        covered = _covered(change, but=checkpoint)
        self._require(covered < number, "I6", "{} covers nothing new", what)
        due = self._due(change, number, covered)
        self._require(due == kind, "pace", "{} of epoch {} is {}, but due is {}", what, number, kind, due)
        is_aborted = checkpoint["checkpoint_id"] <= change.before.run["aborted_through"]
        became = (checkpoint["status"], checkpoint["failure"])
        wanted = ("ABORTED", "ABORTED_BY_USER") if is_aborted else ("PENDING", None)
        self._require(became == wanted, "I17", "{} began as {}", what, became)
        if is_aborted:
            self._counters["checkpoint aborted before it began"] += 1
        if kind == "MANUAL":
            self._counters["manual checkpoint begun"] += 1

    def _due(self, change: Change, epoch: int, covered: int) -> str | None:
        """Return the kind of checkpoint that an aligned epoch has to get, before anything else of the commit."""
        if epoch == self.reference.last_epoch:
            return "FINAL"
        is_asked = any(request["checkpoint_id"] is None for request in change.before.requests.values())
        if is_asked or is_asked_to_stop(change.before):
            return "MANUAL"
        until = change.attempt.until_epoch if change.attempt is not None else None
        if until is not None and epoch + 1 >= until:
            return "PERIODIC"
        return "PERIODIC" if epoch - covered >= change.policy["every_epochs"] and self._paused(change) else None

    def _paused(self, change: Change) -> bool:
        pause = timedelta(seconds=change.policy["min_pause_seconds"])
        completed = [c["ended_at"] for c in of_status(change.before.checkpoints, "COMPLETED")]
        ended = change.after.checkpoints
        pending = [  # what has expired is declined first in a commit
            c
            for c in of_status(change.before.checkpoints, "PENDING")
            if ended[c["checkpoint_id"]]["failure"] != "EXPIRED"
        ]
        if not pause or (not pending and not (completed and completed[0] <= change.now < completed[0] + pause)):
            is_set_back = bool(pause and completed) and change.now < completed[0]
            self._counters["pause counted as over by a clock that was set back"] += is_set_back
            return True
        self._counters["checkpoint put off by the pause"] += 1
        return False

    def _opened(self, change: Change) -> None:
        """See that an epoch is only opened after the one before has got the checkpoint that was due."""
        opened = change.opened
        if opened is None:
            return
        count, tolerable = self.failures[change.token], change.policy["tolerable_failures"]
        self._require(
            count <= tolerable, "I13", "epoch {} is opened after {} failures in a row", opened["epoch"], count
        )
        until = change.attempt.until_epoch if change.attempt is not None else None
        self._require(
            until is None or opened["epoch"] < until, "runs", "epoch {} is opened, and not run", opened["epoch"]
        )
        number = opened["epoch"] - 1
        before = change.before.epochs.get((number, change.token))
        if before is None or before["status"] == "DURABLE":
            return  # the attempt's first epoch
        got = [c for known, c in change.checkpoints if known is None and c["epoch"] == number]
        covered = _covered(change, but=got[0] if got else None)
        due = self._due(change, number, covered)
        if not got and due is not None and covered < number:
            self._violate("pace", f"epoch {number} was due for a {due} checkpoint, and got none")

    def _went_on(self, change: Change, known: Row, checkpoint: Row, what: str) -> None:
        step = (known["status"], checkpoint["status"])
        self._require(step in CHECKPOINT_STEPS, "I8", "{}: {} to {}", what, step[0], step[1])
        identity = ("epoch", "fencing_token", "kind", "triggered_at")
        same = all(known[column] == checkpoint[column] for column in identity)
        self._require(same, "I7", "{} became another one", what)
        if step == ("PENDING", "ABORTED"):
            self._counters[f"pending checkpoint aborted: {checkpoint['failure']}"] += 1
            self._aborted(change, checkpoint, what)
        if step == ("PENDING", "SUBSUMED"):
            self._counters["manual checkpoint subsumed as it completed"] += 1
            newer = known["kind"] == "MANUAL" and known["epoch"] <= change.before.run["last_durable_epoch"]
            self._require(newer, "I8", "{} was subsumed as it completed, and nothing newer is there", what)
        if step == ("PENDING", "COMPLETED"):
            is_newest = known["epoch"] > change.before.run["last_durable_epoch"]
            self._require(is_newest, "I8", "{} completes after a newer one", what)
            if len(of_status(change.before.checkpoints, "PENDING")) > 1:
                self._counters["checkpoint completed while another was pending"] += 1
        if step == ("COMPLETED", "SUBSUMED"):
            follows = any(
                c["status"] == "COMPLETED" and c["epoch"] > known["epoch"] for c in change.after.checkpoints.values()
            )
            self._require(follows, "I8", "{} is subsumed by none", what)

    def _aborted(self, change: Change, checkpoint: Row, what: str) -> None:
        """See that whoever aborted a checkpoint may, and says why."""
        failure = checkpoint["failure"]
        completed = [c for k, c in change.checkpoints if c["status"] == "COMPLETED" and k and k["status"] == "PENDING"]
        newer = [c for c in completed if c["checkpoint_id"] > checkpoint["checkpoint_id"]]
        said = change.said
        meant = isinstance(said, CheckpointAborted) and checkpoint["checkpoint_id"] <= said.checkpoint_id
        ended = change.after.attempts[checkpoint["fencing_token"]]["ended_at"] is not None
        holds = {
            "ABORTED_BY_USER": meant,
            "SUBSUMED": bool(newer) and checkpoint["kind"] != "MANUAL",
            "ATTEMPT_ENDED": ended,
            "DECLINED": said is None and not ended,
            "EXPIRED": said is None and not ended,
        }
        self._require(holds[failure], "I8", "{} is aborted as {}", what, failure)
        if failure == "EXPIRED":
            self._expired(change, checkpoint, what)

    def _expired(self, change: Change, checkpoint: Row, what: str) -> None:
        """See that a checkpoint which expired was being written for as long as that takes, and count timers."""
        attempt, fiber = change.attempt, current_fiber()
        if attempt is None:
            self._violate("expiry", f"{what} expired by nobody's word")
            return
        taken = attempt.world.clock.local_seconds - attempt.began_seconds[checkpoint["checkpoint_id"]]
        timeout = attempt.pace.policy.timeout_seconds
        self._require(taken >= timeout, "expiry", "{} expired after {} seconds, not {}", what, taken, timeout)
        self._counters["checkpoint expired by a timer"] += fiber is not None and fiber.name.startswith("timer")

    def _is_sound(self, checkpoint: Row, what: str) -> None:
        status = checkpoint["status"]
        acknowledged = all(value is not None for values in checkpoint["acknowledgements"].values() for value in values)
        if status in ("COMPLETED", "SUBSUMED"):
            self._require(acknowledged, "I8", "{} is {} without every acknowledgement", what, status)
            self._require(checkpoint["manifest_path"], "I8", "{} is {} without a manifest", what, status)
        elif status in ("PENDING", "ABORTED"):
            self._require(checkpoint["manifest_path"] is None, "I8", "{} is {} and has a manifest", what, status)
        self._require((status == "ABORTED") == (checkpoint["failure"] is not None), "I8", "{}: failure", what)

    def _pending(self, change: Change) -> None:
        """I8: what is pending is the live attempt's, and not older than what just completed; never too many."""
        pending = of_status(change.after.checkpoints, "PENDING")
        for checkpoint in pending:
            what = f"checkpoint {checkpoint['checkpoint_id']}"
            is_own = change.is_live and checkpoint["fencing_token"] == change.token
            self._require(is_own, "I8", "{} is pending, its attempt has ended", what)
            older = checkpoint["epoch"] <= change.after.run["last_durable_epoch"]
            self._require(not older or checkpoint["kind"] == "MANUAL", "I8", "{} is pending and covers nothing", what)
            if isinstance(change.said, CheckpointAborted):
                meant = checkpoint["checkpoint_id"] <= change.said.checkpoint_id
                self._require(not meant, "I8", "{} is pending, and a person aborted it", what)
        if len(pending) > 1:
            self._counters["several checkpoints pending"] += 1
        if pending:
            self._require(len(pending) <= change.policy["max_pending"], "I14", "{} are pending", len(pending))

    def _failed(self, change: Change) -> None:
        """I13: failures are counted in a row, those of final and hand-made ones as too many; too many stay too many."""
        if not change.token:
            return
        policy, token = change.policy, change.token
        for known, checkpoint in change.checkpoints:
            is_new = checkpoint["status"] == "COMPLETED" and (known is None or known["status"] != "COMPLETED")
            if is_new and self.failures[token] <= policy["tolerable_failures"]:
                self.failures[token] = 0
            if checkpoint["failure"] in _FAILURES and (known is None or known["failure"] is None):
                self.failures[token] += 1
                if checkpoint["kind"] != "PERIODIC":
                    self.failures[token] = max(self.failures[token], policy["tolerable_failures"] + 1)
                is_fatal = self.failures[token] > policy["tolerable_failures"]
                self._counters[f"failed checkpoint {'fatal' if is_fatal else 'tolerated'}"] += 1
        begun = [c["checkpoint_id"] for known, c in change.checkpoints if known is None]
        may_begin = self.failures[token] <= policy["tolerable_failures"]
        self._require(may_begin or not begun, "I13", "checkpoints {} begin in an attempt that has failed", begun)
        counted = change.after.attempts[token]["checkpoint_failures"]
        self._require(counted == self.failures[token], "I13", "{} failures, not {}", counted, self.failures[token])

    def _held(self, change: Change) -> None:
        """I14: an epoch is held exactly while as many checkpoints are pending as may be."""
        if not change.is_live:
            return
        most = change.policy["max_pending"]
        new = {c["checkpoint_id"] for known, c in change.checkpoints if known is None}
        pending = of_status(change.after.checkpoints, "PENDING")
        for epoch in of_status(change.after.epochs, "OPEN"):
            if epoch["held_at"] is not None:
                self._require(
                    len(pending) >= most, "I14", "epoch {} is held by {} pending", epoch["epoch"], len(pending)
                )
                before = change.before.epochs.get((epoch["epoch"], epoch["fencing_token"]), epoch)
                self._counters["alignment held"] += before["held_at"] is None
        for known, epoch in change.epochs:
            if known is not None and (known["status"], epoch["status"]) == ("OPEN", "ALIGNED"):
                others = [c for c in pending if c["checkpoint_id"] not in new]
                self._require(len(others) < most, "I14", "epoch {} aligned, {} pending", epoch["epoch"], len(others))
                if known["held_at"] is not None:
                    self._counters[f"alignment released by {_released_by(change)}"] += 1

    def _requested(self, change: Change) -> None:
        """See that every request is answered by the first checkpoint that may, by none other, and before the end."""
        may = [c for k, c in change.checkpoints if (k is None and c["kind"] != "PERIODIC") or _ends_the_run(c)]
        for request_id, request in change.before.requests.items():
            now = change.after.requests.get(request_id)
            if now is None:
                self._violate("requests", f"request {request_id} is gone")
            else:
                wanted = request["checkpoint_id"] or (may[0]["checkpoint_id"] if may else None)
                self._require(now["checkpoint_id"] == wanted, "requests", "{} answers {}", now["checkpoint_id"], wanted)
        new = change.after.requests.keys() - change.before.requests.keys()
        mine = {change.said.request_id} if isinstance(change.said, CheckpointRequested) else set()
        self._require(new <= mine, "requests", "{} were never made", new)
        is_over = change.after.run["status"] == "FINISHED"
        waits = [known for known, request in change.after.requests.items() if request["checkpoint_id"] is None]
        self._require(not (is_over and waits), "requests", "the run is FINISHED, and {} are not answered", waits)

    def _aborted_through(self, change: Change) -> None:
        """I17: what a person aborts is pending or the next one, and stays aborted."""
        before, after = change.before.run["aborted_through"], change.after.run["aborted_through"]
        if before == after:
            return
        said = change.said
        meant = isinstance(said, CheckpointAborted) and said.checkpoint_id == after > before
        self._require(meant, "I17", "aborted through {} instead of {}", after, before)
        last = change.before.run["last_checkpoint_id"]
        was_pending = any(c["checkpoint_id"] <= after for c in of_status(change.before.checkpoints, "PENDING"))
        self._require(after == last + 1 or was_pending, "I17", "aborted through {}, the last is {}", after, last)


def _covered(change: Change, *, but: Row | None) -> int:
    """Return the last epoch that a checkpoint covers, or is about to, beside one."""
    others = [c["epoch"] for c in of_status(change.after.checkpoints, "PENDING", "COMPLETED") if c is not but]
    return max(others, default=origin_epoch(change.after))


def _released_by(change: Change) -> str:
    failures = [c["failure"] for known, c in change.checkpoints if known is not None and c["failure"] is not None]
    return "completion" if not failures or "SUBSUMED" in failures else failures[0]


def _ends_the_run(checkpoint: Row) -> bool:
    """Tell whether it is a final one that has completed: it answers whoever asked while it was pending."""
    return checkpoint["kind"] == "FINAL" and checkpoint["status"] == "COMPLETED"
