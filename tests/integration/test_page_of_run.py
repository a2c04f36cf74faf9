"""What does the tab show of a run that is longer than its tables, or has not begun? On a real store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fastapi import Request

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator, RunId
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import NewRun, RunRecord
from iteration_ui import action
from iteration_ui.answer import answer_page
from iteration_ui.lookup import NothingToShowError, run_of_dag_run
from iteration_ui.page import RunPage, make_run_page
from iteration_ui.paging import NEWEST, ROWS_SHOWN, TableQuery
from iteration_ui.reading import read_run
from iteration_ui.tables import CheckpointRow
from tests.protocol_script import Sender, claim
from tests.store_script import a_run, an_origin, new_family, origin_of

pytestmark = pytest.mark.postgres
EPOCHS = ROWS_SHOWN + 10


@pytest.fixture(scope="module")
def long(store: PostgresStore) -> NewRun:
    """A run with more epochs and checkpoints than a table shows: a person keeps the first, retention the last two."""
    run = pinned_by_ann(store, 1)
    Coordinator(store).discard(run.run_id, CheckpointPolicy(retain_last=2))
    return run


@pytest.fixture(scope="module")
def retained(store: PostgresStore) -> NewRun:
    """As long a run, all of whose checkpoints are there."""
    return pinned_by_ann(store, 3)


def test_checkpoint_that_is_needed_is_shown_however_old_it_is(store: PostgresStore, long: NewRun) -> None:
    page = page_of(store, long)

    there = [(row.checkpoint_id, row.is_pinned) for row in shown(page) if row.is_there]
    assert [(EPOCHS, False), (EPOCHS - 1, False), (1, True)] == there
    assert [*range(EPOCHS, 10, -1), 1] == [row.checkpoint_id for row in shown(page)]
    assert ("?checkpoints_to=10#checkpoints", "") == (page.checkpoint_pages.older, page.checkpoint_pages.newer)


def test_checkpoint_that_a_branch_needs_is_shown_however_old_it_is(store: PostgresStore) -> None:
    run = a_run()
    an_origin(store, run, epoch=EPOCHS - 1)
    assert store.add_run(a_run(), origin_of(run, checkpoint_id=7, epoch=6))

    page = page_of(store, run)

    assert [(7, "1 branch")] == [(row.checkpoint_id, row.needed_by) for row in page.needed_elsewhere]


def test_older_checkpoints_and_epochs_are_on_the_pages_before(store: PostgresStore, long: NewRun) -> None:
    page = page_of(store, long, TableQuery(epochs_to=10, checkpoints_to=10))

    assert list(range(ROWS_SHOWN - 1, -1, -1)) == [row.epoch for row in page.epochs]
    assert [*range(ROWS_SHOWN, 0, -1), EPOCHS] == [row.checkpoint_id for row in shown(page)]
    assert ("", "") == (page.epoch_pages.older, page.checkpoint_pages.older)
    assert "Savepoint now" in [button.label for button in page.buttons]


def test_page_begins_with_its_own_checkpoints_where_all_are_kept(store: PostgresStore, retained: NewRun) -> None:
    """Without a policy nothing is ever discarded, so that what is kept would fill every page."""
    pages = [page_of(store, retained, query) for query in (NEWEST, TableQuery(checkpoints_to=10))]

    assert [list(range(EPOCHS, 10, -1)), list(range(ROWS_SHOWN, 0, -1))] == [
        [row.checkpoint_id for row in page.checkpoints] for page in pages
    ]
    assert [[3], [EPOCHS]] == [[row.checkpoint_id for row in page.needed_elsewhere] for page in pages]


def test_rate_is_that_of_the_newest_epochs_on_every_page(store: PostgresStore, long: NewRun) -> None:
    pages = [page_of(store, long, query) for query in (NEWEST, TableQuery(epochs_to=0))]

    assert pages[0].progress == pages[1].progress
    assert pages[0].progress.rate


def test_page_says_which_rows_it_shows_and_leads_to_the_others(store: PostgresStore, long: NewRun) -> None:
    page = page_of(store, long)

    text = bytes(answer_page("run.html", page=page, here="x", title="t").body).decode()

    assert f"10 to {EPOCHS - 1} of 0 to {EPOCHS - 1}" in text
    assert 'href="?epochs_to=9#epochs" rel="next"' in text
    assert f"11 to {EPOCHS} of 1 to {EPOCHS}, and below them 1 more that is needed, <a" in text
    assert 'data-first-row="10"' in text


def test_operator_that_fails_before_the_first_epoch_is_shown_as_failed(store: PostgresStore) -> None:
    run, one = a_run(), Sender(1, 1, new_family())
    assert store.add_run(run)
    failed = FailedOperator(operator_id="scaled", epoch=NO_EPOCH)

    Coordinator(store).apply(run.run_id, claim(family=one.family))
    Coordinator(store).apply(run.run_id, one.fails("told to fail", failed=failed))

    page = page_of(store, run)
    text = bytes(answer_page("run.html", page=page, here="x", title="t").body).decode()
    assert '<td title="scaled, epoch 0: failed in epoch 0"><span class="failed">' in text


def shown(page: RunPage) -> list[CheckpointRow]:
    return [*page.checkpoints, *page.needed_elsewhere]


def pinned_by_ann(store: PostgresStore, checkpoint_id: int) -> NewRun:
    run = a_run()
    an_origin(store, run, epoch=EPOCHS - 1)
    action.pin(store, found(store, run.run_id), checkpoint_id, by="ann")
    return run


@pytest.mark.parametrize("is_deleted", [False, True])
def test_dag_run_without_a_run_is_told_that_it_has_none_yet_or_none_any_more(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    """A deleted run's key is free for the next one, so that the store does not know the one from the other by it."""
    run = a_run(f"kmeans/gone-{is_deleted}")
    if is_deleted:
        assert store.add_run(run)
        Coordinator(store).apply(run.run_id, RunDeleted(deleted_by="ann"))
    dag_id, _, dag_run_id = run.run_key.partition("/")
    monkeypatch.setattr("iteration_ui.lookup.open_history", lambda: store)
    request = Request({"type": "http", "path_params": {"dag_id": dag_id, "dag_run_id": dag_run_id}})

    with pytest.raises(NothingToShowError) as caught:
        run_of_dag_run(request)

    assert "has no iteration: its task open_run has opened none yet, or somebody has deleted it;" in str(caught.value)


def found(store: PostgresStore, run_id: RunId) -> RunRecord:
    run = store.find_run(run_id)
    assert run is not None
    return run


def page_of(store: PostgresStore, run: NewRun, query: TableQuery = NEWEST) -> RunPage:
    return make_run_page(read_run(store, found(store, run.run_id), query), now=datetime.now(tz=UTC))
