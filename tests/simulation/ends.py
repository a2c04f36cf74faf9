"""Did an attempt end as it had to? An error needs a reason, and an end without one a run that is where it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.errors import (
    CheckpointFailedError,
    CommitLostError,
    ExecutionLostError,
    InputError,
    LeaseHeldError,
    OperatorFailedError,
    OutcomeUnknownError,
    ProtocolViolationError,
    RunDeletedError,
    RunFinishedError,
    RunMismatchError,
    RunStoppedError,
    SinkTargetError,
    StateCorruptedError,
    StateLocationError,
    SupersededError,
)
from iteration_lib.interrupt import ToldToEnd
from tests.simulation.captured import check_captured
from tests.simulation.change import Row, terminated_by
from tests.simulation.ports import FORGOTTEN
from tests.simulation.stop_rows import was_stopped

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.oracle import Oracle
    from tests.simulation.world import World

# To each error that the driver may end with, the ports of which one must have failed the attempt.
_DUE_TO: dict[type[BaseException], frozenset[str]] = {
    OutcomeUnknownError: frozenset({"store"}),
    CommitLostError: frozenset({FORGOTTEN}),
    ExecutionLostError: frozenset({"run"}),
    OperatorFailedError: frozenset({"run"}),
    StateLocationError: frozenset({"put", "list"}),
    StateCorruptedError: frozenset({"get"}),
    InputError: frozenset({"get"}),
    CheckpointFailedError: frozenset(),
    SinkTargetError: frozenset({"sink"}),
    ToldToEnd: frozenset({"told to end"}),
}


_OVER = {RunFinishedError: "FINISHED", RunDeletedError: "DELETED", RunStoppedError: "STOPPED"}


def check_end(oracle: Oracle, world: World, attempt: SimulatedAttempt) -> None:
    """See that an attempt ended as it had to."""
    error = attempt.error
    oracle.counters[f"ended: {type(error).__name__ if error is not None else 'well'}"] += 1
    if error is None:
        _ended_well(oracle, attempt)
    elif isinstance(error, SupersededError):
        _was_superseded(oracle, attempt)
    elif type(error) in _OVER:
        if not _is_over(oracle, error):
            oracle.violate(
                "errors", f"attempt {attempt.number} was told {error}, and it is {oracle.rows.run['status']}"
            )
    elif error is attempt.refusal:
        pass  # the oracle saw why at once
    elif isinstance(error, RunMismatchError) and world.file is not None:
        oracle.evolution.was_refused(attempt, error)
    elif isinstance(error, ProtocolViolationError) or type(error) not in {*_DUE_TO, LeaseHeldError}:
        oracle.violate("errors", f"attempt {attempt.number} ended with {error!r}")
    elif not isinstance(error, LeaseHeldError) and not _is_due(oracle, world, attempt, error):
        oracle.violate("errors", f"attempt {attempt.number} ended with {error!r}, and nothing had failed it")
    elif isinstance(error, ToldToEnd):
        check_captured(oracle, attempt.program, attempt)


def _is_over(oracle: Oracle, error: BaseException) -> bool:
    """Tell whether a run is what its attempt was told; one that was stopped may have been resumed since."""
    is_so = oracle.rows.run["status"] == _OVER[type(error)]
    return is_so or (isinstance(error, RunStoppedError) and was_stopped(oracle.rows))


def _was_superseded(oracle: Oracle, attempt: SimulatedAttempt) -> None:
    """See that another attempt took the run, or ended this one's row, or that a person deleted it."""
    row = _row_of(oracle, attempt)
    if oracle.rows.run["status"] == "DELETED":
        return
    if row is None or row["outcome"] == "SUPERSEDED" or row["fencing_token"] != oracle.rows.run["fencing_token"]:
        return
    state = "is in force" if row["ended_at"] is None else f"has ended as {row['outcome']} by itself"
    oracle.violate("errors", f"attempt {attempt.number} took itself for superseded, and {state}")


def _is_due(oracle: Oracle, world: World, attempt: SimulatedAttempt, error: BaseException) -> bool:
    if isinstance(error, StateLocationError) and "not put whole" in str(error):
        oracle.counters["torn file seen"] += 1
    # Of a copy nobody may have been able to tell whether it is whole.
    is_unread = isinstance(error, StateLocationError) and "get" in attempt.hurt and "cannot read" in str(error)
    if is_unread or _DUE_TO[type(error)] & attempt.hurt or _is_of_a_stray(attempt, error):
        return True
    if isinstance(error, StateLocationError | StateCorruptedError) and {"put beside", "get beside"} & attempt.hurt:
        is_why = str(error) in (known["reason"] for known in _last_checkpoint(oracle, attempt))
        return oracle.has_failed(attempt) or is_why or names_a_bad_file(world, error)
    if isinstance(error, CheckpointFailedError):
        is_slow = "not committed" in str(error)  # answers were lost, or the process was paused
        return is_slow or oracle.has_failed(attempt) or _lost_its_last(oracle, attempt)
    if not isinstance(error, StateCorruptedError | InputError | StateLocationError):
        return False
    if not oracle.is_in_force(attempt) and any(path in str(error) for path in world.let_go):
        oracle.counters["file that was let go missed by an attempt not in force"] += 1
        return True
    is_bad = names_a_bad_file(world, error)
    oracle.counters["damaged file seen"] += is_bad
    return is_bad


def _is_of_a_stray(attempt: SimulatedAttempt, error: BaseException) -> bool:
    """Tell whether a file that nobody names could not be removed: the folder of an output that shows holds none."""
    return isinstance(error, StateLocationError) and "remove" in attempt.hurt and ".stray" in str(error)


def names_a_bad_file(world: World, error: BaseException) -> bool:
    """Tell whether an error names a file that was damaged once, or torn."""
    bad = (path for run in world.runs for path in run.disk.spoilt | run.disk.ever_torn)
    return any(path in str(error) for path in bad)


def _lost_its_last(oracle: Oracle, attempt: SimulatedAttempt) -> bool:
    """Tell whether the checkpoint that the attempt could not end without was aborted by a person, or failed."""
    failures = ("ABORTED_BY_USER", "DECLINED", "EXPIRED")
    return any(known["failure"] in failures for known in _last_checkpoint(oracle, attempt))


def _last_checkpoint(oracle: Oracle, attempt: SimulatedAttempt) -> list[Row]:
    """Return the attempt's last checkpoint, if it took any."""
    life = oracle.lives.get(attempt)
    return [c for c in oracle.rows.checkpoints.values() if life is not None and c["fencing_token"] == life.token][-1:]


def _ended_well(oracle: Oracle, attempt: SimulatedAttempt) -> None:
    row, run = _row_of(oracle, attempt), oracle.rows.run
    if row is None:
        if run["status"] != "FINISHED":
            oracle.violate("errors", f"attempt {attempt.number} went away from a run that is {run['status']}")
        return
    # A deletion, or whoever stops the run instead of driving it, ends the attempt: its own word is a repeated one then.
    is_ended = run["status"] == "DELETED" or was_stopped(oracle.rows)
    if row["outcome"] not in ("RELEASED", "FINISHED", *(("SUPERSEDED",) if is_ended else ())):
        oracle.violate("errors", f"attempt {attempt.number} ended well, but its row says {row['outcome']}")
    until = attempt.until_epoch
    reached = was_stopped(oracle.rows) or bool(oracle.rows.fallbacks) or run["terminated_by"] is not None
    reached = reached or (until is not None and run["last_durable_epoch"] >= until - 1)
    # One that halted for a person who then deletes the run, before it has said that it stopped, has done what it could.
    reached = reached or (run["status"] == "DELETED" and any(s["kind"] == "STOP" for s in oracle.rows.stops.values()))
    if not reached:
        oracle.violate("I6", f"attempt {attempt.number} ended well, and its last epoch is not durable")
    if attempt.publishes and run["outputs"] is None and _had_terminated(oracle, row):
        oracle.violate("I10", f"attempt {attempt.number} ended well, and published nothing")


def _had_terminated(oracle: Oracle, row: Row) -> bool:
    """Tell whether the run terminated under this attempt, or before it.

    A later one may bring it there, while this one waits for the answer to its end.
    """
    ends = [e for e in oracle.rows.epochs.values() if e["status"] == "DURABLE" and terminated_by(e) is not None]
    return any(epoch["fencing_token"] <= row["fencing_token"] for epoch in ends)


def _row_of(oracle: Oracle, attempt: SimulatedAttempt) -> Row | None:
    rows = [row for row in oracle.rows.attempts.values() if row["attempt_id"] == attempt.attempt_id]
    return rows[-1] if rows else None
