"""Which steps of a transaction in memory are legal only together? Asked at its end, as the database does."""

from __future__ import annotations

from iteration_lib.store.memory_rows import MemoryRun, MutableRow, asked_to, published_in, refuse_if

_GOES_ON = ("RUNNING", "TERMINATING")


def refuse_half_steps(run: MemoryRun, before: MemoryRun) -> None:
    """Refuse an attempt, a stop, an end or a durable epoch that lacks what belongs to it in the same step."""
    live = next((attempt for attempt in run.attempts.values() if attempt["ended_at"] is None), None)
    for token in run.attempts.keys() - before.attempts.keys():
        _refuse_begun(run, token, is_live=live is not None and live["fencing_token"] == token)
    for token, attempt in run.attempts.items():
        is_known = token in before.attempts and before.attempts[token]["ended_at"] is not None
        if attempt["ended_at"] is not None and not is_known:
            _refuse_ended(run, attempt)
    _refuse_stop(run, is_driven=live is not None)
    for key, epoch in run.epochs.items():
        is_new = key not in before.epochs or before.epochs[key]["status"] != "DURABLE"
        if epoch["status"] == "DURABLE" and is_new:
            _refuse_durable(run, epoch)


def _refuse_begun(run: MemoryRun, token: int, *, is_live: bool) -> None:
    """Refuse an attempt that begins where the run does not go on, or where another one has left epochs (I1, I2)."""
    refuse_if(is_live and run.run["status"] not in _GOES_ON, f"attempt {token} begins, and the run does not go on")
    left = [n for (n, of), e in run.epochs.items() if of < token and e["status"] in ("OPEN", "ALIGNED")]
    refuse_if(bool(left), f"attempt {token} begins, and epochs {left} of another one are left")


def _refuse_ended(run: MemoryRun, attempt: MutableRow) -> None:
    """Refuse an attempt that ends and leaves something pending, or whose run does not fail or finish with it."""
    token, outcome = attempt["fencing_token"], attempt["outcome"]
    left = [c for c in run.checkpoints.values() if (c["fencing_token"], c["status"]) == (token, "PENDING")]
    refuse_if(bool(left), f"attempt {token} has ended, and leaves a checkpoint pending")
    status = run.run["status"]
    is_alone = outcome == "FAILED" and run.run["fencing_token"] == token and status in _GOES_ON
    is_alone |= outcome == "FINISHED" and status not in ("FINISHED", "DELETED")
    refuse_if(is_alone, f"attempt {token} has {outcome}, and its run has not")


def _refuse_stop(run: MemoryRun, *, is_driven: bool) -> None:
    """Refuse a run that is STOPPED and was not asked to, or goes on undriven though it was (I20)."""
    status = run.run["status"]
    is_answered = any(stop["stopped_at"] is not None and stop["resumed_at"] is None for stop in run.stops.values())
    must_stop = status == "RUNNING" and not is_driven and asked_to(run) == "STOP"
    is_other = status != "DELETED" and (status == "STOPPED") is not is_answered
    refuse_if(must_stop or is_other, f"the run is {status}, and is not what a person asked for")


def _refuse_durable(run: MemoryRun, epoch: MutableRow) -> None:
    """Refuse a durable epoch of which not all is stored that it publishes (I19), or that ends a run which goes on."""
    number = epoch["epoch"]
    lacking = [output for output in published_in(run, epoch) if (number, output) not in run.committables]
    refuse_if(bool(lacking), f"epoch {number} is durable, and {lacking} of it is not stored")
    is_last = epoch["decision"]["terminated_by"] is not None
    refuse_if(is_last and run.run["terminated_by"] is None, f"epoch {number} ends the run, which does not terminate")
