"""Alignments that are held, the pace, what persons abort and ask for, failures in a row (I13, I14, I17)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_ABORT = "protocol/abort.py"
_ALIGNMENT = "protocol/alignment.py"
_CHECKPOINT = "protocol/checkpoint.py"
_PACING = "protocol/pacing.py"
_MEANT = "meant = tuple(known for known in state.pending if known.checkpoint_id <= event.checkpoint_id)"
_RELEASED = "    state, released = release_alignment(state)\n"
_ALL_DONE = "    return state, (*done, *released)\n"
_FINAL = """    if epoch.decision is not None and epoch.decision.terminated_by is not None:
        return CheckpointKind.FINAL
"""
_MANUAL = """    if state.is_asked or state.asked_to is StopKind.STOP:
        return CheckpointKind.MANUAL
"""

HOLDS = (
    Mutant(
        name="alignment is never held",
        rule="I14",
        file=_ALIGNMENT,
        old="    if len(state.pending) >= state.policy.max_pending:\n        return state, ()\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="alignment is held one checkpoint too late",
        rule="I14",
        file=_ALIGNMENT,
        old="if len(state.pending) >= state.policy.max_pending:",
        new="if len(state.pending) > state.policy.max_pending:",
    ),
    Mutant(
        name="alignment is held by any pending checkpoint",
        rule="I14",
        file=_ALIGNMENT,
        old="if len(state.pending) >= state.policy.max_pending:",
        new="if state.pending:",
    ),
    Mutant(
        name="what an attempt left held is aligned as it ends",
        rule="I14",
        file=_ALIGNMENT,
        old="if state.attempt is None or epoch is None or not epoch.is_held:",
        new="if epoch is None or not epoch.is_held:",
    ),
    Mutant(
        name="completion releases no alignment",
        rule="I14",
        file=_CHECKPOINT,
        old=_RELEASED + _ALL_DONE,
        new="    return state, done\n",
    ),
    Mutant(
        name="failure releases no alignment",
        rule="I14",
        file=_CHECKPOINT,
        old="    state, released = release_alignment(count_failure(state, checkpoint.kind))\n"
        "    return state, (*aborted, *released)\n",
        new="    return count_failure(state, checkpoint.kind), aborted\n",
    ),
    Mutant(
        name="person's abort releases no alignment",
        rule="I14",
        file=_ABORT,
        old=_RELEASED + "    return state, (*commands, *released)\n",
        new="    return state, tuple(commands)\n",
    ),
    Mutant(
        name="person's abort takes one checkpoint only",
        rule="I17",
        file=_ABORT,
        old=_MEANT,
        new=_MEANT.replace("<=", "=="),
    ),
    Mutant(
        name="person's abort takes every checkpoint",
        rule="I17",
        file=_ABORT,
        old=_MEANT,
        new="meant = state.pending",
    ),
    Mutant(
        name="person's abort counts as a failure",
        rule="I13",
        file=_ABORT,
        old="    commands: list[Command] = [*aborted]\n",
        new="    commands: list[Command] = [*aborted]\n"
        "    for known in meant:\n"
        "        state = count_failure(state, known.kind)\n",
    ),
    Mutant(
        name="person's abort is called a failure",
        rule="I8",
        file=_ABORT,
        old="abort_checkpoints(state, meant, CheckpointFailure.ABORTED_BY_USER, reason)",
        new="abort_checkpoints(state, meant, CheckpointFailure.DECLINED, reason)",
    ),
    Mutant(
        name="checkpoint that was aborted before it began begins",
        rule="I17",
        file=_CHECKPOINT,
        old="if checkpoint.checkpoint_id <= state.aborted_through:",
        new="if checkpoint.checkpoint_id < state.aborted_through:",
        in_short=True,
    ),
    Mutant(
        name="person's abort of the next checkpoint is forgotten",
        rule="I17",
        file=_ABORT,
        old="    if meant or is_next:\n",
        new="    if meant:\n",
    ),
    Mutant(
        name="protocol forgets which checkpoint was aborted before it began",
        rule="I17",
        file=_ABORT,
        old="        state = replace(state, aborted_through=event.checkpoint_id)\n",
        new="",
    ),
    Mutant(
        name="person aborts for the future what was there",
        rule="I17",
        file=_ABORT,
        old="is_next = max(state.last_checkpoint_id, state.aborted_through) < event.checkpoint_id",
        new="is_next = state.aborted_through < event.checkpoint_id",
    ),
    Mutant(
        name="person's word is kept for the next checkpoint alone",
        rule="I17",
        file=_ABORT,
        old="    if meant or is_next:\n",
        new="    if is_next:\n",
    ),
    Mutant(
        name="person aborts checkpoints far away",
        rule="I17",
        file=_ABORT,
        old="if not 1 <= event.checkpoint_id <= state.last_checkpoint_id + 1:",
        new="if not 1 <= event.checkpoint_id <= state.last_checkpoint_id + 2:",
    ),
    Mutant(
        name="person aborts checkpoint 0",
        rule="I17",
        file=_ABORT,
        old="if not 1 <= event.checkpoint_id <= state.last_checkpoint_id + 1:",
        new="if not 0 <= event.checkpoint_id <= state.last_checkpoint_id + 1:",
    ),
    Mutant(
        name="next checkpoint of a run that terminates is aborted",
        rule="I17",
        file=_ABORT,
        old="        check_goes_on(state)\n    if meant",
        new="        pass\n    if meant",
    ),
    Mutant(
        name="checkpoint is asked for that will never come",
        rule="requests",
        file=_ABORT,
        old="    check_goes_on(state)\n    requested",
        new="    requested",
    ),
    Mutant(
        name="request that is repeated is another one",
        rule="requests",
        file=_ABORT,
        old="    if event.request_id in state.requests:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="failure of a final or hand-made checkpoint is tolerated",
        rule="I13",
        file=_ABORT,
        old="    if kind is not CheckpointKind.PERIODIC:\n",
        new="    if kind is None:\n",
    ),
    Mutant(
        name="failures are counted twice",
        rule="I13",
        file=_ABORT,
        old="count = state.checkpoint_failures + 1",
        new="count = state.checkpoint_failures + 2",
    ),
    Mutant(
        name="failures in a row are not counted up",
        rule="I13",
        file=_ABORT,
        old="count = state.checkpoint_failures + 1",
        new="count = 1",
    ),
    Mutant(
        name="one failure too many is tolerated",
        rule="I13",
        file=_ALIGNMENT,
        old="return state.checkpoint_failures > state.policy.tolerable_failures",
        new="return state.checkpoint_failures > state.policy.tolerable_failures + 1",
    ),
    Mutant(
        name="one failure too few is tolerated",
        rule="I13",
        file=_ALIGNMENT,
        old="return state.checkpoint_failures > state.policy.tolerable_failures",
        new="return state.checkpoint_failures >= max(1, state.policy.tolerable_failures)",
    ),
    Mutant(
        name="checkpoints begin after too many failures",
        rule="I13",
        file=_CHECKPOINT,
        old="kind is None or has_failed(state) or len(",
        new="kind is None or len(",
    ),
    Mutant(
        name="epochs open after too many failures",
        rule="I13",
        file=_ALIGNMENT,
        old="    if has_failed(state):\n        raise ProtocolViolationError(",
        new="    if False:\n        raise ProtocolViolationError(",
        also=(
            (
                _ALIGNMENT,
                "is_over = is_terminating(state) or has_failed(state) or",
                "is_over = is_terminating(state) or",
            ),
        ),
    ),
    Mutant(
        name="checkpoint comes an epoch too late",
        rule="pace",
        file=_PACING,
        old="return epoch - last_covered(state) >= state.policy.every_epochs",
        new="return epoch - last_covered(state) > state.policy.every_epochs",
    ),
    Mutant(
        name="checkpoint comes after every epoch",
        rule="pace",
        file=_PACING,
        old="return epoch - last_covered(state) >= state.policy.every_epochs",
        new="return epoch > last_covered(state)",
        in_short=True,
    ),
    Mutant(
        name="pace forgets what is pending",
        rule="pace",
        file=_PACING,
        old="return max([state.last_durable_epoch, *(known.epoch for known in state.pending)])",
        new="return state.last_durable_epoch",
    ),
    Mutant(
        name="no pause is made",
        rule="pace",
        file=_PACING,
        old="    if not pause:\n",
        new="    if pause is not None:\n",
    ),
    Mutant(
        name="no pause is made while another checkpoint is pending",
        rule="pace",
        file=_PACING,
        old="    if state.pending:\n        return False\n",
        new="",
    ),
    Mutant(
        name="pause asks for no clock",
        rule="pace",
        file="protocol/run.py",
        old="return state.policy.min_pause_seconds > 0",
        new="return False",
    ),
    Mutant(
        name="pause ends before it begins",
        rule="pace",
        file=_PACING,
        old="not completed_at <= now < completed_at + pause",
        new="completed_at <= now < completed_at + pause",
    ),
    Mutant(
        name="pause waits for a clock that was set back",
        rule="pace",
        file=_PACING,
        old="not completed_at <= now < completed_at + pause",
        new="not now < completed_at + pause",
    ),
    Mutant(
        name="request waits for the pace",
        rule="pace",
        file=_PACING,
        old="    if state.is_asked or state",
        new="    if (state.is_asked and is_paced(state, epoch.epoch)) or state",
    ),
    Mutant(
        name="request goes before the end of the run",
        rule="pace",
        file=_PACING,
        old=_FINAL + _MANUAL,
        new=_MANUAL + _FINAL,
    ),
    Mutant(
        name="attempt's last epoch waits for the pace",
        rule="pace",
        file=_PACING,
        old="    if is_last or (is_paced",
        new="    if (is_paced",
    ),
    Mutant(
        name="run terminates without its checkpoint",
        rule="I10",
        file=_PACING,
        old="        return CheckpointKind.FINAL\n",
        new="        return None\n",
    ),
    Mutant(
        name="something is asked of a run that is deleted",
        rule="I17",
        file=_ABORT,
        old="    if state.status is RunStatus.DELETED:\n        raise RunDeletedError(state.run_id)\n",
        new="",
    ),
    Mutant(
        name="something is asked of a run that is stopped",
        rule="I17",
        file=_ABORT,
        old="    if state.status is RunStatus.STOPPED:\n        raise RunStoppedError(state.run_id)\n",
        new="",
    ),
    Mutant(
        name="something is asked of a run that terminates",
        rule="I17",
        file=_ABORT,
        old="    if state.terminated_by is not None:\n",
        new="    if state.status is RunStatus.FINISHED:\n",
    ),
)
