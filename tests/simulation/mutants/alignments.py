"""When an epoch is aligned, and what is decided then (I3, I4, I5, I9)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_ALIGNMENT = "protocol/alignment.py"
_STATE = "protocol/state.py"
_IS_HELD = "all(head.reported == head.expected for head in self.heads)"

ALIGNMENTS = (
    Mutant(
        name="epochs may leave a gap",
        rule="I3",
        file=_ALIGNMENT,
        old="if event.epoch != state.last_epoch + 1:",
        new="if event.epoch < state.last_epoch + 1:",
    ),
    Mutant(
        name="epoch opens behind one that is open",
        rule="I3",
        file=_ALIGNMENT,
        old="if state.epochs and state.epochs[-1].status is EpochStatus.OPEN:",
        new="if state.epochs and state.epochs[-1].status is EpochStatus.VOIDED:",
    ),
    Mutant(
        name="epoch opens without heads",
        rule="I3",
        file=_ALIGNMENT,
        old="if not heads or any(head.expected < 1 for head in heads):",
        new="if any(head.expected < 1 for head in heads):",
    ),
    Mutant(
        name="epoch that was opened may not be opened again",
        rule="I3",
        file=_ALIGNMENT,
        old="if known is not None and [(h.name, h.expected) for h in known.heads]",
        new="if known is None and [(h.name, h.expected) for h in heads][:0]",
    ),
    Mutant(
        name="durable epoch may not be opened again by a repetition",
        rule="I6",
        file=_ALIGNMENT,
        old="    if 0 <= event.epoch <= state.last_durable_epoch:\n        return state, ()\n    if event.if_ready",
        new="    if event.if_ready",
    ),
    Mutant(
        name="epoch opens after the one that terminates the run",
        rule="I9",
        file=_ALIGNMENT,
        old="if state.status is not RunStatus.RUNNING or is_terminating(state):",
        new="if state.status is not RunStatus.RUNNING:",
    ),
    Mutant(
        name="epoch is aligned when one head is complete",
        rule="I4",
        file=_ALIGNMENT,
        old="if any(head.reported != head.expected for head in heads):",
        new="if all(head.reported != head.expected for head in heads):",
        also=((_STATE, _IS_HELD, _IS_HELD.replace("all(", "any(")),),
        in_short=True,
    ),
    Mutant(
        name="epoch is aligned by any report",
        rule="I4",
        file=_ALIGNMENT,
        old="if any(head.reported != head.expected for head in heads):",
        new="if not heads:",
        also=((_STATE, _IS_HELD, "bool(self.heads)"),),
    ),
    Mutant(
        name="subtask may change what it reported",
        rule="I4",
        file=_ALIGNMENT,
        old="if merged[subtask_index] not in (None, value):",
        new="if value < 0:",
    ),
    Mutant(
        name="subtask may be one that is not there",
        rule="I4",
        file=_ALIGNMENT,
        old="if not 0 <= subtask_index < len(merged) or value < 0:",
        new="if not subtask_index < len(merged) or value < 0:",
    ),
    Mutant(
        name="negative counts are taken",
        rule="I4",
        file=_ALIGNMENT,
        old="if not 0 <= subtask_index < len(merged) or value < 0:",
        new="if not 0 <= subtask_index < len(merged):",
    ),
    Mutant(
        name="report is not folded into those before",
        rule="I4",
        file=_ALIGNMENT,
        old="merged = list(known.values)",
        new="merged = [None for _ in known.values]",
    ),
    Mutant(
        name="repeated report aligns once more",
        rule="I4",
        file=_ALIGNMENT,
        old="    if heads == epoch.heads:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="report of a durable epoch is refused when it is repeated",
        rule="I4",
        file=_ALIGNMENT,
        old="        if 0 <= event.epoch <= state.last_durable_epoch:\n            return state, ()\n        raise",
        new="        raise",
    ),
    Mutant(
        name="criteria terminate when they should not",
        rule="I5",
        file=_ALIGNMENT,
        old="elif records.get(CRITERIA) == 0:",
        new="elif records.get(CRITERIA):",
    ),
    Mutant(
        name="criteria count for nothing",
        rule="I5",
        file=_ALIGNMENT,
        old="elif records.get(CRITERIA) == 0:",
        new="elif records.get(CRITERIA) == -1:",
    ),
    Mutant(
        name="feedback of one head that runs dry ends the run",
        rule="I5",
        file=_ALIGNMENT,
        old="if sum(records.values()) == 0:",
        new="if min(records.values()) == 0:",
    ),
    Mutant(
        name="run makes one epoch more than max_epochs",
        rule="I5",
        file=_ALIGNMENT,
        old="epoch + 1 >= max_epochs",
        new="epoch >= max_epochs",
    ),
    Mutant(
        name="max_epochs comes before the criteria",
        rule="I5",
        file=_ALIGNMENT,
        old="    elif records.get(CRITERIA) == 0:\n        terminated_by = TerminatedBy.CRITERIA\n"
        "    elif max_epochs is not None and epoch + 1 >= max_epochs:\n"
        "        terminated_by = TerminatedBy.MAX_EPOCHS\n",
        new="    elif max_epochs is not None and epoch + 1 >= max_epochs:\n"
        "        terminated_by = TerminatedBy.MAX_EPOCHS\n"
        "    elif records.get(CRITERIA) == 0:\n        terminated_by = TerminatedBy.CRITERIA\n",
    ),
    Mutant(
        name="decision forgets a head",
        rule="I5",
        file=_ALIGNMENT,
        old="decision = decide_termination(epoch.epoch, epoch.heads, max",
        new="decision = decide_termination(epoch.epoch, epoch.heads[1:], max",
    ),
    Mutant(
        name="decision binds as soon as the epoch is aligned",
        rule="I6",
        file=_ALIGNMENT,
        old="    return _with_epoch(state, aligned), (AlignEpoch(epoch=epoch.epoch, decision=decision),)",
        new="    state = _with_epoch(state, aligned)\n"
        "    commands: list[Command] = [AlignEpoch(epoch=epoch.epoch, decision=decision)]\n"
        "    if decision.terminated_by is not None:\n"
        "        from iteration_lib.protocol.command import SetRunStatus\n"
        "        by = decision.terminated_by\n"
        "        state = replace(state, status=RunStatus.TERMINATING, terminated_by=by)\n"
        "        commands.append(SetRunStatus(status=RunStatus.TERMINATING, terminated_by=by))\n"
        "    return state, tuple(commands)",
    ),
    Mutant(
        name="epoch ids below 0 are taken for durable ones",
        rule="I3",
        file=_ALIGNMENT,
        old="    if 0 <= event.epoch <= state.last_durable_epoch:\n        return state, ()\n    if event.if_ready",
        new="    if event.epoch <= state.last_durable_epoch:\n        return state, ()\n    if event.if_ready",
    ),
    Mutant(
        name="epoch that is not ready opens all the same",
        rule="I3",
        file=_ALIGNMENT,
        old="    if event.if_ready and not _is_ready(state):\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="epoch is ready while the one before is open",
        rule="I3",
        file=_ALIGNMENT,
        old="not (is_open or is_over)",
        new="not is_over",
    ),
    Mutant(
        name="epoch is ready after the one that terminates the run",
        rule="I9",
        file=_ALIGNMENT,
        old="is_over = is_terminating(state) or has_failed(state) or",
        new="is_over = has_failed(state) or",
    ),
    Mutant(
        name="what an epoch measured is not kept",
        rule="I4",
        file=_ALIGNMENT,
        old="metrics=dict(event.metrics), seconds=event.seconds)",
        new="metrics={}, seconds=event.seconds)",
    ),
    Mutant(
        name="head that is not there is passed over",
        rule="I4",
        file=_ALIGNMENT,
        old='            raise ProtocolViolationError(f"{what} has no {name!r}; '
        "there are: {', '.join(by_name)} (I4)\")\n",
        new="            continue\n",
    ),
)
