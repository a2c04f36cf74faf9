"""How do Arrow rows get into a staging table that has the target's types?

Through the ADBC driver, which copies record batches in Postgres's binary format, so that no value becomes text on its
way. It fills a temporary table of the rows' own types; from there the server turns them into the target's, and checks
them. The staging table is made and filled in one transaction, of which a crash leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from iteration_lib.errors import SinkTargetError, UsageError
from iteration_lib.sinks.column_type import is_cut, storable_schema, to_storable
from iteration_lib.sinks.postgres_session import (
    NO_PRIVILEGE,
    PUBLICATIONS,
    connection_string,
    listed,
    quoted,
    refused,
    statement,
)
from iteration_lib.sinks.seam import Publication, SinkTransaction

try:
    from adbc_driver_manager import Error as DriverError
    from adbc_driver_postgresql import dbapi
except ImportError as err:
    raise UsageError("PostgresSink needs adbc-driver-postgresql; install iteration-lib[postgres]") from err

if TYPE_CHECKING:
    from iteration_lib.sinks.postgres import PostgresSink

_ROWS = "iteration_rows"
_TEMPORARY = f"pg_temp.{_ROWS}"
_NOT_SENT = "XX000"  # what the driver says by itself has no state; this is Postgres's for "something is wrong inside"
_MESSAGE_NAMES = ("PG_DIAG_MESSAGE_PRIMARY", b"PG_DIAG_MESSAGE_PRIMARY")  # the driver says str and gives bytes


def stage(sink: PostgresSink, transaction: SinkTransaction, publication: Publication) -> tuple[str, ...]:
    """Copy rows into the transaction's staging table, in place of what is there; return the names of its columns."""
    rows = _labelled(sink, transaction, publication)
    columns = tuple(rows.schema.names)
    names = {
        "publications": quoted(sink.schema, PUBLICATIONS),
        "target": quoted(sink.schema, sink.table),
        "staging": quoted(sink.schema, sink.staging_table(transaction)),
        "rows": _TEMPORARY,
        "columns": listed(columns),
    }
    with _opened(sink) as connection, connection.cursor() as cursor:
        _ingest(cursor, rows)
        for name in ("set_time_zone", "lock_tables", "create_publications", "create_target"):
            cursor.execute(statement(name, **names))
        connection.commit()  # and let others create theirs, while this one fills its staging table
        cursor.execute(statement("lock_staging"), [names["staging"]])
        for name in ("drop_staging", "create_staging"):
            cursor.execute(statement(name, **names))
        for other in _other_columns(cursor, sink, rows.schema):
            cursor.execute(statement("drop_column", column=quoted(other), **names))
        cursor.execute(statement("fill_staging", **names))
        connection.commit()
    return columns


def check_target(sink: PostgresSink) -> None:
    """Raise SinkTargetError where the database does not answer, or would refuse this login."""
    with _opened(sink) as connection, connection.cursor() as cursor:
        tables = [quoted(sink.schema, name) for name in (sink.table, PUBLICATIONS)]
        cursor.execute(statement("check_target"), [sink.schema, *tables])
        if not all(cursor.fetchone()):
            raise refused(sink.describe(), NO_PRIVILEGE, "it is closed to this login")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows as they are sent. What reading them raised is in `failures`, since the driver turns it into text."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    failures: list[BaseException] = field(default_factory=list)

    def caught(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        try:
            yield from self.batches
        except BaseException as err:  # whatever it is goes on behind the driver
            self.failures.append(err)
            raise


def _labelled(sink: PostgresSink, transaction: SinkTransaction, publication: Publication) -> _Rows:
    """Return the rows, in types that Postgres has, behind the columns that say of which run and epoch they are."""
    labels = [(sink.run_column, pa.scalar(transaction.run_key)), (sink.epoch_column, pa.scalar(transaction.epoch))]
    added = {name: value for name, value in labels if name is not None}
    twice = added.keys() & set(publication.schema.names)
    if twice:
        problem = f"would get the column {min(twice)!r} twice"
        raise SinkTargetError(sink.describe(), problem, way_out="name another run_column or epoch_column")
    stored = storable_schema(publication.schema, target=sink.describe())
    schema = pa.schema([*((name, value.type) for name, value in added.items()), *stored])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in publication.batches():
            columns = to_storable(batch, stored, target=sink.describe()).columns
            constant = [pa.repeat(value, batch.num_rows) for value in added.values()]
            yield pa.RecordBatch.from_arrays([*constant, *columns], schema=schema)

    return _Rows(schema, batches())


def _ingest(cursor: dbapi.Cursor, rows: _Rows) -> None:
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.caught())
    try:
        cursor.adbc_ingest(_ROWS, reader, mode="create", temporary=True)
    except DriverError:
        if rows.failures:
            raise rows.failures[0] from None  # the driver's error is the same one, told worse
        raise


def _other_columns(cursor: dbapi.Cursor, sink: PostgresSink, sent: pa.Schema) -> list[str]:
    """Return the target's columns that the rows do not have; raises SinkTargetError where the two do not fit."""
    cursor.execute(statement("list_columns"), [quoted(sink.schema, sink.table)])
    types: dict[str, str] = {}
    missing, computed, cut = [], [], []
    for name, type_name, held, is_required, is_computed in cursor.fetchall():
        types[name] = type_name
        if is_required and name not in sent.names:
            missing.append(name)
        if is_computed and name in sent.names:
            computed.append(name)
        if name in sent.names and is_cut(sent.field(name).type, held):
            cut.append(f"{name!r} from {sent.field(name).type} to {type_name}")
    for problem, found in (
        ("has no column", [repr(name) for name in sent.names if name not in types]),
        ("wants a value for its column", map(repr, missing)),
        ("computes its column", [f"{name!r} itself" for name in computed]),
        ("would cut the column", cut),
    ):
        if shown := ", ".join(found):
            raise SinkTargetError(sink.describe(), f"{problem} {shown}", way_out="change the table or the output")
    return [name for name in types if name not in sent.names]


@contextmanager
def _opened(sink: PostgresSink) -> Iterator[dbapi.Connection]:
    """Connect; what was not committed at the end of the block is rolled back. Raises SinkTargetError."""
    try:
        with dbapi.connect(connection_string(sink)) as connection:
            try:
                yield connection
            except DriverError as err:
                if err.sqlstate is None and _answers(connection):
                    raise refused(sink.describe(), _NOT_SENT, _said(err)) from err
                raise
    except DriverError as err:
        raise refused(sink.describe(), err.sqlstate, _said(err)) from err


def _answers(connection: dbapi.Connection) -> bool:
    """Whether the server is there: then an error without a state was the driver's own, and would come again."""
    try:
        connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DriverError:
        return False
    return True


def _said(err: DriverError) -> str:
    said = [value.decode() for name, value in err.details if name in _MESSAGE_NAMES]
    return said[0] if said else str(err)
