"""How is a run kept in memory? The twin of the Postgres store, for unit tests and simulation; nothing survives.

It keeps rows, not states, and rebuilds a state from them by the same functions as the Postgres store does, so that one
contract suite can hold both to the same answers.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TypeVar

from iteration_lib.clock import Clock
from iteration_lib.errors import ProtocolViolationError, RunNotFoundError, SupersededError
from iteration_lib.protocol.command import Command
from iteration_lib.protocol.state import NO_EPOCH, AttemptId, RunId, RunState
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.store import row as rows
from iteration_lib.store.memory_rows import MemoryRun, as_json, refuse_if
from iteration_lib.store.memory_write import operator_rows, write_command
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    EpochRecord,
    NewRun,
    NoticeRecord,
    OperatorRecord,
    PartRecord,
    PinRecord,
    RequestRecord,
    RunRecord,
)

T = TypeVar("T")


class MemoryStore:
    """A store in memory; implements Store and History."""

    def __init__(self, clock: Clock) -> None:
        """Start empty; `clock` takes the place of the database's."""
        self._clock = clock
        self._lock = threading.RLock()
        self._runs: dict[str, MemoryRun] = {}

    def close(self) -> None:
        """Do nothing."""

    def add_run(self, run: NewRun) -> bool:
        """Create a run; see Store."""
        with self._lock:
            if any(known.run["run_key"] == run.run_key for known in self._runs.values()):
                return False
            counts = (run.max_buckets, run.max_epochs if run.max_epochs is not None else 1)
            if run.run_id in self._runs or not run.run_key or min(counts) < 1:
                raise ProtocolViolationError(f"no store keeps this run: {run}; this is a bug, please report it")
            self._runs[run.run_id] = _new_run(run, self._clock.now())
            return True

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[MemoryTransaction]:
        """Lock a run; see Store."""
        with self._lock:
            if run_id not in self._runs:
                raise RunNotFoundError(run_id)
            working = self._runs[run_id].copy()
            yield MemoryTransaction(working, self._clock.now())
            self._check_ids(working, [run for known, run in self._runs.items() if known != run_id])
            self._runs[run_id] = working

    def _check_ids(self, working: MemoryRun, others: Sequence[MemoryRun]) -> None:
        """Refuse an attempt's id that another attempt of any run has, ended or not, and a request's of another run."""
        taken = [attempt["attempt_id"] for run in (working, *others) for attempt in run.attempts.values()]
        if len(set(taken)) < len(taken):
            raise SupersededError(run_id=working.run["run_id"], held=None, current=None)
        requests = [request_id for run in (working, *others) for request_id in run.requests]
        refuse_if(len(set(requests)) < len(requests), "a request's id is taken")

    def renew_lease(
        self, run_id: RunId, attempt_id: AttemptId, *, fencing_token: int, lease_ttl_seconds: float
    ) -> bool:
        """Extend a lease; see Store."""
        with self._lock:
            attempt = self._runs[run_id].attempts.get(fencing_token) if run_id in self._runs else None
            if attempt is None or attempt["attempt_id"] != attempt_id or attempt["ended_at"] is not None:
                return False
            attempt["lease_expires_at"] = self._clock.now() + timedelta(seconds=lease_ttl_seconds)
            return True

    def find_run(self, run: str) -> RunRecord | None:
        """Return a run; see History."""
        with self._lock:
            known = [found.run for found in self._runs.values()]
        by_key = [found for found in known if found["run_key"] == run]
        return next((rows.run_record(found) for found in [*by_key, *known] if run in _names(found)), None)

    def list_runs(self) -> tuple[RunRecord, ...]:
        """Return every run; see History."""
        with self._lock:
            found = [rows.run_record(known.run) for known in self._runs.values()]
        found.sort(key=lambda record: record.run_id)
        found.sort(key=lambda record: record.created_at, reverse=True)
        return tuple(found)

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """Return a run's attempts; see History."""
        return self._read(run_id, lambda run: [rows.attempt_record(a) for _, a in sorted(run.attempts.items())])

    def list_epochs(self, run_id: RunId, first_epoch: int = 0) -> tuple[EpochRecord, ...]:
        """Return a run's epochs; see History."""
        return self._read(
            run_id,
            lambda run: [rows.epoch_record(e) for key, e in sorted(run.epochs.items()) if key[0] >= first_epoch],
        )

    def list_operators(self, run_id: RunId) -> tuple[OperatorRecord, ...]:
        """Return a run's operators; see History."""
        return self._read(run_id, lambda run: [rows.operator_record(o) for o in run.operators.values()])

    def list_pins(self, run_id: RunId) -> tuple[PinRecord, ...]:
        """Return a run's pins; see History."""
        return self._read(run_id, lambda run: [rows.pin_record(p) for _, p in sorted(run.pins.items())])

    def list_checkpoints(self, run_id: RunId) -> tuple[CheckpointRecord, ...]:
        """Return a run's checkpoints; see History."""
        return self._read(run_id, lambda run: [rows.checkpoint_record(c) for _, c in sorted(run.checkpoints.items())])

    def find_completed(self, run_id: RunId) -> CheckpointRecord | None:
        """Return a run's completed checkpoint; see History."""
        found = [known for known in self.list_checkpoints(run_id) if known.status is CheckpointStatus.COMPLETED]
        return found[0] if found else None

    def list_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """Return the parts of a run's durable edges; see History."""
        by = itemgetter("epoch", "operator_id", "first_bucket", "fencing_token")
        return self._read(run_id, lambda run: [rows.part_record(p) for p in sorted(run.parts, key=by)])

    def list_live_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """Return the parts that whoever drives a run finds; see History."""
        durable = self._read(run_id, lambda run: [run.run["last_durable_epoch"]])
        return tuple(
            part for part in self.list_parts(run_id) if part.voided_at is None and not 0 <= part.epoch <= durable[0]
        )

    def list_requests(self, run_id: RunId) -> tuple[RequestRecord, ...]:
        """Return which checkpoints persons asked for; see History."""
        by = itemgetter("requested_at", "request_id")
        return self._read(run_id, lambda run: [rows.request_record(r) for r in sorted(run.requests.values(), key=by)])

    def list_notices(self, run_id: RunId, listener_id: str | None = None) -> tuple[NoticeRecord, ...]:
        """Return what listeners have heard; see History."""
        by = itemgetter("epoch", "listener_id")
        found = self._read(run_id, lambda run: [rows.notice_record(n) for n in sorted(run.notices.values(), key=by)])
        return tuple(notice for notice in found if listener_id in (None, notice.listener_id))

    def _read(self, run_id: RunId, shape: Callable[[MemoryRun], list[T]]) -> tuple[T, ...]:
        with self._lock:
            return tuple(shape(self._runs[run_id])) if run_id in self._runs else ()


class MemoryTransaction:
    """One locked run: a copy of its rows that takes their place at the end."""

    def __init__(self, run: MemoryRun, now: datetime) -> None:
        """Work on `run`."""
        self._run = run
        self.attempt_id: AttemptId | None = run.run["attempt_id"]
        self.now = now

    @property
    def revision(self) -> int:
        """See Transaction."""
        return int(self._run.run["revision"])

    def read_state(self) -> RunState:
        """Return the state; see Transaction."""
        run = self._run
        return rows.run_state(
            {
                "run": [run.run],
                "attempt": [run.attempts[max(run.attempts)]] if run.attempts else [],
                "epochs": _epochs(run),
                "checkpoints": _checkpoints(run),
                "edges": _edges(run),
                "finished": _finished(run),
                "requests": _requests(run),
                "notices": [notice for _, notice in sorted(run.notices.items())],  # the last of each listener counts
            }
        )

    def write(self, commands: Sequence[Command], fencing_token: int) -> None:
        """Write commands; see Transaction."""
        for command in commands:
            write_command(self._run, command, fencing_token, self.now)
        if commands:
            if self._run.run["fencing_token"] != fencing_token:
                raise ProtocolViolationError("touch_run touched 0 rows, not 1; this is a bug, please report it")
            self._run.run["revision"] += 1


def _epochs(run: MemoryRun) -> list[rows.Row]:
    return [epoch for _, epoch in sorted(run.epochs.items()) if epoch["status"] in ("OPEN", "ALIGNED")]


def _checkpoints(run: MemoryRun) -> list[rows.Row]:
    return [
        checkpoint
        for _, checkpoint in sorted(run.checkpoints.items())
        if checkpoint["status"] in ("PENDING", "COMPLETED")
    ]


def _edges(run: MemoryRun) -> list[rows.Row]:
    finishing = {operator_id for operator_id, row in run.operators.items() if row["finished_at"] is not None}
    return [
        part
        for part in run.parts
        if part["voided_at"] is None
        and (
            part["epoch"] > run.run["last_durable_epoch"]
            or (part["epoch"] == NO_EPOCH and part["operator_id"] not in finishing)
        )
    ]


def _requests(run: MemoryRun) -> list[rows.Row]:
    answers = [row["checkpoint_id"] for row in run.requests.values()]
    latest = max((answer for answer in answers if answer is not None), default=None)
    return [row for row in run.requests.values() if row["checkpoint_id"] in (None, latest)]


def _finished(run: MemoryRun) -> list[rows.Row]:
    operators = [
        {"what": "operator", "name": operator_id}
        for operator_id, operator in run.operators.items()
        if operator["finished_at"] is not None
    ]
    return [*operators, *({"what": "pin", "name": n, "fingerprint": p["fingerprint"]} for n, p in run.pins.items())]


def _names(run: rows.Row) -> tuple[str, str]:
    return run["run_key"], run["run_id"]


def _new_run(run: NewRun, now: datetime) -> MemoryRun:
    nothing = dict.fromkeys(("terminated_by", "failure", "outputs", "state_digest", "finished_at"))
    return MemoryRun(
        run={
            **dataclasses.asdict(run),
            "definition": as_json(dict(run.definition)),
            "params": as_json(dict(run.params)),
            **nothing,
            "status": "RUNNING",
            "revision": 0,
            "fencing_token": 0,
            "last_durable_epoch": -1,
            "last_checkpoint_id": 0,
            "aborted_through": 0,
            "attempt_id": None,
            "created_at": now,
        },
        operators=operator_rows(run.definition),
    )
