"""Does each listener of a run hear of every durable epoch, once and in order, and of the end (I16)?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from iteration_lib.model.listener import ListenerEvent
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Violate, origin_epoch
from tests.simulation.programs import Program
from tests.simulation.reference import Reference

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt


class NoticeOracle(Checks):
    """Compares the notices after a commit with those before it, and hears of every call of a listener."""

    def __init__(self, program: Program, reference: Reference, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        listeners = program.graph.listeners
        self._final = {known.listener_id for known in listeners if known.event is ListenerEvent.TERMINATED}
        self.reference = reference
        self._counters = counters
        self._effect_ids: dict[tuple[str, int], str | None] = {}

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        before, after = change.before.notices, change.after.notices
        changed = [key for key, notice in before.items() if after.get(key) != notice]
        self._require(not changed, "I16", "what was heard changed: {}", changed)
        for listener_id, epoch in sorted(after.keys() - before.keys()):
            self._heard(change, listener_id, epoch)
        if change.after.run["status"] == "FINISHED" != change.before.run["status"]:
            origin = origin_epoch(change.after)
            heard, wanted = sorted(after), sorted(key for key in self.reference.effects if key[1] > origin)
            self._require(heard == wanted, "I16", "the run is FINISHED, and heard was {}", heard)

    def called(
        self, attempt: SimulatedAttempt, listener_id: str, epoch: int, effect_id: str | None, *, rows: MemoryRun
    ) -> None:
        """See that a listener is called of what has happened, and that the same call has the same id each time."""
        key = (listener_id, epoch)
        what = f"listener {listener_id} is called of epoch {epoch} by attempt {attempt.number}"
        last = rows.run["last_durable_epoch"]
        live = [
            row for row in rows.attempts.values() if row["attempt_id"] == attempt.attempt_id and not row["ended_at"]
        ]
        is_given_up = bool(rows.fallbacks) and not live
        self._require(epoch <= last or is_given_up, "I16", "{}, and {} is the last durable one", what, last)
        ended = rows.run["terminated_by"] is not None and epoch == last
        self._require(listener_id not in self._final or ended, "I16", "{}, and the run goes on", what)
        if key in rows.notices:
            self._require(not live, "I16", "{}, and has heard of it", what)
        elif key in self._effect_ids:
            self._counters["listener called again"] += 1
        self._require(
            effect_id == self._effect_ids.setdefault(key, effect_id), "I16", "{} with another effect_id", what
        )
        others = [known for known, found in self._effect_ids.items() if found == effect_id is not None and known != key]
        self._require(not others, "I16", "{} with the effect_id of {}", what, others)

    def _heard(self, change: Change, listener_id: str, epoch: int) -> None:
        what = f"listener {listener_id}, epoch {epoch}"
        notice = change.after.notices[listener_id, epoch]
        self._require(notice["fencing_token"] == change.token, "I2", "{}: another token", what)
        self._require(change.said is None, "I2", "{}: heard by a person's word", what)
        last = change.after.run["last_durable_epoch"]
        self._require(epoch <= last, "I16", "{}: epoch {} is the last durable one", what, last)
        if listener_id in self._final:
            ends = (change.before.run["status"], change.after.run["status"])
            self._require(ends == ("TERMINATING", "FINISHED"), "I16", "{}: heard as the run went {}", what, ends)
        else:
            first = epoch == origin_epoch(change.after) + 1 or (listener_id, epoch - 1) in change.after.notices
            self._require(first, "I16", "{}: epoch {} comes first", what, epoch - 1)
        effect = self.reference.effects.get((listener_id, epoch))
        self._require(notice["effect"] == effect, "I16", "{}: {} instead of {}", what, notice["effect"], effect)
