"""How does the iteration differ from the one that a run was started with, and may the run go on with it?

Operators are matched by their ids. Against the run's definition an operator may be

    renamed    its function, and the parameters that name it, are called something else
    moved      it takes other operators' results (where its function stands in a file does not matter at all)
    added, removed
    changed    its role, kind, code, `finishes`, `replays` or `state` is another

What a run has computed has to be what its operators would compute, so a changed one is refused, and so is whatever
the state at hand does not fit: a moved operator that finished for good, a variable whose value no checkpoint holds, a
data stream of epoch 0 alone when that is over, a removed operator that has state, unless a person says that it may be
dropped. The rest may go on: an operator may be renamed, moved, added or removed, and other tails, criteria and outputs
named.

Against a definition of format 1 a renamed operator counts as changed, because its code's digest holds its names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from iteration_lib.model.definition import DefinedOperator, Definition, describe, format_of, read_definition
from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Operator, Role

_ELSE = "start another run, or branch this one"
_OTHER_CODE = "its code changed"
_BACK = "put it back, or start another run"
_FIXED = ("role", "kind", "finishes", "replays", "state", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """A run's definition, and the one that it is to go on with. Everything is by operator id."""

    before: Definition
    after: Definition

    @property
    def added(self) -> tuple[str, ...]:
        """The operators that are new."""
        return tuple(operator_id for operator_id in self.after.operators if operator_id not in self.before.operators)

    @property
    def removed(self) -> tuple[str, ...]:
        """The operators that are gone."""
        return tuple(operator_id for operator_id in self.before.operators if operator_id not in self.after.operators)

    @property
    def renamed(self) -> Mapping[str, tuple[str, str]]:
        """The operators with another name, and (the name before, the name after)."""
        return {old.operator_id: (old.name, new.name) for old, new in self._kept() if old.name != new.name}

    @property
    def moved(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """The operators that take something else, and (their inputs before, their inputs after)."""
        return {old.operator_id: (old.inputs, new.inputs) for old, new in self._kept() if old.inputs != new.inputs}

    @property
    def changed(self) -> Mapping[str, tuple[str, ...]]:
        """The operators that are not what they were, and in which fields of DefinedOperator."""
        fields = {old.operator_id: tuple(_differing(old, new)) for old, new in self._kept()}
        return {operator_id: found for operator_id, found in fields.items() if found}

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence per difference, none if there is none."""
        return tuple(self._sentences())

    def _kept(self) -> Iterator[tuple[DefinedOperator, DefinedOperator]]:
        for operator_id, operator in self.after.operators.items():
            if operator_id in self.before.operators:
                yield self.before.operators[operator_id], operator

    def _sentences(self) -> Iterator[str]:
        yield from (f"operator {operator_id!r} is gone" for operator_id in self.removed)
        yield from (f"operator {operator_id!r} is new" for operator_id in self.added)
        for old, new in self._kept():
            if old.name != new.name:
                yield f"operator {old.operator_id!r}: name was {old.name}, now {new.name}"
            if old.inputs != new.inputs:
                yield f"operator {old.operator_id!r}: inputs was {_shown(old.inputs)}, now {_shown(new.inputs)}"
            yield from (f"operator {old.operator_id!r}: {sentence}" for sentence in _changes(old, new))
        for field in ("iteration", "feedback", "criteria", "outputs", "sinks"):
            was, now = getattr(self.before, field), getattr(self.after, field)
            if was != now:
                yield f"{field} was {was}, now {now}"


def evolution_of(definition: Mapping[str, object], graph: Graph) -> Evolution:
    """Return how a graph differs from a run's definition, whatever the definition's format."""
    return compare_definitions(definition, describe(graph, format_version=format_of(definition)))


def compare_definitions(before: Mapping[str, object], after: Mapping[str, object]) -> Evolution:
    """Return how two definitions differ; raises ValueError for two formats, whose digests cannot be compared."""
    if format_of(before) != format_of(after):
        raise ValueError(
            f"formats {format_of(before)} and {format_of(after)} do not compare; describe in the older one"
        )
    return Evolution(before=read_definition(before), after=read_definition(after))


def check_evolution(
    evolution: Evolution,
    *,
    finished: Collection[str],
    stateful: Collection[str],
    captured: Collection[str] = (),
    pinned: Collection[str] = (),
    allow_dropped_state: bool = False,
) -> tuple[str, ...]:
    """Return why a run may not go on with another definition, a sentence each that says what to do; none if it may.

    `finished` are the ids of the operators that finished for good, `stateful` of those whose state the last checkpoint
    holds, none where there is no checkpoint yet, `captured` of those with a durable edge, and `pinned` of the data
    streams that have read something in this run.
    """
    return (
        *_changed_ones(evolution),
        *_moved_ones(evolution, finished),
        *_added_ones(evolution, stateful),
        *_missed_ones(evolution, stateful),
        *_pinned_ones(evolution, pinned),
        *(_removed_ones(evolution, {*finished, *stateful, *captured}) if not allow_dropped_state else ()),
    )


def check_branch(
    evolution: Evolution, *, stateful: Collection[str], allow_dropped_state: bool = False
) -> tuple[str, ...]:
    """Return why a run with another definition may not start from a checkpoint, a sentence each; none if it may.

    Other code is what branches are for: only what the checkpoint's state does not fit is refused.
    """
    return (
        *_unfit_ones(evolution, stateful),
        *_added_ones(evolution, stateful),
        *(_removed_ones(evolution, stateful) if not allow_dropped_state else ()),
    )


def kept_by_branch(evolution: Evolution, computed: Collection[str], *, takes_other_params: Collection[str]) -> set[str]:
    """Return which of the operators that have `computed` something once and for all did so as a branch would.

    These are the ones whose code and inputs are the same, all of whose inputs are kept, and which do not take
    parameters that are other ones now.
    """
    kept: set[str] = set()
    for operator_id, operator in evolution.after.operators.items():  # in running order
        is_same = operator_id not in {*evolution.changed, *evolution.moved, *evolution.added}
        is_fed = set(operator.inputs) <= kept
        if operator_id in computed and is_same and is_fed and operator_id not in takes_other_params:
            kept.add(operator_id)
    return kept


def find_unfit_edges(
    evolution: Evolution, graph: Graph, *, has_values: bool, used_up: Collection[str]
) -> dict[str, str]:
    """Return the operators of a graph whose durable edges the open epoch cannot go on with, and why.

    These are the ones that are not what they were, and all that is computed from them: else two operators would see two
    results of one input (P1 of protocol.resume). One that is `used_up` left no files, for all that took it had
    finished: it is among them where anybody else asks for it. With `has_values` a checkpoint holds the variables.
    """
    ids, unfit = {operator.name: operator.operator_id for operator in graph.operators}, dict[str, str]()
    while True:
        known = len(unfit)
        for operator in graph.operators:  # in running order
            if operator.operator_id in unfit or (has_values and operator.role is Role.VARIABLE):
                continue
            why = _why_other(evolution, operator, ids, unfit)
            if why is None and operator.operator_id in used_up:
                why = _who_asks(graph, operator, unfit)
            if why is not None:
                unfit[operator.operator_id] = why
        if len(unfit) == known:
            return unfit


def _why_other(evolution: Evolution, operator: Operator, ids: Mapping[str, str], unfit: Collection[str]) -> str | None:
    if operator.operator_id in evolution.added:
        return "it is new"
    if operator.operator_id in evolution.changed:
        return "it has changed"
    if operator.operator_id in evolution.moved:
        return f"its inputs are {_shown(evolution.moved[operator.operator_id][1])} now"
    source = next((ids[name] for name in operator.inputs if ids[name] in unfit), None)
    return f"its input {source!r} runs again" if source is not None else None


def _who_asks(graph: Graph, operator: Operator, unfit: Collection[str]) -> str | None:
    """Say who asks for an output beside operators whose own is durable, None if nobody does."""
    if graph.is_asked_later(operator.name):
        return "it left no files, and its result is asked for now"
    users = (user.operator_id for user in graph.consumers(operator.name) if user.operator_id in unfit)
    user = next(users, None)
    return f"it left no files, and {user!r} asks for them" if user is not None else None


def _unfit_ones(evolution: Evolution, stateful: Collection[str]) -> Iterator[str]:
    if evolution.before.iteration != evolution.after.iteration:
        called = evolution.after.iteration
        yield f"the iteration is called {called!r}, and the checkpoint is one of {evolution.before.iteration!r}"
    for operator_id, fields in evolution.changed.items():
        old, new = evolution.before.operators[operator_id], evolution.after.operators[operator_id]
        for field in fields:
            if operator_id in stateful and field in ("role", "kind", "state"):
                yield f"operator {operator_id!r}: {field} was {getattr(old, field)}, now {getattr(new, field)}"


def _changed_ones(evolution: Evolution) -> Iterator[str]:
    before, after = evolution.before, evolution.after
    if before.iteration != after.iteration:
        yield f"the iteration is called {after.iteration!r}, and the run is one of {before.iteration!r}; {_BACK}"
    for operator_id in evolution.changed:
        for change in _changes(before.operators[operator_id], after.operators[operator_id]):
            way_out = f"put it back, {_ELSE}" if change == _OTHER_CODE else _BACK
            yield f"operator {operator_id!r}: {change}; {way_out}"


def _moved_ones(evolution: Evolution, finished: Collection[str]) -> Iterator[str]:
    """What a finished operator left was computed from the inputs that it had, and would be taken for more than that."""
    for operator_id, (old, new) in evolution.moved.items():
        if operator_id in finished:
            yield (
                f"operator {operator_id!r} finished for good with the inputs {_shown(old)}, now they are "
                f"{_shown(new)}; put the change behind it, or {_ELSE}"
            )


def _added_ones(evolution: Evolution, stateful: Collection[str]) -> Iterator[str]:
    """A new variable has no value to go on with; an operator that carries state begins with none in any case."""
    for operator_id in evolution.added:
        if _has_checkpoint(evolution, stateful) and operator_id in evolution.after.variables:
            yield f"variable {operator_id!r} is new, and has no value to go on with; start another run"


def _missed_ones(evolution: Evolution, stateful: Collection[str]) -> Iterator[str]:
    """What takes, in each epoch, a stream that comes once would see no row of it: epoch 0 is over.

    What finishes for good sees it whenever it runs.
    """
    after = evolution.after
    in_epochs = [
        known for known in after.operators.values() if not known.finishes and known.role != Role.VARIABLE.value
    ]
    taken = {operator_id for known in in_epochs for operator_id in known.inputs}
    for operator_id in evolution.added:
        is_missed = operator_id in taken and not after.operators[operator_id].replays
        if is_missed and _has_checkpoint(evolution, stateful):
            yield (
                f"data stream {operator_id!r} is new, and comes once, in epoch 0, which is over; leave out "
                "replays=False, or start another run"
            )


def _has_checkpoint(evolution: Evolution, stateful: Collection[str]) -> bool:
    """Tell whether there is a checkpoint: each one holds the variables."""
    return any(operator_id in stateful for operator_id in evolution.before.variables)


def _pinned_ones(evolution: Evolution, pinned: Collection[str]) -> Iterator[str]:
    """What a run reads is fixed once per id: another stream would be given what the one before it had read."""
    for operator_id in evolution.added:
        if operator_id in pinned:
            yield (
                f"data stream {operator_id!r} is new, and one of this id, which is gone, has read its rows before; "
                "give it another operator_id"
            )


def _removed_ones(evolution: Evolution, kept: Collection[str]) -> Iterator[str]:
    for operator_id in evolution.removed:
        if operator_id in kept:
            yield (
                f"operator {operator_id!r} is gone, and has state; give it back (under another name with "
                f"operator_id={operator_id!r}), or drop its state with --allow-dropped-state"
            )


def _differing(old: DefinedOperator, new: DefinedOperator) -> Iterator[str]:
    return (field for field in _FIXED if getattr(old, field) != getattr(new, field))


def _changes(old: DefinedOperator, new: DefinedOperator) -> Iterator[str]:
    for field in _differing(old, new):
        if field == "code":
            yield _OTHER_CODE
        else:
            yield f"{field} was {getattr(old, field)}, now {getattr(new, field)}"


def _shown(operator_ids: tuple[str, ...]) -> str:
    return ", ".join(operator_ids) or "none"
