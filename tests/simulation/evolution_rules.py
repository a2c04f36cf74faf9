"""May a run go on with another version of its file, or a branch start with one? By the rules as the docs have them.

docs/verbs.md, "What may change between two attempts" and "branch", and rows B3.5, B4.8, B4.9 and B5.8 of
docs/semantics.md. Worked out here from the versions and from the rows; of iteration_lib only the graph of a version is
asked, what takes what in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from iteration_lib.model.operator import Operator, Role
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.edge_rows import FOR_GOOD
from tests.simulation.versions import SLOTS, EvolvingProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is there of a run's operators: finished for good or begun to, durable inside the open epoch, in a state."""

    finished: frozenset[str]
    captured: frozenset[str]
    stateful: frozenset[str]
    has_checkpoint: bool
    pinned: frozenset[str]

    def holds(self, operator_id: str) -> bool:
        """Tell whether something of an operator would be lost with it."""
        return operator_id in self.stateful | self.finished | self.captured


def left_of(rows: MemoryRun, *, ignores_edges: bool, kept: Collection[str], stateful: Collection[str]) -> Left:
    """Return what the next attempt of a run finds.

    `kept` is what a branch has yet to take over from its origin, `stateful` whose states the run goes on with.
    """
    next_epoch = rows.run["last_durable_epoch"] + 1
    done = {key for key, operator in rows.operators.items() if operator["finished_at"] is not None}
    live = [part for part in rows.parts if part["voided_at"] is None and not ignores_edges]
    begun = begun_to_finish(rows) if not ignores_edges else frozenset[str]()
    open_ones = {part["operator_id"] for part in live if part["epoch"] == next_epoch}
    return Left(
        finished=frozenset(done | begun | {known for known in kept if SLOTS[known].finishes}),
        captured=frozenset(known.partition(".")[0] for known in open_ones),  # one that carries state has hidden parts
        stateful=frozenset(stateful),
        has_checkpoint=has_checkpoint(rows),
        pinned=frozenset(rows.pins),
    )


def begun_to_finish(rows: MemoryRun) -> frozenset[str]:
    """Return the operators that finish for good of which a part is durable, and that are not done."""
    live = (part for part in rows.parts if part["voided_at"] is None and part["epoch"] == FOR_GOOD)
    left = {part["operator_id"] for part in live}
    return frozenset(left - {key for key, found in rows.operators.items() if found["finished_at"] is not None})


def has_checkpoint(rows: MemoryRun) -> bool:
    """Tell whether a run goes on from a checkpoint, its own or its origin's; a deleted one has none any more."""
    return rows.branch is not None or any(row["status"] == "COMPLETED" for row in rows.checkpoints.values())


def refused(before: EvolvingProgram, after: EvolvingProgram, left: Left, *, allows_drop: bool) -> frozenset[str]:
    """Return the operators for which a run may not go on with another version."""
    return frozenset(_refused(before, after, left, allows_drop=allows_drop))


def _refused(before: EvolvingProgram, after: EvolvingProgram, left: Left, *, allows_drop: bool) -> Iterator[str]:
    for operator_id, old in before.declared.items():
        new = after.declared.get(operator_id)
        if new is None:
            if left.holds(operator_id) and not allows_drop:
                yield operator_id
        elif new.code != old.code or (new.inputs != old.inputs and operator_id in left.finished):
            yield operator_id
    for operator_id in after.declared.keys() - before.declared.keys():
        if operator_id in left.pinned or (left.has_checkpoint and SLOTS[operator_id].decorator == "variable"):
            yield operator_id


def edges_to_stay(
    before: EvolvingProgram, after: EvolvingProgram, *, epoch: int, without_files: Collection[str]
) -> frozenset[str]:
    """Return the operators of whose edges in the open `epoch` a run goes on with, under another version.

    Each is what it was and takes only such ones; of one without files nobody asks for any. Behind epoch 0 the
    variables are in a checkpoint, whatever they would be computed from.
    """
    graph = after.graph
    restored = {known.operator_id for known in graph.operators if epoch > 0 and known.role is Role.VARIABLE}
    left = {
        known.operator_id: known
        for known in graph.operators
        if known.operator_id in restored or _is_same(before, after, known)
    }
    while True:
        going = {
            operator_id
            for operator_id, known in left.items()
            if operator_id not in restored
            and (
                any(graph.operator(name).operator_id not in left for name in known.inputs)
                or (operator_id in without_files and _is_asked_for(after, known, left))
            )
        }
        if not going:
            return frozenset(left)
        left = {operator_id: known for operator_id, known in left.items() if operator_id not in going}


def _is_same(before: EvolvingProgram, after: EvolvingProgram, operator: Operator) -> bool:
    declared = operator.part_of or operator.operator_id
    was, now = before.declared.get(declared), after.declared[declared]
    return was is not None and (was.code, was.inputs) == (now.code, now.inputs)


def _is_asked_for(program: EvolvingProgram, operator: Operator, left: Collection[str]) -> bool:
    graph = program.graph
    tails = (*graph.feedback.values(), *graph.states.values(), graph.criteria)
    is_for_more = operator.name in (*tails, *graph.outputs.values())
    users = {user.operator_id for user in graph.operators if operator.name in user.inputs}
    return is_for_more or not users <= set(left)


def refused_to_branch(
    before: EvolvingProgram,
    after: EvolvingProgram,
    *,
    held: Collection[str],
    carried: Collection[str],
    allows_drop: bool,
) -> frozenset[str]:
    """Return the operators for which no branch with another version may start: their state would be lost, or lack.

    The checkpoint has `held` states, and those that are `carried` on are of operators that its run has had ever since.
    """
    new = after.declared.keys() - before.declared.keys()
    lost = (before.declared.keys() - after.declared.keys()).intersection(carried)
    begun_anew = after.declared.keys() & set(held) - set(carried)
    dropped = set() if allows_drop else lost | {known for known in begun_anew if SLOTS[known].decorator != "variable"}
    return frozenset(dropped | {known for known in new if SLOTS[known].decorator == "variable"})


def kept_by_branch(before: EvolvingProgram, after: EvolvingProgram) -> tuple[str, ...]:
    """Return what a branch takes over of what is computed once and for all: where it would compute the same."""
    kept: set[str] = set()
    for operator in after.graph.operators:  # each comes after its inputs
        known, now = before.declared.get(operator.operator_id), after.declared.get(operator.operator_id)
        is_same = known is not None and now is not None and (known.code, known.inputs) == (now.code, now.inputs)
        if is_same and SLOTS[operator.operator_id].is_once and kept.issuperset(now.inputs if now else ()):
            kept.add(operator.operator_id)
    return tuple(sorted(kept))
