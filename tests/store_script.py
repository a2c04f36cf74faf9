"""What do tests of stores share? A run to add, records without their times, every read at once."""

from __future__ import annotations

import dataclasses
import secrets
import uuid
from datetime import UTC, datetime
from typing import Any, TypeVar

from iteration_lib.protocol import RunState
from iteration_lib.protocol.state import RunId
from iteration_lib.store.record import NewRun
from iteration_lib.store.seam import StoreWithHistory

Record = TypeVar("Record", bound=Any)  # Any: one of the frozen records

SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
DEFINITION = {
    "iteration": "km",
    "operators": {
        operator_id: {"name": name, "role": role, "kind": kind, "inputs": [], "finishes": False, "code": "00"}
        for operator_id, name, role, kind in (
            ("points", "points", "data", "data"),
            ("scaled", "scaled_points", "operator", "buckets"),
            ("centroids", "centroids", "variable", "value"),
            ("x", "x", "operator", "value"),
            ("y", "y", "operator", "frame"),
        )
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
        max_buckets=16,
        max_epochs=max_epochs,
    )
    return dataclasses.replace(run, **changes)


def new_family() -> int:
    """Return what keeps the attempt ids of one test apart from all others in a store."""
    return secrets.randbits(32)


def added(store: StoreWithHistory, *, max_epochs: int | None = None) -> RunId:
    """Add a run and return its id."""
    run = a_run(max_epochs=max_epochs)
    assert store.add_run(run)
    return run.run_id


def timeless(record: Record) -> Record:
    """Return a record with one time in the place of each: two stores' clocks differ."""
    times = {
        field.name: SOME_TIME
        for field in dataclasses.fields(record)
        if isinstance(getattr(record, field.name), datetime)
    }
    return dataclasses.replace(record, **times)


def timeless_state(state: RunState) -> RunState:
    """Return a state whose lease runs out at one time."""
    if state.attempt is None:
        return state
    return dataclasses.replace(state, attempt=dataclasses.replace(state.attempt, lease_expires_at=SOME_TIME))


def read_state(store: StoreWithHistory, run_id: RunId) -> RunState:
    """Return the state that the store would decide from."""
    with store.transaction(run_id) as transaction:
        return transaction.read_state()


def history(store: StoreWithHistory, run_id: RunId) -> dict[str, tuple[object, ...]]:
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
    }
    return {name: tuple(timeless(record) for record in rows) for name, rows in records.items()}
