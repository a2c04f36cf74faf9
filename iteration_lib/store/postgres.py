"""How is a run kept in Postgres?

READ COMMITTED, always: the first statement of a transaction locks the run's row, every read comes in a later statement,
and every write names the token that it writes for. A client that freezes cannot hold a run: the server ends its idle
transaction. When a connection is lost at COMMIT the outcome is unknown, and the caller repeats the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from iteration_lib.errors import (
    OutcomeUnknownError,
    RunNotFoundError,
    StoreUnavailableError,
    StoreVersionError,
)
from iteration_lib.protocol.command import Command
from iteration_lib.protocol.state import AttemptId, RunId, RunState
from iteration_lib.store import row as rows
from iteration_lib.store.command_sql import RUN_UPDATES, touch_run, write_command
from iteration_lib.store.migrate import SCHEMA_VERSION, schema_version
from iteration_lib.store.query import queries
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    EpochRecord,
    NewRun,
    OperatorRecord,
    PinRecord,
    RunRecord,
)
from iteration_lib.store.refusal import refusal, unavailable

T = TypeVar("T")

_NO_ADDRESS = "it is no address such as postgresql://user:password@host/database"
_SERVER_OPTIONS = "-c idle_in_transaction_session_timeout=30s -c lock_timeout=30s -c timezone=UTC"


def open_engine(url: str) -> Engine:
    """Return an engine for the store's address; connects to nothing yet. Raises StoreUnavailableError."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError) as err:
        raise StoreUnavailableError(_without_password(url), f"{_NO_ADDRESS}: {err}") from err
    if address.drivername not in ("postgresql", "postgresql+psycopg2"):
        raise StoreUnavailableError(_without_password(url), f"{_NO_ADDRESS}: its scheme is {address.drivername}")
    options = address.query.get("options", "")
    return create_engine(
        address.set(drivername="postgresql+psycopg2"),  # the default is another one since SQLAlchemy 2.1
        isolation_level="READ COMMITTED",
        pool_size=2,
        max_overflow=4,
        connect_args={
            "options": f"{_SERVER_OPTIONS} {options if isinstance(options, str) else ' '.join(options)}",
            "application_name": "iteration_lib",
            "connect_timeout": 10,
            "keepalives_idle": 30,
            "tcp_user_timeout": 30_000,
        },
    )


class PostgresStore:
    """A store in Postgres; implements Store and History."""

    def __init__(self, url: str) -> None:
        """Connect to the store at `url`, such as postgresql://user:password@host/database.

        Raises StoreUnavailableError, or StoreVersionError when its schema is not this version's.
        """
        self._address = _without_password(url)
        self._engine = open_engine(url)
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
        self._engine.dispose()

    def add_run(self, run: NewRun) -> bool:
        """Create a run; see Store."""
        with self._begin() as connection:
            added = connection.execute(
                queries()["insert_run"],
                {
                    "run_id": run.run_id,
                    "run_key": run.run_key,
                    "reference": run.reference,
                    "definition": rows.to_json(run.definition),
                    "params": rows.to_json(run.params),
                    "state_uri": run.state_uri,
                    "max_buckets": run.max_buckets,
                    "max_epochs": run.max_epochs,
                },
            ).rowcount
            if added:
                connection.execute(queries()["insert_operators"], {"run_id": run.run_id, **_operator_columns(run)})
        return added == 1

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[PostgresTransaction]:
        """Lock a run; see Store."""
        with self._begin() as connection:
            yield PostgresTransaction(connection, run_id)

    def renew_lease(
        self, run_id: RunId, attempt_id: AttemptId, *, fencing_token: int, lease_ttl_seconds: float
    ) -> bool:
        """Extend a lease; see Store."""
        with self._begin() as connection:
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
        found = self._read("select_run", rows.run_record, run=run)
        return found[0] if found else None

    def list_runs(self) -> tuple[RunRecord, ...]:
        """Return every run; see History."""
        return self._read("list_runs", rows.run_record)

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """Return a run's attempts; see History."""
        return self._read("list_attempts", rows.attempt_record, run_id=run_id)

    def list_epochs(self, run_id: RunId, first_epoch: int = 0) -> tuple[EpochRecord, ...]:
        """Return a run's epochs; see History."""
        return self._read("list_epochs", rows.epoch_record, run_id=run_id, first_epoch=first_epoch)

    def list_operators(self, run_id: RunId) -> tuple[OperatorRecord, ...]:
        """Return a run's operators; see History."""
        return self._read("list_operators", rows.operator_record, run_id=run_id)

    def list_pins(self, run_id: RunId) -> tuple[PinRecord, ...]:
        """Return a run's pins; see History."""
        return self._read("list_pins", rows.pin_record, run_id=run_id)

    def list_checkpoints(self, run_id: RunId) -> tuple[CheckpointRecord, ...]:
        """Return a run's checkpoints; see History."""
        return self._read("list_checkpoints", rows.checkpoint_record, run_id=run_id)

    def _read(self, name: str, shape: Callable[[rows.Row], T], **parameters: object) -> tuple[T, ...]:
        with self._begin() as connection:
            return tuple(shape(found) for found in _fetch(connection, name, parameters))

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except PoolTimeoutError as err:  # too many at once: nothing was begun
            raise OutcomeUnknownError(f"{self._address}: {err}") from err
        except DBAPIError as err:
            raise refusal(err, address=self._address, schema_version=SCHEMA_VERSION) from err


class PostgresTransaction:
    """One locked run."""

    def __init__(self, connection: Connection, run_id: RunId) -> None:
        """Wait for the run's lock; raises RunNotFoundError."""
        self._connection = connection
        self._run_id = run_id
        found = _fetch(connection, "lock_run", {"run_id": run_id})
        if not found:
            raise RunNotFoundError(run_id)
        self.revision: int = found[0]["revision"]
        self.now: datetime = found[0]["now"]

    def read_state(self) -> RunState:
        """Return the state; see Transaction."""
        names = ("run", "attempt", "epochs", "checkpoints", "finished")
        run, attempt, epochs, checkpoints, finished = (
            _fetch(self._connection, f"select_{name}_state", {"run_id": self._run_id}) for name in names
        )
        return rows.run_state(run[0], attempt[0] if attempt else None, epochs, checkpoints, finished)

    def write(self, commands: Sequence[Command], fencing_token: int) -> None:
        """Write commands; see Transaction."""
        before = self.revision

        def execute(name: str, parameters: Mapping[str, object]) -> int:
            result: CursorResult[Any] = self._connection.execute(
                queries()[name], {"run_id": self._run_id, "fencing_token": fencing_token, **parameters}
            )
            self.revision += 1 if name in RUN_UPDATES else 0
            return result.rowcount

        for command in commands:
            write_command(command, execute)
        if commands and self.revision == before:
            touch_run(execute)


def _fetch(connection: Connection, name: str, parameters: Mapping[str, object]) -> list[rows.Row]:
    return [
        {key: str(value) if key in ("run_id", "attempt_id") else value for key, value in found.items()}
        for found in connection.execute(queries()[name], dict(parameters)).mappings()
    ]


def _operator_columns(run: NewRun) -> dict[str, list[object]]:
    operators: Any = run.definition["operators"]  # Any: JSON that model.definition.describe made
    return {
        "operator_ids": list(operators),
        **{f"{field}s": [operator[field] for operator in operators.values()] for field in ("name", "role", "kind")},
    }


def _without_password(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return "the given address"
