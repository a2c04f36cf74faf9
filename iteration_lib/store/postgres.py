"""How is a run kept in Postgres?

READ COMMITTED, always: the first statement of a transaction locks the run's row, every read comes in a later statement,
and every write names the token that it writes for. A client that freezes cannot hold a run: the server ends its idle
transaction. When a connection is lost at COMMIT the outcome is unknown, and the caller repeats the same call; a read is
repeated here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg2.errors
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from iteration_lib.errors import (
    OutcomeUnknownError,
    ProtocolViolationError,
    RunNotFoundError,
    StoreUnavailableError,
    StoreVersionError,
)
from iteration_lib.protocol.command import Command
from iteration_lib.protocol.retention import RetainedCheckpoint
from iteration_lib.protocol.state import NO_EPOCH, AttemptId, CheckpointState, RunId, RunState
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store import row as rows
from iteration_lib.store.command_sql import RUN_UPDATES, touch_run, write_commands
from iteration_lib.store.dialogue import Dialogue, Dialogues
from iteration_lib.store.migrate import SCHEMA_VERSION, schema_version
from iteration_lib.store.query import queries
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
from iteration_lib.store.refusal import refusal, shown, unavailable
from iteration_lib.store.retry import DELAYS_SECONDS, Sleep, retry
from iteration_lib.store.run_key import is_storable
from iteration_lib.store.seam import RunVersion
from iteration_lib.store.statement import ONE_ROW, Call

T = TypeVar("T")

_NO_ADDRESS = "it is no address such as postgresql://user:password@host/database"
_UUIDS = ("run_id", "attempt_id", "request_id", "stop_id", "origin_run_id")
# A statement's plan is kept while the tables grow: each goes by an index, however small they were, and by its entries,
# which marks those that it finds dead, so that the next one passes over them; a bitmap marks none.
_SERVER_OPTIONS = (
    "-c idle_in_transaction_session_timeout=30s -c lock_timeout=30s -c timezone=UTC -c jit=off"
    " -c enable_seqscan=off -c enable_bitmapscan=off"
)
_READ_COMMITTED = r"-c default_transaction_isolation=read\ committed"  # said last: no address, role or database counts


def open_engine(url: str, *, isolation_level: IsolationLevel = "READ COMMITTED") -> Engine:
    """Return an engine for the store's address; connects to nothing yet. Raises StoreUnavailableError."""
    try:
        url.encode()
        address = make_url(url)
    except (ArgumentError, ValueError) as err:
        raise StoreUnavailableError(_shown(url), f"{_NO_ADDRESS}: {err}") from err
    if address.drivername not in ("postgresql", "postgresql+psycopg2"):
        raise StoreUnavailableError(_shown(url), f"{_NO_ADDRESS}: its scheme is {address.drivername}")
    options = address.query.get("options", "")
    return create_engine(
        address.set(drivername="postgresql+psycopg2"),  # the default is another one since SQLAlchemy 2.1
        isolation_level=isolation_level,
        pool_size=2,
        max_overflow=4,
        pool_reset_on_return=None if isolation_level == "AUTOCOMMIT" else "rollback",  # which leaves nothing to undo
        connect_args={
            "options": " ".join(
                (_SERVER_OPTIONS, *([options] if isinstance(options, str) else options), _READ_COMMITTED)
            ),
            "application_name": "iteration_lib",
            "connect_timeout": 10,
            "keepalives_idle": 30,
            "tcp_user_timeout": 30_000,
        },
    )


class PostgresStore:
    """A store in Postgres; implements Store and History."""

    def __init__(
        self,
        url: str,
        *,
        sleep: Sleep = time.sleep,
        read_delays_seconds: Sequence[float] = DELAYS_SECONDS,
        read_once_if: tuple[type[OutcomeUnknownError], ...] = (),
    ) -> None:
        """Connect to the store at `url`, such as postgresql://user:password@host/database.

        `sleep` waits before a call is tried again, for a read as long as `read_delays_seconds` say, once for each;
        a read that ends with an error of the kinds `read_once_if` is not tried again.
        Raises StoreUnavailableError, or StoreVersionError when its schema is not this version's.
        """
        self.url = url
        self._address = _shown(url)
        self._sleep = sleep
        self._read_delays_seconds = read_delays_seconds
        self._read_once_if = read_once_if
        self._engine = open_engine(url, isolation_level="AUTOCOMMIT")
        self._dialogues = Dialogues(self._engine)
        try:
            with self._engine.connect() as connection:
                found = schema_version(connection)
        except DBAPIError as err:
            self._engine.dispose()
            raise unavailable(err, address=self._address, schema_version=SCHEMA_VERSION) from err
        if found != SCHEMA_VERSION:
            self._engine.dispose()
            raise StoreVersionError(found=found, expected=SCHEMA_VERSION)

    def close(self) -> None:
        """Give back every connection."""
        self._dialogues.release()
        self._engine.dispose()

    def add_run(self, run: NewRun, origin: Origin | None = None) -> bool:
        """Create a run; see Store. Where the connection is lost it is tried again."""
        if retry(lambda: self._add_once(run, origin), f"run_key={run.run_key}", sleep=self._sleep):
            return True
        known = self.find_run(run.run_key) or self.find_run(run.run_id)
        if known is not None and known.run_key != run.run_key:
            raise ProtocolViolationError(f"another run has the id {run.run_id}; this is a bug, please report it")
        return known is not None and known.run_id == run.run_id and known.status is not RunStatus.DELETED

    def _add_once(self, run: NewRun, origin: Origin | None) -> bool:
        call = Call(
            "insert_run",
            {
                "run_id": run.run_id,
                "run_key": run.run_key,
                "reference": run.reference,
                "definition": rows.to_json(run.definition),
                "params": rows.to_json(run.params),
                "state_uri": run.state_uri,
                "max_buckets": run.max_buckets,
                "max_epochs": run.max_epochs,
                "last_durable_epoch": origin.epoch if origin is not None else NO_EPOCH,
            },
        )
        operators = {"run_id": run.run_id, **rows.operator_columns(run.definition)}
        with self._refused(), self._dialogues.begin() as opened:
            if origin is not None and origin.origin_run_id is not None:  # first: whoever discards locks that run first
                opened.fetch(Call("lock_run", {"run_id": origin.origin_run_id}))
            added = opened.fetch(call)
            if added:
                opened.hold([Call("insert_operators", operators)])
            if added and origin is not None and origin.origin_run_id is not None:
                opened.hold([Call("touch_origin", {"run_id": origin.origin_run_id}, ONE_ROW)])
            if added and origin is not None:
                branch = {"run_id": run.run_id, **dataclasses.asdict(origin), "mode": origin.mode.value}
                branch["keeps"] = rows.to_json(origin.keeps)
                branch["carries"] = rows.to_json(origin.carries) if origin.carries is not None else None
                opened.hold([Call("insert_branch", branch, ONE_ROW)])
        return bool(added)

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[PostgresTransaction]:
        """Lock a run; see Store."""
        with self._refused(run_id), self._dialogues.begin() as opened:
            yield PostgresTransaction(opened, run_id)

    def write(
        self,
        run_id: RunId,
        commands: Sequence[Command],
        fencing_token: int,
        *,
        known: RunVersion,
        is_flushed: bool = True,
    ) -> int | None:
        """Write commands if nothing has changed, in one message; see Store."""
        calls = _calls(run_id, commands, fencing_token)
        unchanged = {
            "run_id": run_id,
            "revision": known.revision,
            "attempt_id": known.attempt_id,
            "last_checkpoint_id": known.last_checkpoint_id,
            "is_flushed": is_flushed,
        }
        lock = Call("lock_unchanged_run", unchanged)
        with self._refused(run_id):
            try:
                with self._dialogues.begin() as opened:
                    opened.hold([lock, *calls])
            except DBAPIError as err:
                if isinstance(err.orig, psycopg2.errors.DivisionByZero):  # what that lock says of a run that changed
                    return None
                raise
        return known.revision + _changes(calls)

    def renew_lease(
        self, run_id: RunId, attempt_id: AttemptId, *, fencing_token: int, lease_ttl_seconds: float
    ) -> bool:
        """Extend a lease; see Store."""
        with self._connect() as connection:
            renewed = connection.execute(
                queries()["renew_lease"],
                {
                    "run_id": run_id,
                    "attempt_id": attempt_id,
                    "fencing_token": fencing_token,
                    "lease_ttl_seconds": lease_ttl_seconds,
                },
            ).rowcount
        return renewed == 1

    def find_run(self, run: str) -> RunRecord | None:
        """Return a run; see History."""
        found = self.read("select_run", rows.run_record, run=run) if is_storable(run) else ()
        return found[0] if found else None

    def list_runs(self) -> tuple[RunRecord, ...]:
        """Return every run; see History."""
        return self.read("list_runs", rows.run_record)

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """Return a run's attempts; see History."""
        return self.read("list_attempts", rows.attempt_record, run_id=run_id)

    def list_epochs(self, run_id: RunId, first_epoch: int = 0) -> tuple[EpochRecord, ...]:
        """Return a run's epochs; see History."""
        return self.read("list_epochs", rows.epoch_record, run_id=run_id, first_epoch=first_epoch)

    def list_operators(self, run_id: RunId) -> tuple[OperatorRecord, ...]:
        """Return a run's operators; see History."""
        return self.read("list_operators", rows.operator_record, run_id=run_id)

    def list_pins(self, run_id: RunId) -> tuple[PinRecord, ...]:
        """Return a run's pins; see History."""
        return self.read("list_pins", rows.pin_record, run_id=run_id)

    def list_checkpoints(self, run_id: RunId, ids: Sequence[int] | None = None) -> tuple[CheckpointRecord, ...]:
        """Return a run's checkpoints; see History."""
        chosen = None if ids is None else list(ids)
        return self.read("list_checkpoints", rows.checkpoint_record, run_id=run_id, ids=chosen)

    def find_completed(self, run_id: RunId) -> CheckpointRecord | None:
        """Return a run's completed checkpoint; see History."""
        return next(iter(self.read("select_completed", rows.checkpoint_record, run_id=run_id)), None)

    def find_branch(self, run_id: RunId) -> BranchRecord | None:
        """Return which checkpoint a run started from; see History."""
        return next(iter(self.read("select_branch", rows.branch_record, run_id=run_id)), None)

    def list_branches(self, run_id: RunId) -> tuple[BranchRecord, ...]:
        """Return the runs that started from a run's checkpoints; see History."""
        return self.read("list_branches", rows.branch_record, run_id=run_id)

    def list_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """Return the parts of a run's durable edges; see History."""
        return self.read("list_parts", rows.part_record, run_id=run_id)

    def list_live_parts(self, run_id: RunId) -> tuple[PartRecord, ...]:
        """Return the parts that whoever drives a run finds; see History."""
        return self.read("list_live_parts", rows.part_record, run_id=run_id)

    def list_requests(self, run_id: RunId) -> tuple[RequestRecord, ...]:
        """Return which checkpoints persons asked for; see History."""
        return self.read("list_requests", rows.request_record, run_id=run_id)

    def list_committables(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """Return what sinks prepared; see History."""
        return self.read("list_committables", rows.committable_record, run_id=run_id)

    def list_uncommitted(self, run_id: RunId) -> tuple[CommittableRecord, ...]:
        """Return what may not be committed yet; see History."""
        return self.read("list_uncommitted", rows.committable_record, run_id=run_id)

    def list_stops(self, run_id: RunId) -> tuple[StopRecord, ...]:
        """Return who asked a run to stop or to drain; see History."""
        return self.read("list_stops", rows.stop_record, run_id=run_id)

    def list_fallbacks(self, run_id: RunId) -> tuple[FallbackRecord, ...]:
        """Return when a run fell back; see History."""
        return self.read("list_fallbacks", rows.fallback_record, run_id=run_id)

    def list_notices(self, run_id: RunId, listener_id: str | None = None) -> tuple[NoticeRecord, ...]:
        """Return what listeners have heard; see History."""
        return self.read("list_notices", rows.notice_record, run_id=run_id, listener_id=listener_id)

    def read(self, name: str, shape: Callable[[rows.Row], T], **parameters: object) -> tuple[T, ...]:
        """Return what a named query finds, each row in its shape; tried again when the connection is lost."""

        def read() -> tuple[T, ...]:
            with self._connect() as connection:
                found = connection.execute(queries()[name], parameters).mappings()
                return tuple(shape(row) for row in _rows(dict(row) for row in found))

        return retry(
            read,
            f"query={name}",
            sleep=self._sleep,
            delays_seconds=self._read_delays_seconds,
            but_for=self._read_once_if,
        )

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Lend a connection that commits every statement by itself."""
        self._dialogues.release()  # or a process that writes and reads would have two
        with self._refused(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _refused(self, run_id: str = "") -> Iterator[None]:
        try:
            yield
        except PoolTimeoutError as err:  # too many at once: nothing was begun
            raise OutcomeUnknownError(f"{self._address}: {err}") from err
        except DBAPIError as err:
            raise refusal(err, address=self._address, schema_version=SCHEMA_VERSION, run_id=run_id) from err


class PostgresTransaction:
    """One locked run."""

    def __init__(self, opened: Dialogue, run_id: RunId) -> None:
        """Wait for the run's lock; raises RunNotFoundError."""
        self._dialogue = opened
        self._run_id = run_id
        found = _rows(opened.fetch(Call("lock_run", {"run_id": run_id})))
        if not found:
            raise RunNotFoundError(run_id)
        run = found[0]
        self.found = RunVersion(run["revision"], run["attempt_id"], run["last_checkpoint_id"])
        self.revision = self.found.revision
        self.now: datetime = run["now"]

    def read_state(self, *, locks_lease: bool = False) -> RunState:
        """Return the state; see Transaction."""
        run = {"run_id": self._run_id}
        if locks_lease:
            self._dialogue.hold([Call("lock_lease", {**run, "now": self.now})])
        return rows.run_state(
            {name: _rows(self._dialogue.fetch(Call(f"select_{name}_state", run))) for name in rows.STATE_PARTS}
        )

    def read_retained(self, metric: str | None) -> tuple[RetainedCheckpoint, ...]:
        """Return the checkpoints that may be discarded; see Transaction."""
        call = Call("list_retained", {"run_id": self._run_id, "metric": metric})
        return tuple(rows.retained_checkpoint(row) for row in self._dialogue.fetch(call))

    def read_checkpoint(self, checkpoint_id: int) -> CheckpointState | None:
        """Return a checkpoint that is there; see Transaction."""
        call = Call("select_checkpoint_state", {"run_id": self._run_id, "checkpoint_id": checkpoint_id})
        return rows.one_checkpoint_state(self._dialogue.fetch(call))

    def read_published(self, after_epoch: int) -> frozenset[str]:
        """Return the outputs that are published of later epochs; see Transaction."""
        call = Call("select_published", {"run_id": self._run_id, "after_epoch": after_epoch})
        return frozenset(row["output"] for row in self._dialogue.fetch(call))

    def write(self, commands: Sequence[Command], fencing_token: int) -> None:
        """Write commands; see Transaction."""
        calls = _calls(self._run_id, commands, fencing_token)
        self._dialogue.hold(calls)
        self.revision += _changes(calls)

    def lend(self, act: Callable[[Any], None]) -> None:  # Any: a psycopg2 cursor
        """Let others write; see Transaction."""
        self._dialogue.lend(act)


def _calls(run_id: RunId, commands: Sequence[Command], fencing_token: int) -> list[Call]:
    """Return what writes commands, each of which counts in the run's revision."""
    guard = {"run_id": run_id, "fencing_token": fencing_token}
    calls: list[Call] = []

    def execute(name: str, parameters: Mapping[str, object], touches: str) -> None:
        calls.append(Call(name, {**guard, **parameters}, touches))

    write_commands(commands, execute)
    if commands and not any(call.name in RUN_UPDATES for call in calls):
        touch_run(execute)
    return calls


def _changes(calls: Sequence[Call]) -> int:
    return sum(call.name in RUN_UPDATES for call in calls)


def _rows(found: Iterable[Mapping[str, Any]]) -> list[rows.Row]:  # Any: what columns hold
    return [
        {key: str(value) if key in _UUIDS and value is not None else value for key, value in row.items()}
        for row in found
    ]


def _shown(url: str) -> str:
    try:
        return shown(make_url(url))
    except (ArgumentError, ValueError):
        return "the given address"
