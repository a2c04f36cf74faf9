"""What is left of an operator when it goes, and what does another one get that comes under its id?

Tried on schedules in which the user's file changes.
"""

from __future__ import annotations

from functools import partial

from tests.simulation.mutants.mutant import Mutant

_CONTINUATION = "continuation.py"
_EVOLUTION = "model/evolution.py"
_FINISHED = "protocol/finished.py"
_MARKER = "marker.py"
_VOIDED = "    state, voided = void_edges(state, keeping=frozenset(event.kept) - dropped)\n"
_ORIGIN = "driver/origin.py"
_RESTORE = "driver/restore.py"
_WRITE = "store/memory_write.py"

_Mutant = partial(Mutant, is_evolving=True)

EVOLUTIONS = (
    _Mutant(
        name="operator that comes back gets the state that another one of its id left",
        rule="manifest",
        file=_MARKER,
        old="_carried_by(there_since(operators, manifest.fencing_token), manifest)",
        new="_carried_by({found.operator_id for found in operators}, manifest)",
    ),
    _Mutant(
        name="operator that came back at the earliest gets the state that another one of its id left",
        rule="manifest",
        file=_MARKER,
        old="_carried_by(there_since(operators, manifest.fencing_token), manifest)",
        new="_carried_by(there_since(operators, manifest.fencing_token + 2), manifest)",
    ),
    _Mutant(
        name="branch gives an operator that it has added the state of its origin's",
        rule="manifest",
        file=_ORIGIN,
        old="    manifest = carried_from_origin(operators, branch, read_origin_manifest(branch))\n",
        new="    manifest = read_origin_manifest(branch)\n",
    ),
    _Mutant(
        name="branch carries on what another operator of the id left in its origin",
        rule="branches",
        file="branching.py",
        old="as_then = there_since(operators, checkpoint.fencing_token)",
        new="as_then = {known.operator_id for known in operators}",
    ),
    _Mutant(
        name="branch begins anew without a word where its origin has removed an operator since",
        rule="branches",
        file="branching.py",
        old="        reasons += _left_behind(origin, describe(graph))\n",
        new="        pass\n",
    ),
    _Mutant(
        name="branch is held to states that its checkpoint does not hold",
        rule="branches",
        file="branching.py",
        old="    carried = {declared_as(source.definition, operator_id) for operator_id in source.carries}\n",
        new="    carried = evolution_of(source.definition, graph).before.stateful\n",
    ),
    _Mutant(
        name="operator whose state no checkpoint holds may not be removed",
        rule="evolution",
        file="continuation.py",
        old="        return there_since(operators, completed.fencing_token)\n",
        new="        return frozenset(known.operator_id for known in operators)\n",
    ),
    _Mutant(
        name="branch may not remove an operator with whose state it did not begin",
        rule="evolution",
        file="continuation.py",
        old="for operator_id in begun_with(operators, branch))",
        new="for operator_id in there_since(operators, fencing_token=0))",
    ),
    _Mutant(
        name="branch carries on all that its origin's checkpoint holds",
        rule="manifest",
        file=_MARKER,
        old="_carried_by(begun_with(operators, branch), manifest)",
        new="_carried_by(there_since(operators, fencing_token=0), manifest)",
    ),
    _Mutant(
        name="branch takes over what an operator left that it has dropped",
        rule="branches",
        file=_MARKER,
        old="frozenset(branch.keeps) & there_since(operators, fencing_token=0)",
        new="frozenset(branch.keeps) & {known.operator_id for known in operators}",
    ),
    _Mutant(
        name="data stream that comes back reads what another one of its id has pinned",
        rule="evolution",
        file=_EVOLUTION,
        old="        if operator_id in pinned:\n",
        new="        if operator_id in pinned and operator_id in evolution.before.operators:\n",
        in_short=True,
    ),
    _Mutant(
        name="operator that stays counts as new whenever another one changes",
        rule="evolution",
        file=_WRITE,
        old='for column in (*_FINISHED, "added_under") if key in left}',
        new="for column in _FINISHED if key in left}",
    ),
    _Mutant(
        name="what an operator has begun to finish outlives it",
        rule="evolution",
        file=_WRITE,
        old='part["epoch"] == NO_EPOCH and part["operator_id"] in command.dropped',
        new="False",
    ),
    _Mutant(
        name="edges of the open epoch outlive the operators that left them",
        rule="evolution",
        file=_FINISHED,
        old=_VOIDED,
        new="    voided: tuple[Command, ...] = ()\n",
    ),
    _Mutant(
        name="another version voids every edge of the open epoch",
        rule="evolution",
        file=_FINISHED,
        old=_VOIDED,
        new="    state, voided = void_edges(state)\n",
    ),
    _Mutant(
        name="edge of an operator that takes something else now is kept",
        rule="evolution",
        file=_EVOLUTION,
        old="    if operator.operator_id in evolution.moved:\n        return f",
        new="    if operator.operator_id in evolution.added:\n        return f",
    ),
    _Mutant(
        name="edge behind one that is not kept is",
        rule="evolution",
        file=_EVOLUTION,
        old="    source = next((ids[name] for name in operator.inputs if ids[name] in unfit), None)\n",
        new="    source = next((ids[name] for name in operator.inputs if ids[name] not in ids.values()), None)\n",
    ),
    _Mutant(
        name="edge without files is kept though others ask for it",
        rule="evolution",
        file=_EVOLUTION,
        old="            if why is None and operator.operator_id in used_up:\n",
        new="            if why is None and operator.operator_id not in ids.values():\n",
    ),
    _Mutant(
        name="edge without files is kept though it is an output now",
        rule="evolution",
        file=_EVOLUTION,
        old="    if graph.is_asked_later(operator.name):\n        return",
        new="    if graph.is_asked_later(operator.name) and not unfit:\n        return",
    ),
    _Mutant(
        name="variable that a checkpoint holds voids what was computed from it",
        rule="evolution",
        file=_EVOLUTION,
        old="            if operator.operator_id in unfit or (has_values and operator.role is Role.VARIABLE):\n",
        new="            if operator.operator_id in unfit:\n",
    ),
    _Mutant(
        name="edges that another version keeps are voided in the rows",
        rule="evolution",
        file="store/memory_epochs.py",
        old=' and part["operator_id"] not in command.keeping',
        new="",
    ),
    _Mutant(
        name="operator that finished for good may take something else afterwards",
        rule="evolution",
        file=_EVOLUTION,
        old="        *_moved_ones(evolution, finished),\n",
        new="",
    ),
    _Mutant(
        name="what an operator has begun to finish does not count as finished",
        rule="evolution",
        file=_CONTINUATION,
        old="        begun = [edge.operator_id for edge in self.markers.edges if edge.epoch == NO_EPOCH]\n",
        new="        begun: list[str] = []\n",
    ),
    _Mutant(
        name="state is looked for under the operator's name",
        rule="manifest",
        file=_RESTORE,
        old="return operator.name if manifest.format_version == 1 else operator.operator_id",
        new="return operator.name",
    ),
    _Mutant(
        name="state is dropped without a person's word",
        rule="evolution",
        file=_EVOLUTION,
        old="*(_removed_ones(evolution, {*finished, *stateful, *captured}) if not allow_dropped_state else ()),",
        new="*(_removed_ones(evolution, {*finished, *captured}) if not allow_dropped_state else ()),",
    ),
    _Mutant(
        name="branch keeps what was computed from something else",
        rule="branches",
        file=_EVOLUTION,
        old="        is_fed = set(operator.inputs) <= kept\n",
        new="        is_fed = True\n",
    ),
)
