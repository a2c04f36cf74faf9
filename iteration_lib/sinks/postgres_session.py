"""How does a Postgres sink talk to its database: in which words, and what do errors mean?

Imported only when a sink is used, because it brings the driver with it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from iteration_lib.errors import SinkTargetError, StoreUnavailableError
from iteration_lib.sinks.seam import SinkTransaction, published_already
from iteration_lib.store.postgres import open_engine
from iteration_lib.store.query import named_statements, sql_folder

if TYPE_CHECKING:
    from iteration_lib.sinks.postgres import PostgresSink

PUBLICATIONS = "iteration_publications"

NO_PRIVILEGE = "42501"
_WAYS_OUT = {
    NO_PRIVILEGE: "grant this login USAGE and CREATE on the schema, INSERT and SELECT on the table and on "
    f"{PUBLICATIONS}, and TEMPORARY on the database",
    "23505": "remove the row that is in the way, from the table or the output",
    "42P01": "bring the table back",
    "3F000": "create the schema",
}
# Connections, resources, the server's end, another transaction's lock: a later try may do.
_PASSING_CLASSES = ("08", "40", "53", "55", "57")
_WAITED_FOR = ("55P03", "57014")  # of these too, but it was the target that others held for too long, or a slow INSERT
_LONGEST_MILLISECONDS = 2**31 - 1
_DEFAULT_PORT = "5432"
_DEFAULTS = {
    "application_name": "iteration_lib",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "30000",  # a server that has vanished does not answer, and the kernel would wait for hours
}
# No database's defaults count, neither its isolation nor its patience.
_OPTIONS = r"-c default_transaction_isolation=read\ committed -c lock_timeout=30s -c statement_timeout=0"
# What the driver sends, whatever the database and the process speak: else a server would take it for other characters.
_ENCODING = "UTF8"


def statement(name: str, **identifiers: str) -> str:
    """Return a statement of sql/sinks.sql with its identifiers, which are quoted already."""
    return _statements()[name].format(**identifiers)


def quoted(*names: str) -> str:
    """Return an identifier, of a table with its schema's before it."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def listed(names: Sequence[str]) -> str:
    """Return identifiers as a list of columns."""
    return ", ".join(map(quoted, names))


def connection_string(sink: PostgresSink) -> str:
    """Return what Postgres's own library connects by, for every driver; raises SinkTargetError."""
    found = _connection_string(sink.address())
    if found is None:
        problem = "has no address such as postgresql://user:password@host/database"
        raise SinkTargetError(sink.describe(), problem, way_out="change its url= (an @ in a password is written %40)")
    return found


def database_of(url: str) -> str:
    """Return in libpq's words which database an address means, whoever logs in; nothing for what is no address."""
    found = psycopg2.extensions.parse_dsn(_connection_string(url) or "")
    if found.get("port") == _DEFAULT_PORT:
        del found["port"]
    host = "host" if "host" in found else "hostaddr"
    return " ".join(f"{name}={found[name]}" for name in ("service", host, "port", "dbname") if name in found)


@contextmanager
def opened(sink: PostgresSink, staging: str) -> Iterator[psycopg2.extensions.cursor]:
    """Connect for one transaction, which is committed at the end of the block; raises SinkTargetError.

    One whose staging table is closed to this login is told with its owner.
    """
    try:
        with closing(psycopg2.connect(connection_string(sink))) as connection:
            try:
                with connection, connection.cursor() as cursor:
                    yield cursor
            except psycopg2.errors.InsufficientPrivilege as err:
                if staging in str(err):
                    raise _closed(connection, sink, staging, err) from err
                raise
    except psycopg2.Error as err:
        raise refused(sink.describe(), err.pgcode, str(err)) from err


def publish(
    cursor: psycopg2.extensions.cursor,
    transaction: SinkTransaction,
    committable: Mapping[str, object],
    *,
    target: str,
    timeout_seconds: float | None,
) -> None:
    """Publish in another one's transaction: raises SinkTargetError, but for what that one has to judge."""
    try:
        insert(cursor, transaction, committable, target=target, timeout_seconds=timeout_seconds)
        cursor.execute(statement("hand_back"))
    except psycopg2.Error as err:
        if _is_passing(err.pgcode) and err.pgcode not in _WAITED_FOR:
            raise
        raise refused(target, err.pgcode, str(err)) from err


def insert(
    cursor: psycopg2.extensions.cursor,
    transaction: SinkTransaction,
    committable: Mapping[str, object],
    *,
    target: str,
    timeout_seconds: float | None = None,
) -> None:
    """Insert prepared rows, unless this transaction was committed; drop their staging table in any case.

    What the table takes no row by is said here, and not by a COMMIT, which may be the store's. Raises SinkTargetError
    where another attempt had this turn.
    """
    schema, table, staging = (str(committable[name]) for name in ("schema", "table", "staging"))
    parameters = {"target": table, "rows": committable["rows"], **asdict(transaction)}
    publications = quoted(schema, PUBLICATIONS).replace("%", "%%")  # beside parameters the driver asks for that
    columns = listed(cast("Sequence[str]", committable["columns"]))
    names = {"target": quoted(schema, table), "staging": quoted(schema, staging)}
    if timeout_seconds is not None:
        milliseconds = str(min(int(timeout_seconds * 1000), _LONGEST_MILLISECONDS))
        cursor.execute(statement("bound_statements"), {"milliseconds": milliseconds})
    cursor.execute(statement("insert_publication", publications=publications), parameters)
    if cursor.fetchone() is not None:
        cursor.execute(statement("defer_constraints"))
        cursor.execute(statement("publish_rows", columns=columns, **names))
    else:
        cursor.execute(statement("find_publication", publications=publications), parameters)
        _check_publisher(cursor.fetchone(), transaction, target)
    drop_staging(cursor, schema, staging)
    cursor.execute(statement("check_constraints"))


def _check_publisher(found: tuple[object, ...] | None, transaction: SinkTransaction, target: str) -> None:
    if found is not None and found[0] != transaction.fencing_token:
        way_out = f"remove its rows from the table, and its row from {PUBLICATIONS}"
        raise published_already(target, transaction, publisher=f"attempt {found[0]}", way_out=way_out)


def drop_staging(cursor: psycopg2.extensions.cursor, schema: str, staging: str) -> None:
    """Drop a staging table, if it is there."""
    cursor.execute(statement("drop_staging", staging=quoted(schema, staging)))


def refused(target: str, sqlstate: str | None, said: str) -> SinkTargetError:
    """Return the error of this project for what the database said; without a state it did not answer."""
    first_line = said.strip().splitlines()[0] if said.strip() else "it did not answer"
    if _is_passing(sqlstate):
        problem = f"cannot be reached ({first_line})"
        return SinkTargetError(target, problem, is_passing=True, way_out="see to its server")
    way_out = _WAYS_OUT.get(str(sqlstate), "change the table or the output")
    return SinkTargetError(target, f"does not take the rows ({first_line})", way_out=way_out)


def _closed(
    connection: psycopg2.extensions.connection, sink: PostgresSink, staging: str, err: psycopg2.Error
) -> SinkTargetError:
    """Return the error of a staging table that an attempt before made, whose login was another one."""
    with connection, connection.cursor() as cursor:
        cursor.execute(statement("find_owner"), {"schema": sink.schema, "staging": staging})
        found = cursor.fetchone()
    if found is None:
        return refused(sink.describe(), err.pgcode, str(err))
    owner, login = found
    problem = f"is closed to the login {login!r}: its staging table {sink.schema}.{staging} belongs to {owner!r}"
    way_out = f"GRANT {quoted(owner)} TO {quoted(login)}, or let both act as one role, as docs/sinks.md says"
    return SinkTargetError(sink.describe(), problem, way_out=way_out)


def _is_passing(sqlstate: str | None) -> bool:
    return sqlstate is None or sqlstate[:2] in _PASSING_CLASSES


def _connection_string(url: str) -> str | None:
    """Return None for what is no address; no error is let through, since it may show the password."""
    try:
        engine = open_engine(url)  # it reads the address as the store's is read, and connects to nothing
        _, parameters = engine.dialect.create_connect_args(engine.url)
        if "@" in str(parameters.get("host")):  # the end of a password, which errors would show as the host
            return None
        given = parameters.pop("options", "")
        told = {**_DEFAULTS, **parameters, "client_encoding": _ENCODING}
        return psycopg2.extensions.make_dsn(**told, options=f"{_OPTIONS} {given}")
    except (StoreUnavailableError, ValueError, psycopg2.Error):
        return None


@functools.cache
def _statements() -> dict[str, str]:
    return named_statements(sql_folder() / "sinks.sql")
