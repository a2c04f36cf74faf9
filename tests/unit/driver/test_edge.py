"""How are the parts that the store lists joined into edges, and how do more become so?"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations

import pytest

from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edges, read_edges
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.protocol import RunState
from iteration_lib.protocol.event import GuardedEvent
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import UnalignedBy
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.store.record import PartRecord
from tests.driven_in_memory import InMemory
from tests.protocol_script import FIRST

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


class EndsMeanwhile(dict[str, float]):
    """Metrics; the process is told to end as they are looked at for the first time."""

    has_ended = False

    def __len__(self) -> int:
        """See dict."""
        if not self.has_ended:
            self.has_ended = True
            raise ToldToEnd
        return super().__len__()


def test_part_is_captured_with_its_metrics_though_the_end_comes_as_it_is_noted(
    bench: InMemory, context: RunContext
) -> None:
    saved = SavedStream.from_json(part(0, bench.run.max_buckets).output)
    edges, metrics = Edges(context, {}, epoch=NO_EPOCH), EndsMeanwhile(loss=1.0)

    def note() -> None:
        edges.note(context.graph.operator("scaled"), saved, metrics)

    with pytest.raises(ToldToEnd), edges.capturing("a test", note):
        note()

    (found,) = bench.store.list_live_parts(bench.run.run_id)
    assert ("scaled", {"loss": 1.0}) == (found.operator_id, found.metrics)


def test_part_that_is_noted_while_the_epoch_before_becomes_durable_is_marked_after_that(
    bench: InMemory, context: RunContext
) -> None:
    """What waited is marked in that step; what came too late for it right behind it."""
    sums, total = context.graph.operator("sums"), bench.run.max_buckets
    first, second = (SavedStream.from_json(part(*ends).output) for ends in ((0, 1), (1, total)))

    def apply(*events: GuardedEvent) -> RunState:
        return context.attempt.apply(*(replace(event, **context.attempt.guard) for event in events))

    def marked() -> list[tuple[int, int]]:
        found = [known for known in bench.store.list_live_parts(bench.run.run_id) if known.epoch == 1]
        return [(known.first_bucket, known.end_bucket) for known in found]

    apply(FIRST.finishes("scaled"), FIRST.opens(0, centre=1), FIRST.reports(0, {"centre": {0: 1}}))
    apply(FIRST.triggers(0, centre=1), FIRST.opens(1, centre=1))
    edges = Edges(context, {}, epoch=1, is_waiting=True)
    edges.note(sums, first)
    edges.mark(UnalignedBy.TIMEOUT)
    waiting, before = edges.waiting(), marked()
    edges.note(sums, second)
    edges.mark(UnalignedBy.TIMEOUT)
    state = apply(FIRST.completes(1, centre=(0,)), *waiting)
    with_it = marked()

    edges.release(state)

    assert ([], [(0, 1)], [(0, 1), (1, total)]) == (before, with_it, marked())
    assert () == edges.waiting()


def test_metrics_of_all_parts_are_the_edges() -> None:
    parts = (part(0, 2, loss=1.0), part(2, 6, gain=2.0))

    assert {"loss": 1.0, "gain": 2.0} == read_edges(parts)[1]["x"].metrics
