"""What is once and for all (I10, I11), and the shell and the store around the protocol (I12)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_FINISHED = "protocol/finished.py"
_COORDINATOR = "coordinator.py"
_MEMORY = "store/memory.py"
_ROWS = "store/memory_write.py"
_ROWS_GUARD = 'if not isinstance(command, OpenAttempt | EndAttempt) and run.run["fencing_token"] != fencing_token:'

SHELLS = (
    Mutant(
        name="store's commands are written under any token",
        rule="I2",
        file=_ROWS,
        old=_ROWS_GUARD,
        new="if not command:",
        equivalent="the transaction compares the token once more when it counts up the revision",
    ),
    Mutant(
        name="store writes under any token",
        rule="I2",
        file=_ROWS,
        old=_ROWS_GUARD,
        new="if not command:",
        also=((_MEMORY, 'if self._run.run["fencing_token"] != fencing_token:', "if fencing_token < 0:"),),
        in_short=True,
    ),
    Mutant(
        name="coordinator trusts the state that it had, whoever wrote since",
        rule="I2",
        file=_COORDINATOR,
        old="cached.version == found and _includes(cached.state, unflushed)",
        new="_includes(cached.state, unflushed)",
        in_short=True,
    ),
    Mutant(
        name="coordinator trusts the lease that it knew, though it was renewed",
        rule="lease",
        file=_COORDINATOR,
        old=" if not asks_for_lease else None",
        new="",
    ),
    Mutant(
        name="store writes what was decided on a state, whoever wrote since",
        rule="I2",
        file=_MEMORY,
        old="if transaction.found != known:",
        new="if known.revision < 0:",
        in_short=True,
    ),
    Mutant(
        name="commit that the server forgot is not repeated",
        rule="runs",
        file=_COORDINATOR,
        old="                state, repeated = self._decide_again(state, unflushed, now=transaction.now)\n",
        new="                pass\n",
        in_short=True,
    ),
    Mutant(
        name="run that the server forgot a checkpoint of is at the same version",
        rule="runs",
        file=_COORDINATOR,
        old="self.state.last_attempt_id, self.state.last_checkpoint_id)",
        new="self.state.last_attempt_id, 0)",
        also=((_MEMORY, 'run.run["attempt_id"], run.run["last_checkpoint_id"])', 'run.run["attempt_id"], 0)'),),
    ),
    Mutant(
        name="state from before what may be lost counts, where a thread kept it late",
        rule="runs",
        file=_COORDINATOR,
        old="return all(committed.state.last_checkpoint_id <= state.last_checkpoint_id for committed in unflushed)",
        new="return True",
    ),
    Mutant(
        name="commit that would not be the same again is repeated",
        rule="runs",
        file=_COORDINATOR,
        old="is_same = not commands or tuple(commands) == committed.commands",
        new="is_same = not commands or len(committed.commands) > 0",
    ),
    Mutant(
        name="sinks prepare by an alignment that may be lost",
        rule="I19",
        file=_COORDINATOR,
        old="known | begun <= pending and not after.sinks",
        new="known | begun <= pending",
    ),
    Mutant(
        name="revision does not grow",
        rule="I2",
        file=_MEMORY,
        old='self._run.run["revision"] += 1',
        new='self._run.run["revision"] += 0',
    ),
    Mutant(
        name="store voids nothing",
        rule="I6",
        file="store/memory_epochs.py",
        old='epoch["status"] = "VOIDED"',
        new='epoch["status"] = epoch["status"]',
    ),
    Mutant(
        name="store overwrites checkpoints whose id is used again",
        rule="I7",
        file="store/memory_checkpoints.py",
        old='    run.run["last_checkpoint_id"] = command.checkpoint_id\n',
        new="",
    ),
    Mutant(
        name="outputs of a run that goes on are published",
        rule="I10",
        file=_FINISHED,
        old="if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:",
        new="if state.pending:",
        also=((_FINISHED, "    check_transition(state.status, RunStatus.FINISHED)\n", ""),),
    ),
    Mutant(
        name="outputs are published while a hand-made checkpoint is pending",
        rule="I10",
        file=_FINISHED,
        old="if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:",
        new="if state.status is not RunStatus.TERMINATING:",
    ),
    Mutant(
        name="run may finish from any status",
        rule="I10",
        file=_FINISHED,
        old="    check_transition(state.status, RunStatus.FINISHED)\n",
        new="",
        equivalent="the line before has seen that the run is TERMINATING; the table says the same",
    ),
    Mutant(
        name="publishing does not end the attempt",
        rule="I10",
        file=_FINISHED,
        old="            EndAttempt(fencing_token=event.fencing_token, "
        "outcome=AttemptOutcome.FINISHED, reason=None),\n",
        new="",
    ),
    Mutant(
        name="marker of a finished operator is written again",
        rule="I11",
        file=_FINISHED,
        old="    if event.operator_id in state.finished_operators:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="data that changed is pinned over",
        rule="pins",
        file=_FINISHED,
        old="    if known is not None:\n        raise InputError(",
        new="    if known == event.name:\n        raise InputError(",
    ),
    Mutant(
        name="events of one transaction are committed one by one",
        rule="I12",
        file=_COORDINATOR,
        old="return retry(lambda: self._apply_once(run_id, events, publish), ",
        new="return retry(lambda: [self._apply_once(run_id, o, publish) for o in [(e,) for e in events] or [()]][-1], ",
    ),
    Mutant(
        name="commands are written event by event",
        rule="I12",
        file=_COORDINATOR,
        old="                state, commands = _decide_all(state, events, now=transaction.now)\n",
        new="                commands = []\n"
        "                for event in events:\n"
        "                    state, decided = decide(state, event, transaction.now)\n"
        "                    transaction.write(decided, state.fencing_token)\n"
        "                    commands += decided\n",
        also=(
            (
                _COORDINATOR,
                "            transaction.write(commands, state.fencing_token)\n            revision",
                "            transaction.write(repeated, state.fencing_token)\n            revision",
            ),
        ),
        equivalent="it is still one transaction, which keeps all of it or nothing",
    ),
    Mutant(
        name="store keeps what was written before an error",
        rule="I12",
        file=_MEMORY,
        old="working = self._runs[run_id].copy()",
        new="working = self._runs[run_id]",
    ),
    Mutant(
        name="store renews the lease of whoever asks",
        rule="lease",
        file=_MEMORY,
        old='if attempt is None or attempt["attempt_id"] != attempt_id or attempt["ended_at"] is not None:',
        new='if attempt is None or attempt["attempt_id"] != attempt_id:',
    ),
)
