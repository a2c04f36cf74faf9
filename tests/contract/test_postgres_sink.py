"""What does a Postgres table hold of what was published, and what if the database or its people do not play along?"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, cast

import numpy as np
import psycopg2
import psycopg2.extensions
import pyarrow as pa
import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url

from iteration_lib.errors import SinkTargetError, UsageError
from iteration_lib.sinks import PostgresSink, Publication, SinkTransaction, postgres_session
from iteration_lib.sinks.contract import Row, SinkContract
from iteration_lib.sinks.trial import at_once, publication_of, rows_of, transaction_of
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import dump_schema, save_batches
from tests.cutting_proxy import Cut, CuttingProxy
from tests.failover.driven import wait_until
from tests.fixture.store import NO_SYNC

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

from iteration_lib.sinks import staging  # noqa: E402  (it needs the driver)

_FIRST = transaction_of(0)
_COMMIT = 10  # which message of a commit it is


class TestPostgresSink(SinkContract):
    modules: ClassVar[Sequence[ModuleType]] = (postgres_session, staging)

    @pytest.fixture(autouse=True)
    def _place(self, empty_database: str) -> Iterator[None]:
        self.url = empty_database
        self.engine = create_engine(
            self.url, isolation_level="AUTOCOMMIT", connect_args={"options": "-c lock_timeout=1s"}
        )
        yield
        self.engine.dispose()

    def sink(self, target: str) -> PostgresSink:
        return PostgresSink(target, url=f"{self.url}&{NO_SYNC}", run_column="run", epoch_column="epoch")

    def read(self, target: str) -> Sequence[Row]:
        with self.engine.connect() as connection:
            if connection.scalar(text("SELECT to_regclass(:target)"), {"target": f"public.{target}"}) is None:
                return []
            found = connection.execute(text(f"SELECT * FROM {target} ORDER BY run, epoch, word"))  # noqa: S608 - ours
            return [dict(row) for row in found.mappings()]


@pytest.fixture
def database(empty_database: str) -> Iterator[Connection]:
    engine = create_engine(f"{empty_database}&{NO_SYNC}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
        connection.execute(text("GRANT USAGE ON SCHEMA public TO PUBLIC"))
        yield connection
    engine.dispose()


@pytest.fixture
def url(database: Connection) -> str:
    return database.engine.url.render_as_string(hide_password=False)


@pytest.fixture
def sink(url: str) -> PostgresSink:
    return PostgresSink("scores", url=url)


def publication(folder: Path, **columns: pa.Array) -> Publication:
    batch = pa.RecordBatch.from_pydict(columns)
    location = StateLocation(str(folder))
    file = save_batches(location, "part.parquet", [batch], file_format=FileFormat.PARQUET)
    stream = SavedStream(kind="value", format=FileFormat.PARQUET, schema=dump_schema(batch.schema), files=(file,))
    return Publication(location=location, stream=stream)


def publish(sink: PostgresSink, one: Publication, transaction: SinkTransaction = _FIRST) -> Mapping[str, object]:
    committable = sink.prepare(transaction, one)
    sink.commit(transaction, committable)
    return committable


def read(database: Connection, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.execute(text(query))]


def wait_until_gone(database: Connection, logins: Sequence[str]) -> None:
    """A session that ends drops its temporary table last, which commands on all that a login owns stumble over."""
    query = text("SELECT count(*) FROM pg_stat_activity WHERE usename = ANY(:logins)")
    wait_until(lambda: database.scalar(query, {"logins": list(logins)}) == 0, f"the sessions of {logins} to end")


def tables(database: Connection, schema: str = "public") -> list[str]:
    found = database.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = :schema"), {"schema": schema})
    return sorted(found.scalars())


_DAY, _NOON = dt.date(2026, 11, 22), dt.datetime(2026, 11, 22, 12, 0, 0, 123456)  # noqa: DTZ001 - without a zone on purpose
_BIG = Decimal("-99999999999999999999.99")


@pytest.mark.parametrize(
    ("column", "type_name", "values"),
    [
        (pa.array([True, None]), "boolean", [True, None]),
        (pa.array([-128, None], pa.int8()), "smallint", [-128, None]),
        (pa.array([-(2**63), 2**63 - 1]), "bigint", [-(2**63), 2**63 - 1]),
        (pa.array([2**32 - 1], pa.uint32()), "bigint", [2**32 - 1]),
        (pa.array([2**64 - 1, None], pa.uint64()), "numeric", [Decimal(2**64 - 1), None]),
        (pa.array([0.1, -0.0, float("inf"), None]), "double precision", [0.1, -0.0, float("inf"), None]),
        (pa.array([1.5], pa.float32()), "real", [1.5]),
        (pa.array(np.array([1.5], np.float16)), "real", [1.5]),
        (pa.array(["", "ü\t\\N'\"", None]), "text", ["", "ü\t\\N'\"", None]),
        (pa.array(["a"]).dictionary_encode(), "text", ["a"]),
        (pa.array([7, None]).dictionary_encode(), "bigint", [7, None]),
        (pa.array([Decimal("1.5")], pa.decimal32(5, 2)), "numeric", [Decimal("1.5")]),
        (pa.array([Decimal("1.5")], pa.decimal64(12, 2)), "numeric", [Decimal("1.5")]),
        (pa.array([b"\x00\xff", None]), "bytea", [b"\x00\xff", None]),
        (pa.array([b"ab"], pa.binary(2)), "bytea", [b"ab"]),
        (pa.array([_DAY, None]), "date", [_DAY, None]),
        (pa.array([_DAY], pa.date64()), "date", [_DAY]),
        (pa.array([_NOON, None], pa.timestamp("us")), "timestamp without time zone", [_NOON, None]),
        (pa.array([_NOON], pa.timestamp("ns")), "timestamp without time zone", [_NOON]),
        (pa.array([_NOON], pa.timestamp("us", "UTC")), "timestamp with time zone", [_NOON.replace(tzinfo=dt.UTC)]),
        (pa.array([dt.timedelta(days=-1)], pa.duration("ns")), "interval", [dt.timedelta(days=-1)]),
        (pa.array([dt.time(23, 59)], pa.time64("ns")), "time without time zone", [dt.time(23, 59)]),
        (pa.array([_BIG], pa.decimal128(38, 2)), "numeric", [_BIG]),
        (pa.array([[1.5, None], None, []], pa.list_(pa.float64())), "double precision[]", [[1.5, None], None, []]),
        (pa.array([[1.5, 2.5]], pa.list_(pa.float64(), 2)), "double precision[]", [[1.5, 2.5]]),
        (pa.array([["a,", '"']], pa.large_list(pa.string())), "text[]", [["a,", '"']]),
        (pa.array([[2**64 - 1]], pa.list_(pa.uint64())), "numeric[]", [[Decimal(2**64 - 1)]]),
        (pa.array([[_NOON]], pa.list_(pa.timestamp("ns"))), "timestamp without time zone[]", [[_NOON]]),
        (pa.nulls(2), "text", [None, None]),
    ],
    ids=lambda found: str(found.type) if isinstance(found, pa.Array) else "",
)
def test_value_arrives_exactly(
    sink: PostgresSink, database: Connection, tmp_path: Path, column: pa.Array, type_name: str, values: list[object]
) -> None:
    count = len(column)

    publish(sink, publication(tmp_path, number=pa.array(range(count)), x=column))

    found = read(database, "SELECT pg_typeof(x)::text, x FROM scores ORDER BY number")
    assert [(type_name, value) for value in values] == [
        (name, bytes(value) if isinstance(value, memoryview) else value) for name, value in found
    ]


def test_nan_arrives_as_nan(sink: PostgresSink, database: Connection, tmp_path: Path) -> None:
    publish(sink, publication(tmp_path, x=pa.array([float("nan"), None])))

    assert [(1, 1)] == read(database, "SELECT count(*) FILTER (WHERE x = 'NaN'), count(*) - count(x) FROM scores")


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([{"a": 1}]), "has no type for the column 'x', which is struct<a: int64>"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "has no type for the column 'x', which is map"),
        (pa.array([[[1]]]), "has no type for the column 'x', which is list<"),
        (pa.array([1], pa.timestamp("ns")), "cannot hold a value of the column 'x'"),
        (pa.array(["a\0b"]), "does not take the rows .invalid byte sequence"),
    ],
    ids=lambda found: str(found.type) if isinstance(found, pa.Array) else "",
)
def test_value_that_would_arrive_as_another_is_refused_by_prepare(
    sink: PostgresSink, database: Connection, tmp_path: Path, column: pa.Array, problem: str
) -> None:
    with pytest.raises(SinkTargetError, match=rf"^the Postgres table public.scores \(.*\) {problem}"):
        sink.prepare(_FIRST, publication(tmp_path, x=column))

    assert [] == tables(database)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({}, "an output without columns"),
        ({"": 1}, "cannot name a column ''"),
        ({"ü" * 32: 1}, "cannot name a column 'ü"),
    ],
)
def test_output_whose_columns_have_no_name_there_is_refused(
    sink: PostgresSink, tmp_path: Path, columns: dict[str, int], problem: str
) -> None:
    arrays = {name: pa.array([value]) for name, value in columns.items()}

    with pytest.raises(SinkTargetError, match=problem):
        sink.prepare(_FIRST, publication(tmp_path, **arrays))


def test_table_that_is_there_gets_its_columns_by_name_and_its_own_defaults(
    sink: PostgresSink, database: Connection, tmp_path: Path
) -> None:
    database.execute(
        text("CREATE TABLE scores (id int GENERATED ALWAYS AS IDENTITY, b text, by text NOT NULL DEFAULT 'me', a int)")
    )

    publish(sink, publication(tmp_path, a=pa.array([1, 2]), b=pa.array(["x", "y"])))

    assert [(1, "x", "me", 1), (2, "y", "me", 2)] == read(database, "SELECT id, b, by, a FROM scores ORDER BY a")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("(b int)", "has no column 'a'; change"),
        ("(a int, b int NOT NULL, c int)", "wants a value for its column 'b'; change"),
        ("(a boolean)", 'does not take the rows .column "a" is of type boolean'),
        ("(a smallint)", "does not take the rows .smallint out of range"),
        ("(a int CHECK (a < 0))", "does not take the rows .new row for relation"),
        ("(a int NOT NULL)", 'does not take the rows .null value in column "a"'),
    ],
)
def test_table_that_does_not_fit_is_refused_by_prepare(
    sink: PostgresSink, database: Connection, tmp_path: Path, table: str, problem: str
) -> None:
    database.execute(text(f"CREATE TABLE scores {table}"))

    with pytest.raises(SinkTargetError, match=problem):
        sink.prepare(_FIRST, publication(tmp_path, a=pa.array([100_000, None])))

    assert ["iteration_publications", "scores"] == tables(database)


def test_row_that_the_table_has_already_fails_the_commit_until_it_is_removed(
    sink: PostgresSink, database: Connection, tmp_path: Path
) -> None:
    database.execute(text("CREATE TABLE scores (a int PRIMARY KEY)"))
    database.execute(text("INSERT INTO scores VALUES (2)"))
    committable = sink.prepare(_FIRST, publication(tmp_path, a=pa.array([1, 2])))

    with pytest.raises(SinkTargetError, match=r"duplicate key .* remove the row that is in the way"):
        sink.commit(_FIRST, committable)
    seen = read(database, "SELECT a FROM scores")
    database.execute(text("DELETE FROM scores"))
    sink.commit(_FIRST, committable)

    assert [(2,)] == seen
    assert [(1,), (2,)] == read(database, "SELECT a FROM scores ORDER BY a")


@pytest.mark.parametrize("key", ["PRIMARY KEY (a)", "UNIQUE (a) DEFERRABLE INITIALLY DEFERRED", "EXCLUDE (a WITH =)"])
def test_row_that_the_output_has_twice_is_refused_by_prepare(
    sink: PostgresSink, database: Connection, tmp_path: Path, key: str
) -> None:
    """In the commit there would be no row in the way that anybody could remove."""
    database.execute(text(f"CREATE TABLE scores (id serial UNIQUE, a int, {key})"))

    with pytest.raises(SinkTargetError, match=r"duplicate key|conflicting key"):
        sink.prepare(_FIRST, publication(tmp_path, a=pa.array([1, 1])))
    publish(sink, publication(tmp_path / "other", a=pa.array([1, 2])))

    assert [(1,), (2,)] == read(database, "SELECT a FROM scores ORDER BY a")


def test_rows_that_a_consumer_took_away_do_not_come_back(sink: PostgresSink, database: Connection) -> None:
    committable = publish(sink, publication_of(0))
    database.execute(text("DELETE FROM scores"))

    sink.commit(_FIRST, committable)

    assert [] == read(database, "SELECT * FROM scores")


def test_what_another_attempt_published_is_not_passed_for_ones_own(sink: PostgresSink, database: Connection) -> None:
    """The store was restored from an older copy, and another attempt made the epoch durable once more."""
    publish(sink, publication_of(9))
    other = transaction_of(0, token=2)
    committable = sink.prepare(other, publication_of(0))

    with pytest.raises(
        SinkTargetError, match=r"published by attempt 1, .* remove its rows from the table, and its row"
    ):
        sink.commit(other, committable)
    seen = read(database, "SELECT DISTINCT pass_number FROM scores")
    database.execute(text("DELETE FROM scores"))
    database.execute(text("DELETE FROM iteration_publications"))
    sink.commit(other, committable)

    assert ([(9,)], [(0,)]) == (seen, read(database, "SELECT DISTINCT pass_number FROM scores"))
    assert ["iteration_publications", "scores"] == tables(database)


def test_outputs_and_epochs_of_one_table_are_told_apart(url: str, database: Connection, tmp_path: Path) -> None:
    sink = PostgresSink("metrics", url=url, run_column="run", epoch_column="epoch")
    for output, epoch in (("loss", 0), ("loss", 1), ("size", 1)):
        transaction = SinkTransaction(**{**_fields(_FIRST), "output": output, "epoch": epoch})
        publish(sink, publication(tmp_path / output / str(epoch), name=pa.array([output])), transaction)

    assert [("run-0", 0, "loss"), ("run-0", 1, "loss"), ("run-0", 1, "size")] == read(
        database, "SELECT run, epoch, name FROM metrics ORDER BY epoch, name"
    )


def test_two_tables_may_be_given_the_same_output(url: str, database: Connection) -> None:
    sinks = [PostgresSink(table, url=url) for table in ("scores", "copies")]
    committables = [sink.prepare(_FIRST, publication_of(0)) for sink in sinks]

    for sink, committable in zip(sinks, committables, strict=True):
        sink.commit(_FIRST, committable)

    assert [(6, 6)] == read(database, "SELECT (SELECT count(*) FROM scores), (SELECT count(*) FROM copies)")


def test_column_that_would_be_there_twice_is_refused(url: str, tmp_path: Path) -> None:
    sink = PostgresSink("metrics", url=url, epoch_column="epoch")

    with pytest.raises(SinkTargetError, match="would get the column 'epoch' twice; name another"):
        sink.prepare(_FIRST, publication(tmp_path, epoch=pa.array([1])))


def test_names_are_names_whatever_they_look_like(url: str, database: Connection, tmp_path: Path) -> None:
    schema, table, column = 'ü %s {x}"', '"; DROP TABLE x; --', "a\"b' %(x)s"
    database.execute(text('CREATE SCHEMA "ü %s {x}"""'))
    sink = PostgresSink(table, schema=schema, url=url, run_column="of %s")
    sink.check()

    committable = publish(sink, publication(tmp_path, **{column: pa.array([1])}))
    sink.commit(_FIRST, committable)

    assert ['"; DROP TABLE x; --', "iteration_publications"] == tables(database, schema)
    found = database.exec_driver_sql('SELECT * FROM "ü %%s {x}"""."""; DROP TABLE x; --"')
    assert ["of %s", column] == list(found.keys())
    assert [("run-0", 1)] == [tuple(row) for row in found]


@pytest.mark.parametrize("name", ["", "a\0b", "ü" * 32, "metrics.loss"])
def test_name_that_no_table_has_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no name"):
        PostgresSink(name)


def test_run_and_epoch_that_would_share_a_column_are_refused() -> None:
    with pytest.raises(UsageError, match="are both 'at'; name two columns"):
        PostgresSink("scores", run_column="at", epoch_column="at")


def test_nothing_is_left_beside_the_table_after_commit_and_abort(sink: PostgresSink, database: Connection) -> None:
    aborted = transaction_of(1)
    sink.prepare(aborted, publication_of(1))

    publish(sink, publication_of(0))
    before = tables(database)
    sink.abort(aborted)

    assert ["iteration_publications", sink.staging_table(aborted), "scores"] == before
    assert ["iteration_publications", "scores"] == tables(database)


def test_prepared_rows_that_are_gone_fail_the_commit_and_leave_the_turn_free(
    sink: PostgresSink, database: Connection
) -> None:
    committable = sink.prepare(_FIRST, publication_of(0))
    sink.abort(_FIRST)

    with pytest.raises(SinkTargetError, match=r"does not exist\); bring the table back"):
        sink.commit(_FIRST, committable)
    publish(sink, publication_of(0))

    assert [(6,)] == read(database, "SELECT count(*) FROM scores")


def test_login_without_privileges_is_told_what_to_grant(sink: PostgresSink, url: str, database: Connection) -> None:
    database.execute(text("DROP ROLE IF EXISTS stranger"))
    database.execute(text("CREATE ROLE stranger LOGIN PASSWORD 'stranger'"))
    address = make_url(url).set(username="stranger", password="stranger").render_as_string(hide_password=False)
    stranger = sink.at(address)

    for call in (stranger.check, lambda: stranger.prepare(_FIRST, publication_of(0))):
        with pytest.raises(SinkTargetError, match="grant this login USAGE and CREATE on the schema"):
            call()
    database.execute(text("GRANT CREATE ON SCHEMA public TO stranger"))
    stranger.check()
    publish(stranger, publication_of(0))

    assert [(6,)] == read(database, "SELECT count(*) FROM scores")
    wait_until_gone(database, ("stranger",))
    database.execute(text("DROP OWNED BY stranger"))
    database.execute(text("DROP ROLE stranger"))


def test_login_that_may_not_insert_is_found_out_before_the_first_epoch(
    sink: PostgresSink, url: str, database: Connection
) -> None:
    database.execute(text("CREATE TABLE scores (a int)"))
    database.execute(text("DROP ROLE IF EXISTS reader"))
    database.execute(text("CREATE ROLE reader LOGIN PASSWORD 'reader'"))
    database.execute(text("GRANT CREATE ON SCHEMA public TO reader"))
    database.execute(text("GRANT SELECT ON scores TO reader"))
    address = make_url(url).set(username="reader", password="reader").render_as_string(hide_password=False)

    with pytest.raises(SinkTargetError, match=r"closed to this login.*INSERT and SELECT"):
        sink.at(address).check()

    database.execute(text("DROP OWNED BY reader"))
    database.execute(text("DROP ROLE reader"))


@pytest.fixture
def leases(url: str, database: Connection) -> Iterator[list[PostgresSink]]:
    """The same sink as two logins reach it, of which each may do what the docs ask for."""
    names, sinks = ("lease-1", "lease-2"), []
    database.execute(text("CREATE TABLE scores (pass_number bigint, word text, weight float)"))
    publish(PostgresSink("scores", url=url), publication_of(9), transaction_of(9))
    database.execute(text("DELETE FROM scores"))
    database.execute(text("CREATE ROLE trainers"))
    for name in names:
        database.execute(text(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'lease'"))
        database.execute(text(f'GRANT CREATE ON SCHEMA public TO "{name}", trainers'))
        database.execute(text(f'GRANT SELECT, INSERT ON scores, iteration_publications TO "{name}", trainers'))
        address = make_url(url).set(username=name, password="lease").render_as_string(hide_password=False)
        sinks.append(PostgresSink("scores", url=address))
        sinks[-1].check()
    yield sinks
    wait_until_gone(database, names)
    for name in (*names, "trainers"):
        database.execute(text(f'DROP OWNED BY "{name}"'))
        database.execute(text(f'DROP ROLE "{name}"'))


@pytest.mark.parametrize("does_commit", [True, False], ids=["commit", "abort"])
def test_staging_table_of_another_login_is_named_with_its_owner_and_the_grant_that_lets_the_run_go_on(
    leases: list[PostgresSink], database: Connection, *, does_commit: bool
) -> None:
    """Credentials that make a new role per lease: an attempt prepares and dies, the next one logs in as another."""
    former, present = leases
    committable = former.prepare(_FIRST, publication_of(0))

    def go_on() -> None:
        if does_commit:
            present.commit(_FIRST, committable)
        else:
            present.abort(_FIRST)

    with pytest.raises(SinkTargetError, match=r"closed to the login 'lease-2'.* belongs to 'lease-1'") as caught:
        go_on()
    assert f"public.{former.staging_table(_FIRST)}" in str(caught.value)
    assert not caught.value.is_passing
    (grant,) = re.findall(r"GRANT .+ TO \S+(?=,)", str(caught.value))
    database.execute(text(grant))
    go_on()

    assert [(6 if does_commit else 0,)] == read(database, "SELECT count(*) FROM scores")
    assert ["iteration_publications", "scores"] == tables(database)


@pytest.mark.parametrize("is_told_by_the_address", [True, False], ids=["address", "role"])
def test_logins_that_act_as_one_role_take_over_from_each_other(
    leases: list[PostgresSink], database: Connection, *, is_told_by_the_address: bool
) -> None:
    """What one has prepared before that is given to the role. As docs/sinks.md says."""
    committable = leases[0].prepare(_FIRST, publication_of(0))
    wait_until_gone(database, ("lease-1",))
    database.execute(text('REASSIGN OWNED BY "lease-1" TO trainers'))
    for name in ("lease-1", "lease-2"):
        database.execute(text(f'GRANT trainers TO "{name}"'))
        if not is_told_by_the_address:
            database.execute(text(f"ALTER ROLE \"{name}\" SET role = 'trainers'"))
    if is_told_by_the_address:
        addresses = [make_url(sink.address()).update_query_dict({"options": "-c role=trainers"}) for sink in leases]
        leases = [PostgresSink("scores", url=one.render_as_string(hide_password=False)) for one in addresses]
    former, present = leases
    aborted = transaction_of(1)

    former.prepare(aborted, publication_of(1))
    present.commit(_FIRST, committable)
    present.abort(aborted)

    assert [(6,)] == read(database, "SELECT count(*) FROM scores")
    assert ["iteration_publications", "scores"] == tables(database)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("message", range(1, _COMMIT + 1))
def test_connection_that_is_lost_in_a_commit_needs_but_another_commit(
    url: str, database: Connection, cut: Cut, message: int
) -> None:
    """Three of them log in; then BEGIN, the turn, checks deferred, the rows, the staging table, the checks, COMMIT."""
    committable = PostgresSink("scores", url=url).prepare(_FIRST, publication_of(0))

    with CuttingProxy(url, message=message, cut=cut) as proxy:
        proxy.arm()
        with pytest.raises(SinkTargetError, match="cannot be reached") as caught:
            PostgresSink("scores", url=proxy.url).commit(_FIRST, committable)
        if (message, cut) == (_COMMIT, Cut.AFTER_DELIVERY):
            wait_until(lambda: [(len(rows_of(0)),)] == read(database, "SELECT count(*) FROM scores"), "the COMMIT")
        else:
            assert [(0,)] == read(database, "SELECT count(*) FROM scores")
        PostgresSink("scores", url=proxy.url).commit(_FIRST, committable)

    assert caught.value.is_passing
    assert [(len(rows_of(0)),)] == read(database, "SELECT count(*) FROM scores")


def test_rows_may_be_published_in_another_ones_transaction(sink: PostgresSink, url: str, database: Connection) -> None:
    """That is how a table in the store's own database is committed together with the epoch."""
    in_store = PostgresSink("scores")
    committable = in_store.at(url).prepare(_FIRST, publication_of(0))
    engine = create_engine(url, isolation_level="READ COMMITTED")
    seen = []

    for ends in ("rollback", "commit"):
        connection = engine.raw_connection()
        in_store.publish(cast("psycopg2.extensions.cursor", connection.cursor()), _FIRST, committable)
        seen.append(read(database, "SELECT count(*) FROM scores"))
        getattr(connection, ends)()
        seen.append(read(database, "SELECT count(*) FROM scores"))
        connection.close()
    engine.dispose()

    assert in_store.is_in_store
    assert not sink.is_in_store
    assert [[(0,)], [(0,)], [(0,)], [(6,)]] == seen


def test_transaction_may_publish_several_epochs_though_the_table_checks_late(
    sink: PostgresSink, url: str, database: Connection, tmp_path: Path
) -> None:
    """A trigger notes each row before it is there; the note's foreign key waits for it."""
    database.execute(text("CREATE TABLE scores (a int PRIMARY KEY)"))
    database.execute(text("CREATE TABLE notes (a int REFERENCES scores DEFERRABLE INITIALLY DEFERRED)"))
    note = "BEGIN INSERT INTO notes VALUES (NEW.a); RETURN NEW; END"
    database.execute(text(f"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS '{note}'"))
    database.execute(text("CREATE TRIGGER note BEFORE INSERT ON scores FOR EACH ROW EXECUTE FUNCTION note()"))
    epochs = [transaction_of(epoch) for epoch in range(2)]
    prepared = [sink.prepare(e, publication(tmp_path / str(e.epoch), a=pa.array([e.epoch]))) for e in epochs]
    engine = create_engine(url)

    with closing(engine.raw_connection()) as connection:
        for transaction, committable in zip(epochs, prepared, strict=True):
            sink.publish(cast("psycopg2.extensions.cursor", connection.cursor()), transaction, committable)
        connection.commit()
    engine.dispose()

    assert [(0, 0), (1, 1)] == read(database, "SELECT scores.a, notes.a FROM scores JOIN notes USING (a) ORDER BY 1")


def test_transaction_that_rows_are_published_in_is_handed_back_as_the_store_begins_it(
    sink: PostgresSink, url: str, database: Connection
) -> None:
    """Its own statements take their own time, and what it defers is checked at its COMMIT."""
    database.execute(text("CREATE TABLE parents (a int PRIMARY KEY)"))
    database.execute(text("CREATE TABLE children (a int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"))
    committable = sink.prepare(_FIRST, publication_of(0))
    engine = create_engine(url, connect_args={"options": "-c statement_timeout=7s"})

    with closing(engine.raw_connection()) as connection:
        cursor = cast("psycopg2.extensions.cursor", connection.cursor())
        sink.publish(cursor, _FIRST, committable, timeout_seconds=5)
        cursor.execute("SHOW statement_timeout")
        timeout = cursor.fetchone()
        cursor.execute("INSERT INTO children VALUES (1)")
        cursor.execute("INSERT INTO parents VALUES (1)")
        connection.commit()
    engine.dispose()

    assert ("7s",) == timeout
    assert [(1,)] == read(database, "SELECT a FROM children JOIN parents USING (a)")


@pytest.mark.parametrize("when", ["", "DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_table_that_does_not_take_the_rows_is_named_in_another_ones_transaction_too(
    sink: PostgresSink, url: str, database: Connection, tmp_path: Path, when: str
) -> None:
    """Also where it would say so at the COMMIT alone, which knows nothing of tables of sinks."""
    database.execute(text(f"CREATE TABLE scores (a int PRIMARY KEY {when})"))
    database.execute(text("INSERT INTO scores VALUES (1)"))
    committable = sink.prepare(_FIRST, publication(tmp_path, a=pa.array([1])))
    engine = create_engine(url)

    connection = engine.raw_connection()
    cursor = cast("psycopg2.extensions.cursor", connection.cursor())
    with pytest.raises(SinkTargetError, match="duplicate key") as caught:
        sink.publish(cursor, _FIRST, committable)
    connection.close()
    engine.dispose()

    assert not caught.value.is_passing


def test_connection_that_is_lost_in_another_ones_transaction_is_for_that_one_to_judge(
    sink: PostgresSink, url: str, database: Connection
) -> None:
    committable = sink.prepare(_FIRST, publication_of(0))
    engine = create_engine(url)
    connection = engine.raw_connection()
    cursor = cast("psycopg2.extensions.cursor", connection.cursor())
    cursor.execute("SELECT pg_backend_pid()")
    database.execute(
        text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": cast("tuple[int]", cursor.fetchone())[0]}
    )

    with pytest.raises(psycopg2.OperationalError):
        sink.publish(cursor, _FIRST, committable)
    connection.invalidate()
    engine.dispose()


def test_defaults_of_the_database_do_not_count(sink: PostgresSink, database: Connection, tmp_path: Path) -> None:
    """A commit that waits for another one of the same transaction would fail at any other isolation, or out of time."""
    name = database.scalar(text("SELECT current_database()"))
    database.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"))
    database.execute(text(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'"))
    database.execute(text(f"ALTER DATABASE {name} SET statement_timeout = '1ms'"))
    database.execute(text("CREATE TABLE scores (at timestamptz)"))

    committable = sink.prepare(_FIRST, publication(tmp_path, at=pa.array([_NOON])))
    at_once([lambda: sink.commit(_FIRST, committable)] * 4)

    assert [(_NOON.replace(tzinfo=dt.UTC),)] == read(database, "SELECT at FROM scores")
    database.execute(text(f"ALTER DATABASE {name} RESET ALL"))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (None, ""),
        ("no address", ""),
        ("postgresql://me:secret@db.example/metrics", " (host=db.example dbname=metrics)"),
        ("postgresql+psycopg2://you@db.example:5432/metrics", " (host=db.example dbname=metrics)"),
        ("postgresql://me@db.example:5433/metrics", " (host=db.example port=5433 dbname=metrics)"),
        ("postgresql://me@db.example/metrics?hostaddr=10.0.0.1", " (host=db.example dbname=metrics)"),
        ("postgresql://me:sec/ret@/metrics?hostaddr=10.0.0.1", " (hostaddr=10.0.0.1 dbname=metrics)"),
        ("postgresql://?service=metrics", " (service=metrics)"),
    ],
)
def test_table_is_told_with_its_database_whoever_logs_in(address: str | None, told: str) -> None:
    assert f"the Postgres table public.scores{told}" == PostgresSink("scores", url=address).describe()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("postgresql://me:secret@/db?host=/nowhere", r"cannot be reached .*; see to its server"),
        ("mysql://me:secret@host/db", "has no address such as"),
        ("postgresql://me:secret@host:port/db", "has no address such as"),
        ("postgresql://me:secret@/db?nonsense=1", "has no address such as"),
        (None, "has no address of its own.*; give it a url="),
    ],
)
def test_address_that_leads_nowhere_is_refused_without_its_password(address: str | None, problem: str) -> None:
    sink = PostgresSink("scores", url=address)

    for call in (sink.check, lambda: sink.prepare(_FIRST, publication_of(0)), lambda: sink.abort(_FIRST)):
        with pytest.raises(SinkTargetError, match=rf"^the Postgres table public.scores (\(.*\) )?{problem}") as caught:
            call()
        assert "secret" not in str(caught.value)
    assert "secret" not in repr(sink) + sink.describe()


def test_importing_sinks_brings_no_driver_along() -> None:
    """Every Spark worker imports the iteration's module, and the sinks with it."""
    heavy = ("pyspark", "sqlalchemy", "psycopg2", "adbc_driver_manager")
    asked = f"import sys, iteration_lib.sinks; print([name for name in {heavy} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert "[]\n" == answer.stdout


def test_driver_that_is_not_installed_is_asked_for(sink: PostgresSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "iteration_lib.sinks.staging", raising=False)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)

    with pytest.raises(UsageError, match=r"install iteration-lib\[postgres\]"):
        sink.check()


def _fields(transaction: SinkTransaction) -> dict[str, Any]:
    return {name: getattr(transaction, name) for name in SinkTransaction.__dataclass_fields__}


def test_prepare_waits_for_one_of_the_same_transaction_whose_connection_was_lost(
    sink: PostgresSink, url: str, database: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on with the first for a while, and its staging table is not to be seen before it is committed."""
    publish(sink, publication_of(9), transaction_of(9))  # so that the table is there
    database.execute(text("TRUNCATE scores"))
    has_created, may_commit = threading.Event(), threading.Event()

    def statement(name: str, **identifiers: str) -> str:
        if name == "fill_staging" and threading.current_thread() is first:
            has_created.set()
            may_commit.wait(timeout=30)
        return postgres_session.statement(name, **identifiers)

    monkeypatch.setattr(staging, "statement", statement)
    first = threading.Thread(target=sink.prepare, args=(_FIRST, publication_of(0)))
    first.start()
    has_created.wait(timeout=30)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(PostgresSink("scores", url=url).prepare, _FIRST, publication_of(0))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not second.done() and not read(database, waiting):
            pass
        may_commit.set()
        committable = second.result()
    first.join()
    sink.commit(_FIRST, committable)

    assert [(6,)] == read(database, "SELECT count(*) FROM scores")


@pytest.mark.parametrize("computed", ["GENERATED ALWAYS AS (a * 2) STORED", "GENERATED ALWAYS AS IDENTITY"])
def test_value_for_a_column_that_the_table_computes_is_refused_by_prepare(
    sink: PostgresSink, database: Connection, tmp_path: Path, computed: str
) -> None:
    database.execute(text(f"CREATE TABLE scores (a int, b int {computed})"))

    with pytest.raises(SinkTargetError, match="computes its column 'b' itself; change"):
        sink.prepare(_FIRST, publication(tmp_path, a=pa.array([1]), b=pa.array([2])))


@pytest.mark.parametrize(
    ("column", "type_name", "shown"),
    [
        (pa.array([0.5]), "bigint", "'x' from double to bigint"),
        (pa.array([1.5], pa.float32()), "smallint", "'x' from float to smallint"),
        (pa.array([Decimal("1.5")]), "integer", r"'x' from decimal128\(2, 1\) to integer"),
        (pa.array([[0.5]]), "integer[]", r"'x' from list<item: double> to integer\[\]"),
        (pa.array([_NOON]), "date", r"'x' from timestamp\[us\] to date"),
        (pa.array([_NOON], pa.timestamp("us", "UTC")), "time", r"'x' from timestamp\[us, tz=UTC\] to time without"),
        (pa.array([dt.timedelta(hours=25)]), "time", r"'x' from duration\[us\] to time without time zone"),
        (pa.array([1.7]), "numeric(10, 0)", r"'x' from double to numeric\(10,0\)"),
        (pa.array([1.7]), "numeric(10, -2)", r"'x' from double to numeric\(10,-2\)"),
        (pa.array([[1.7]]), "numeric(10, 0)[]", r"'x' from list<item: double> to numeric\(10,0\)\[\]"),
        (pa.array([1.7]), "whole", "'x' from double to whole"),
        (pa.array([1.7]), "small", "'x' from double to small"),
        (pa.array([[1.7]]), "small[]", r"'x' from list<item: double> to small\[\]"),
        (pa.array([[1.7]]), "wholes", "'x' from list<item: double> to wholes"),
        (pa.array([1.7]), "amount", "'x' from double to amount"),
        (pa.array([_NOON]), "day", r"'x' from timestamp\[us\] to day"),
    ],
    ids=lambda found: found if isinstance(found, str) else "",
)
def test_values_that_the_tables_types_would_cut_are_refused_by_prepare(
    sink: PostgresSink, database: Connection, tmp_path: Path, column: pa.Array, type_name: str, shown: str
) -> None:
    """The server would do it silently, as it does where a loss is a whole number in the first epoch only."""
    domains = {"whole": "int", "small": "whole", "wholes": "int[]", "amount": "numeric(10, 0)", "day": "date"}
    for name, base in domains.items():
        database.execute(text(f"CREATE DOMAIN {name} AS {base}"))
    database.execute(text(f"CREATE TABLE scores (x {type_name})"))

    with pytest.raises(SinkTargetError, match=f"would cut the column {shown}"):
        sink.prepare(_FIRST, publication(tmp_path, x=column))


@pytest.mark.parametrize(
    ("column", "type_name"),
    [
        (pa.array([3]), "numeric(10, 0)"),
        (pa.array([0.5]), "numeric"),
        (pa.array([0.5]), "numeric(10, 1)"),
        (pa.array([0.5]), "share"),
        (pa.array([3]), "whole"),
        (pa.array([["a"]]), "text[]"),
        (pa.array([dt.timedelta(hours=25)]), "interval"),
    ],
    ids=lambda found: found if isinstance(found, str) else "",
)
def test_values_that_the_tables_types_hold_are_taken(
    sink: PostgresSink, database: Connection, tmp_path: Path, column: pa.Array, type_name: str
) -> None:
    for name, base in (("whole", "int"), ("share", "numeric(10, 1)")):
        database.execute(text(f"CREATE DOMAIN {name} AS {base}"))
    database.execute(text(f"CREATE TABLE scores (y int, x {type_name})"))

    publish(sink, publication(tmp_path, x=column))

    assert column.to_pylist() == [x for (x,) in read(database, "SELECT x FROM scores")]


def test_whole_numbers_go_into_a_wider_column(sink: PostgresSink, database: Connection, tmp_path: Path) -> None:
    for epoch, column in enumerate((pa.array([0.5]), pa.array([1]))):
        publish(sink, publication(tmp_path / str(epoch), x=column), transaction_of(epoch))

    assert [(0.5,), (1.0,)] == read(database, "SELECT x FROM scores ORDER BY x")


@pytest.mark.parametrize(
    ("revoked", "said"),
    [
        ("INSERT ON iteration_publications", "iteration_publications"),
        ("SELECT ON iteration_publications", "iteration_publications"),
        ("TEMPORARY ON DATABASE", "TEMPORARY on the database"),
    ],
)
def test_login_that_could_not_stage_or_commit_is_found_out_before_the_first_epoch(
    sink: PostgresSink, url: str, database: Connection, revoked: str, said: str
) -> None:
    publish(sink, publication_of(0))  # by another login, which owns the tables then
    name = database.scalar(text("SELECT current_database()"))
    place = f" {name}" if revoked.endswith("DATABASE") else ""
    database.execute(text("DROP ROLE IF EXISTS guest"))
    database.execute(text("CREATE ROLE guest LOGIN PASSWORD 'guest'"))
    database.execute(text("GRANT CREATE ON SCHEMA public TO guest"))
    database.execute(text("GRANT SELECT, INSERT ON scores, iteration_publications TO guest"))
    guest = sink.at(make_url(url).set(username="guest", password="guest").render_as_string(hide_password=False))
    guest.check()
    database.execute(text(f"REVOKE {revoked}{place} FROM guest, PUBLIC"))

    with pytest.raises(SinkTargetError, match=f"closed to this login.*{said}"):
        guest.check()

    database.execute(text(f"GRANT TEMPORARY ON DATABASE {name} TO PUBLIC"))
    database.execute(text("DROP OWNED BY guest"))
    database.execute(text("DROP ROLE guest"))


@pytest.mark.parametrize(
    "columns",
    [
        {"ctid": pa.array([1])},
        {f"c{number}": pa.array([1]) for number in range(1601)},
        {"x": pa.array([2**63 - 1], pa.timestamp("ms"))},
    ],
    ids=["name of the system's", "too many", "out of range"],
)
def test_what_the_driver_cannot_send_is_not_taken_for_an_outage(
    sink: PostgresSink, tmp_path: Path, columns: dict[str, pa.Array]
) -> None:
    """It says so without a state of the server's, as where no server answers; a scheduler would try it for ever."""
    with pytest.raises(SinkTargetError, match=r"does not take the rows .*; change the table") as caught:
        sink.prepare(_FIRST, publication(tmp_path, **columns))

    assert not caught.value.is_passing


def test_address_whose_password_is_not_quoted_is_refused_without_a_part_of_it() -> None:
    sink = PostgresSink("scores", url="postgresql://me:sec@ret@127.0.0.1:1/test")

    for call in (sink.check, lambda: sink.abort(_FIRST)):
        with pytest.raises(SinkTargetError, match=r"has no address .*an @ in a password is written %40") as caught:
            call()
        assert "ret@" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_texts_arrive_whatever_the_encoding_of_the_database_and_of_the_process(
    url: str, database: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """The driver sends UTF-8; a server that took it for something else would keep other characters without a word."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    name = f"encoded_{encoding.lower()}"
    how = f"ENCODING '{encoding}' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    database.execute(text(f"DROP DATABASE IF EXISTS {name}"))
    database.execute(text(f"CREATE DATABASE {name} {how}"))
    address = make_url(url).set(database=name).render_as_string(hide_password=False)

    publish(PostgresSink("scores", url=address, run_column="é"), publication(tmp_path, x=pa.array(["é"])))

    engine = create_engine(address, connect_args={"client_encoding": "UTF8"})
    with engine.connect() as connection:
        found = connection.execute(text("SELECT * FROM scores"))
        assert (["é", "x"], [("run-0", "é")]) == (list(found.keys()), [tuple(row) for row in found])
    engine.dispose()
    database.execute(text(f"DROP DATABASE {name}"))


def test_time_zone_of_the_process_does_not_count(
    sink: PostgresSink, database: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    database.execute(text("CREATE TABLE scores (at timestamp)"))

    publish(sink, publication(tmp_path, at=pa.array([_NOON], pa.timestamp("us", "UTC"))))

    assert [(_NOON,)] == read(database, "SELECT at FROM scores")


def test_connection_is_given_up_when_the_server_vanishes_unless_the_address_says_otherwise() -> None:
    """Nobody answers and nobody refuses; the kernel would wait for hours."""
    sink = PostgresSink("scores", url="postgresql://me@host/db?keepalives_idle=7")

    found = psycopg2.extensions.parse_dsn(postgres_session.connection_string(sink))

    assert ("7", "30000") == (found["keepalives_idle"], found["tcp_user_timeout"])
