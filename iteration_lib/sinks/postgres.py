"""How do an output's rows get into a Postgres table, an epoch's all at once, and each epoch's once?

`prepare` copies them into a staging table beside the target, through the target's own types and checks, so that what is
wrong with a value is found out while the epoch can still fail. `commit` is one transaction: a row of the bookkeeping
table `iteration_publications`, whose key is the target, the run, the output and the epoch, takes the turn; whoever gets
it copies the rows over and drops the staging table. A commit that is repeated, late or at the same time, finds the turn
taken and changes nothing, even where the rows have been consumed since; so an unknown outcome needs no care. Where
another attempt had the turn the commit is refused: only a store that was restored from an older copy comes to that.

Nothing can be promised for what only the target as a whole knows: a row whose unique key it has already, or that breaks
a foreign key, fails the commit; the row in the way is to be removed by hand.

Importing this brings no driver along: every Spark worker imports the iteration's module, and this one with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from iteration_lib.errors import SinkTargetError, UsageError
from iteration_lib.sinks.seam import Publication, SinkTransaction

if TYPE_CHECKING:
    import psycopg2.extensions

_LONGEST_NAME_BYTES = 63  # Postgres cuts what is longer, and would take two names for one


@dataclass(frozen=True, slots=True)
class PostgresSink:
    """Publish an output into a table, which is created from the rows where there is none.

    A table that is there has a column for each of the output's, by name; further ones need a default. `run_column` and
    `epoch_column` name columns that get the run's key and the epoch. Without a `url` the table lies in the store's own
    database, and its rows are committed together with the epoch.
    """

    table: str
    schema: str = "public"
    url: str | None = field(default=None, repr=False)  # it may hold a password
    run_column: str | None = None
    epoch_column: str | None = None

    def __post_init__(self) -> None:
        for name in (self.table, self.schema, self.run_column, self.epoch_column):
            if name is not None:
                _check_name(name)
        if "." in self.table:
            raise UsageError(f"{self.table!r} is no name of a table; name its schema with schema=...")
        if self.run_column is not None and self.run_column == self.epoch_column:
            raise UsageError(f"run_column and epoch_column are both {self.run_column!r}; name two columns")

    @property
    def is_in_store(self) -> bool:
        """Whether the table lies in the store's own database: then `publish` is called in the store's transaction."""
        return self.url is None

    def at(self, url: str) -> PostgresSink:
        """Return the same sink with an address: that of the store, for one that was written without."""
        return replace(self, url=url)

    def describe(self) -> str:
        """Return which table it is, of which database, and not who logs in."""
        from iteration_lib.sinks.postgres_session import database_of  # noqa: PLC0415  (see the module's docstring)

        database = database_of(self.url) if self.url is not None else ""
        return f"{self.describe_table()} ({database})" if database else self.describe_table()

    def describe_table(self) -> str:
        """Return which table it is, whatever the database."""
        return f"the Postgres table {self.schema}.{self.table}"

    def check(self) -> None:
        """Look whether the table's database answers and lets this login in; raises SinkTargetError."""
        from iteration_lib.sinks.staging import check_target  # noqa: PLC0415  (see the module's docstring)

        check_target(self)

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        """Copy the rows into a staging table; see Sink."""
        from iteration_lib.sinks.staging import stage  # noqa: PLC0415  (see the module's docstring)

        columns = stage(self, transaction, publication)
        return {
            "schema": self.schema,
            "table": self.table,
            "staging": self.staging_table(transaction),
            "columns": list(columns),
            "rows": publication.rows,
        }

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        """Insert the rows, in a transaction of its own; see Sink."""
        from iteration_lib.sinks.postgres_session import insert, opened  # noqa: PLC0415  (see the module's docstring)

        with opened(self, self.staging_table(transaction)) as cursor:
            insert(cursor, transaction, committable, target=self.describe())

    def publish(
        self,
        cursor: psycopg2.extensions.cursor,
        transaction: SinkTransaction,
        committable: Mapping[str, object],
        *,
        timeout_seconds: float | None = None,
    ) -> None:
        """Insert the rows in the transaction that a psycopg2 cursor is in, at READ COMMITTED, unless they were.

        Raises SinkTargetError where the table does not take them, or not in time, and what psycopg2 raises where no
        answer comes: whose transaction it is knows what that means.
        """
        from iteration_lib.sinks.postgres_session import publish  # noqa: PLC0415  (see the module's docstring)

        publish(cursor, transaction, committable, target=self.describe(), timeout_seconds=timeout_seconds)

    def abort(self, transaction: SinkTransaction) -> None:
        """Drop the staging table; see Sink."""
        from iteration_lib.sinks.postgres_session import drop_staging, opened  # noqa: PLC0415  (see the module's docstring)

        staging = self.staging_table(transaction)
        with opened(self, staging) as cursor:
            drop_staging(cursor, self.schema, staging)

    def staging_table(self, transaction: SinkTransaction) -> str:
        """Return the name of the transaction's staging table, which lies in the target's schema."""
        told = f"{self.table} {transaction.transaction_id}"
        return f"iteration_staging_{hashlib.sha256(told.encode()).hexdigest()[:32]}"

    def address(self) -> str:
        """Return the address; raises SinkTargetError where there is none."""
        if self.url is None:
            problem = "has no address of its own, and nobody has told it the store's"
            raise SinkTargetError(self.describe(), problem, way_out="give it a url=")
        return self.url


def _check_name(name: str) -> None:
    if not name or "\0" in name or len(name.encode()) > _LONGEST_NAME_BYTES:
        raise UsageError(f"{name!r} is no name that Postgres knows; use 1 to {_LONGEST_NAME_BYTES} bytes")
