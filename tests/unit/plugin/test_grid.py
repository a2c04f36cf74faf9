"""What does a grid show of each operator in each epoch?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iteration_lib.store.overview import EdgeSpan, Span
from iteration_lib.store.record import OperatorRecord
from iteration_ui.grid import MAX_COLUMNS, CellKind, Grid, make_grid, width_for


def operator(
    operator_id: str, *, role: str = "operator", finished_epoch: int | None = None, added_under: int = 0
) -> OperatorRecord:
    return OperatorRecord(
        operator_id=operator_id,
        name=operator_id,
        role=role,
        kind="value",
        finished_epoch=finished_epoch,
        output=None,
        added_under=added_under,
    )


def span(first: int, last: int, *, durable: int = 1, aligned: int = 0, is_open: bool = False, voided: int = 0) -> Span:
    return Span(
        first_epoch=first,
        last_epoch=last,
        durable=durable,
        aligned=aligned,
        open=int(is_open),
        voided=voided,
        seconds=1.0,
        first_attempt=1,
        last_attempt=1,
        metrics={},
    )


def edge(
    first_epoch: int,
    operator_id: str,
    *,
    edges: int = 1,
    whole: int | None = None,
    restored: int = 0,
    restored_in_part: int = 0,
) -> EdgeSpan:
    return EdgeSpan(
        first_epoch=first_epoch,
        operator_id=operator_id,
        edges=edges,
        whole=edges if whole is None else whole,
        restored=restored,
        restored_in_part=restored_in_part,
    )


def kinds(grid: Grid) -> list[list[str]]:
    return [[cell.kind.value for cell in row.cells] for row in grid.rows]


def test_grid_shows_what_became_of_each_operator() -> None:
    spans = [span(0, 0), span(1, 1), span(2, 2), span(3, 3, durable=0, aligned=1)]
    edges = [
        edge(1, "sums"),
        edge(2, "sums", restored=1),
    ]

    grid = make_grid([operator("scaled", finished_epoch=0), operator("sums")], spans, edges, width=1)

    assert ["epoch 0", "epoch 1", "epoch 2", "epoch 3"] == list(grid.columns)
    assert [["run", "skipped", "skipped", "skipped"], ["run", "edge", "restored", "run"]] == kinds(grid)
    assert "sums, epoch 2: not run again, an attempt found its durable edge" == grid.rows[1].cells[2].title
    assert "scaled, epoch 1: skipped, finished in epoch 0" == grid.rows[0].cells[1].title


def test_operator_that_failed_is_shown_where_it_did() -> None:
    grid = make_grid([operator("a"), operator("b")], [span(0, 0), span(1, 1)], [], width=1, failed=("b", 1))

    assert [["run", "run"], ["run", "failed"]] == kinds(grid)
    assert CellKind.FAILED is grid.rows[1].cells[1].kind


@pytest.mark.parametrize(
    ("spans", "width", "failed_epoch", "columns", "cells"),
    [
        ([], 1, 0, ["epoch 0"], [["none"], ["failed"]]),
        ([span(0, 0)], 1, 1, ["epoch 0", "epoch 1"], [["run", "none"], ["run", "failed"]]),
        ([span(0, 9), span(10, 12)], 10, 13, ["epochs 0 to 9", "epochs 10 to 13"], [["run", "run"], ["run", "failed"]]),
        ([span(0, 9)], 10, 10, ["epochs 0 to 9", "epoch 10"], [["run", "none"], ["run", "failed"]]),
    ],
    ids=["before the first epoch", "before the next one", "in a span that goes on", "in a span of its own"],
)
def test_operator_that_failed_before_its_epoch_was_opened_is_shown_in_that_epoch(
    spans: list[Span], width: int, failed_epoch: int, columns: list[str], cells: list[list[str]]
) -> None:
    grid = make_grid([operator("a"), operator("b")], spans, [], width=width, failed=("b", failed_epoch))

    assert (columns, cells) == (list(grid.columns), kinds(grid))


def test_operators_of_an_open_epoch_are_not_said_to_have_run_but_where_a_marker_says_so() -> None:
    operators = [operator("largest", finished_epoch=1), operator("sums"), operator("added"), operator("going_on")]
    edges = [edge(1, "sums")]
    spans = [span(0, 0), span(1, 1, durable=0, is_open=True)]

    live = make_grid(operators, spans, edges, width=1)
    failed = make_grid(operators, spans, edges, width=1, failed=("added", 1))

    assert ["run", "edge", "open", "open"] == [row[1] for row in kinds(live)]
    assert ["run", "edge", "failed", "open"] == [row[1] for row in kinds(failed)]
    said = "going_on, epoch 1: the epoch is open, and no durable edge says that it has run"
    assert said == failed.rows[3].cells[1].title


@pytest.mark.parametrize(
    ("last", "kind", "what"),
    [
        (span(10, 12, durable=2, is_open=True), "run", "epochs 10 to 12: run, and the last epoch is open"),
        (span(10, 11, durable=0, aligned=1, is_open=True), "run", "epochs 10 to 11: run, and the last epoch is open"),
        (span(10, 11, durable=0, aligned=2), "run", "epochs 10 to 11: run"),
        (span(10, 10, durable=0, is_open=True, voided=1), "open", "epoch 10: the epoch is open, and no durable edge"),
    ],
    ids=["durable and open", "aligned and open", "aligned", "given up and open again"],
)
def test_span_says_which_of_its_epochs_have_run_all_operators(last: Span, kind: str, what: str) -> None:
    grid = make_grid([operator("a")], [span(0, 9), last], [], width=10)

    assert [["run", kind]] == kinds(grid)
    assert grid.rows[0].cells[1].title.startswith(f"a, {what}")


def test_operator_has_not_run_before_it_was_added_nor_where_a_branch_took_it_over() -> None:
    operators = [operator("taken_over", finished_epoch=5), operator("added_later", added_under=2)]
    spans = [span(5, 5), replace(span(6, 6), first_attempt=2, last_attempt=2)]

    grid = make_grid(operators, spans, [], width=1, kept=["taken_over"])

    assert [["skipped", "skipped"], ["none", "run"]] == kinds(grid)
    assert [
        "taken_over, epoch 5: skipped, finished in the run that this one started from",
        "added_later, epoch 5: the run had no such operator yet",
    ] == [row.cells[0].title for row in grid.rows]


def test_epoch_that_was_given_up_is_empty_until_it_is_run_again() -> None:
    grid = make_grid([operator("a")], [span(0, 0, durable=0, voided=2)], [], width=1)

    assert [["none"]] == kinds(grid)
    assert "a, epoch 0: given up, not run again yet" == grid.rows[0].cells[0].title


def test_span_of_epochs_says_in_how_many() -> None:
    edges = [edge(10, "a", edges=3, restored=2)]

    grid = make_grid([operator("a")], [span(0, 9, durable=10), span(12, 19, durable=8)], edges, width=10)

    assert ["epochs 0 to 9", "epochs 12 to 19"] == list(grid.columns)
    assert [["run", "restored"]] == kinds(grid)
    assert grid.rows[0].cells[1].title.endswith("found its durable edge, in 2 epochs")


@pytest.mark.parametrize(
    ("left", "is_open", "what"),
    [
        ({"whole": 0}, True, "run in part, with a durable edge of that, and the epoch is open"),
        ({"whole": 0}, False, "run, with a durable edge"),
        ({"whole": 0, "restored_in_part": 1}, True, "some parts found as durable edges, and the epoch is open"),
        ({"whole": 1, "restored_in_part": 1}, True, "run in part, the other parts found as durable edges"),
        ({"whole": 0, "restored_in_part": 1}, False, "run in part, the other parts found as durable edges"),
    ],
    ids=[
        "some marked",
        "some marked, then all run",
        "some found",
        "some found, then all marked",
        "some found, all run",
    ],
)
def test_operator_of_which_parts_were_durable_is_not_said_to_have_been_passed_over(
    left: dict[str, int], what: str, *, is_open: bool
) -> None:
    spans = [span(0, 0, durable=int(not is_open), is_open=is_open)]

    grid = make_grid([operator("sums")], spans, [edge(0, "sums", **left)], width=1)

    assert (CellKind.EDGE, f"sums, epoch 0: {what}") == (grid.rows[0].cells[0].kind, grid.rows[0].cells[0].title)


def test_data_and_variables_are_no_rows() -> None:
    grid = make_grid(
        [operator("points", role="data"), operator("centroids", role="variable")], [span(0, 0)], [], width=1
    )

    assert () == grid.rows


@pytest.mark.parametrize(
    ("epochs", "width"), [(0, 1), (1, 1), (MAX_COLUMNS, 1), (MAX_COLUMNS + 1, 2), (10_000, 100), (1_000_000, 10_000)]
)
def test_width_leaves_room_for_all_epochs(epochs: int, width: int) -> None:
    assert width == width_for(epochs)
    assert epochs <= width * MAX_COLUMNS
