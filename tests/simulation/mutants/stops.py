"""Persons who stop a run, or drain it: what they are refused, what comes of it, and when."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_ALIGNMENT = "protocol/alignment.py"
_STOP = "protocol/stop.py"

STOPS = (
    Mutant(
        name="drain is never heard",
        rule="I20",
        file=_ALIGNMENT,
        old="    is_drained = state.asked_to is StopKind.DRAIN\n",
        new="    is_drained = False\n",
    ),
    Mutant(
        name="run that is to stop is drained",
        rule="I20",
        file=_ALIGNMENT,
        old="    is_drained = state.asked_to is StopKind.DRAIN\n",
        new="    is_drained = state.asked_to is not None\n",
    ),
    Mutant(
        name="run that was drained once, and resumed, ends all the same",
        rule="I20",
        file=_ALIGNMENT,
        old="    is_drained = state.asked_to is StopKind.DRAIN\n",
        new="    is_drained = state.stop is not None and state.stop.kind is StopKind.DRAIN\n",
        equivalent="nobody resumes a run that is to drain: only a STOPPED one is resumed",
    ),
    Mutant(
        name="drain goes before the run's own end",
        rule="I20",
        file=_ALIGNMENT,
        old="    if sum(records.values()) == 0:\n",
        new="    if is_drained:\n        terminated_by = TerminatedBy.DRAINED\n    elif sum(records.values()) == 0:\n",
    ),
    Mutant(
        name="epoch 0 is not drained",
        rule="I20",
        file=_ALIGNMENT,
        old="    elif is_drained:\n",
        new="    elif is_drained and epoch > 0:\n",
    ),
    Mutant(
        name="attempt finds a run that is to drain, and opens no epoch",
        rule="I20",
        file=_ALIGNMENT,
        old="    if state.epochs and state.asked_to is StopKind.STOP:\n",
        new="    if state.asked_to is StopKind.DRAIN or (state.epochs and state.asked_to is StopKind.STOP):\n",
    ),
    Mutant(
        name="run that is to drain is stopped",
        rule="I20",
        file=_STOP,
        old="    return goes_on and state.asked_to is StopKind.STOP\n",
        new="    return goes_on and state.asked_to is not None\n",
    ),
    Mutant(
        name="two requests of different kinds are one",
        rule="I17",
        file=_STOP,
        old="    if state.asked_to not in (None, kind):\n",
        new="    if False:\n",
    ),
    Mutant(
        name="second request counts as well",
        rule="I20",
        file=_STOP,
        old="    if state.asked_to is None:\n        state = replace",
        new="    if True:\n        state = replace",
    ),
    Mutant(
        name="drain is stored as a stop",
        rule="I20",
        file="store/memory_write.py",
        old='        "kind": command.kind.value,\n        "requested_by"',
        new='        "kind": "STOP",\n        "requested_by"',
    ),
    Mutant(
        name="run that is to stop goes on",
        rule="I20",
        file=_ALIGNMENT,
        old="or has_failed(state) or state.asked_to is StopKind.STOP\n",
        new="or has_failed(state)\n",
        also=((_ALIGNMENT, "    if state.epochs and state.asked_to is StopKind.STOP:\n", "    if False:\n"),),
    ),
    Mutant(
        name="run that FAILED may be asked to drain",
        rule="I20",
        file=_STOP,
        old="    if state.status is RunStatus.FAILED:\n",
        new="    if False:\n",
    ),
    Mutant(
        name="run that is over is asked to stop",
        rule="I20",
        file=_STOP,
        old="    check_goes_on(state)\n",
        new="",
    ),
    Mutant(
        name="run that goes on is resumed",
        rule="I20",
        file=_STOP,
        old=" or not is_meant or state.status is not RunStatus.STOPPED:\n",
        new=" or not is_meant:\n",
    ),
    Mutant(
        name="run is stopped from any status",
        rule="I20",
        file=_STOP,
        old="    check_transition(state.status, RunStatus.STOPPED)\n",
        new="",
        equivalent="whoever stops a run has seen that it may be, so that it is RUNNING or FAILED",
    ),
)
