"""Does the server count epochs together as whoever reads each of them would?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import EpochStatus
from iteration_lib.store.overview import (
    AttemptSpan,
    EdgeSpan,
    MetricSpan,
    Span,
    read_attempt_spans,
    read_edge_spans,
    read_spans,
)
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import EpochRecord
from tests.protocol_script import Sender, claim, part
from tests.store_script import added, new_family, whole_story

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(store_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(store_url)
    yield opened
    opened.close()


@pytest.fixture
def told(store: PostgresStore) -> RunId:
    """A run of three attempts, with voided epochs, metrics and durable edges."""
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(new_family()):
        coordinator.apply(run_id, *events)
    return run_id


def counted(epochs: list[EpochRecord]) -> Span:
    """Return what a span of these epochs has to say."""
    in_force = [epoch for epoch in epochs if epoch.status is not EpochStatus.VOIDED]
    measured = defaultdict(list)
    for epoch in in_force:
        for name, value in epoch.metrics.items():
            measured[name].append(value)
    return Span(
        first_epoch=epochs[0].epoch,
        last_epoch=epochs[-1].epoch,
        durable=sum(epoch.status is EpochStatus.DURABLE for epoch in epochs),
        aligned=sum(epoch.status is EpochStatus.ALIGNED for epoch in epochs),
        open=sum(epoch.status is EpochStatus.OPEN for epoch in epochs),
        voided=len(epochs) - len(in_force),
        seconds=sum(epoch.seconds or 0.0 for epoch in in_force),
        first_attempt=min(epoch.fencing_token for epoch in epochs),
        last_attempt=max(epoch.fencing_token for epoch in epochs),
        metrics={
            name: MetricSpan(least=min(values), greatest=max(values), last=values[-1])
            for name, values in measured.items()
        },
    )


@pytest.mark.parametrize("width", [1, 2, 3, 100])
def test_span_counts_what_its_epochs_say(store: PostgresStore, told: RunId, width: int) -> None:
    by_span = defaultdict(list)
    for epoch in store.list_epochs(told):
        by_span[epoch.epoch // width].append(epoch)

    spans = read_spans(store, told, width=width)

    assert tuple(counted(epochs) for _, epochs in sorted(by_span.items())) == spans
    assert any(span.voided for span in spans)
    assert any(span.metrics for span in spans)


def test_span_tells_an_aligned_epoch_from_the_open_one(store: PostgresStore) -> None:
    run_id, one = added(store), Sender(1, 1, family := new_family())
    aligning = (one.opens(0), one.reports(0), one.triggers(0), one.opens(1))
    Coordinator(store).apply(run_id, claim(family=family), *aligning)

    spans = read_spans(store, run_id, width=1)

    assert [(0, 1, 0), (0, 0, 1)] == [(span.durable, span.aligned, span.open) for span in spans]


@pytest.mark.parametrize("width", [1, 4, 100])
def test_edge_span_counts_the_epochs_with_an_edge_and_those_that_went_on_from_one(
    store: PostgresStore, told: RunId, width: int
) -> None:
    tokens = {e.epoch: e.fencing_token for e in store.list_epochs(told) if e.status is not EpochStatus.VOIDED}
    totals, marked, found = {}, Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for known in store.list_parts(told):
        if known.voided_at is None and known.epoch in tokens:
            edge, buckets = (known.operator_id, known.epoch), known.end_bucket - known.first_bucket
            totals[edge] = known.total
            marked[edge] += buckets
            found[edge] += buckets if known.fencing_token < tokens[known.epoch] else 0
    by_span = defaultdict(list)
    for operator_id, epoch in totals:
        by_span[epoch // width * width, operator_id].append((operator_id, epoch))

    spans = read_edge_spans(store, told, width=width)

    expected = [
        EdgeSpan(
            first_epoch=first,
            operator_id=name,
            edges=len(edges),
            whole=sum(marked[edge] == totals[edge] for edge in edges),
            restored=sum(found[edge] == totals[edge] for edge in edges),
            restored_in_part=sum(0 < found[edge] < totals[edge] for edge in edges),
        )
        for (first, name), edges in sorted(by_span.items())
    ]
    assert totals
    assert expected == list(spans)


def test_edge_is_restored_where_the_epochs_attempt_found_all_of_its_parts(store: PostgresStore) -> None:
    """Attempts 1 and 2 leave a half each; what each of three attempts says of the epoch that it has opened."""
    run_id, family, coordinator = added(store), new_family(), Coordinator(store)
    one, two, three = (Sender(number, number, family) for number in (1, 2, 3))
    halves = part("x", 0, 4, total=8), part("x", 4, 8, total=8)
    stories = (
        (
            claim(1, family=family),
            *one.passes(0, 1),
            one.opens(1),
            one.switches(1),
            one.marks(1, halves[0]),
            one.fails(),
        ),
        (claim(2, family=family), two.opens(1)),
        (two.switches(1), two.marks(1, halves[1]), two.fails()),
        (claim(3, family=family), three.opens(1)),
    )
    said = []

    for events in stories:
        coordinator.apply(run_id, *events)
        (edge,) = read_edge_spans(store, run_id, width=1)
        said.append((edge.edges, edge.whole, edge.restored, edge.restored_in_part))

    assert [(1, 0, 0, 0), (1, 0, 0, 1), (1, 1, 0, 1), (1, 1, 1, 0)] == said


def test_attempt_span_is_what_an_attempt_opened(store: PostgresStore, told: RunId) -> None:
    opened = defaultdict(list)
    for epoch in store.list_epochs(told):
        opened[epoch.fencing_token].append(epoch)

    spans = read_attempt_spans(store, told)

    assert [
        AttemptSpan(
            attempt=token,
            first_epoch=epochs[0].epoch,
            last_epoch=epochs[-1].epoch,
            durable=sum(epoch.status is EpochStatus.DURABLE for epoch in epochs),
        )
        for token, epochs in sorted(opened.items())
    ] == list(spans)


def test_run_without_epochs_has_no_spans(store: PostgresStore) -> None:
    run_id = added(store)

    assert ((), ()) == (read_spans(store, run_id, width=10), read_edge_spans(store, run_id, width=10))
