"""How much does the tab of a run with ten thousand epochs read and show? On a real store, in bounded numbers.

Each epoch is one attempt's, as in a chain of one task per epoch, with a checkpoint and durable edges of its own; each
tenth attempt has failed in the epoch behind, which the next one ran again. The rows between the first epoch and the
last two are written by SQL; that the protocol goes on behind them says that they are legal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.state import RunId
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.reader import open_reader
from iteration_lib.store.record import RunRecord
from iteration_ui.answer import answer_page
from iteration_ui.grid import MAX_COLUMNS, CellKind
from iteration_ui.page import RunPage, make_run_page
from iteration_ui.paging import NEWEST, ROWS_SHOWN, TableQuery
from iteration_ui.reading import RunReading, read_run
from tests.protocol_script import Sender, claim
from tests.store_script import added, new_family

pytestmark = pytest.mark.postgres

EPOCHS = 10_000  # written by SQL; one more is driven behind them, and another one is open
ROWS_OF_A_TABLE = ROWS_SHOWN + ROWS_SHOWN // 10  # the epochs that were given up are shown beside those run again
MOST_BYTES = 500_000

GROW = """
SET LOCAL session_replication_role = replica;
INSERT INTO attempts (run_id, fencing_token, attempt_id, holder, policy, lease_expires_at, ended_at, outcome, reason)
SELECT run_id, token, gen_random_uuid(), holder, policy, lease_expires_at, now(),
    CASE token % 10 WHEN 0 THEN 'FAILED' ELSE 'RELEASED' END, CASE token % 10 WHEN 0 THEN 'told to fail' END
FROM attempts CROSS JOIN generate_series(2, :epochs) AS token WHERE run_id = :run_id AND fencing_token = 1;
INSERT INTO epochs (run_id, epoch, fencing_token, status, records, expected_reports, reports, decision, metrics,
    seconds, held_at, aligned_at, durable_at, unaligned_by, unaligned_at)
SELECT :run_id, epoch, epoch + 1, 'DURABLE', jsonb_build_object('centroids', jsonb_build_array(3)), 1, 1,
    jsonb_build_object('records', jsonb_build_object('centroids', 3), 'terminated_by', NULL),
    jsonb_build_object('loss', 1.0 / epoch, 'shift', epoch % 7), 0.25, now(), now(), now(), 'timeout', now()
FROM generate_series(1, :epochs - 1) AS epoch;
INSERT INTO epochs (run_id, epoch, fencing_token, status, records, expected_reports, reports, unaligned_by,
    unaligned_at)
SELECT :run_id, epoch, epoch, 'VOIDED', jsonb_build_object('centroids', jsonb_build_array(NULL)), 1, 0, 'timeout', now()
FROM generate_series(10, :epochs - 1, 10) AS epoch;
UPDATE checkpoints SET status = 'SUBSUMED' WHERE run_id = :run_id;
INSERT INTO checkpoints (run_id, checkpoint_id, epoch, fencing_token, kind, status, acknowledgements, expected,
    acknowledged, manifest_path, manifest_sha256, size_bytes, ended_at)
SELECT :run_id, epoch + 1, epoch, epoch + 1, 'PERIODIC',
    CASE epoch WHEN :epochs - 1 THEN 'COMPLETED' ELSE 'SUBSUMED' END,
    jsonb_build_object('centroids', jsonb_build_array(1)), 1, 1, 'p', repeat('ab', 32), 1, now()
FROM generate_series(1, :epochs - 1) AS epoch;
INSERT INTO edge_parts (run_id, epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics)
SELECT :run_id, epoch, 'x', part, part + 1, 2, CASE epoch % 10 WHEN 0 THEN epoch ELSE epoch + 1 END, '{}', '{}'
FROM generate_series(1, :epochs - 1) AS epoch CROSS JOIN generate_series(0, 1) AS part;
UPDATE runs SET fencing_token = :epochs, attempt_id = attempts.attempt_id, last_durable_epoch = :epochs - 1,
    last_checkpoint_id = :epochs
FROM attempts WHERE runs.run_id = :run_id AND attempts.run_id = :run_id AND attempts.fencing_token = :epochs;
"""


@pytest.fixture(scope="module")
def long(store_url: str) -> RunId:
    with closing(PostgresStore(store_url)) as store:
        run_id, family, coordinator = added(store), new_family(), Coordinator(store)
        one, last = Sender(1, 1, family), Sender(EPOCHS + 1, EPOCHS + 1, family)
        coordinator.apply(run_id, claim(1, family=family), one.finishes("scaled"), *one.passes(0, 1), one.ends())
        engine = open_engine(store_url)
        with engine.begin() as connection:
            for statement in GROW.strip().split(";\n"):
                connection.execute(text(statement.rstrip(";\n")), {"run_id": run_id, "epochs": EPOCHS})
        engine.dispose()
        coordinator.apply(run_id, claim(last.token, family=family))
        coordinator.apply(run_id, *last.passes(EPOCHS, EPOCHS + 1), last.opens(EPOCHS + 1))
    return run_id


@pytest.fixture(scope="module")
def reader(store_url: str) -> Iterator[PostgresStore]:
    with closing(open_reader(store_url)) as opened:
        yield opened


@pytest.fixture(params=[NEWEST, TableQuery(epochs_to=7, checkpoints_to=7, attempts_to=7)], ids=["newest", "oldest"])
def reading(reader: PostgresStore, long: RunId, request: pytest.FixtureRequest) -> RunReading:
    return read_run(reader, found(reader, long), request.param)


def test_reading_of_ten_thousand_epochs_has_few_rows(reading: RunReading) -> None:
    read = {field.name: getattr(reading, field.name) for field in fields(reading)}

    rows = {name: len(known) for name, known in read.items() if isinstance(known, tuple | list)}

    assert {} == {name: count for name, count in rows.items() if count > ROWS_OF_A_TABLE}
    assert {"epochs", "attempts", "checkpoints", "spans", "edge_spans", "restarts"} <= rows.keys()


def test_page_of_ten_thousand_epochs_draws_and_lists_no_more_than_it_has_room_for(reading: RunReading) -> None:
    page = make_run_page(reading, now=datetime.now(tz=UTC))

    tables = (page.epochs, page.attempts, (*page.checkpoints, *page.needed_elsewhere))
    assert max(len(rows) for rows in tables) <= ROWS_OF_A_TABLE
    assert max(len(row.cells) for row in page.grid.rows) <= MAX_COLUMNS
    assert ["loss", "shift"] == [chart.name for chart in page.charts]
    for chart in page.charts:
        assert 1 < len(chart.marks) <= MAX_COLUMNS
        assert [True] == [1 < len(line.dots) <= MAX_COLUMNS for line in chart.lines]
    assert len(text_of(page)) < MOST_BYTES


def test_page_of_ten_thousand_epochs_tells_of_all_of_them(reading: RunReading) -> None:
    page = make_run_page(reading, now=datetime.now(tz=UTC))

    assert f"{EPOCHS + 1} durable epochs" == page.summary
    assert ("epochs 0 to 99", f"epochs {EPOCHS} to {EPOCHS + 1}") == (page.grid.columns[0], page.grid.columns[-1])
    kinds = {row.operator_id: [cell.kind for cell in row.cells] for row in page.grid.rows}
    assert {CellKind.RESTORED} == {*kinds["x"][:-1]}
    assert (EPOCHS // 10) == sum(restart.attempts for restart in reading.restarts)
    assert page.grid.rows[1].cells[1].title.endswith("found its durable edge, in 10 epochs")


def found(store: PostgresStore, run_id: RunId) -> RunRecord:
    run = store.find_run(run_id)
    assert run is not None
    return run


def text_of(page: RunPage) -> bytes:
    answer = answer_page("run.html", page=page, here="x", may_change=True, may_trigger=True, title="t")
    return bytes(answer.body)
