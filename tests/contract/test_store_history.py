"""What is told of a run? The same by every store: all that ever happened, once it has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast, get_args

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Command, RunState, decide
from iteration_lib.protocol.command import DeleteRun, FallBack, ReleaseOrigin
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
    UnalignedBy,
)
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    CommittableRecord,
    EpochRecord,
    NoticeRecord,
    PartRecord,
    PinRecord,
    RequestRecord,
    StopRecord,
)
from iteration_lib.store.seam import History, StoreWithHistory
from tests.protocol_script import (
    DIGEST,
    HOLDER,
    MANIFEST,
    NOW,
    Sender,
    asks,
    attempt_id,
    claim,
    drains,
    part,
    resumes,
    stop_id,
    stops,
)
from tests.store_script import (
    SOME_TIME,
    a_run,
    added,
    history,
    new_family,
    read_state,
    timeless,
    timeless_state,
    whole_story,
)

pytestmark = pytest.mark.postgres


def test_whole_story_has_every_command() -> None:
    """So that each is held to what this suite says of all; branches, deleted runs and fallbacks have their own."""
    state, written = RunState(run_id=RunId("a")), set[type[Command]]()
    for event in (event for events in whole_story(0) for event in events):
        state, commands = decide(state, event, NOW)
        written |= {type(command) for command in commands}

    assert set(get_args(Command)) - {ReleaseOrigin, DeleteRun, FallBack} == written


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


@pytest.fixture
def told(store: StoreWithHistory, family: int) -> dict[str, tuple[Any, ...]]:
    """Everything that can be read of a run at its end, without times."""
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(family):
        coordinator.apply(run_id, *events)
    return history(store, run_id)


def test_run_tells_how_it_ended(told: dict[str, tuple[Any, ...]]) -> None:
    (run,) = told["runs"]

    assert (RunStatus.FINISHED, TerminatedBy.EMPTY_FEEDBACK, None) == (run.status, run.terminated_by, run.failure)
    assert (3, 8, 13, 12) == (run.fencing_token, run.last_durable_epoch, run.last_checkpoint_id, run.aborted_through)
    assert ({"model": "/state/model"}, "cd" * 32, 9) == (run.outputs, run.state_digest, run.epochs)
    assert ["points", "centroids", "z", "x", "norms"] == [operator.operator_id for operator in told["operators"]]
    assert {"points", "centroids", "z", "x", "norms"} == set(run.definition["operators"])


def test_attempts_tell_who_drove(told: dict[str, tuple[Any, ...]], family: int) -> None:
    patient = CheckpointPolicy(max_pending=2, tolerable_failures=1)
    changes = ("operators: points, centroids, z, x, norms",)

    assert (
        attempt(1, family, AttemptOutcome.SUPERSEDED, "taken over", policy=patient, checkpoint_failures=1),
        attempt(
            2,
            family,
            AttemptOutcome.FAILED,
            "operator 'sums' failed: \N{SNOWMAN}",
            policy=CheckpointPolicy(max_pending=2),
            definition_changes=changes,
            failed=FailedOperator(operator_id="sums", epoch=5),
        ),
        attempt(3, family, AttemptOutcome.FINISHED, None, ignores_edges=True),
    ) == told["attempts"]


def attempt(
    number: int, family: int, outcome: AttemptOutcome, reason: str | None, **fields: Any
) -> AttemptRecord:  # Any: fields of a record
    return AttemptRecord(
        fencing_token=number,
        attempt_id=attempt_id(number, family),
        holder=HOLDER,
        started_at=SOME_TIME,
        lease_expires_at=SOME_TIME,
        ended_at=SOME_TIME,
        outcome=outcome,
        reason=reason,
        **fields,
    )


def test_epochs_tell_what_was_decided_and_what_was_voided(told: dict[str, tuple[Any, ...]]) -> None:
    assert (
        epoch(0, 1, "DURABLE", {"centroids": (0, 5, 7), "criteria": (4, 0)}, {"shift": 0.5, "loss": 1e-3}),
        epoch(1, 1, "DURABLE", {"centroids": (3,)}, {}, unaligned_by=UnalignedBy.TIMEOUT),
        epoch(2, 1, "DURABLE", {"centroids": (3,)}, {}),
        epoch(3, 1, "DURABLE", {"centroids": (3,)}, {"shift": 0.25}),
        epoch(4, 1, "VOIDED", {"centroids": (3,)}, {}, unaligned_by=UnalignedBy.PREEMPTION),
        epoch(4, 2, "DURABLE", {"centroids": (1,)}, {}),
        epoch(5, 1, "VOIDED", {"centroids": (None,)}, None, unaligned_by=UnalignedBy.TIMEOUT),
        epoch(5, 2, "DURABLE", {"centroids": (3,)}, {}),
        epoch(6, 2, "DURABLE", {"centroids": (3,)}, {}),
        epoch(7, 2, "DURABLE", {"centroids": (3,)}, {}),
        epoch(8, 2, "VOIDED", {"centroids": (None,)}, None),
        epoch(8, 3, "DURABLE", {"centroids": (0,)}, {}, terminated_by=TerminatedBy.EMPTY_FEEDBACK),
    ) == told["epochs"]


def epoch(
    number: int,
    token: int,
    status: str,
    records: dict[str, tuple[int | None, ...]],
    metrics: dict[str, float] | None,
    *,
    terminated_by: TerminatedBy | None = None,
    unaligned_by: UnalignedBy | None = None,
) -> EpochRecord:
    """An epoch; `metrics` None means that it never aligned."""
    sums = {head: sum(value or 0 for value in values) for head, values in records.items()}
    aligned_at = SOME_TIME if metrics is not None else None
    return EpochRecord(
        epoch=number,
        fencing_token=token,
        status=EpochStatus(status),
        terminated_by=terminated_by,
        decision_records=sums if metrics is not None else None,
        records=records,
        metrics=metrics or {},
        seconds=0.25 if metrics is not None else None,
        opened_at=SOME_TIME,
        held_at=aligned_at,
        aligned_at=aligned_at,
        durable_at=SOME_TIME if status == "DURABLE" else None,
        unaligned_by=unaligned_by,
        unaligned_at=SOME_TIME if unaligned_by is not None else None,
    )


def test_checkpoints_tell_what_became_of_them(told: dict[str, tuple[Any, ...]]) -> None:
    manual, final = CheckpointKind.MANUAL, CheckpointKind.FINAL

    assert (
        checkpoint(1, 0, 1, "DISCARDED"),
        failed(2, 1, 1, CheckpointFailure.EXPIRED, "took longer than 600 s"),
        failed(3, 2, 1, CheckpointFailure.ABORTED_BY_USER, "aborted by bob"),
        failed(4, 3, 1, CheckpointFailure.ABORTED_BY_USER, "aborted before it began"),
        checkpoint(5, 3, 1, "DISCARDED"),
        failed(6, 4, 1, CheckpointFailure.DECLINED, "disk full"),
        failed(7, 4, 1, CheckpointFailure.ATTEMPT_ENDED, "its attempt was superseded"),
        checkpoint(8, 4, 2, "SUBSUMED", kind=manual),
        checkpoint(9, 5, 2, "SUBSUMED"),
        failed(10, 6, 2, CheckpointFailure.SUBSUMED, "subsumed by 11"),
        checkpoint(11, 7, 2, "SUBSUMED"),
        failed(12, 8, 3, CheckpointFailure.ABORTED_BY_USER, "aborted by ann", kind=final),
        dataclasses.replace(checkpoint(13, 8, 3, "COMPLETED", kind=final), by_person="ann"),
    ) == told["checkpoints"]


def checkpoint(
    checkpoint_id: int, epoch: int, token: int, status: str, *, kind: CheckpointKind = CheckpointKind.PERIODIC
) -> CheckpointRecord:
    return CheckpointRecord(
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        fencing_token=token,
        kind=kind,
        status=CheckpointStatus(status),
        manifest_path=MANIFEST,
        manifest_sha256=DIGEST,
        size_bytes=64,
        reason=None,
        triggered_at=SOME_TIME,
        ended_at=SOME_TIME,
        safe_to_delete=status != "COMPLETED",
    )


def failed(
    checkpoint_id: int,
    epoch: int,
    token: int,
    failure: CheckpointFailure,
    reason: str,
    *,
    kind: CheckpointKind = CheckpointKind.PERIODIC,
) -> CheckpointRecord:
    return dataclasses.replace(
        checkpoint(checkpoint_id, epoch, token, "ABORTED", kind=kind),
        manifest_path=None,
        manifest_sha256=None,
        size_bytes=None,
        failure=failure,
        reason=reason,
    )


def test_edges_tell_what_was_durable_inside_an_epoch(told: dict[str, tuple[Any, ...]]) -> None:
    assert (
        edge_part(NO_EPOCH, "norms", 0, 2, total=4, voided=True),
        edge_part(NO_EPOCH, "norms", 2, 3, total=4, voided=True, token=2),
        edge_part(NO_EPOCH, "scaled", 0, 2, total=4, voided=True),
        edge_part(NO_EPOCH, "scaled", 2, 4, total=4, voided=True),
        edge_part(1, "y", 0, 2, total=4),
        edge_part(1, "y", 2, 4, total=4),
        edge_part(4, "x", 0, 1, total=1, voided=True),
        edge_part(4, "y", 0, 1, total=4, voided=True),
    ) == told["parts"]


def edge_part(
    epoch: int,
    operator_id: str,
    first_bucket: int,
    end_bucket: int,
    *,
    total: int,
    voided: bool = False,
    token: int = 1,
) -> PartRecord:
    return PartRecord(
        epoch=epoch,
        operator_id=operator_id,
        first_bucket=first_bucket,
        end_bucket=end_bucket,
        total=total,
        fencing_token=token,
        output={"files": [f"{operator_id}-{first_bucket}.arrow"]},
        metrics={"rows": 2.0},
        finished_at=SOME_TIME,
        voided_at=SOME_TIME if voided else None,
    )


def test_pins_markers_requests_and_notices_tell_what_was_done_once(
    told: dict[str, tuple[Any, ...]], family: int
) -> None:
    markers = [(o.operator_id, o.finished_epoch, o.output) for o in told["operators"] if o.output is not None]

    assert [("z", 4, {"files": [{"path": "scaled-0.arrow"}]})] == markers
    assert (
        PinRecord(name="labels", fingerprint="f2", pin={"files": ["labels.parquet"]}),
        PinRecord(name="points", fingerprint="f1", pin={"files": ["points.parquet"]}),
    ) == told["pins"]
    assert (
        tuple(
            RequestRecord(
                request_id=asks(number, family).request_id,
                requested_by="ann",
                requested_at=SOME_TIME,
                checkpoint_id=answer,
            )
            for number, answer in ((1, 8), (2, 12))
        )
        == told["requests"]
    )
    assert (
        NoticeRecord(listener_id="log", epoch=0, fencing_token=1, effect={"sent": "a.csv"}, noticed_at=SOME_TIME),
        NoticeRecord(listener_id="goodbye", epoch=8, fencing_token=3, effect=None, noticed_at=SOME_TIME, is_final=True),
    ) == told["notices"]


def test_committables_tell_what_was_prepared_and_committed(told: dict[str, tuple[Any, ...]]) -> None:
    assert [(4, "rows", 2), (5, "rows", 2), (6, "rows", 2), (7, "rows", 2), (8, "model", 3), (8, "rows", 3)] == [
        (known.epoch, known.output, known.fencing_token) for known in told["committables"]
    ]
    assert (
        CommittableRecord(
            epoch=8,
            output="model",
            fencing_token=3,
            target="the folder rows",
            content={"files": ["model-8.parquet"]},
            stored_at=SOME_TIME,
            committed_at=SOME_TIME,
        )
        == told["committables"][4]
    )
    assert () == told["uncommitted"]


def test_uncommitted_are_those_that_the_state_waits_for_at_every_step(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    seen = set()
    for events in whole_story(family):
        state = coordinator.apply(run_id, *events)

        found = [(known.epoch, known.output) for known in store.list_uncommitted(run_id)]
        assert sorted(state.uncommitted) == found
        seen.update(found)
    assert {(4, "rows"), (5, "rows"), (6, "rows"), (8, "model")} == seen


def test_notices_of_one_listener_are_told_apart(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family), *first.passes(0, 1), *first.passes(1, 2))
    coordinator.apply(run_id, *(first.notifies(epoch, name) for epoch in (0, 1) for name in ("z", "a")))

    assert [(0, "a"), (0, "z"), (1, "a"), (1, "z")] == [(n.epoch, n.listener_id) for n in store.list_notices(run_id)]
    assert [(0, "z"), (1, "z")] == [(n.epoch, n.listener_id) for n in store.list_notices(run_id, "z")]
    assert () == store.list_notices(run_id, "nobody")


def test_stops_tell_who_asked_and_who_let_the_run_go_on(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    asked = []

    for event in (stops(1, family=family), resumes(1, family), drains(2, family=family)):
        coordinator.apply(run_id, event)
        found = store.find_run(run_id)
        asked.append(found.asked_to if found is not None else None)

    first, second = (timeless(stop) for stop in store.list_stops(run_id))
    assert [StopKind.STOP, None, StopKind.DRAIN] == asked
    assert (
        StopRecord(
            stop_id=stop_id(1, family),
            kind=StopKind.STOP,
            requested_by="ann",
            requested_at=SOME_TIME,
            stopped_at=SOME_TIME,
            resumed_by="bob",
            resumed_at=SOME_TIME,
        )
        == first
    )
    assert (StopKind.DRAIN, None, None, True) == (second.kind, second.stopped_at, second.resumed_at, second.is_in_force)


def test_stores_are_compared_by_all_that_can_be_read_of_a_run(store: StoreWithHistory) -> None:
    """Else two could differ in what no comparison asks for."""
    run_id, asked = added(store), set[str]()

    class Asked:
        def __getattr__(self, name: str) -> object:
            asked.add(name)
            return getattr(store, name)

    history(cast(StoreWithHistory, Asked()), run_id)

    of_a_run = {name for name in vars(History) if not name.startswith("_")} - {"list_runs"}
    assert of_a_run == asked


def test_epochs_are_listed_from_the_one_that_is_asked_for(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    for events in whole_story(family):
        coordinator.apply(run_id, *events)

    assert [(7, 2), (8, 2), (8, 3)] == [(found.epoch, found.fencing_token) for found in store.list_epochs(run_id, 7)]


def test_completed_checkpoint_is_found_at_every_step(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    found = []
    for events in whole_story(family):
        coordinator.apply(run_id, *events)
        completed = [c for c in store.list_checkpoints(run_id) if c.status is CheckpointStatus.COMPLETED]

        assert next(iter(completed), None) == store.find_completed(run_id)
        found += [known.checkpoint_id for known in completed]
    assert {1, 5, 9, 11, 13} == set(found)


def test_live_parts_are_those_that_an_attempt_finds_at_every_step(store: StoreWithHistory, family: int) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    seen = set()
    for events in whole_story(family):
        durable = coordinator.apply(run_id, *events).last_durable_epoch
        parts = store.list_parts(run_id)
        live = tuple(part for part in parts if part.voided_at is None and not 0 <= part.epoch <= durable)

        assert live == store.list_live_parts(run_id)
        seen |= {(part.epoch == NO_EPOCH, part in live) for part in parts}
    assert {(True, True), (True, False), (False, True), (False, False)} == seen


def test_instant_never_changes_once_it_is_there(store: StoreWithHistory, family: int) -> None:
    """A later step that touched what is done would show here; a lease alone moves."""
    run_id, coordinator = added(store), Coordinator(store)
    known: dict[tuple[str, int, str], Any] = {}

    for events in whole_story(family):
        coordinator.apply(run_id, *events)
        found = instants(store, run_id)

        assert known == {place: found[place] for place in known}
        known = found
    assert len(known) > 90


def instants(store: StoreWithHistory, run_id: RunId) -> dict[tuple[str, int, str], Any]:
    """Return every instant that a run's records hold, by its place; what comes later comes behind."""
    records: dict[str, tuple[Any, ...]] = {
        "run": (store.find_run(run_id),),
        "attempts": store.list_attempts(run_id),
        "epochs": tuple(sorted(store.list_epochs(run_id), key=lambda found: (found.fencing_token, found.epoch))),
        "checkpoints": store.list_checkpoints(run_id),
        "parts": tuple(sorted(store.list_parts(run_id), key=lambda found: found.finished_at)),
        "requests": store.list_requests(run_id),
        "notices": store.list_notices(run_id),
        "committables": store.list_committables(run_id),
    }
    return {
        (table, place, field.name): getattr(record, field.name)
        for table, rows in records.items()
        for place, record in enumerate(rows)
        for field in dataclasses.fields(record)
        if field.name.endswith("_at") and field.name != "lease_expires_at" and getattr(record, field.name) is not None
    }


def test_epoch_becomes_durable_once(store: StoreWithHistory, first: Sender) -> None:
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family), *first.passes(0, 1))
    before = store.list_epochs(run_id)

    coordinator.apply(run_id, *first.passes(1, 2))

    assert before == store.list_epochs(run_id)[:1]


def test_epoch_is_held_from_its_last_report_until_it_aligns(store: StoreWithHistory, first: Sender) -> None:
    """What it measured is there meanwhile, and releasing it changes nothing of that."""
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=first.family), first.opens(0), first.reports(0), first.triggers(0))
    coordinator.apply(run_id, first.opens(1), first.reports(1, loss=0.5))
    held = store.list_epochs(run_id, 1)[0]

    coordinator.apply(run_id, first.completes(1))

    aligned = store.list_epochs(run_id, 1)[0]
    assert (EpochStatus.OPEN, {"loss": 0.5}, None, None) == (
        held.status,
        held.metrics,
        held.aligned_at,
        held.decision_records,
    )
    assert aligned.aligned_at is not None
    assert held.held_at is not None
    assert held.held_at <= aligned.aligned_at
    assert (EpochStatus.ALIGNED, {"centroids": 3}) == (aligned.status, aligned.decision_records)
    changed = {"status": held.status, "aligned_at": None, "decision_records": None}
    assert held == dataclasses.replace(aligned, **changed)  # type: ignore[arg-type]  # each to its field


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


# What comes back from JSON, arrays and text


@pytest.mark.parametrize("value", [1e23, 1.7976931348623157e308, 5e-324, 0.1, 3.0, -2.5], ids=repr)
def test_metrics_come_back_as_the_floats_that_they_were(store: StoreWithHistory, first: Sender, value: float) -> None:
    run_id = added(store)
    marked = dataclasses.replace(part("x"), metrics={"loss": value})

    Coordinator(store).apply(
        run_id,
        claim(family=first.family),
        first.opens(0),
        first.switches(0),
        first.marks(0, marked),
        first.reports(0, loss=value),
        first.triggers(0),
    )

    found = [store.list_epochs(run_id)[0].metrics["loss"], store.list_parts(run_id)[0].metrics["loss"]]
    assert [(float, value)] * 2 == [(type(known), known) for known in found]


_Tells = Callable[[StoreWithHistory, RunId], object]


@pytest.mark.parametrize(
    "tell",
    [
        lambda store, run_id: store.list_pins(run_id)[0].pin,
        lambda store, run_id: store.list_parts(run_id)[0].output,
        lambda store, run_id: store.list_notices(run_id)[0].effect,
        lambda store, run_id: store.list_operators(run_id)[1].output,
    ],
    ids=["pin", "part", "effect", "marker"],
)
def test_json_comes_back_as_json(store: StoreWithHistory, first: Sender, tell: _Tells) -> None:
    """A tuple becomes a list, whoever keeps it."""
    run_id = added(store)
    json = {"files": ({"path": "a", "rows": 3},), "columns": None, "text": "\N{SNOWMAN} %s :name"}

    Coordinator(store).apply(
        run_id,
        claim(family=first.family),
        dataclasses.replace(first.pins("points"), pin=json),
        first.marks(NO_EPOCH, dataclasses.replace(part("norms", total=4), output=json)),
        dataclasses.replace(first.finishes("scaled"), output=json),
        *first.passes(0, 1),
        first.notifies(0, effect=json),
    )

    assert {"files": [{"path": "a", "rows": 3}], "columns": None, "text": "\N{SNOWMAN} %s :name"} == tell(store, run_id)


def test_policy_comes_back_as_it_was(store: StoreWithHistory, first: Sender) -> None:
    run_id = added(store)
    policy = CheckpointPolicy(
        every_epochs=7, min_pause_seconds=0.1, max_pending=3, timeout_seconds=31_622_400.0, tolerable_failures=9
    )

    state = Coordinator(store).apply(run_id, dataclasses.replace(claim(family=first.family), policy=policy))

    assert (policy, policy) == (state.policy, read_state(store, run_id).policy)
    assert [policy] == [attempt.policy for attempt in store.list_attempts(run_id)]
    assert float is type(store.list_attempts(run_id)[0].policy.timeout_seconds)
