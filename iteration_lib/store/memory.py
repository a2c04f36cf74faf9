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
from typing import Any, TypeVar

from iteration_lib.clock import Clock
from iteration_lib.errors import (
    OriginGoneError,
    ProtocolViolationError,
    RunNotFoundError,
    SupersededError,
    UsageError,
)
from iteration_lib.protocol.command import Command
from iteration_lib.protocol.retention import RetainedCheckpoint
from iteration_lib.protocol.state import NO_EPOCH, AttemptId, CheckpointState, RunId, RunState
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.store import row as rows
from iteration_lib.store.memory_checkpoints import refuse_ends
from iteration_lib.store.memory_epochs import refuse_kept_edges
from iteration_lib.store.memory_rows import MemoryRun, MutableRow, as_json, asked_to, pinned_by, refuse_if
from iteration_lib.store.memory_steps import refuse_half_steps
from iteration_lib.store.memory_write import operator_rows, write_command
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    CommittableRecord,
    EpochRecord,
    FallbackRecord,
    NewRun,
    NoticeRecord,
    OperatorRecord,
    Origin,
    PartRecord,
    PinRecord,
    RequestRecord,
    RunRecord,
    StopRecord,
)
from iteration_lib.store.seam import RunVersion

T = TypeVar("T")


class MemoryStore:
    """A store in memory; implements Store and History."""

    def __init__(self, clock: Clock) -> None:
        """Start empty; `clock` takes the place of the database's."""
        self.url: str | None = None
        self._clock = clock
        self._lock = threading.RLock()
        self._runs: dict[str, MemoryRun] = {}

    def close(self) -> None:
        """Do nothing."""

    def add_run(self, run: NewRun, origin: Origin | None = None) -> bool:
        """Create a run; see Store."""
        with self._lock:
            known = [found.run for found in self._runs.values() if found.run["status"] != "DELETED"]
            taken = [found["run_id"] for found in known if found["run_key"] == run.run_key]
            if taken:
                return taken == [run.run_id]
            if run.run_id in self._runs and self._runs[run.run_id].run["run_key"] == run.run_key:
                return False  # it is deleted
            counts = (run.max_buckets, run.max_epochs if run.max_epochs is not None else 1)
            if run.run_id in self._runs or not run.run_key or min(counts) < 1:
                raise ProtocolViolationError(f"no store keeps this run: {run}; this is a bug, please report it")
            new = _new_run(run, self._clock.now())
            if origin is not None:
                self._branch(new, origin)
            self._runs[run.run_id] = new
            return True

    def _branch(self, new: MemoryRun, origin: Origin) -> None:
        """Let a new run begin behind a checkpoint, which is there, and pin that."""
        refuse_if(origin.epoch < 0, "a checkpoint of no epoch")
        if origin.origin_run_id is not None:
            source = self._runs[origin.origin_run_id]
            found = source.checkpoints.get(origin.origin_checkpoint_id or 0, {})
            meant = (origin.epoch, origin.manifest_sha256)
            is_there = (found.get("epoch"), found.get("manifest_sha256")) == meant
            if not is_there or found["status"] not in ("COMPLETED", "SUBSUMED"):
                gone = f"checkpoint {origin.origin_checkpoint_id} of run {origin.origin_run_id}"
                raise OriginGoneError(f"{gone} is not there")
            source.run["revision"] += 1
        new.run["last_durable_epoch"] = origin.epoch
        new.branch = {
            **dataclasses.asdict(origin),
            "mode": origin.mode.value,
            "run_id": new.run["run_id"],
            "branched_at": self._clock.now(),
            "released_at": None,
        }

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[MemoryTransaction]:
        """Lock a run; see Store."""
        with self._lock:
            if run_id not in self._runs:
                raise RunNotFoundError(run_id)
            working = self._runs[run_id].copy()
            branches = self._branches(run_id)
            yield MemoryTransaction(working, branches, self._clock.now())
            self._check_ids(working, [run for known, run in self._runs.items() if known != run_id])
            refuse_ends(working, self._runs[run_id])
            refuse_kept_edges(working, self._runs[run_id])
            refuse_half_steps(working, self._runs[run_id])
            gone = {known for known, row in working.checkpoints.items() if row["status"] == "DISCARDED"}
            refuse_if(bool(gone & pinned_by(branches)), "a checkpoint is needed by a branch")
            refuse_if(bool(gone & working.checkpoint_pins.keys()), "a checkpoint is pinned by a person")
            self._runs[run_id] = working

    def write(
        self,
        run_id: RunId,
        commands: Sequence[Command],
        fencing_token: int,
        *,
        known: RunVersion,
        is_flushed: bool = True,  # noqa: ARG002 - nothing here is on a disk
    ) -> int | None:
        """Write commands if nothing has changed; see Store."""
        if run_id not in self._runs:
            return None
        with self.transaction(run_id) as transaction:
            if transaction.found != known:
                return None
            transaction.write(commands, fencing_token)
            return transaction.revision

    def _check_ids(self, working: MemoryRun, others: Sequence[MemoryRun]) -> None:
        """Refuse an attempt's id that another attempt of any run has, ended or not, and a request's of another run."""
        taken = [attempt["attempt_id"] for run in (working, *others) for attempt in run.attempts.values()]
        if len(set(taken)) < len(taken):
            raise SupersededError(run_id=working.run["run_id"], held=None, current=None)
        requests = [known for run in (working, *others) for known in (*run.requests, *run.stops)]
        refuse_if(len(set(requests)) < len(requests), "a request's id is taken")

    def _branches(self, run_id: str) -> list[MutableRow]:
        found = [
            {**run.branch, "is_owner": run.run["last_durable_epoch"] > run.branch["epoch"]}
            for run in self._runs.values()
            if run.branch is not None
        ]
        return [branch for branch in found if branch["origin_run_id"] == run_id]

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
            known = [_run_row(found) for found in self._runs.values()]
        by_key = [found for found in known if found["run_key"] == run and found["status"] != "DELETED"]
        by_id = [found for found in known if found["run_id"] == run]
        return next((rows.run_record(found) for found in [*by_key, *by_id]), None)

    def list_runs(self) -> tuple[RunRecord, ...]:
        """Return every run; see History."""
        with self._lock:
            found = [rows.run_record(_run_row(known)) for known in self._runs.values()]
        found.sort(key=lambda record: record.run_id)
        found.sort(key=lambda record: record.created_at, reverse=True)
        return tuple(found)

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """Return a run's attempts; see History."""

        def shape(run: MemoryRun) -> list[AttemptRecord]:
            now = self._clock.now()
            found = [row for _, row in sorted(run.attempts.items())]
            return [rows.attempt_record({**row, "is_lease_over": row["lease_expires_at"] <= now}) for row in found]

        return self._read(run_id, shape)

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

    def list_checkpoints(self, run_id: RunId, ids: Sequence[int] | None = None) -> tuple[CheckpointRecord, ...]:
        """Return a run's checkpoints; see History."""
        with self._lock:
            branches = sorted(self._branches(run_id), key=itemgetter("branched_at", "run_id"))

        def shape(run: MemoryRun) -> list[CheckpointRecord]:
            found = [row for known, row in sorted(run.checkpoints.items()) if ids is None or known in ids]
            return [rows.checkpoint_record({**row, **_needs(run, row, branches)}) for row in found]

        return self._read(run_id, shape)

    def find_completed(self, run_id: RunId) -> CheckpointRecord | None:
        """Return a run's completed checkpoint; see History."""
        found = [known for known in self.list_checkpoints(run_id) if known.status is CheckpointStatus.COMPLETED]
        return found[0] if found else None

    def find_branch(self, run_id: RunId) -> BranchRecord | None:
        """Return which checkpoint a run started from; see History."""
        found = self._read(run_id, lambda run: [rows.branch_record(run.branch)] if run.branch is not None else [])
        return found[0] if found else None

    def list_branches(self, run_id: RunId) -> tuple[BranchRecord, ...]:
        """Return the runs that started from a run's checkpoints; see History."""
        with self._lock:
            found = sorted(self._branches(run_id), key=itemgetter("branched_at", "run_id"))
            return tuple(rows.branch_record(branch) for branch in found)

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

    def list_committables(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """Return what sinks prepared; see History."""
        return self._read(run_id, lambda run: [rows.committable_record(c) for _, c in sorted(run.committables.items())])

    def list_uncommitted(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """Return what may not be committed yet; see History."""
        return tuple(known for known in self.list_committables(run_id) if known.committed_at is None)

    def list_stops(self, run_id: RunId) -> tuple[StopRecord, ...]:
        """Return who asked a run to stop or to drain; see History."""
        by = itemgetter("requested_at", "stop_id")
        return self._read(run_id, lambda run: [rows.stop_record(s) for s in sorted(run.stops.values(), key=by)])

    def list_fallbacks(self, run_id: RunId) -> tuple[FallbackRecord, ...]:
        """Return when a run fell back; see History."""
        return self._read(run_id, lambda run: [rows.fallback_record(f) for _, f in sorted(run.fallbacks.items())])

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

    def __init__(self, run: MemoryRun, branches: Sequence[MutableRow], now: datetime) -> None:
        """Work on `run`, from whose checkpoints `branches` started."""
        self._run = run
        self._branches = branches
        self.found = RunVersion(run.run["revision"], run.run["attempt_id"], run.run["last_checkpoint_id"])
        self.now = now

    @property
    def revision(self) -> int:
        """See Transaction."""
        return int(self._run.run["revision"])

    def read_state(self, *, locks_lease: bool = False) -> RunState:  # noqa: ARG002 - the store's one lock does it
        """Return the state; see Transaction."""
        run = self._run
        branch = run.branch
        origin = {
            "origin_epoch": branch["epoch"] if branch is not None else None,
            "holds_origin": branch is not None and branch["released_at"] is None,
            "pinned": pinned_by(self._branches),
            "pinned_by_hand": run.checkpoint_pins.keys(),
        }
        return rows.run_state(
            {
                "run": [{**run.run, **origin, **_stop(run), "sinks": run.run["definition"].get("sinks", {})}],
                "attempt": [run.attempts[max(run.attempts)]] if run.attempts else [],
                "epochs": _epochs(run),
                "checkpoints": _checkpoints(run),
                "edges": _edges(run),
                "finished": _finished(run),
                "requests": _requests(run),
                "notices": [notice for _, notice in sorted(run.notices.items())],  # the last of each listener counts
                "committables": [row for row in run.committables.values() if row["committed_at"] is None],
            }
        )

    def read_retained(self, metric: str | None) -> tuple[RetainedCheckpoint, ...]:
        """Return the checkpoints that may be discarded; see Transaction."""
        claimed = {
            branch["origin_checkpoint_id"]
            for branch in self._branches
            if branch["mode"] == "CLAIM" and branch["released_at"] is not None and branch["is_owner"]
        }
        return tuple(
            RetainedCheckpoint(
                checkpoint_id=checkpoint_id,
                epoch=row["epoch"],
                metric=self._run.epochs[row["epoch"], row["fencing_token"]]["metrics"].get(metric),
                is_claimed=checkpoint_id in claimed,
            )
            for checkpoint_id, row in sorted(self._run.checkpoints.items())
            if row["status"] in ("COMPLETED", "SUBSUMED")
        )

    def read_checkpoint(self, checkpoint_id: int) -> CheckpointState | None:
        """Return a checkpoint that is there; see Transaction."""
        row = self._run.checkpoints.get(checkpoint_id, {"status": None})
        is_there = row["status"] in ("COMPLETED", "SUBSUMED")
        return rows.one_checkpoint_state([row] if is_there else [])

    def read_published(self, after_epoch: int) -> frozenset[str]:
        """Return the outputs that are published of later epochs; see Transaction."""
        return frozenset(output for epoch, output in self._run.committables if epoch > after_epoch)

    def write(self, commands: Sequence[Command], fencing_token: int) -> None:
        """Write commands; see Transaction."""
        for command in commands:
            write_command(self._run, command, fencing_token, self.now)
        if commands:
            if self._run.run["fencing_token"] != fencing_token:
                raise ProtocolViolationError("touch_run touched 0 rows, not 1; this is a bug, please report it")
            self._run.run["revision"] += 1

    def lend(self, _act: Callable[[Any], None]) -> None:  # Any: as in Transaction
        """Refuse: nobody else has tables here; see Transaction."""
        raise UsageError("a store in memory holds no tables of others; give the sink a url=")


def _run_row(run: MemoryRun) -> rows.Row:
    return {**run.run, "asked_to": asked_to(run)}


def _stop(run: MemoryRun) -> rows.Row:
    """Return the latest request to stop or to drain: they come one after the other."""
    latest = list(run.stops.values())[-1:]
    if not latest:
        return {"stop_id": None}
    stop = latest[0]
    return {"stop_id": stop["stop_id"], "stop_kind": stop["kind"], "is_resumed": stop["resumed_at"] is not None}


def _needs(run: MemoryRun, checkpoint: rows.Row, branches: Sequence[MutableRow]) -> rows.Row:
    """Return what the view `checkpoint_needs` says of a checkpoint."""
    pinning = [
        branch["run_id"]
        for branch in branches
        if branch["origin_checkpoint_id"] == checkpoint["checkpoint_id"] and branch["released_at"] is None
    ]
    status, is_deleted = checkpoint["status"], run.run["status"] == "DELETED"
    by_person = run.checkpoint_pins.get(checkpoint["checkpoint_id"], {}).get("pinned_by")
    is_free = (status == "SUBSUMED" or (status == "COMPLETED" and is_deleted)) and not pinning and by_person is None
    safe_to_delete = status in ("ABORTED", "DISCARDED") or is_free
    return {"by_branches": pinning, "by_person": by_person, "safe_to_delete": safe_to_delete}


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


def _new_run(run: NewRun, now: datetime) -> MemoryRun:
    nothing = dict.fromkeys(("terminated_by", "failure", "outputs", "state_digest", "finished_at"))
    nothing |= dict.fromkeys(("deleted_by", "deleted_at"))
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
