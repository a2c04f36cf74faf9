"""What do tests of stores share? A run to add, its whole story, records without their times, every read at once."""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import uuid
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator, RunId
from iteration_lib.protocol.status import CheckpointStatus, RestoreMode, UnalignedBy
from iteration_lib.store.record import NewRun, Origin
from iteration_lib.store.seam import StoreWithHistory
from tests.protocol_script import (
    DIGEST,
    MANIFEST,
    Sender,
    aborts,
    asks,
    claim,
    discards,
    keeps,
    part,
    prepared,
    releases,
    resumes,
    stops,
)

Record = TypeVar("Record", bound=Any)  # Any: one of the frozen records

# Counted, for two of the thousands that a run of the tests draws may be the same; from a number whose digits stand for
# nothing else in a history, where tests look for them.
_FAMILIES = itertools.count(0x8000_0000)
SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
DEFINITION = {
    "iteration": "km",
    "operators": {
        operator_id: {"name": name, "role": role, "kind": kind, "inputs": [], "finishes": finishes, "code": "00"}
        for operator_id, name, role, kind, finishes in (
            ("points", "points", "data", "data", False),
            ("scaled", "scaled_points", "operator", "buckets", True),
            ("centroids", "centroids", "variable", "value", False),
            ("x", "x", "operator", "value", False),
            ("y", "y", "operator", "buckets", False),
            ("norms", "norms", "operator", "buckets", True),
        )
    },
}


def wired(operator_id: str, kind: str, *inputs: str, role: str = "operator", **fields: object) -> dict[str, object]:
    """An operator, or a variable, that is computed in every epoch."""
    declared = {"name": f"{operator_id}_rows", "role": role, "kind": kind, "inputs": list(inputs)}
    return {operator_id: {**declared, "finishes": False, "code": "00", **fields}}


# Without a format: what an operator takes is named by its name.
WIRED = {
    **DEFINITION,
    "operators": {
        **cast("dict[str, object]", DEFINITION["operators"]),
        **wired("p", "value", role="variable"),
        **wired("s", "value", role="variable", part_of="w"),
        **wired("v", "buckets", "scaled_points", "p_rows"),
        **wired("w", "buckets", "points", "v_rows", "s_rows"),
        **wired("u", "value", "w_rows"),
        **wired("t", "value", "norms"),
        **wired("q", "value", "points", "scaled_points", "norms", finishes=True),
    },
}


def a_run(run_key: str | None = None, *, max_epochs: int | None = None, **changes: Any) -> NewRun:
    """Return a run that no store has."""
    run = NewRun(
        run_id=RunId(str(uuid.uuid4())),
        run_key=run_key or f"run-{secrets.token_hex(8)}",
        reference="team.km:km",
        definition=DEFINITION,
        params={"k": 3, "ratio": 0.1, "name": "ä 'quoted' %", "deep": True, "limit": None},
        state_uri="/state",
        max_buckets=4,
        max_epochs=max_epochs,
    )
    return dataclasses.replace(run, **changes)


def new_family() -> int:
    """Return what keeps the attempt ids of one test apart from all others in a store, which one process fills."""
    return next(_FAMILIES)


def added(store: StoreWithHistory, *, max_epochs: int | None = None) -> RunId:
    """Add a run and return its id."""
    run = a_run(max_epochs=max_epochs)
    assert store.add_run(run)
    return run.run_id


def an_origin(
    store: StoreWithHistory,
    run: NewRun,
    *,
    epoch: int = 0,
    mode: RestoreMode = RestoreMode.NO_CLAIM,
    family: int | None = None,
) -> Origin:
    """Add a run and drive it for some epochs, each with a checkpoint; return the one of `epoch` as an origin."""
    family = new_family() if family is None else family
    assert store.add_run(run)
    one = Sender(1, 1, family)
    Coordinator(store).apply(run.run_id, claim(1, family=family))
    for known in range(epoch + 1):
        Coordinator(store).apply(run.run_id, *one.passes(known, known + 1))
    return origin_of(run, checkpoint_id=epoch + 1, epoch=epoch, mode=mode)


def origin_of(run: NewRun, *, checkpoint_id: int, epoch: int, mode: RestoreMode = RestoreMode.NO_CLAIM) -> Origin:
    """Return a checkpoint of a run as an origin."""
    return Origin(
        origin_run_id=run.run_id,
        origin_checkpoint_id=checkpoint_id,
        epoch=epoch,
        uri=f"{run.state_uri}/{run.run_id}",
        manifest_path=MANIFEST,
        manifest_sha256=DIGEST,
        mode=mode,
        keeps=("points", "scaled"),
        branched_by="ann",
        carries=("centroids",),
    )


def whole_story(family: int) -> tuple[tuple[Event, ...], ...]:
    """Batches of events in which every command is written at least once; the run ends FINISHED."""
    return (*_before_any_attempt(family), *_first_attempt(family), *_second_attempt(family), *_third_attempt(family))


def _before_any_attempt(family: int) -> tuple[tuple[Event, ...], ...]:
    """A person stops the run, and lets it go on."""
    return (stops(1, family=family),), (resumes(1, family),)


def _first_attempt(family: int) -> tuple[tuple[Event, ...], ...]:
    """Some operators finish; checkpoints complete, expire, are aborted before they begin, fail; edges are left."""
    one = Sender(1, 1, family)
    return (
        (claim(1, family=family, max_pending=2, tolerable_failures=1),),
        (one.pins("points"), one.pins("labels", "f2")),
        (one.marks(NO_EPOCH, part("scaled", 0, 2, total=4), part("norms", 0, 2, total=4)),),
        (one.marks(NO_EPOCH, part("scaled", 2, 4, total=4)), one.finishes("scaled")),
        (one.opens(0, centroids=3, criteria=2),),
        (one.reports(0, {"centroids": {1: 5}}),),
        (one.reports(0, {"centroids": {0: 0, 2: 7}}), one.reports(0, {"criteria": {1: 0}})),
        (one.reports(0, {"criteria": {0: 4}}, shift=0.5, loss=1e-3), one.triggers(0, centroids=3, weights=1)),
        (one.opens(1), one.switches(1)),
        (one.marks(1, part("y", 0, 2, total=4)), one.reports(1)),
        (one.acknowledges(1, centroids=(2, 0)),),
        (one.completes(1, centroids=(1,), weights=(0,)), one.marks(1, part("y", 0, 2, total=4))),
        (one.marks(1, part("y", 2, 4, total=4)),),
        (one.notifies(0, effect={"sent": "a.csv"}),),
        (one.triggers(1), one.opens(2)),
        (one.reports(2), one.triggers(2), one.opens(3)),
        (one.reports(3, shift=0.25),),
        (one.lets_expire(2),),
        (aborts(4, by="bob"),),
        (one.triggers(3), one.triggers(3)),
        (one.completes(5),),
        (one.opens(4), one.switches(4, UnalignedBy.PREEMPTION)),
        (one.marks(4, part("x"), part("y", 0, 1, total=4, wide=("x",))), one.reports(4), one.triggers(4)),
        (one.declines(6, "disk full"),),
        (one.triggers(4),),
        (one.opens(5), one.switches(5)),
    )


_CHANGED = ("points", "centroids", "z", "x", "norms")


def _second_attempt(family: int) -> tuple[tuple[Event, ...], ...]:
    """It takes over with other operators; a hand-made checkpoint completes late, one is subsumed; the attempt fails."""
    two = Sender(2, 2, family)
    return (
        (claim(2, takeover=True, family=family, max_pending=2),),
        (
            two.changes(
                "points", "centroids", "z", "x", "norms", dropped=("scaled", "y"), sinks={"rows": True, "model": False}
            ),
        ),
        (two.finishes("z"), two.marks(NO_EPOCH, part("norms", 2, 3, total=4))),
        (asks(1, family),),
        (two.opens(4), two.reports(4, {"centroids": {0: 1}}), two.triggers(4)),
        (two.opens(5), two.reports(5), two.triggers(5)),
        (two.completes(9, committables=(prepared(4, "rows"), prepared(5, "rows"))),),
        (two.completes(8, committables=(prepared(4, "rows"),)), two.commits((4, "rows"))),
        (two.opens(6), two.reports(6), two.triggers(6), two.opens(7), two.reports(7), two.triggers(7)),
        (two.completes(11, committables=(prepared(6, "rows"), prepared(7, "rows", in_store=True))),),
        (two.opens(8),),
        (two.fails("operator 'sums' failed: \N{SNOWMAN}", failed=FailedOperator(operator_id="sums", epoch=5)),),
        (asks(2, family),),
    )


def _third_attempt(family: int) -> tuple[tuple[Event, ...], ...]:
    """It brings the run to its end; a person aborts the first final checkpoint."""
    three = Sender(3, 3, family)
    return (
        (claim(3, ignore_edges=True, family=family),),
        (three.opens(8),),
        (three.reports(8, {"centroids": {0: 0}}), three.triggers(8)),
        (aborts(12), three.triggers(8)),
        (three.completes(13, committables=(prepared(8, "model"), prepared(8, "rows", in_store=True))),),
        (three.commits((5, "rows"), (6, "rows"), (8, "model")),),
        (keeps(9),),
        (releases(9),),
        (keeps(13, CheckpointStatus.COMPLETED),),
        (discards(1, 5),),
        (three.notifies(8, "goodbye", is_final=True),),
        (three.publishes(),),
        (three.ends(),),
    )


def timeless(record: Record) -> Record:
    """Return a record with one time in the place of each: two stores' clocks differ."""
    times = {
        field.name: SOME_TIME
        for field in dataclasses.fields(record)
        if isinstance(getattr(record, field.name), datetime)
    }
    return dataclasses.replace(record, **times)


def timeless_state(state: RunState) -> RunState:
    """Return a state with one time in the place of each."""
    attempt, completed = state.attempt, state.completed
    if attempt is not None:
        attempt = dataclasses.replace(attempt, lease_expires_at=SOME_TIME)
    if completed is not None:
        completed = dataclasses.replace(completed, completed_at=SOME_TIME)
    return dataclasses.replace(state, attempt=attempt, completed=completed)


def read_state(store: StoreWithHistory, run_id: RunId) -> RunState:
    """Return the state that the store would decide from."""
    with store.transaction(run_id) as transaction:
        return transaction.read_state()


def history(store: StoreWithHistory, run_id: RunId) -> dict[str, tuple[Any, ...]]:
    """Return everything that can be read of a run, without times."""
    found = store.find_run(run_id)
    assert found is not None
    records: dict[str, tuple[Any, ...]] = {
        "runs": (found,),
        "attempts": store.list_attempts(run_id),
        "epochs": store.list_epochs(run_id),
        "operators": store.list_operators(run_id),
        "pins": store.list_pins(run_id),
        "checkpoints": store.list_checkpoints(run_id),
        "completed": tuple(filter(None, [store.find_completed(run_id)])),
        "branch": tuple(filter(None, [store.find_branch(run_id)])),
        "branches": store.list_branches(run_id),
        "parts": store.list_parts(run_id),
        "live parts": store.list_live_parts(run_id),
        "requests": store.list_requests(run_id),
        "stops": store.list_stops(run_id),
        "fallbacks": store.list_fallbacks(run_id),
        "notices": store.list_notices(run_id),
        "committables": store.list_committables(run_id),
        "uncommitted": store.list_uncommitted(run_id),
    }
    return {name: tuple(timeless(record) for record in rows) for name, rows in records.items()}
