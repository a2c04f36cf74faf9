"""What does every store promise? One suite for the one in Postgres and for its twin in memory."""

from __future__ import annotations

import dataclasses
import secrets
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import LeaseHeldError, ProtocolViolationError, RunNotFoundError, SupersededError
from iteration_lib.protocol import Command
from iteration_lib.protocol.command import (
    AbortThrough,
    EndAttempt,
    OpenAttempt,
    OpenEpoch,
    PinData,
    RecordRequest,
    ReplaceDefinition,
    SetRunStatus,
)
from iteration_lib.protocol.event import CheckpointsDiscarded
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import CRITERIA, NO_EPOCH, EdgeState, Reports, RunId
from iteration_lib.protocol.status import AttemptOutcome, CheckpointStatus, RunStatus, StopKind
from iteration_lib.store.record import RunRecord
from iteration_lib.store.run_key import LONGEST_RUN_KEY_BYTES
from iteration_lib.store.seam import RunVersion, StoreWithHistory
from tests.protocol_script import HOLDER, LATER, Sender, aborts, asks, attempt_id, claim, part, stops
from tests.store_script import (
    DEFINITION,
    SOME_TIME,
    a_run,
    added,
    history,
    new_family,
    read_state,
    timeless,
    whole_story,
    wired,
)

pytestmark = pytest.mark.postgres

_DEADLINE_SECONDS = 30


# Adding and finding runs


def test_added_run_is_found_by_its_key_and_by_its_id(store: StoreWithHistory) -> None:
    run = a_run(max_epochs=9)

    assert store.add_run(run)

    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    expected = RunRecord(**fields, status=RunStatus.RUNNING, created_at=SOME_TIME)
    assert [expected, expected] == [timeless(store.find_run(name)) for name in (run.run_key, run.run_id)]


def test_revision_that_is_read_of_a_run_is_the_one_that_its_transactions_count(
    store: StoreWithHistory, first: Sender
) -> None:
    """Also where its own row tells of nothing else that was written."""
    run_id = added(store)
    coordinator = Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family))
    before = store.find_run(run_id)

    coordinator.apply(run_id, first.opens(0, centroids=1))

    with store.transaction(run_id) as transaction:
        counted = transaction.revision
    read = [next(run for run in store.list_runs() if run.run_id == run_id), store.find_run(run_id)]
    assert [counted, counted] == [run.revision if run is not None else None for run in read]
    assert before == read[1]
    assert before is not None
    assert before.revision < counted


def test_longest_key_that_a_run_can_have_is_found(store: StoreWithHistory) -> None:
    """Of letters that a server cannot write shorter."""
    run = a_run(secrets.token_hex(LONGEST_RUN_KEY_BYTES // 2))

    assert store.add_run(run)

    found = store.find_run(run.run_key)
    assert run.run_id == (found.run_id if found is not None else None)


def test_run_that_is_not_there_is_not_found(store: StoreWithHistory) -> None:
    for name in ("nothing", "", "%", "'; --", str(a_run().run_id), "a\0b", "caf\udce9", "x" * 9_000):
        assert store.find_run(name) is None


def test_run_is_not_found_by_another_spelling_of_its_id(store: StoreWithHistory) -> None:
    run_id = added(store)

    for name in (run_id.upper(), run_id.replace("-", ""), f"{{{run_id}}}", f"{run_id}\n", f" {run_id}"):
        assert store.find_run(name) is None


def test_key_comes_before_an_id_that_equals_it(store: StoreWithHistory) -> None:
    one = a_run()
    other = a_run(run_key=one.run_id)
    for run in (one, other):
        store.add_run(run)

    found = store.find_run(one.run_id)

    assert other.run_id == (found.run_id if found is not None else None)


def test_taken_key_changes_nothing(store: StoreWithHistory) -> None:
    run = a_run()
    store.add_run(run)
    before = history(store, run.run_id)

    other = a_run(run.run_key, reference="team.other:other", params={"k": 9})
    assert not store.add_run(other)

    assert before == history(store, run.run_id)
    assert ((), None) == (store.list_operators(other.run_id), store.find_run(other.run_id))


def test_run_that_is_added_again_is_there_once(store: StoreWithHistory) -> None:
    """As by whom the answer did not reach."""
    run = a_run()
    store.add_run(run)
    before = history(store, run.run_id)

    assert store.add_run(run)

    assert before == history(store, run.run_id)


def test_taken_id_is_refused_and_changes_nothing(store: StoreWithHistory) -> None:
    run = a_run()
    store.add_run(run)
    before = history(store, run.run_id)

    with pytest.raises(ProtocolViolationError):
        store.add_run(a_run(run_id=run.run_id))

    assert before == history(store, run.run_id)


@pytest.mark.parametrize(
    "changes",
    [{"run_key": ""}, {"max_buckets": 0}, {"max_epochs": 0}, {"max_epochs": -1}],
    ids=lambda changes: "-".join(f"{name}={value!r}" for name, value in changes.items()),
)
def test_illegal_run_is_refused(store: StoreWithHistory, changes: dict[str, Any]) -> None:
    run = dataclasses.replace(a_run(), **changes)

    with pytest.raises(ProtocolViolationError):
        store.add_run(run)

    assert store.find_run(run.run_id) is None


def test_runs_are_listed_newest_first(store: StoreWithHistory) -> None:
    ids = [added(store) for _ in range(3)]

    listed = [run.run_id for run in store.list_runs() if run.run_id in ids]

    assert ids[::-1] == listed


def test_operators_are_listed_in_running_order(store: StoreWithHistory) -> None:
    run_id = added(store)

    assert [
        ("points", "points", "data", "data", None, None),
        ("scaled", "scaled_points", "operator", "buckets", None, None),
        ("centroids", "centroids", "variable", "value", None, None),
        ("x", "x", "operator", "value", None, None),
        ("y", "y", "operator", "buckets", None, None),
        ("norms", "norms", "operator", "buckets", None, None),
    ] == [(o.operator_id, o.name, o.role, o.kind, o.finished_epoch, o.output) for o in store.list_operators(run_id)]


def test_run_that_is_not_there_has_no_history_and_no_transaction(store: StoreWithHistory) -> None:
    run_id = a_run().run_id

    assert [(), None] == [
        store.list_attempts(run_id)
        + store.list_epochs(run_id)
        + store.list_operators(run_id)
        + store.list_pins(run_id)
        + store.list_checkpoints(run_id)
        + store.list_parts(run_id)
        + store.list_live_parts(run_id)
        + store.list_requests(run_id)
        + store.list_notices(run_id)
        + store.list_committables(run_id)
        + store.list_uncommitted(run_id),
        store.find_completed(run_id),
    ]
    with pytest.raises(RunNotFoundError), store.transaction(run_id):
        pass


# States


def test_state_that_was_returned_is_what_the_next_transaction_reads(store: StoreWithHistory, family: int) -> None:
    """Nothing that decides is lost on the way to the rows and back, at any step of a run."""
    run_id, coordinator = added(store), Coordinator(store)

    for events in whole_story(family):
        state = coordinator.apply(run_id, *events)

        assert state == read_state(store, run_id)
    assert RunStatus.FINISHED == state.status


def test_repeated_events_change_neither_state_nor_rows(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(family):
        state, rows = coordinator.apply(run_id, *events), history(store, run_id)

        assert (state, rows) == (Coordinator(store).apply(run_id, *events), history(store, run_id))


def test_names_are_kept_as_they_are(store: StoreWithHistory, first: Sender) -> None:
    """Also their order: by code point, as Python sorts, whatever the database's language."""
    run_id, names = added(store), ["b", "A", "a", "\u00e4", "Z", "z_1", "\U0001f600", CRITERIA]

    heads = dict.fromkeys(names, 1)
    state = Coordinator(store).apply(run_id, claim(family=first.family), first.opens(0, **heads))

    assert sorted(names) == [head.name for head in state.epochs[0].heads]
    assert state == read_state(store, run_id)


def test_edges_are_those_of_every_attempt_that_still_count(store: StoreWithHistory, family: int) -> None:
    """Parts of two attempts make one edge; those of a durable epoch, and of a finished operator, are history."""
    run_id, coordinator = added(store), Coordinator(store)
    one, two = Sender(1, 1, family), Sender(2, 2, family)
    before = (one.marks(NO_EPOCH, part("norms", 0, 3, total=4), part("scaled", 1, 2, total=4)), one.finishes("scaled"))
    durable = (one.opens(0), one.switches(0), one.marks(0, part("x")), one.reports(0), one.triggers(0))
    coordinator.apply(run_id, claim(1, family=family), *before, *durable, one.completes(1))
    coordinator.apply(run_id, one.opens(1), one.switches(1), one.marks(1, part("y", 1, 3, total=4)))
    coordinator.apply(run_id, claim(2, takeover=True, family=family), two.opens(1), two.switches(1))
    state = coordinator.apply(run_id, two.marks(1, part("y", 3, 4, total=4), part("y", 0, 1, total=4)))

    assert (
        EdgeState(epoch=NO_EPOCH, operator_id="norms", total=4, finished=((0, 3),)),
        EdgeState(epoch=1, operator_id="y", total=4, finished=((0, 4),)),
    ) == state.edges
    assert state == read_state(store, run_id)


def test_request_that_comes_again_keeps_its_answer(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    ask, other = asks(1, first.family), asks(2, first.family)
    coordinator.apply(run_id, claim(family=first.family), ask, *first.passes(0, 1))

    state = Coordinator(store).apply(run_id, ask, other)

    assert [("ann", 1), ("ann", None)] == [(r.requested_by, r.checkpoint_id) for r in store.list_requests(run_id)]
    assert {ask.request_id: 1, other.request_id: None} == state.requests == read_state(store, run_id).requests


def test_request_that_the_final_checkpoint_answered_may_come_again(store: StoreWithHistory, first: Sender) -> None:
    run_id, ask = added(store), asks(1, first.family)
    Coordinator(store).apply(run_id, claim(family=first.family), ask, *first.passes(0, 1, records=0))
    before = history(store, run_id)

    Coordinator(store).apply(run_id, ask)

    assert before == history(store, run_id)


def test_last_notice_of_each_listener_is_what_counts(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    names = ("b", "A", "\u00e4", "")
    coordinator.apply(run_id, claim(family=first.family), *(e for n in range(12) for e in first.passes(n, n + 1)))

    for last, name in enumerate(names, start=8):
        state = coordinator.apply(run_id, *(first.notifies(epoch, name) for epoch in range(last + 1)))

    assert {"b": 8, "A": 9, "\u00e4": 10, "": 11} == state.notified == read_state(store, run_id).notified


def test_failures_are_those_of_the_live_attempt(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    one, two = Sender(1, 1, family), Sender(2, 2, family)
    fails = (one.opens(0), one.reports(0), one.triggers(0), one.declines(1), one.triggers(0), one.lets_expire(2))

    seen = []
    claimed = claim(1, family=family, tolerable_failures=1)
    for events in ((claimed, *fails), (one.ends(),), (claim(2, family=family), *two.passes(0, 3))):
        state = coordinator.apply(run_id, *events)
        seen.append((state.checkpoint_failures, read_state(store, run_id).checkpoint_failures))

    assert [(2, 2), (0, 0), (0, 0)] == seen
    assert [2, 0] == [attempt.checkpoint_failures for attempt in store.list_attempts(run_id)]


def test_operators_are_matched_by_id(store: StoreWithHistory, first: Sender) -> None:
    """One that is renamed and moved keeps its marker; one that is dropped loses it, though it comes back."""
    before = {**cast("dict[str, object]", DEFINITION["operators"]), **wired("e", "value", finishes=True)}
    run, coordinator = a_run(definition={**DEFINITION, "operators": before}), Coordinator(store)
    assert store.add_run(run)
    run_id = run.run_id
    coordinator.apply(run_id, claim(family=first.family), first.finishes("scaled"), first.finishes("e"))
    coordinator.apply(run_id, first.marks(NO_EPOCH, part("norms", 0, 1, total=4)))

    change = first.changes("e", "y", "new", "scaled", "norms", dropped=("scaled", "y"))
    state = coordinator.apply(run_id, change)

    assert [("e", "e", True), ("y", "y", False), ("new", "new", False), ("scaled", "scaled", False)] == [
        (o.operator_id, o.name, o.output is not None) for o in store.list_operators(run_id)[:4]
    ]
    assert (frozenset({"e"}), ["norms"]) == (state.finished_operators, [edge.operator_id for edge in state.edges])
    assert state == read_state(store, run_id)
    found = store.find_run(run_id)
    assert (change.definition, change.changes) == (
        found.definition if found is not None else None,
        store.list_attempts(run_id)[0].definition_changes,
    )


def test_acknowledgement_by_another_runs_attempt_is_refused_and_changes_neither_run(
    store: StoreWithHistory, first: Sender
) -> None:
    """Both have the same token: it counts the attempts of a run."""
    mine, others, coordinator, stranger = added(store), added(store), Coordinator(store), Sender(1, 1, new_family())
    for run_id, sender in ((mine, first), (others, stranger)):
        opened = (claim(family=sender.family), sender.opens(0), sender.reports(0), sender.triggers(0))
        coordinator.apply(run_id, *opened)
    before = history(store, mine), history(store, others)

    with pytest.raises(SupersededError):
        coordinator.apply(mine, stranger.acknowledges(1, centroids=(0,)))

    assert before == (history(store, mine), history(store, others))


def test_other_operators_void_the_edges_of_the_open_epoch_but_those_that_are_kept(
    store: StoreWithHistory, first: Sender
) -> None:
    run_id, coordinator, second = added(store), Coordinator(store), Sender(2, 2, first.family)
    marked = first.marks(0, part("y", 0, 1, total=4), part("y", 1, 2, total=4), part("x"))
    coordinator.apply(run_id, claim(family=first.family), first.opens(0), first.switches(0), marked)
    coordinator.apply(run_id, first.marks(NO_EPOCH, part("scaled", total=4)))
    coordinator.apply(run_id, claim(2, family=first.family, takeover=True))

    state = coordinator.apply(run_id, second.changes("x", "y", "scaled", kept=("x", "scaled")))

    assert [(NO_EPOCH, "scaled"), (0, "x")] == [(edge.epoch, edge.operator_id) for edge in state.edges]
    assert state == read_state(store, run_id)
    assert ["y", "y"] == [known.operator_id for known in store.list_parts(run_id) if known.voided_at is not None]


def test_operator_that_was_dropped_may_finish_again(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    finishes = (first.marks(NO_EPOCH, part("norms", total=4)), first.finishes("norms"))
    coordinator.apply(run_id, claim(family=first.family), *finishes, first.changes("norms", dropped=("norms",)))

    state = coordinator.apply(run_id, *finishes)

    assert (frozenset({"norms"}), ()) == (state.finished_operators, state.edges)
    assert state == read_state(store, run_id)
    assert [True, False] == [known.voided_at is not None for known in store.list_parts(run_id)]


# Transactions


def test_transaction_that_fails_leaves_nothing(store: StoreWithHistory, first: Sender) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    before = history(store, run_id), read_state(store, run_id)

    def die_halfway() -> None:
        with store.transaction(run_id) as transaction:
            transaction.write([OpenEpoch(epoch=0, heads=(Reports(name="c", values=(None,)),))], 1)
            raise RuntimeError("the process dies")

    with pytest.raises(RuntimeError, match="the process dies"):
        die_halfway()

    assert before == (history(store, run_id), read_state(store, run_id))


def test_refused_event_leaves_nothing_of_those_before_it_in_its_batch(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    state = coordinator.apply(run_id, claim(family=first.family))
    before = history(store, run_id)

    with pytest.raises(ProtocolViolationError):
        coordinator.apply(run_id, first.opens(0), first.reports(0), first.opens(7))

    assert (before, state) == (history(store, run_id), read_state(store, run_id))
    assert 0 == coordinator.apply(run_id, first.opens(0)).last_epoch


def test_revision_grows_with_every_change_and_only_then(store: StoreWithHistory, family: int) -> None:
    """What is discarded again alone counts, and changes no row: only the rows know what is discarded already."""
    run_id, coordinator, revisions = added(store), Coordinator(store), [revision(store, added(store))]
    for events in (events for events in whole_story(family)[:-1] if not isinstance(events[0], CheckpointsDiscarded)):
        coordinator.apply(run_id, *events)
        revisions.append(revision(store, run_id))
        coordinator.apply(run_id, *events)

        assert revisions[-1] == revision(store, run_id)
    assert sorted(set(revisions)) == revisions


def test_change_of_the_operators_that_comes_again_takes_no_new_marker_away(
    store: StoreWithHistory, first: Sender
) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    change = first.changes("points", "scaled", dropped=("scaled",))
    coordinator.apply(run_id, claim(family=first.family), first.finishes("scaled"), change, first.finishes("scaled"))
    before = history(store, run_id), read_state(store, run_id)

    state = Coordinator(store).apply(run_id, change)

    assert before == (history(store, run_id), state)


def revision(store: StoreWithHistory, run_id: RunId) -> int:
    with store.transaction(run_id) as transaction:
        return transaction.revision


def test_transaction_tells_whose_token_is_in_force(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)

    told = []
    for events in (
        (),
        (claim(1, family=family),),
        (claim(2, takeover=True, family=family),),
        (Sender(2, 2, family).ends(),),
    ):
        coordinator.apply(run_id, *events)
        with store.transaction(run_id) as transaction:
            told.append(transaction.found.attempt_id)

    assert [None, attempt_id(1, family), attempt_id(2, family), attempt_id(2, family)] == told


def test_checkpoint_that_was_aborted_before_it_began_has_not_ended_before_either(
    store: StoreWithHistory, family: int
) -> None:
    run_id, sender = added(store), Sender(1, 1, family)
    events = (claim(family=family), sender.opens(0), sender.reports(0), aborts(1), sender.triggers(0))

    Coordinator(store).apply(run_id, *events)

    (known,) = store.list_checkpoints(run_id)
    assert known.ended_at is not None
    assert known.triggered_at <= known.ended_at


def test_checkpoint_that_was_aborted_before_it_began_answers_whoever_asked(
    store: StoreWithHistory, family: int
) -> None:
    run_id, sender = added(store), Sender(1, 1, family)
    events = (claim(family=family), sender.opens(0), sender.reports(0), asks(1, family), aborts(1), sender.triggers(0))

    state = Coordinator(store).apply(run_id, *events)

    assert {asks(1, family).request_id: 1} == dict(state.requests)
    assert [CheckpointStatus.ABORTED] == [known.status for known in store.list_checkpoints(run_id)]


def test_next_checkpoint_is_aborted_in_the_transaction_that_completes_one(store: StoreWithHistory, family: int) -> None:
    run_id, sender = added(store), Sender(1, 1, family)

    Coordinator(store).apply(run_id, claim(family=family), *sender.passes(0, 1), aborts(2))
    state = Coordinator(store).apply(run_id, sender.opens(1), sender.reports(1), sender.triggers(1))

    assert (0, 2, ()) == (state.last_durable_epoch, state.last_checkpoint_id, state.pending)


def test_revision_after_writing_is_the_one_that_is_committed(store: StoreWithHistory, family: int) -> None:
    """The coordinator keeps its state under it."""
    run_id = added(store)
    commands: tuple[tuple[Command, ...], ...] = (
        (open_attempt(Sender(1, 1, family)),),
        (AbortThrough(checkpoint_id=1), RecordRequest(request_id=asks(1, family).request_id, requested_by="ann")),
        (ReplaceDefinition(definition=DEFINITION, changes=(), dropped=()),),
        (OpenEpoch(epoch=0, heads=(Reports(name="c", values=(None,)),)), PinData(name="p", fingerprint="f", pin={})),
        (
            EndAttempt(fencing_token=1, outcome=AttemptOutcome.FAILED, reason="x"),
            SetRunStatus(status=RunStatus.FAILED, failure="x"),
        ),
    )

    for batch in commands:
        with store.transaction(run_id) as transaction:
            transaction.write(batch, 1)
            after = transaction.revision

        assert after == revision(store, run_id)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("commands", [(), (OpenEpoch(epoch=0, heads=(Reports(name="c", values=(None,)),)),)])
def test_run_is_written_where_it_still_is_what_it_was(
    store: StoreWithHistory,
    first: Sender,
    commands: tuple[Command, ...],
    is_flushed: bool,  # noqa: FBT001 - a case
) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    before = revision(store, run_id)
    known = RunVersion(before, first.attempt_id, last_checkpoint_id=0)

    after = store.write(run_id, commands, 1, known=known, is_flushed=is_flushed)

    assert before + len(commands) == after == revision(store, run_id)
    assert len(commands) == len(store.list_epochs(run_id))


@pytest.mark.parametrize("changed", ["the revision", "the attempt", "no attempt", "the checkpoint", "no run"])
def test_run_that_has_changed_is_not_written(store: StoreWithHistory, first: Sender, changed: str) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    before, rows = revision(store, run_id), history(store, run_id)
    others = {"the attempt": attempt_id(2, first.family), "no attempt": None}
    known = RunVersion(
        before - (changed == "the revision"),
        others.get(changed, first.attempt_id),
        last_checkpoint_id=int(changed == "the checkpoint"),
    )

    written = store.write(
        a_run().run_id if changed == "no run" else run_id,
        (OpenEpoch(epoch=0, heads=(Reports(name="c", values=(None,)),)),),
        1,
        known=known,
    )

    assert written is None
    assert rows == history(store, run_id)


def test_coordinators_see_each_others_writes(store: StoreWithHistory, first: Sender) -> None:
    """Each keeps the state of its last commit; a change by anybody else has to show."""
    run_id, coordinators = added(store), (Coordinator(store), Coordinator(store))
    coordinators[0].apply(run_id, claim(family=first.family))
    steps = [event for number in range(3) for event in first.passes(number, number + 1)]

    for turn, event in enumerate(steps):
        state = coordinators[turn % 2].apply(run_id, event)

        assert state == read_state(store, run_id)
        assert state == coordinators[0].apply(run_id, event)
    assert 2 == state.last_durable_epoch


def test_coordinator_whose_attempt_was_superseded_elsewhere_is_refused(
    store: StoreWithHistory, first: Sender, family: int
) -> None:
    run_id, older = added(store), Coordinator(store)
    older.apply(run_id, claim(1, family=family), first.opens(0))

    Coordinator(store).apply(run_id, claim(2, takeover=True, family=family))

    with pytest.raises(SupersededError) as caught:
        older.apply(run_id, first.reports(0))
    assert (1, 2) == (caught.value.held, caught.value.current)


def test_second_transaction_of_a_run_waits_for_the_first(store: StoreWithHistory, first: Sender) -> None:
    run_id = added(store)
    inside, seen = threading.Event(), []

    def read_later() -> None:
        inside.set()
        seen.append(read_state(store, run_id).fencing_token)

    reader = threading.Thread(target=read_later)
    with store.transaction(run_id) as transaction:
        reader.start()
        assert inside.wait(_DEADLINE_SECONDS)
        transaction.write([open_attempt(first)], 1)
        assert [] == seen
    reader.join(_DEADLINE_SECONDS)

    assert [1] == seen


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
def test_runs_do_not_wait_for_each_other(store: StoreWithHistory) -> None:
    """The twin has one lock for all; nothing depends on more."""
    one, other = added(store), added(store)

    with store.transaction(one):
        assert 0 == in_thread(lambda: read_state(store, other).fencing_token)


def open_attempt(sender: Sender) -> OpenAttempt:
    return OpenAttempt(
        attempt_id=sender.attempt_id,
        fencing_token=sender.token,
        holder=HOLDER,
        lease_expires_at=LATER,
        policy=CheckpointPolicy(),
    )


def in_thread(call: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join(_DEADLINE_SECONDS)
    return answers[0]


# Leases


def test_lease_of_the_live_attempt_is_renewed_by_the_stores_clock(store: StoreWithHistory, first: Sender) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    with store.transaction(run_id) as transaction:
        now = transaction.now

    assert renew(store, run_id, first, seconds=3600)

    expires_at = store.list_attempts(run_id)[0].lease_expires_at
    assert timedelta(seconds=3600) <= expires_at - now < timedelta(seconds=3660)


def test_attempt_tells_by_the_stores_clock_whether_its_lease_is_over(store: StoreWithHistory, first: Sender) -> None:
    """Who reads it has another clock, and asks none."""
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))

    told = []
    for seconds in (3600, 0, 3600):
        renew(store, run_id, first, seconds=seconds)
        told += [attempt.is_lease_over for attempt in store.list_attempts(run_id)]

    assert [False, True, False] == told


@pytest.mark.parametrize("sender", [(1, 2), (2, 1), (2, 2), (1, 0)])
def test_lease_of_nobody_else_is_renewed(
    store: StoreWithHistory, first: Sender, sender: tuple[int, int], family: int
) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    before = store.list_attempts(run_id)

    assert not renew(store, run_id, Sender(*sender, family))

    assert before == store.list_attempts(run_id)


@pytest.mark.parametrize("how", ["superseded", "released"])
def test_lease_of_an_attempt_that_has_ended_is_not_renewed(store: StoreWithHistory, first: Sender, how: str) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    Coordinator(store).apply(
        run_id, claim(2, takeover=True, family=first.family) if how == "superseded" else first.ends()
    )
    before = store.list_attempts(run_id)

    assert not renew(store, run_id, first)

    assert before == store.list_attempts(run_id)


def test_lease_in_a_run_that_is_not_there_is_not_renewed(store: StoreWithHistory, first: Sender) -> None:
    assert not renew(store, a_run().run_id, first)


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
def test_renewing_a_lease_does_not_wait_for_the_runs_lock(store: StoreWithHistory, first: Sender) -> None:
    """Nor for whoever wants to claim the run, while the lease holds. For the twin's one lock it does."""
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))

    with store.transaction(run_id) as transaction:
        transaction.read_state(locks_lease=True)
        assert in_thread(lambda: renew(store, run_id, first))


def test_renewed_lease_is_seen_by_a_claim_through_the_same_coordinator(store: StoreWithHistory, first: Sender) -> None:
    """Renewing is no change of the run's revision, so that a state which was kept still has the old lease."""
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family, lease_ttl_seconds=0.0), first.opens(0))
    assert renew(store, run_id, first, seconds=3600)

    with pytest.raises(LeaseHeldError):
        coordinator.apply(run_id, claim(2, family=first.family))


def test_renewed_lease_is_seen_by_a_stop_through_the_same_coordinator(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family, lease_ttl_seconds=0.0), first.opens(0))
    assert renew(store, run_id, first, seconds=3600)

    state = coordinator.apply(run_id, stops(1, family=first.family))

    assert (RunStatus.RUNNING, StopKind.STOP) == (state.status, state.asked_to)


def test_lease_that_ran_out_frees_the_run(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family, lease_ttl_seconds=0.0))

    assert 2 == coordinator.apply(run_id, claim(2, family=first.family)).fencing_token


def renew(store: StoreWithHistory, run_id: RunId, sender: Sender, *, seconds: float = 30) -> bool:
    return store.renew_lease(run_id, sender.attempt_id, fencing_token=sender.token, lease_ttl_seconds=seconds)


def test_close_is_repeatable(store: StoreWithHistory) -> None:
    store.close()
    store.close()
