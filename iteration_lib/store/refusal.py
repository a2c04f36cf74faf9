"""What does an error of the database mean to whoever called?

Every error of the driver stops here. Whatever does not say that the database refused counts as a lost connection, of
which the outcome is unknown: the call may be repeated. So may what may pass: a full disk, a server that only reads.
"""

from __future__ import annotations

import psycopg2
import psycopg2.errors
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from iteration_lib.errors import (
    IterationError,
    OriginGoneError,
    OutcomeUnknownError,
    ProtocolViolationError,
    RunLockedError,
    StatementCancelledError,
    StoreUnavailableError,
    StoreUnusableError,
    StoreVersionError,
    SupersededError,
)

_BUG = "this is a bug, please report it"
_MISTAKES = (psycopg2.DataError, psycopg2.ProgrammingError, psycopg2.NotSupportedError)
# The same, by the class of its SQLSTATE: a limit of the server's, such as an index row's, or an error of a function.
_DEFINITE = ("54", "P0")
_DAMAGED = (psycopg2.errors.DataCorrupted, psycopg2.errors.IndexCorrupted)
_PLACE = ("host", "hostaddr", "port")  # of an address, where they stand among its options


def refusal(err: DBAPIError, *, address: str, schema_version: int, run_id: str = "") -> IterationError:
    """Return the error of this project for one of the database, of a connection that was there.

    A claim of an attempt that was opened before, did not hear so and has ended since is known by its id alone.
    """
    cause, said = err.orig, first_line(err)
    found: IterationError = OutcomeUnknownError(f"{address}: {said}")
    if err.connection_invalidated:
        pass
    elif isinstance(cause, psycopg2.errors.UndefinedTable | psycopg2.errors.UndefinedColumn):
        found = StoreVersionError(found=None, expected=schema_version)
    elif isinstance(cause, psycopg2.errors.DuplicateTable | psycopg2.errors.DuplicateFunction):
        found = not_ours(address, said)
    elif isinstance(cause, psycopg2.errors.LockNotAvailable):
        found = RunLockedError(f"{address}: {said}")
    elif isinstance(cause, psycopg2.errors.QueryCanceled):
        found = StatementCancelledError(f"{address}: {said}")
    elif isinstance(cause, psycopg2.errors.InsufficientPrivilege):
        found = StoreUnusableError(address, f"refuses this login: {said}; use one that has the role for it")
    elif isinstance(cause, psycopg2.IntegrityError):
        found = _refused_row(cause, said, run_id=run_id)
    elif isinstance(cause, _DAMAGED):
        found = StoreUnusableError(address, f"is damaged: {said}; restore it from a backup")
    elif isinstance(cause, _MISTAKES) or str(getattr(cause, "pgcode", None))[:2] in _DEFINITE:
        found = ProtocolViolationError(f"the database refused a statement: {said}; {_BUG}")
    return found


def _refused_row(cause: psycopg2.IntegrityError, said: str, *, run_id: str) -> IterationError:
    constraint = cause.diag.constraint_name
    if constraint == "attempts_attempt_id_key":
        return SupersededError(run_id=run_id, held=None, current=None)
    if constraint == "branches_origin_gone":
        return OriginGoneError(said)
    return ProtocolViolationError(f"the database refused an illegal row: {said}; {_BUG}")


def unavailable(err: DBAPIError, *, address: str, schema_version: int) -> IterationError:
    """Return the same for a first connection: where nothing was done yet, no outcome is unknown, and no run is held."""
    found = refusal(err, address=address, schema_version=schema_version)
    if isinstance(found, RunLockedError) or isinstance(err.orig, psycopg2.errors.DeadlockDetected):
        return RunLockedError(f"{address}: {first_line(err)}", held="the store's tables, or upgrades them")
    return StoreUnavailableError(address, first_line(err)) if type(found) is OutcomeUnknownError else found


def not_ours(address: str, problem: str) -> StoreUnusableError:
    """Return the error for a database where others have tables of our names."""
    way_out = "give the store a database or a schema of its own"
    return StoreUnusableError(address, f"is used by others ({problem}); {way_out}")


def shown(address: URL) -> str:
    """Return an address as messages show it: its place without its password, or its options, which may hold another."""
    place = {name: value for name, value in address.query.items() if name in _PLACE}
    return address.set(query=place).render_as_string(hide_password=True)


def first_line(err: DBAPIError) -> str:
    """Return what the database said, in one line."""
    said = str(err.orig).strip()
    return said.splitlines()[0] if said else type(err.orig).__name__
