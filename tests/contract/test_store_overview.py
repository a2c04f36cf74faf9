"""Does the server count epochs together as whoever reads each of them would?"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Event
from iteration_lib.protocol.event import AttemptEnded
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import EpochStatus
from iteration_lib.store.overview import (
    AttemptSpan,
    EdgeSpan,
    MetricSpan,
    Restart,
    Span,
    read_attempt_spans,
    read_attempts,
    read_edge_spans,
    read_restarts,
    read_spans,
)
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import EpochRecord
from tests.protocol_script import FIRST, Sender, claim, part
from tests.store_script import added, new_family, whole_story

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("each_store", ["postgres"], indirect=True)]


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
    halves = part("y", 0, 2, total=4), part("y", 2, 4, total=4)
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


@pytest.mark.parametrize("attempts", [range(1, 100), range(2, 3), range(0)], ids=["all", "one", "none"])
def test_attempt_and_its_span_are_those_of_a_window(store: PostgresStore, told: RunId, attempts: range) -> None:
    opened = defaultdict(list)
    for epoch in store.list_epochs(told):
        opened[epoch.fencing_token].append(epoch)

    found, spans = read_attempts(store, told, attempts), read_attempt_spans(store, told, attempts)

    assert [known for known in store.list_attempts(told) if known.fencing_token in attempts] == list(found)
    assert [
        AttemptSpan(
            attempt=token,
            first_epoch=epochs[0].epoch,
            last_epoch=epochs[-1].epoch,
            durable=sum(epoch.status is EpochStatus.DURABLE for epoch in epochs),
        )
        for token, epochs in sorted(opened.items())
        if token in attempts
    ] == list(spans)


def passing(
    family: int, *endings: AttemptEnded | None, first_epochs: tuple[int | None, ...]
) -> list[tuple[Event, ...]]:
    """Attempts that end like this, or die; each makes its first epoch durable, but where it opens none."""
    stories, checkpoint_id = [], 0
    for token, (ending, epoch) in enumerate(zip((*endings, None), first_epochs, strict=True), 1):
        sender = Sender(token, token, family)
        stories.append((claim(token, takeover=True, family=family),))
        if epoch is not None:
            checkpoint_id += 1
            stories.append(sender.passes(epoch, checkpoint_id))
        if ending is not None:
            stories.append((replace(ending, attempt_id=sender.attempt_id, fencing_token=token),))
    return stories


FAILS, RELEASES, IS_TOLD = FIRST.fails(), FIRST.ends(), FIRST.ends(reason="told to end")


@pytest.mark.parametrize(
    ("endings", "first_epochs", "restarts"),
    [
        ((RELEASES, RELEASES), (0, 1, 2), []),
        ((FAILS,), (0, 1), [(1, 2, 1)]),
        ((None,), (0, 1), [(1, 2, 1)]),
        ((IS_TOLD,), (0, 1), [(1, 2, 1)]),
        ((RELEASES, None), (0, None, 1), [(1, 3, 1)]),
        ((FAILS, RELEASES, FAILS), (0, 1, 2, 3), [(1, 2, 1), (1, 4, 3)]),
    ],
    ids=["as planned", "failed", "died", "was told to end", "died before its first epoch", "failed twice"],
)
def test_attempt_behind_one_that_was_cut_short_is_a_restart(
    store: PostgresStore,
    endings: tuple[AttemptEnded | None, ...],
    first_epochs: tuple[int | None, ...],
    restarts: list[tuple[int, int, int]],
) -> None:
    run_id, family = added(store), new_family()
    for events in passing(family, *endings, first_epochs=first_epochs):
        Coordinator(store).apply(run_id, *events)

    found = read_restarts(store, run_id, width=1)

    assert restarts == [(restart.attempts, restart.attempt, restart.epoch) for restart in found]


def test_attempt_that_opens_an_epoch_again_is_a_restart_however_the_one_before_ended(store: PostgresStore) -> None:
    run_id, family = added(store), new_family()
    one, two = Sender(1, 1, family), Sender(2, 2, family)
    for events in (
        (claim(1, family=family), *one.passes(0, 1), one.opens(1), one.ends()),
        (claim(2, family=family), two.opens(1)),
    ):
        Coordinator(store).apply(run_id, *events)

    found = read_restarts(store, run_id, width=1)

    assert (Restart(attempts=1, attempt=2, epoch=1, to_checkpoint_id=None),) == found


def test_fallback_is_a_restart_that_names_its_checkpoint(store: PostgresStore) -> None:
    run_id, family = added(store), new_family()
    one, two = Sender(1, 1, family), Sender(2, 2, family)
    for events in (
        (claim(1, family=family), *one.passes(0, 1), *one.passes(1, 2), one.ends()),
        (claim(2, family=family),),
    ):
        Coordinator(store).apply(run_id, *events)
    with store.transaction(run_id) as transaction:
        checkpoint = transaction.read_checkpoint(1)
    assert checkpoint is not None
    Coordinator(store).apply(run_id, two.falls_back(checkpoint), two.opens(1))

    found = read_restarts(store, run_id, width=1)

    assert (Restart(attempts=1, attempt=2, epoch=1, to_checkpoint_id=1),) == found


def test_restarts_of_one_span_are_counted_together_with_the_last_of_them(store: PostgresStore) -> None:
    run_id, family = added(store), new_family()
    for events in passing(family, FAILS, FAILS, FAILS, FAILS, first_epochs=(0, 1, 2, 3, 4)):
        Coordinator(store).apply(run_id, *events)

    found = read_restarts(store, run_id, width=2)

    assert [(1, 2, 1), (2, 4, 3), (1, 5, 4)] == [(known.attempts, known.attempt, known.epoch) for known in found]


def test_run_without_epochs_has_no_spans(store: PostgresStore) -> None:
    run_id = added(store)

    assert ((), (), ()) == tuple(read(store, run_id, width=10) for read in (read_spans, read_edge_spans, read_restarts))
