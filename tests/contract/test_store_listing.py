"""Does the store list runs as a forest, of some prefixes alone, and page by page?"""

from __future__ import annotations

import dataclasses

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.store.listing import (
    Listing,
    RunFilter,
    RunMetricSpan,
    read_listing,
    read_metric_spans,
    read_prefixes,
)
from iteration_lib.store.overview import read_spans
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import NewRun, Origin
from tests.protocol_script import Sender, claim, deletes, stops
from tests.store_script import a_run, added, an_origin, new_family, origin_of, whole_story

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("each_store", ["postgres"], indirect=True)]


@pytest.fixture
def prefix() -> str:
    """Return a prefix that no other test's runs have."""
    return f"dag_{new_family()}"


def add(store: PostgresStore, run_key: str, origin: Origin | None = None) -> NewRun:
    run = a_run(run_key)
    assert store.add_run(run, origin)
    return run


def add_origin(store: PostgresStore, run_key: str, *, epoch: int = 1) -> NewRun:
    run = a_run(run_key)
    an_origin(store, run, epoch=epoch)
    return run


def shape(listing: Listing) -> list[tuple[int, str]]:
    return [(run.depth, run.run_key.partition("/")[2]) for run in listing.runs]


def listed(store: PostgresStore, prefix: str, **changes: object) -> Listing:
    return read_listing(store, dataclasses.replace(RunFilter(prefixes=[prefix]), **changes), size=100)


def test_branches_are_listed_behind_their_origin_and_the_tree_with_the_newest_run_first(
    store: PostgresStore, prefix: str
) -> None:
    old = add_origin(store, f"{prefix}/old")
    child = add_origin(store, f"{prefix}/between")
    add(store, f"{prefix}/first", origin_of(old, checkpoint_id=1, epoch=0))
    second = add(store, f"{prefix}/second", origin_of(old, checkpoint_id=2, epoch=1))

    found = listed(store, prefix)

    assert [(0, "old"), (1, "first"), (1, "second"), (0, "between")] == shape(found)
    assert 4 == found.total
    branch = next(run for run in found.runs if run.run_id == second.run_id)
    assert (2, False, 2, {}) == (branch.origin_checkpoint_id, branch.from_savepoint, branch.epochs, branch.metrics)
    assert 2 == next(run for run in found.runs if run.run_id == child.run_id).epochs


def test_runs_below_a_key_are_those_whose_keys_begin_so(store: PostgresStore, prefix: str) -> None:
    for name in ("one/a", "one/b", "one", "One/c", "one_more/d", f"two/{prefix}/one/e"):
        add(store, f"{prefix}/{name}")

    found = listed(store, prefix, below=f"{prefix}/one/")

    assert (["one/a", "one/b"], 2) == (sorted(name for _, name in shape(found)), found.total)


def test_branch_of_a_branch_lies_one_deeper(store: PostgresStore, prefix: str) -> None:
    first = add_origin(store, f"{prefix}/first")
    second = add(store, f"{prefix}/second", origin_of(first, checkpoint_id=1, epoch=0))
    family = new_family()
    Coordinator(store).apply(second.run_id, claim(family=family), *Sender(1, 1, family).passes(1, 1))
    add(store, f"{prefix}/third", origin_of(second, checkpoint_id=1, epoch=1))

    found = listed(store, prefix)

    assert [(0, "first"), (1, "second"), (2, "third")] == shape(found)


def test_run_from_a_savepoint_begins_a_tree(store: PostgresStore, prefix: str) -> None:
    first = add_origin(store, f"{prefix}/first")
    origin = origin_of(first, checkpoint_id=1, epoch=0)
    add(store, f"{prefix}/saved", dataclasses.replace(origin, origin_run_id=None, origin_checkpoint_id=None))

    found = listed(store, prefix)

    assert [(0, "saved"), (0, "first")] == shape(found)
    assert [(None, True), (None, False)] == [(run.origin_checkpoint_id, run.from_savepoint) for run in found.runs]


def test_run_whose_origin_is_not_meant_begins_a_tree_of_its_own(store: PostgresStore, prefix: str) -> None:
    hidden = add_origin(store, f"{prefix}_hidden/secret")
    add(store, f"{prefix}/branch", origin_of(hidden, checkpoint_id=1, epoch=0))

    found = listed(store, prefix)

    assert [(0, "branch")] == shape(found)


def test_runs_without_a_prefix_are_listed_to_those_alone_who_ask_for_them(store: PostgresStore, prefix: str) -> None:
    add(store, prefix)

    kept = listed(store, prefix, name=prefix)
    found = listed(store, prefix, name=prefix.upper(), with_unprefixed=True)

    assert (0, [prefix]) == (kept.total, [run.run_key for run in found.runs])


def test_runs_are_found_by_status_and_by_a_part_of_their_name(store: PostgresStore, prefix: str) -> None:
    coordinator = Coordinator(store)
    stopped, deleted = add(store, f"{prefix}/Stopped"), add(store, f"{prefix}/deleted")
    add(store, f"{prefix}/running")
    coordinator.apply(stopped.run_id, stops(1, family=new_family()))
    coordinator.apply(deleted.run_id, deletes())

    everything = listed(store, prefix)
    by_status = [listed(store, prefix, status=status) for status in (RunStatus.STOPPED, RunStatus.DELETED)]
    by_name = listed(store, prefix, name="OPPED")

    assert [(0, "running"), (0, "Stopped")] == shape(everything)
    assert [[(0, "Stopped")], [(0, "deleted")]] == [shape(found) for found in by_status]
    assert [(RunStatus.STOPPED, StopKind.STOP)] == [(run.status, run.asked_to) for run in by_name.runs]


def test_pages_together_are_the_whole_list(store: PostgresStore, prefix: str) -> None:
    origin = add_origin(store, f"{prefix}/0")
    for number in range(1, 6):
        add(store, f"{prefix}/{number}", origin_of(origin, checkpoint_id=1, epoch=0) if number % 2 else None)
    wanted = RunFilter(prefixes=[prefix])

    pages = [read_listing(store, wanted, size=4, skip=skip) for skip in (0, 4)]

    assert [6, 6] == [page.total for page in pages]
    assert shape(listed(store, prefix)) == [found for page in pages for found in shape(page)]


@pytest.mark.parametrize(("runs", "last"), [(0, 0), (1, 1), (4, 4), (5, 1), (9, 1)])
def test_page_behind_the_last_is_the_last(store: PostgresStore, prefix: str, runs: int, last: int) -> None:
    """Runs are deleted, and addresses are kept."""
    for number in range(runs):
        add(store, f"{prefix}/{number}")

    found = read_listing(store, RunFilter(prefixes=[prefix]), size=4, skip=40)

    assert (runs, [str(number) for number in reversed(range(last))]) == (
        found.total,
        [run.run_key.partition("/")[2] for run in found.runs],
    )


def test_chosen_runs_are_those_of_the_prefixes_alone(store: PostgresStore, prefix: str) -> None:
    chosen, other = add(store, f"{prefix}/a"), add(store, f"{prefix}_hidden/b")
    add(store, f"{prefix}/c")

    found = listed(store, prefix, run_ids=[chosen.run_id, other.run_id])

    assert [(0, "a")] == shape(found)


def test_prefixes_are_those_that_runs_have(store: PostgresStore, prefix: str) -> None:
    for name in ("b", "a"):
        add(store, f"{prefix}_{name}/1")
        add(store, f"{prefix}_{name}/2")
    add(store, f"{prefix}_c")
    deleted = add(store, f"{prefix}_d/1")
    Coordinator(store).apply(deleted.run_id, deletes())

    found = read_prefixes(store, [f"{prefix}_{name}" for name in "acdx"])

    assert (f"{prefix}_a",) == found


@pytest.mark.parametrize("width", [1, 3])
def test_metrics_of_several_runs_are_those_of_each(store: PostgresStore, width: int) -> None:
    runs = sorted(_told(store) for _ in range(2))

    found = read_metric_spans(store, runs, width=width)

    expected = {
        (run_id, span.first_epoch // width, name): (measured.least, measured.greatest, measured.last)
        for run_id in runs
        for span in read_spans(store, run_id, width=width)
        for name, measured in span.metrics.items()
    }
    assert expected
    assert expected == {
        (span.run_id, span.first_epoch // width, span.name): (span.least, span.greatest, span.last) for span in found
    }
    assert RunMetricSpan in {type(span) for span in found}


def _told(store: PostgresStore) -> RunId:
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(new_family()):
        coordinator.apply(run_id, *events)
    return run_id
