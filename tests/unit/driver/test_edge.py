"""How are the parts that the store lists joined into edges?"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

import pytest

from iteration_lib.driver.edge import read_edges
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.store.record import PartRecord

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TOTAL = 6


def part(first: int, end: int, *, epoch: int = 1, name: str = "x", **metrics: float) -> PartRecord:
    """Return a part as the store lists it, of one file."""
    file = SavedFile(path=f"{first}.arrow", size_bytes=1, sha256="ab", rows=1, first_bucket=first, end_bucket=end)
    saved = SavedStream(kind="buckets", format=FileFormat.ARROW, schema="00", files=(file,))
    return PartRecord(
        epoch=epoch,
        operator_id=name,
        first_bucket=first,
        end_bucket=end,
        total=TOTAL,
        fencing_token=1,
        output=saved.to_json(),
        metrics=metrics,
        finished_at=NOW,
        voided_at=None,
    )


PARTS = (part(0, 2), part(2, 3), part(3, 6))


@pytest.mark.parametrize(
    "parts", list(permutations(PARTS)), ids=lambda parts: " ".join(str(p.first_bucket) for p in parts)
)
def test_parts_of_all_buckets_are_a_complete_edge_with_its_files_in_order_whatever_theirs_is(
    parts: tuple[PartRecord, ...],
) -> None:
    edge = read_edges(parts)[1]["x"]

    assert edge.is_complete
    assert ["0.arrow", "2.arrow", "3.arrow"] == [file.path for file in edge.saved.files]
    assert ((0, 2), (2, 3), (3, 6)) == edge.ranges


@pytest.mark.parametrize("lacking", range(3))
def test_edge_that_lacks_a_part_is_not_complete(lacking: int) -> None:
    parts = [known for number, known in enumerate(PARTS) if number != lacking]

    assert not read_edges(parts)[1]["x"].is_complete


def test_edges_are_of_one_epoch_each() -> None:
    parts = (part(0, 2), part(0, 6, epoch=2, name="y"), part(0, 6, epoch=-1, name="z"), part(2, 4, epoch=2))

    edges = read_edges(parts)

    assert {1: {"x": ((0, 2),)}, 2: {"x": ((2, 4),), "y": ((0, 6),)}, -1: {"z": ((0, 6),)}} == {
        epoch: {name: edge.ranges for name, edge in known.items()} for epoch, known in edges.items()
    }


def test_metrics_of_all_parts_are_the_edges() -> None:
    parts = (part(0, 2, loss=1.0), part(2, 6, gain=2.0))

    assert {"loss": 1.0, "gain": 2.0} == read_edges(parts)[1]["x"].metrics
