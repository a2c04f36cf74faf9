"""Which version has the store's schema, and how does it get to this code's version?

A migration is a file sql/migrations/NNNN_name.sql. It never changes after it is merged: its digest is kept beside its
number, and another digest under the same number is an error. All pending migrations run in one transaction, under an
advisory lock, so that two upgrades at once do the work once.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from iteration_lib.errors import StoreVersionError, UsageError
from iteration_lib.store.query import sql_folder
from iteration_lib.store.refusal import not_ours, shown, unavailable

SCHEMA_VERSION = 19  # the greatest number in sql/migrations; a test compares

_FILE_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_OUR_COLUMNS = 2
_LOCK_KEY = 7_270_151_801  # any number that nothing else locks


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    source: str

    @property
    def sha256(self) -> str:
        """The digest of its text."""
        return hashlib.sha256(self.source.encode()).hexdigest()


def migrations() -> tuple[Migration, ...]:
    """Return every migration, by version."""
    found = []
    for path in sorted((sql_folder() / "migrations").iterdir()):
        named = _FILE_NAME.match(path.name)
        if named is not None:
            source = path.read_text(encoding="utf-8")
            found.append(Migration(version=int(named.group(1)), name=named.group(2), source=source))
    return tuple(found)


def schema_version(connection: Connection) -> int | None:
    """Return the store's schema version, None where there are no tables of ours; raises UsageError for others'."""
    if connection.scalar(text("SELECT to_regclass('schema_migrations')")) is None:
        return None
    _check_ours(connection)
    version: int | None = connection.scalar(text("SELECT max(version) FROM schema_migrations"))
    return version


def _check_ours(connection: Connection) -> None:
    """Raise UsageError when the list of migrations is not of our making: other tools have one of this name."""
    found = connection.scalar(
        text(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('schema_migrations') "
            "AND (attname, atttypid) IN (('version', 'integer'::regtype), ('sha256', 'text'::regtype))"
        )
    )
    if found != _OUR_COLUMNS:
        raise not_ours(shown(connection.engine.url), "a table schema_migrations is not ours")


def upgrade(engine: Engine) -> tuple[Migration, ...]:
    """Bring the store to this code's version and grant its roles; return what was applied.

    Raises StoreUnavailableError, RunLockedError when others do not let its tables go, StoreVersionError when the store
    is newer than this code, or UsageError when a migration that was applied is not the one that lies here.
    """
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            applied = _apply(connection, _pending(connection))
            _run_script(connection, (sql_folder() / "roles.sql").read_text(encoding="utf-8"))
            return applied
    except DBAPIError as err:
        raise unavailable(err, address=shown(engine.url), schema_version=SCHEMA_VERSION) from err


def _pending(connection: Connection) -> tuple[Migration, ...]:
    connection.execute(
        text(
            "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT NULL, "
            "sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
    )
    _check_ours(connection)
    known = migrations()
    found = connection.execute(text("SELECT version, sha256 FROM schema_migrations")).all()
    applied = {int(row.version): str(row.sha256) for row in found}
    if applied and max(applied) > SCHEMA_VERSION:
        raise StoreVersionError(found=max(applied), expected=SCHEMA_VERSION)
    for migration in known:
        if applied.get(migration.version, migration.sha256) != migration.sha256:
            raise UsageError(
                f"migration {migration.version:04d}_{migration.name} was applied with another text; a merged "
                "migration never changes: restore the file and add a new one"
            )
    return tuple(migration for migration in known if migration.version not in applied)


def _apply(connection: Connection, pending: tuple[Migration, ...]) -> tuple[Migration, ...]:
    for migration in pending:
        _run_script(connection, migration.source)
        connection.execute(
            text("INSERT INTO schema_migrations (version, name, sha256) VALUES (:version, :name, :sha256)"),
            {"version": migration.version, "name": migration.name, "sha256": migration.sha256},
        )
    return pending


def _run_script(connection: Connection, source: str) -> None:
    """Run SQL text as it is: without parameters, a percent sign is only a percent sign."""
    connection.exec_driver_sql(source, execution_options={"no_parameters": True})
