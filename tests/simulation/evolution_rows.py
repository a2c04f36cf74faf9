"""Does a run go on with another version of its file only where it may, and what is left then of its operators?

An operator that stays keeps what it has left; one that is new begins with nothing, whatever its id. What the open epoch
had left is void where others come to it, and with an operator that is gone goes what it finished for good, or had begun
to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from iteration_lib.errors import RunMismatchError
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import TABLES, Change, Checks, Violate
from tests.simulation.edge_rows import FOR_GOOD
from tests.simulation.evolution_rules import Left, begun_to_finish, edges_to_stay, left_of, refused
from tests.simulation.origin_rows import finished_by_origin
from tests.simulation.versions import SLOTS, Declared, EvolvingProgram

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.run import SimulatedRun

_FINISHED = ("finished_epoch", "fencing_token", "output", "finished_at")
_ID = re.compile(r"(?:operator|variable|data stream) '([^']+)' (?:is|finished)|operator '([^']+)':")


class EvolutionOracle(Checks):
    """Looks at a commit by which a run goes on with another version, and at a refusal."""

    def __init__(self, run: SimulatedRun, violate: Violate) -> None:
        super().__init__(violate)
        self._run = run
        self._counters = run.world.counters
        self._codes: dict[str, set[int]] = {}  # that were ever there under an id

    def check(self, change: Change) -> None:
        """Check a commit that replaces the definition; nothing else is in it."""
        before, after, attempt = change.before, change.after, change.attempt
        if attempt is None or not isinstance(attempt.program, EvolvingProgram):
            self._violate("evolution", "the definition was replaced by nobody who loads a file")
            return
        old, new = cast("EvolvingProgram", self._run.program), attempt.program
        is_mine = change.is_live and after.attempts[change.token]["attempt_id"] == attempt.attempt_id
        self._require(is_mine, "I2", "attempt {} replaced the definition, and is not in force", attempt.number)
        is_new = before.run["definition"] != after.run["definition"] == json.loads(json.dumps(new.definition))
        self._require(is_new and not new.is_like(old), "evolution", "the definition is not what the file says")
        begun = [key for key in before.epochs if key[1] == change.token]
        self._require(not begun, "evolution", "the operators changed after {} had begun", begun)
        why = self._refused(attempt, before)
        self._require(not why, "evolution", "the run goes on with another version, and {} stand in the way", why)
        self._operators(change, old, new)
        self._parts(change, old, new)
        same = [name for name in TABLES if name not in ("operators", "parts")]
        changed = [name for name in same if getattr(before, name) != getattr(after, name)]
        run = {**before.run, "definition": after.run["definition"], "revision": after.run["revision"]}
        self._require(
            not changed and run == after.run, "evolution", "a new definition changed {}", changed or "the run"
        )
        self._count(old, new, before)

    def was_refused(self, attempt: SimulatedAttempt, error: RunMismatchError) -> None:
        """See that an attempt may not go on with its version, and that it was told of all that stands in the way."""
        self._counters["version refused"] += 1
        rows = self._run.rows
        if rows.run["revision"] != attempt.asked_at:
            self._counters["version refused as others went on"] += 1
            return
        told = {found[1] or found[2] for text in error.differences for found in _ID.finditer(text)}
        why = self._refused(attempt, rows)
        old, new = (
            cast("EvolvingProgram", self._run.program).declared,
            cast("EvolvingProgram", attempt.program).declared,
        )
        begun = begun_to_finish(rows)
        for operator_id in why:
            reason = _why(operator_id, old.get(operator_id), new.get(operator_id))
            self._counters[f"version refused: {reason}"] += 1
            self._counters[f"version refused as it finishes: {reason}"] += operator_id in begun
        dropped = self._run.origin.lineage.dropped if self._run.origin is not None else set()
        lost = dropped & self._run.lineage.kept_from_origin(rows)  # perhaps since the attempt looked
        is_right = bool(told) and why <= told <= why | lost
        self._require(is_right, "evolution", "it was refused for {}, not {}", error.differences, why)

    def _refused(self, attempt: SimulatedAttempt, rows: MemoryRun) -> frozenset[str]:
        left = self._left(rows, ignores_edges=attempt.pace.ignore_edges)
        old, new = cast("EvolvingProgram", self._run.program), cast("EvolvingProgram", attempt.program)
        return refused(old, new, left, allows_drop=attempt.allows_drop)

    def _left(self, rows: MemoryRun, *, ignores_edges: bool) -> Left:
        lineage = self._run.lineage
        kept = lineage.kept_from_origin(rows) & self._finished_by_origin()
        return left_of(rows, ignores_edges=ignores_edges, kept=kept, stateful=lineage.stateful(rows))

    def _finished_by_origin(self) -> frozenset[str]:
        """Return what a branch's origin had finished for good in its checkpoint, and has as it was then."""
        origin = self._run.origin
        found = {known: row["output"] for known, row in origin.rows.operators.items()} if origin is not None else {}
        return frozenset(known for known, left in finished_by_origin(self._run).items() if found.get(known) == left)

    def _operators(self, change: Change, old: EvolvingProgram, new: EvolvingProgram) -> None:
        operators = cast("Mapping[str, Mapping[str, Any]]", new.definition["operators"])  # Any: JSON
        wanted = {}
        for operator_id, operator in operators.items():
            stays = operator_id.partition(".")[0] in old.declared
            left = change.before.operators[operator_id] if stays else {}
            wanted[operator_id] = {
                "operator_id": operator_id,
                **{column: operator[column] for column in ("name", "role", "kind")},
                **{column: left.get(column) for column in _FINISHED},
                "added_under": left.get("added_under", change.token),
            }
        found = change.after.operators
        self._require(found == wanted, "evolution", "the operators are {}, not {}", found, wanted)

    def _parts(self, change: Change, old: EvolvingProgram, new: EvolvingProgram) -> None:
        durable, gone = change.before.run["last_durable_epoch"], old.declared.keys() - new.declared.keys()
        live = [part for part in change.before.parts if part["voided_at"] is None]
        left = [part for part in live if part["epoch"] > durable]
        without_files = {part["operator_id"] for part in left if not part["output"]["files"]}
        stays = edges_to_stay(old, new, epoch=durable + 1, without_files=without_files)
        going = [part for part in left if part["operator_id"] not in stays]
        going += [part for part in live if part["epoch"] == FOR_GOOD and part["operator_id"] in gone]
        wanted = [{**part, "voided_at": change.now} if part in going else part for part in change.before.parts]
        self._require(wanted == change.after.parts, "evolution", "of the parts there are {}", change.after.parts)
        self._counters["edge voided by a new version"] += bool(going)
        self._counters["edge kept by a new version"] += any(part not in going for part in left)
        self._counters["edge without files asked for by a new version"] += bool(without_files - stays)

    def _count(self, old: EvolvingProgram, new: EvolvingProgram, rows: MemoryRun) -> None:
        for operator_id, declared in old.declared.items():
            self._codes.setdefault(operator_id, set()).add(declared.code)
        left = self._left(rows, ignores_edges=False)
        for operator_id, now in new.declared.items():
            was, kind = old.declared.get(operator_id), _kind(operator_id)
            if was is None:
                codes = self._codes.get(operator_id)
                how = "is added" if codes is None else "comes back" if now.code in codes else "comes back as another"
                self._counters[f"{kind} {how}"] += 1
                was_kept = rows.branch is not None and operator_id in rows.branch["keeps"]
                self._counters["branch adds again what it would have kept"] += was_kept
            else:
                self._counters[f"{kind} is renamed"] += now.name != was.name
                self._counters[f"{kind} takes others"] += now.inputs != was.inputs
        for operator_id in old.declared.keys() - new.declared.keys():
            self._counters[f"{_kind(operator_id)} is {'dropped' if left.holds(operator_id) else 'removed'}"] += 1


def _why(operator_id: str, was: Declared | None, now: Declared | None) -> str:
    if was is None:
        return "variable added" if SLOTS[operator_id].decorator == "variable" else "pinned before"
    if now is None:
        return "removed"
    return "takes others" if was.code == now.code else "changed"


def _kind(operator_id: str) -> str:
    slot = SLOTS[operator_id]
    if slot.decorator in ("data", "variable"):
        return "data stream" if slot.decorator == "data" else "variable"
    return "operator that finishes" if slot.finishes else "operator that carries" if slot.has_state else "operator"
