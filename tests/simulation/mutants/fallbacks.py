"""Runs that fall back to an older checkpoint: when they may, to which one, and what is given up."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_FALLBACK = "fallback.py"
_PROTOCOL = "protocol/fallback.py"
_STORE = "store/memory_write.py"

FALLBACKS = (
    Mutant(
        name="run falls back while an epoch is open",
        rule="I21",
        file=_PROTOCOL,
        old="or state.epochs or state.pending:",
        new="or state.pending:",
    ),
    Mutant(
        name="run falls back though nothing is broken",
        rule="I21",
        file=_FALLBACK,
        old="        if problem is None:\n            return context\n",
        new="        problem = problem or 'nothing'\n",
        in_short=True,
    ),
    Mutant(
        name="run falls back to its oldest checkpoint",
        rule="I21",
        file=_FALLBACK,
        old="for known in reversed(older) if",
        new="for known in older if",
    ),
    Mutant(
        name="run falls back to a checkpoint that nobody has verified",
        rule="I21",
        file=_FALLBACK,
        old="reversed(older) if problem_of(store, run, graph, known) is None)",
        new="reversed(older))",
    ),
    Mutant(
        name="checkpoint that cannot be read just now is given up",
        rule="I21",
        file=_FALLBACK,
        old="    if all(file.is_unreadable for file in bad):\n",
        new="    if False:\n",
    ),
    Mutant(
        name="run never falls back",
        rule="I21",
        file=_FALLBACK,
        old="    if older is None:\n",
        new="    if True:\n",
    ),
    Mutant(
        name="attempt falls back, and goes on as if it had not",
        rule="I21",
        file=_FALLBACK,
        old="    return replace(context, attempt=replace(context.attempt, opened=state))\n",
        new="    return context\n",
    ),
    Mutant(
        name="run falls back though it terminates",
        rule="I21",
        file=_FALLBACK,
        old="    if opened.status is not RunStatus.RUNNING or newest is None:\n",
        new="    if newest is None:\n",
    ),
    Mutant(
        name="run falls back behind what a sink has shown",
        rule="I21",
        file=_PROTOCOL,
        old="    if published:\n",
        new="    if False:\n",
        also=((_STORE, "any(epoch > command.epoch for epoch, _ in run.committables)", "False"),),
    ),
    Mutant(
        name="run falls back behind a checkpoint that a branch needs",
        rule="I21",
        file=_PROTOCOL,
        old='((state.pinned, "a branch needs"), (state.pinned_by_hand, "a person has pinned")):',
        new='((state.pinned_by_hand, "a person has pinned"),):',
    ),
    Mutant(
        name="checkpoint that is given up is kept",
        rule="I21",
        file=_STORE,
        old='            row["status"] = "DISCARDED"\n    older["status"]',
        new='            row["status"] = "SUBSUMED"\n    older["status"]',
    ),
    Mutant(
        name="epoch that is given up stays durable",
        rule="I21",
        file=_STORE,
        old='        if number > command.epoch and epoch["status"] != "VOIDED":\n',
        new='        if number > command.epoch + 1 and epoch["status"] != "VOIDED":\n',
    ),
    Mutant(
        name="edges of what is given up are kept",
        rule="I21",
        file=_STORE,
        old='    run.void_parts(lambda part: part["epoch"] > command.epoch, now)\n    run.run["last_durable_epoch"]',
        new='    run.run["last_durable_epoch"]',
    ),
    Mutant(
        name="last durable epoch is that of the broken checkpoint",
        rule="I21",
        file=_PROTOCOL,
        old="        last_durable_epoch=older.epoch,\n",
        new="",
    ),
    Mutant(
        name="fallback that is repeated is refused",
        rule="I21",
        file=_PROTOCOL,
        old="    if newest is not None and newest.checkpoint_id == older.checkpoint_id:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="run falls back to a newer checkpoint",
        rule="I21",
        file=_PROTOCOL,
        old="    if newest is None or older.checkpoint_id > newest.checkpoint_id or older.epoch >= newest.epoch:\n",
        new="    if newest is None:\n",
    ),
    Mutant(
        name="run falls back behind what a listener has heard",
        rule="I21",
        file=_PROTOCOL,
        old="    if heard:\n",
        new="    if False:\n",
    ),
    Mutant(
        name="run falls back behind a checkpoint that a person has pinned",
        rule="I21",
        file=_PROTOCOL,
        old="        if gone:\n",
        new='        if gone and who == "a branch needs":\n',
    ),
    Mutant(
        name="run falls back behind whatever others have had",
        rule="I21",
        file=_PROTOCOL,
        old="    check_unheard(state, older, event.published)\n",
        new="",
    ),
    Mutant(
        name="run falls back to a checkpoint without files",
        rule="I21",
        file=_PROTOCOL,
        old="    check_transition(older.status, CheckpointStatus.COMPLETED)\n",
        new="",
    ),
    Mutant(
        name="every step of a status is allowed",
        rule="I21",
        file="protocol/status.py",
        old="    if step not in RUN_TRANSITIONS and",
        new="    if False and",
    ),
)
