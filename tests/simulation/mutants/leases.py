"""Who drives: tokens, leases, the fence (I1, I2)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_LEASE = "protocol/lease.py"
_RUN = "protocol/run.py"

LEASES = (
    Mutant(
        name="token is not increased by a takeover",
        rule="I1",
        file=_LEASE,
        old="fencing_token=state.fencing_token + 1,",
        new="fencing_token=max(1, state.fencing_token),",
    ),
    Mutant(
        name="claim that is repeated gets another token",
        rule="I1",
        file=_LEASE,
        old="if live is not None and live.attempt_id == event.attempt_id:",
        new="if live is None and state.ended_attempt_id == event.attempt_id:",
    ),
    Mutant(
        name="attempt that has ended comes back",
        rule="I1",
        file=_LEASE,
        old="if state.ended_attempt_id == event.attempt_id:",
        new="if state.ended_attempt_id == state.run_id:",
    ),
    Mutant(
        name="older attempt is not ended",
        rule="I1",
        file=_LEASE,
        old="        commands.append(EndAttempt(fencing_token=live.fencing_token, "
        "outcome=AttemptOutcome.SUPERSEDED, reason=reason))\n",
        new="",
    ),
    Mutant(
        name="lease holds nobody off",
        rule="lease",
        file=_LEASE,
        old="if not (event.takeover or event.gone_attempt_id == live.attempt_id or live.lease_expires_at <= now):",
        new="if False:",
        in_short=True,
    ),
    Mutant(
        name="lease is compared the wrong way round",
        rule="lease",
        file=_LEASE,
        old="or live.lease_expires_at <= now):",
        new="or live.lease_expires_at >= now):",
    ),
    Mutant(
        name="lease holds in the instant in which it runs out",
        rule="lease",
        file=_LEASE,
        old="or live.lease_expires_at <= now):",
        new="or live.lease_expires_at < now):",
    ),
    Mutant(
        name="proof of any attempt's end is one of the live attempt's",
        rule="lease",
        file=_LEASE,
        old="event.gone_attempt_id == live.attempt_id or",
        new="event.gone_attempt_id is not None or",
    ),
    Mutant(
        name="person's word counts for nothing",
        rule="lease",
        file=_LEASE,
        old="if not (event.takeover or",
        new="if not (",
    ),
    Mutant(
        name="no token is checked",
        rule="I2",
        file=_RUN,
        old="    check_token(state, event)\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="only the attempt's id is checked",
        rule="I2",
        file=_LEASE,
        old="if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):",
        new="if live is None or live.attempt_id != event.attempt_id:",
    ),
    Mutant(
        name="only the token is checked",
        rule="I2",
        file=_LEASE,
        old="if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):",
        new="if live is None or live.fencing_token != event.fencing_token:",
    ),
    Mutant(
        name="older tokens are let through",
        rule="I2",
        file=_LEASE,
        old="if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):",
        new="if live is None or live.fencing_token < event.fencing_token:",
    ),
    Mutant(
        name="last word counts for whoever says it",
        rule="I2",
        file=_LEASE,
        old="return can_be_last and ended == (event.attempt_id, event.fencing_token)",
        new="return can_be_last and ended[1] == event.fencing_token",
    ),
    Mutant(
        name="last word may not be repeated",
        rule="I2",
        file=_RUN,
        old="    if is_last_word_again(state, event):\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="reports are kept over a takeover",
        rule="I4",
        file=_LEASE,
        old="            epochs=(),\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="reports are kept over a takeover, in the rows as well",
        rule="I6",
        file=_LEASE,
        old="    if state.epochs:\n        commands.append(VoidEpochs(after=state.last_durable_epoch))\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="pending checkpoints survive a takeover",
        rule="I8",
        file=_LEASE,
        old='    state, aborted = abort_pending(state, "its attempt was superseded")\n',
        new="    aborted: tuple[Command, ...] = ()\n",
    ),
    Mutant(
        name="pending checkpoints survive the end of their attempt",
        rule="I8",
        file=_LEASE,
        old='    state, aborted = abort_pending(state, f"its attempt ended: {event.outcome.value}")\n',
        new="    aborted: tuple[Command, ...] = ()\n",
    ),
    Mutant(
        name="finished run is driven again",
        rule="I10",
        file=_LEASE,
        old="    if state.status is RunStatus.FINISHED:\n        raise RunFinishedError(state.run_id)\n",
        new="",
    ),
    Mutant(
        name="run that failed while terminating goes on running",
        rule="I9",
        file=_LEASE,
        old="status = RunStatus.RUNNING if state.terminated_by is None else RunStatus.TERMINATING",
        new="status = RunStatus.RUNNING",
        in_short=True,
    ),
    Mutant(
        name="attempt ends itself as whatever it likes",
        rule="I1",
        file=_LEASE,
        old="if event.outcome not in (AttemptOutcome.RELEASED, AttemptOutcome.FAILED):",
        new="if event.outcome is AttemptOutcome.FINISHED:",
    ),
    Mutant(
        name="lease runs out at once",
        rule="lease",
        file=_LEASE,
        old="lease_expires_at=now + timedelta(seconds=event.lease_ttl_seconds),",
        new="lease_expires_at=now,",
    ),
)
