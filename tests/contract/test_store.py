"""What does every store promise? One suite for the one in Postgres and for its twin in memory."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    IterationError,
    LeaseHeldError,
    ProtocolViolationError,
    RunNotFoundError,
    SupersededError,
)
from iteration_lib.protocol import Command, Event
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AlignEpoch,
    CompleteCheckpoint,
    EndAttempt,
    FinishOperator,
    MakeEpochsDurable,
    OpenAttempt,
    OpenEpoch,
    PinData,
    PublishOutputs,
    RecordAcknowledgements,
    RecordReports,
    SetRunStatus,
    SubsumeCheckpoint,
    TriggerCheckpoint,
    VoidEpochs,
)
from iteration_lib.protocol.state import CRITERIA, Decision, Reports, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    TerminatedBy,
)
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord, PinRecord, RunRecord
from iteration_lib.store.seam import StoreWithHistory
from tests.protocol_script import DIGEST, HOLDER, LATER, MANIFEST, Sender, attempt_id, claim
from tests.store_script import (
    SOME_TIME,
    a_run,
    added,
    history,
    new_family,
    read_state,
    timeless,
    timeless_state,
)

pytestmark = pytest.mark.postgres

_DEADLINE_SECONDS = 30


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[StoreWithHistory]:
    if request.param == "memory":
        yield MemoryStore(SystemClock())
        return
    opened = PostgresStore(request.getfixturevalue("store_url"))
    yield opened
    opened.close()


@pytest.fixture
def family() -> int:
    return new_family()


@pytest.fixture
def first(family: int) -> Sender:
    return Sender(1, 1, family)


@pytest.fixture
def second(family: int) -> Sender:
    return Sender(2, 2, family)


def whole_story(family: int) -> tuple[tuple[Event, ...], ...]:
    """Batches of events in which every command is written at least once; the run ends FINISHED."""
    one, two, three = Sender(1, 1, family), Sender(2, 2, family), Sender(3, 3, family)
    return (
        (claim(1, family=family),),
        (one.pins("points"), one.pins("labels", "f2")),
        (one.finishes("scaled"),),
        (one.opens(0, centroids=3, criteria=2),),
        (one.reports(0, {"centroids": {1: 5}}),),
        (one.reports(0, {"centroids": {0: 0, 2: 7}}), one.reports(0, {"criteria": {1: 0}})),
        (one.reports(0, {"criteria": {0: 4}}, shift=0.5, loss=1e-3), one.triggers(0, centroids=3, weights=1)),
        (one.opens(1), one.reports(1)),
        (one.acknowledges(1, centroids=(2, 0)),),
        (one.completes(1, centroids=(1,), weights=(0,)),),
        (one.triggers(1), one.opens(2)),
        (one.declines(2, "disk full"),),
        (one.triggers(1),),
        (claim(2, takeover=True, family=family),),
        (two.opens(1),),
        (two.reports(1, {"centroids": {0: 1}}), two.triggers(1)),
        (two.completes(4), two.opens(2)),
        (two.fails("operator 'sums' failed: \N{SNOWMAN}"),),
        (claim(3, family=family),),
        (three.opens(2),),
        (three.reports(2, {"centroids": {0: 0}}), three.triggers(2)),
        (three.completes(5),),
        (three.publishes(),),
        (three.ends(),),
    )


# Adding and finding runs


def test_added_run_is_found_by_its_key_and_by_its_id(store: StoreWithHistory) -> None:
    run = a_run(max_epochs=9)

    assert store.add_run(run)

    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    expected = RunRecord(**fields, status=RunStatus.RUNNING, created_at=SOME_TIME)
    assert [expected, expected] == [timeless(store.find_run(name)) for name in (run.run_key, run.run_id)]


def test_run_that_is_not_there_is_not_found(store: StoreWithHistory) -> None:
    for name in ("nothing", "", "%", "'; --", str(a_run().run_id)):
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
        ("y", "y", "operator", "frame", None, None),
    ] == [(o.operator_id, o.name, o.role, o.kind, o.finished_epoch, o.output) for o in store.list_operators(run_id)]


def test_run_that_is_not_there_has_no_history_and_no_transaction(store: StoreWithHistory) -> None:
    run_id = a_run().run_id

    assert ((), (), (), (), ()) == (
        store.list_attempts(run_id),
        store.list_epochs(run_id),
        store.list_operators(run_id),
        store.list_pins(run_id),
        store.list_checkpoints(run_id),
    )
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


def test_both_stores_give_the_same_states_and_records(store_url: str, family: int) -> None:
    stores: tuple[StoreWithHistory, ...] = (MemoryStore(SystemClock()), PostgresStore(store_url))
    run = a_run()
    for store in stores:
        store.add_run(run)

    for events in whole_story(family):
        states = [timeless_state(Coordinator(store).apply(run.run_id, *events)) for store in stores]

        assert states[0] == states[1]
        assert history(stores[0], run.run_id) == history(stores[1], run.run_id)
    stores[1].close()


def test_history_tells_the_whole_story(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(family):
        coordinator.apply(run_id, *events)

    told = history(store, run_id)
    run: Any = told["runs"][0]
    assert (RunStatus.FINISHED, TerminatedBy.EMPTY_FEEDBACK, 3, 2, 5, None) == (
        run.status,
        run.terminated_by,
        run.fencing_token,
        run.last_durable_epoch,
        run.last_checkpoint_id,
        run.failure,
    )
    assert ({"model": "/state/model"}, "cd" * 32, 3) == (run.outputs, run.state_digest, run.epochs)
    assert (
        attempt(1, family, AttemptOutcome.SUPERSEDED, "taken over"),
        attempt(2, family, AttemptOutcome.FAILED, "operator 'sums' failed: \N{SNOWMAN}"),
        attempt(3, family, AttemptOutcome.FINISHED, None),
    ) == told["attempts"]
    assert (
        epoch(0, 1, "DURABLE", {"centroids": (0, 5, 7), "criteria": (4, 0)}, {"shift": 0.5, "loss": 1e-3}),
        epoch(1, 1, "VOIDED", {"centroids": (3,)}, {}),
        epoch(1, 2, "DURABLE", {"centroids": (1,)}, {}),
        epoch(2, 1, "VOIDED", {"centroids": (None,)}, None),
        epoch(2, 2, "VOIDED", {"centroids": (None,)}, None),
        epoch(2, 3, "DURABLE", {"centroids": (0,)}, {}, terminated_by=TerminatedBy.EMPTY_FEEDBACK),
    ) == told["epochs"]
    assert (
        checkpoint(1, 0, 1, "SUBSUMED"),
        checkpoint(2, 1, 1, "ABORTED", reason="disk full"),
        checkpoint(3, 1, 1, "ABORTED", reason="its attempt was superseded"),
        checkpoint(4, 1, 2, "SUBSUMED"),
        checkpoint(5, 2, 3, "COMPLETED", kind=CheckpointKind.FINAL),
    ) == told["checkpoints"]
    assert (
        PinRecord(name="labels", fingerprint="f2", pin={"files": ["labels.parquet"]}),
        PinRecord(name="points", fingerprint="f1", pin={"files": ["points.parquet"]}),
    ) == told["pins"]
    assert [("scaled", 0, {"files": ["scaled-0.arrow"]})] == [
        (o.operator_id, o.finished_epoch, o.output) for o in store.list_operators(run_id) if o.output is not None
    ]


def attempt(number: int, family: int, outcome: AttemptOutcome, reason: str | None) -> AttemptRecord:
    return AttemptRecord(
        fencing_token=number,
        attempt_id=attempt_id(number, family),
        holder=HOLDER,
        started_at=SOME_TIME,
        lease_expires_at=SOME_TIME,
        ended_at=SOME_TIME,
        outcome=outcome,
        reason=reason,
    )


def epoch(
    number: int,
    token: int,
    status: str,
    records: dict[str, tuple[int | None, ...]],
    metrics: dict[str, float] | None,
    terminated_by: TerminatedBy | None = None,
) -> EpochRecord:
    """An epoch; `metrics` None means that it never aligned."""
    return EpochRecord(
        epoch=number,
        fencing_token=token,
        status=EpochStatus(status),
        terminated_by=terminated_by,
        records=records,
        metrics=metrics or {},
        seconds=0.25 if metrics is not None else None,
        opened_at=SOME_TIME,
        aligned_at=SOME_TIME if metrics is not None else None,
        durable_at=SOME_TIME if status == "DURABLE" else None,
    )


def checkpoint(
    checkpoint_id: int,
    epoch: int,
    token: int,
    status: str,
    *,
    kind: CheckpointKind = CheckpointKind.PERIODIC,
    reason: str | None = None,
) -> CheckpointRecord:
    manifest = reason is None
    return CheckpointRecord(
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        fencing_token=token,
        kind=kind,
        status=CheckpointStatus(status),
        manifest_path=MANIFEST if manifest else None,
        manifest_sha256=DIGEST if manifest else None,
        size_bytes=64 if manifest else None,
        reason=reason,
        triggered_at=SOME_TIME,
        ended_at=SOME_TIME,
    )


def test_epochs_are_listed_from_the_one_that_is_asked_for(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(family):
        coordinator.apply(run_id, *events)

    assert [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)] == [
        (found.epoch, found.fencing_token) for found in store.list_epochs(run_id, 1)
    ]


def test_instant_never_changes_once_it_is_there(store: StoreWithHistory, family: int) -> None:
    """A later step that touched what is done would show here; a lease alone moves."""
    run_id, coordinator = added(store), Coordinator(store)
    known: dict[tuple[str, int, str], Any] = {}

    for events in whole_story(family):
        coordinator.apply(run_id, *events)
        found = instants(store, run_id)

        assert known == {place: found[place] for place in known}
        known = found
    assert len(known) > 30


def test_epoch_becomes_durable_once(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family), *first.passes(0, 1))
    before = store.list_epochs(run_id)

    coordinator.apply(run_id, *first.passes(1, 2))

    assert before == store.list_epochs(run_id)[:1]


def test_writes_of_one_run_leave_all_others_alone(store: StoreWithHistory, family: int) -> None:
    """Also those that are at the same token, epoch and checkpoint."""
    others = {}
    for step in range(len(whole_story(family))):
        other = run_at(store, step)
        others[other] = history(store, other)
    run_id, coordinator = added(store), Coordinator(store)

    for events in whole_story(family):
        coordinator.apply(run_id, *events)

    assert others == {other: history(store, other) for other in others}


def run_at(store: StoreWithHistory, step: int) -> RunId:
    """A run in the middle of the whole story."""
    run_id, coordinator = added(store), Coordinator(store)
    events_of_another = whole_story(new_family())
    for events in events_of_another[:step]:
        coordinator.apply(run_id, *events)
    return run_id


def instants(store: StoreWithHistory, run_id: RunId) -> dict[tuple[str, int, str], Any]:
    """Return every instant that a run's records hold, by its place; attempts, epochs and the like come in order."""
    records: dict[str, tuple[Any, ...]] = {
        "run": (store.find_run(run_id),),
        "attempts": store.list_attempts(run_id),
        "epochs": tuple(sorted(store.list_epochs(run_id), key=lambda found: (found.fencing_token, found.epoch))),
        "checkpoints": store.list_checkpoints(run_id),
    }
    return {
        (table, place, field.name): getattr(record, field.name)
        for table, rows in records.items()
        for place, record in enumerate(rows)
        for field in dataclasses.fields(record)
        if field.name.endswith("_at") and field.name != "lease_expires_at" and getattr(record, field.name) is not None
    }


@pytest.mark.parametrize("value", [1e23, 1.7976931348623157e308, 5e-324, 0.1, 3.0, -2.5], ids=repr)
def test_metrics_come_back_as_the_floats_that_they_were(store: StoreWithHistory, first: Sender, value: float) -> None:
    run_id = added(store)

    Coordinator(store).apply(
        run_id, claim(family=first.family), first.opens(0), first.reports(0, loss=value), first.triggers(0)
    )

    found = store.list_epochs(run_id)[0].metrics["loss"]
    assert (float, value) == (type(found), found)


def test_json_comes_back_as_json(store: StoreWithHistory, first: Sender) -> None:
    """A tuple becomes a list, whoever keeps it."""
    run_id = added(store)
    pin = {"files": ({"path": "a", "rows": 3},), "columns": None, "text": "\N{SNOWMAN} %s :name"}

    event = dataclasses.replace(first.pins("points"), pin=pin)
    Coordinator(store).apply(run_id, claim(family=first.family), event)

    assert {"files": [{"path": "a", "rows": 3}], "columns": None, "text": "\N{SNOWMAN} %s :name"} == store.list_pins(
        run_id
    )[0].pin


def test_names_are_kept_as_they_are(store: StoreWithHistory, first: Sender) -> None:
    """Also their order: by code point, as Python sorts, whatever the database's language."""
    run_id, names = added(store), ["b", "A", "a", "\u00e4", "Z", "z_1", "\U0001f600", CRITERIA]

    heads = dict.fromkeys(names, 1)
    state = Coordinator(store).apply(run_id, claim(family=first.family), first.opens(0, **heads))

    assert sorted(names) == [head.name for head in state.epochs[0].heads]
    assert state == read_state(store, run_id)


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
    run_id, coordinator, revisions = added(store), Coordinator(store), [revision(store, added(store))]
    for events in whole_story(family)[:-1]:
        coordinator.apply(run_id, *events)
        revisions.append(revision(store, run_id))
        coordinator.apply(run_id, *events)

        assert revisions[-1] == revision(store, run_id)
    assert sorted(set(revisions)) == revisions


def revision(store: StoreWithHistory, run_id: RunId) -> int:
    with store.transaction(run_id) as transaction:
        return transaction.revision


def test_revision_after_writing_is_the_one_that_is_committed(store: StoreWithHistory, family: int) -> None:
    """The coordinator keeps its state under it."""
    run_id = added(store)
    commands: tuple[tuple[Command, ...], ...] = (
        (OpenAttempt(attempt_id=attempt_id(1, family), fencing_token=1, holder=HOLDER, lease_expires_at=LATER),),
        (OpenEpoch(epoch=0, heads=(Reports(name="c", values=(None,)),)), PinData(name="p", fingerprint="f", pin={})),
        (SetRunStatus(status=RunStatus.FAILED, failure="x"), SetRunStatus(status=RunStatus.RUNNING)),
    )

    for batch in commands:
        with store.transaction(run_id) as transaction:
            transaction.write(batch, 1)
            after = transaction.revision

        assert after == revision(store, run_id)


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


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_runs_do_not_wait_for_each_other(store: StoreWithHistory) -> None:
    """The twin has one lock for all; nothing depends on more."""
    one, other = added(store), added(store)

    with store.transaction(one):
        assert 0 == in_thread(lambda: read_state(store, other).fencing_token)


def in_thread(call: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join(_DEADLINE_SECONDS)
    return answers[0]


# Writes that no protocol would ask for


def open_attempt(sender: Sender, *, token: int | None = None) -> OpenAttempt:
    return OpenAttempt(
        attempt_id=sender.attempt_id, fencing_token=token or sender.token, holder=HOLDER, lease_expires_at=LATER
    )


HEADS = (Reports(name="centroids", values=(3,)),)
GOES_ON = Decision(records={"centroids": 3}, terminated_by=None)
NOT_THERE = 7
WRONG: dict[str, tuple[Command, ...]] = {
    "an attempt beside the live one": (
        OpenAttempt(attempt_id=attempt_id(8, 8), fencing_token=2, holder=HOLDER, lease_expires_at=LATER),
    ),
    "an attempt under a token out of turn": (
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.RELEASED, reason=None),
        OpenAttempt(attempt_id=attempt_id(9, 9), fencing_token=3, holder=HOLDER, lease_expires_at=LATER),
    ),
    "the end of an attempt that is not there": (
        EndAttempt(fencing_token=NOT_THERE, outcome=AttemptOutcome.RELEASED, reason=None),
    ),
    "the end of an attempt that has ended": (
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.RELEASED, reason=None),
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.FAILED, reason="x"),
    ),
    "a failure without a reason": (SetRunStatus(status=RunStatus.FAILED),),
    "an ending without a rule": (SetRunStatus(status=RunStatus.TERMINATING),),
    "a status out of turn": (
        SetRunStatus(status=RunStatus.TERMINATING, terminated_by=TerminatedBy.CRITERIA),
        SetRunStatus(status=RunStatus.RUNNING),
    ),
    "outputs of a run that is not terminating": (PublishOutputs(outputs={}, state_digest="d"),),
    "a second pin of a stream": (PinData(name="points", fingerprint="f9", pin={}),),
    "a second marker of an operator": (FinishOperator(operator_id="scaled", epoch=1, output={}),),
    "a marker of an operator that is not there": (FinishOperator(operator_id="nobody", epoch=1, output={}),),
    "an epoch that is there": (OpenEpoch(epoch=1, heads=HEADS),),
    "a durable epoch again": (OpenEpoch(epoch=0, heads=HEADS),),
    "a second open epoch": (OpenEpoch(epoch=3, heads=(Reports(name="centroids", values=(None,)),)),),
    "an epoch without subtasks": (OpenEpoch(epoch=3, heads=(Reports(name="centroids", values=()),)),),
    "reports of an epoch that is not there": (
        RecordReports(epoch=NOT_THERE, heads=(Reports(name="centroids", values=(None,)),)),
    ),
    "reports of an epoch that is aligned": (
        RecordReports(epoch=1, heads=(Reports(name="centroids", values=(None,)),)),
    ),
    "alignment of an epoch that is not there": (
        AlignEpoch(epoch=NOT_THERE, decision=GOES_ON, metrics={}, seconds=0.0),
    ),
    "alignment of an epoch that is aligned": (AlignEpoch(epoch=1, decision=GOES_ON, metrics={}, seconds=0.0),),
    "alignment of an epoch that lacks a report": (AlignEpoch(epoch=2, decision=GOES_ON, metrics={}, seconds=0.0),),
    "durable epochs taken back": (MakeEpochsDurable(through=-1),),
    "a checkpoint of an epoch that is not there": (
        TriggerCheckpoint(checkpoint_id=3, epoch=NOT_THERE, kind=CheckpointKind.PERIODIC, participants=HEADS),
    ),
    "a second checkpoint of an epoch": (
        TriggerCheckpoint(checkpoint_id=3, epoch=1, kind=CheckpointKind.PERIODIC, participants=HEADS),
    ),
    "a checkpoint id taken back": (
        AbortCheckpoint(checkpoint_id=2, reason="x"),
        TriggerCheckpoint(checkpoint_id=1, epoch=1, kind=CheckpointKind.PERIODIC, participants=HEADS),
    ),
    "a checkpoint without participants": (
        AbortCheckpoint(checkpoint_id=2, reason="x"),
        TriggerCheckpoint(checkpoint_id=3, epoch=1, kind=CheckpointKind.PERIODIC, participants=()),
    ),
    "acknowledgements of a checkpoint that is not there": (
        RecordAcknowledgements(checkpoint_id=NOT_THERE, participants=HEADS),
    ),
    "acknowledgements of a completed checkpoint": (RecordAcknowledgements(checkpoint_id=1, participants=HEADS),),
    "a second completed checkpoint": (
        RecordAcknowledgements(checkpoint_id=2, participants=HEADS),
        CompleteCheckpoint(checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=1),
    ),
    "a completed checkpoint that lacks an acknowledgement": (
        SubsumeCheckpoint(checkpoint_id=1),
        CompleteCheckpoint(checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=1),
    ),
    "a manifest whose digest is none": (
        SubsumeCheckpoint(checkpoint_id=1),
        RecordAcknowledgements(checkpoint_id=2, participants=HEADS),
        CompleteCheckpoint(checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256="x", size_bytes=1),
    ),
    "completing a completed checkpoint": (
        CompleteCheckpoint(checkpoint_id=1, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=1),
    ),
    "subsuming a pending checkpoint": (SubsumeCheckpoint(checkpoint_id=2),),
    "aborting a completed checkpoint": (AbortCheckpoint(checkpoint_id=1, reason="x"),),
    "aborting a checkpoint that is not there": (AbortCheckpoint(checkpoint_id=NOT_THERE, reason="x"),),
}


@pytest.fixture
def midway(store: StoreWithHistory, first: Sender) -> RunId:
    """A run with epoch 0 durable, epoch 1 aligned and its checkpoint pending, epoch 2 open, one pin, one marker."""
    run_id = added(store)
    Coordinator(store).apply(
        run_id,
        claim(family=first.family),
        first.pins("points"),
        first.finishes("scaled"),
        *first.passes(0, 1),
        first.opens(1),
        first.reports(1),
        first.triggers(1),
        first.opens(2),
    )
    return run_id


@pytest.mark.parametrize("commands", WRONG.values(), ids=WRONG)
def test_write_that_breaks_the_protocol_is_refused_and_leaves_nothing(
    store: StoreWithHistory, midway: RunId, commands: tuple[Command, ...]
) -> None:
    before = history(store, midway), read_state(store, midway)

    assert isinstance(refused_write(store, midway, commands, 1), ProtocolViolationError)

    assert before == (history(store, midway), read_state(store, midway))


STALE: dict[str, Command] = {
    "SetRunStatus": SetRunStatus(status=RunStatus.FAILED, failure="x"),
    "PinData": PinData(name="more", fingerprint="f", pin={}),
    "FinishOperator": FinishOperator(operator_id="x", epoch=1, output={}),
    "OpenEpoch": OpenEpoch(epoch=3, heads=HEADS),
    "RecordReports": RecordReports(epoch=2, heads=HEADS),
    "AlignEpoch": AlignEpoch(epoch=2, decision=GOES_ON, metrics={}, seconds=0.0),
    "VoidEpochs": VoidEpochs(after=0),
    "MakeEpochsDurable": MakeEpochsDurable(through=1),
    "TriggerCheckpoint": TriggerCheckpoint(checkpoint_id=3, epoch=1, kind=CheckpointKind.PERIODIC, participants=HEADS),
    "RecordAcknowledgements": RecordAcknowledgements(checkpoint_id=2, participants=HEADS),
    "CompleteCheckpoint": CompleteCheckpoint(
        checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=1
    ),
    "SubsumeCheckpoint": SubsumeCheckpoint(checkpoint_id=1),
    "AbortCheckpoint": AbortCheckpoint(checkpoint_id=2, reason="x"),
}


@pytest.mark.parametrize("token", [0, 2, 3], ids=lambda token: f"token {token}")
@pytest.mark.parametrize("command", STALE.values(), ids=STALE)
def test_write_under_another_token_is_refused_by_the_store_itself(
    store: StoreWithHistory, midway: RunId, command: Command, token: int
) -> None:
    """Though the protocol would have refused it before: this is the fence that a stale reader of states runs into."""
    before = history(store, midway), read_state(store, midway)

    assert isinstance(refused_write(store, midway, (command,), token), ProtocolViolationError)

    assert before == (history(store, midway), read_state(store, midway))


def test_outputs_under_another_token_are_refused_by_the_store_itself(store: StoreWithHistory, first: Sender) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family), *first.passes(0, 1, records=0))
    before = history(store, run_id)

    outputs = PublishOutputs(outputs={}, state_digest="d")
    assert isinstance(refused_write(store, run_id, (outputs,), 2), ProtocolViolationError)

    assert before == history(store, run_id)


def refused_write(store: StoreWithHistory, run_id: RunId, commands: Sequence[Command], token: int) -> IterationError:
    with pytest.raises(IterationError) as caught, store.transaction(run_id) as transaction:
        transaction.write(commands, token)
    return caught.value


def test_attempt_id_of_another_run_is_refused(store: StoreWithHistory, first: Sender) -> None:
    one, other = added(store), added(store)
    Coordinator(store).apply(one, claim(family=first.family))

    with pytest.raises(ProtocolViolationError):
        Coordinator(store).apply(other, claim(family=first.family))

    assert () == store.list_attempts(other)


def test_claim_of_an_attempt_that_ended_before_the_last_is_refused(store: StoreWithHistory, family: int) -> None:
    """The protocol remembers the last attempt that ended, the store all of them."""
    run_id = added(store)
    first, second = Sender(1, 1, family), Sender(2, 2, family)
    Coordinator(store).apply(run_id, claim(1, family=family), first.ends())
    Coordinator(store).apply(run_id, claim(2, family=family), second.ends())

    with pytest.raises(ProtocolViolationError):
        Coordinator(store).apply(run_id, claim(1, family=family))

    assert [1, 2] == [found.fencing_token for found in store.list_attempts(run_id)]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_number_that_json_does_not_know_is_refused(store: StoreWithHistory, first: Sender, number: float) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family), first.opens(0))
    before = history(store, run_id)

    with pytest.raises(ProtocolViolationError):
        Coordinator(store).apply(run_id, first.reports(0, loss=number))

    assert before == history(store, run_id)


# Leases


def test_lease_of_the_live_attempt_is_renewed_by_the_stores_clock(store: StoreWithHistory, first: Sender) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))
    with store.transaction(run_id) as transaction:
        now = transaction.now

    assert renew(store, run_id, first, seconds=3600)

    expires_at = store.list_attempts(run_id)[0].lease_expires_at
    assert timedelta(seconds=3600) <= expires_at - now < timedelta(seconds=3660)


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


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_renewing_a_lease_does_not_wait_for_the_runs_lock(store: StoreWithHistory, first: Sender) -> None:
    """Nor does this hold for the twin's one lock."""
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=first.family))

    with store.transaction(run_id):
        assert in_thread(lambda: renew(store, run_id, first))


def test_renewed_lease_is_seen_by_a_claim_through_the_same_coordinator(store: StoreWithHistory, first: Sender) -> None:
    """Renewing is no change of the run's revision, so that a state which was kept still has the old lease."""
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family, lease_ttl_seconds=0.0), first.opens(0))
    assert renew(store, run_id, first, seconds=3600)

    with pytest.raises(LeaseHeldError):
        coordinator.apply(run_id, claim(2, family=first.family))


def test_lease_that_ran_out_frees_the_run(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family, lease_ttl_seconds=0.0))

    assert 2 == coordinator.apply(run_id, claim(2, family=first.family)).fencing_token


def renew(store: StoreWithHistory, run_id: RunId, sender: Sender, *, seconds: float = 30) -> bool:
    return store.renew_lease(run_id, sender.attempt_id, fencing_token=sender.token, lease_ttl_seconds=seconds)


def test_close_is_repeatable(store: StoreWithHistory) -> None:
    store.close()
    store.close()
