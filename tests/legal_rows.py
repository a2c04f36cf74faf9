"""Which legal rows do tests of illegal ones start from? Runs in every status, driven by the coordinator."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg2

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Event
from iteration_lib.protocol.state import NO_EPOCH, RunId
from iteration_lib.store.postgres import PostgresStore
from tests.protocol_script import (
    Sender,
    aborts,
    asks,
    attempt_id,
    claim,
    drains,
    keeps,
    part,
    prepared,
    resumes,
    stop_id,
    stops,
)
from tests.sink_reader import dsn
from tests.store_script import DEFINITION, WIRED, a_run, added, new_family, origin_of

PUBLISHING = {**DEFINITION, "sinks": {"more": True, "rows": True, "seen": True, "model": False}}


@dataclass(frozen=True, slots=True)
class Rows:
    """Legal rows to start from: what %(name)s stands for in the statements, and a connection."""

    connection: psycopg2.extensions.connection
    names: dict[str, str]

    def execute(self, statement: str) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, self.names)
            return cursor.rowcount

    def column(self, statement: str) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()]


@contextmanager
def legal_rows_in(store_url: str) -> Iterator[Rows]:
    """One run in the middle of its work, one that is terminating, and so on: one of each status, one hardly begun."""
    store, family = PostgresStore(store_url), new_family()
    first, second = Sender(1, 1, family), Sender(2, 2, family)
    run_id = added(store)
    Coordinator(store).apply(
        run_id,
        claim(1, family=family),
        *first.passes(0, 1),
        first.notifies(0),
        first.opens(1),
        first.switches(1),
        first.marks(1, part("x")),
    )
    Coordinator(store).apply(
        run_id,
        claim(2, takeover=True, family=family, max_pending=2),
        second.changes("points", "scaled", "centroids", "x", "y", "norms"),
        asks(1, family),
        second.finishes("scaled"),
        second.pins("points"),
        second.opens(1),
        second.switches(1),
        second.marks(1, part("y", 0, 2, total=4)),
        second.reports(1),
        second.triggers(1),
        second.opens(2, centroids=3),
        second.reports(2, {"centroids": {0: 1}}),
        second.switches(2),
    )
    key = getattr(store.find_run(run_id), "run_key", "")
    branch, origin = a_run(), origin_of(a_run(run_id=run_id), checkpoint_id=1, epoch=0)
    store.add_run(branch, origin)
    names: dict[str, str] = {"run": run_id, "attempt": first.attempt_id, "key": key, "branch": branch.run_id}
    names |= {"behind": str(uuid.uuid4()), "next": str(uuid.uuid4())}
    names["request"] = asks(1, family).request_id
    for name in (
        "terminating",
        "finished",
        "failed",
        "stopping",
        "stopped",
        "fresh",
        "aligned",
        "durable",
        "leaving",
        "left open",
        "left aligned",
        "left pending",
        "left terminating",
        "pending",
        "short",
        "draining",
        "warned",
        "resumed",
        "changed",
        "left behind",
        "left by hand",
        "left durable",
        "left uncommitted",
        "failing",
        "held",
        "crowded",
        "awaited",
        "ending",
        "wired",
        "wired at first",
        "asked",
        "failed to stop",
        "closing",
        "publishing",
        "published",
        "two pending",
        "by hand",
    ):
        sender = Sender(1, 1, new_family())
        run = a_run(max_epochs=1 if name == "short" else None)
        definition = {"wired": WIRED, "publi": PUBLISHING}.get(name[:5], run.definition)
        run = dataclasses.replace(run, definition=definition)
        names[name] = other = run.run_id
        store.add_run(run)
        events: dict[str, tuple[Event, ...]] = {
            "terminating": sender.passes(0, 1, records=0),
            "finished": (*sender.passes(0, 1, records=0), sender.publishes()),
            "failed": (
                *(sender.opens(0), sender.switches(0), sender.reports(0)),
                *(sender.triggers(0), sender.fails()),
            ),
            "stopping": (sender.opens(0), stops(1, family=sender.family)),
            "stopped": (*sender.passes(0, 1), stops(1, family=sender.family), sender.ends()),
            "fresh": (sender.opens(0),),
            "aligned": (sender.opens(0), sender.reports(0)),
            "durable": sender.passes(0, 1),
            "left open": (sender.opens(0), sender.ends()),
            "left aligned": (sender.opens(0), sender.reports(0), sender.ends()),
            "left pending": (sender.opens(0), sender.reports(0), sender.triggers(0)),
            "left terminating": (*sender.passes(0, 1, records=0), sender.ends()),
            "pending": (sender.opens(0), sender.reports(0), sender.triggers(0)),
            "leaving": (*sender.passes(0, 1), stops(1, family=sender.family)),
            "short": (sender.opens(0),),
            "draining": (sender.opens(0), drains(1, family=sender.family)),
            "warned": (sender.opens(0), sender.reports(0), aborts(1)),
            "resumed": (stops(1, family=sender.family), sender.ends(), resumes(1, sender.family)),
            "changed": (sender.changes("x"), sender.ends()),
            "left durable": (*sender.passes(0, 1), sender.ends()),
            "failing": (sender.opens(0), sender.reports(0), sender.triggers(0), sender.declines(1)),
            "held": (
                *(sender.opens(0), sender.reports(0), sender.triggers(0)),
                *(sender.opens(1), sender.reports(1), sender.triggers(1)),
                *(sender.opens(2), sender.reports(2)),
            ),
            "crowded": (
                *(sender.opens(0), sender.reports(0), sender.opens(1), sender.reports(1)),
                *(sender.opens(2), sender.reports(2), sender.triggers(2)),
            ),
            "two pending": (
                *(sender.opens(0), sender.reports(0), sender.triggers(0)),
                *(sender.opens(1), sender.reports(1), sender.triggers(1)),
            ),
            "by hand": (asks(1, sender.family), sender.opens(0), sender.reports(0), sender.triggers(0)),
            "awaited": (sender.opens(0), sender.reports(0), sender.triggers(0), sender.opens(1)),
            "ending": (*sender.passes(0, 1), sender.notifies(0), *sender.passes(1, 2, records=0)),
            "wired": (
                *(sender.finishes("scaled"), *sender.passes(0, 1), sender.opens(1), sender.switches(1)),
                sender.marks(1, part("v", 0, 2, total=4)),
            ),
            "asked": (*sender.passes(0, 1), asks(1, sender.family), sender.opens(1), sender.reports(1)),
            "failed to stop": (sender.opens(0), stops(1, family=sender.family), sender.fails()),
            "closing": (sender.opens(0), sender.reports(0, {"centroids": {0: 0}}), sender.triggers(0)),
            "publishing": (sender.opens(0), sender.reports(0), sender.triggers(0)),
            "published": (
                *(sender.opens(0), sender.reports(0), sender.triggers(0)),
                sender.completes(1, committables=tuple(prepared(0, output) for output in ("more", "rows", "seen"))),
            ),
            "wired at first": (sender.finishes("scaled"), sender.opens(0), sender.switches(0)),
            "left uncommitted": (*sender.passes(0, 1, records=0), sender.ends()),
            "left by hand": (
                *(asks(1, sender.family), sender.opens(0), sender.reports(0), sender.triggers(0)),
                *sender.passes(1, 2),
            ),
            "left behind": (
                *(asks(1, sender.family), sender.opens(0), sender.reports(0), sender.triggers(0)),
                *sender.passes(1, 2),
            ),
        }
        max_pending = 1 if name in ("crowded", "awaited") else 2
        Coordinator(store).apply(other, claim(family=sender.family, max_pending=max_pending), *events[name])
        names["stop"] = stop_id(1, sender.family) if name == "stopped" else names.get("stop", "")
    for name in (
        *("older", "older open", "older aligned", "older published", "older with edges", "older ignoring"),
        "fallen",
    ):
        family = new_family()
        sender, names[name] = Sender(1, 1, family), added(store)
        passes = [event for epoch in range(3) for event in sender.passes(epoch, epoch + 1)]
        heard = (sender.notifies(0), sender.notifies(1))
        has_edges, ignores = name in ("older with edges", "older ignoring"), name == "older ignoring"
        scaled = (sender.marks(NO_EPOCH, part("scaled", 0, 4, total=4)), sender.finishes("scaled"))
        edges = (*scaled, sender.opens(3), sender.switches(3), sender.marks(3, part("x"))) if has_edges else ()
        Coordinator(store).apply(RunId(names[name]), claim(family=family), *passes, *heard, *edges)
        second = Sender(2, 2, family)
        begun = {"older open": (second.opens(3),), "older aligned": (second.opens(3), second.reports(3))}
        taken = claim(2, takeover=True, family=family, ignore_edges=ignores)
        Coordinator(store).apply(RunId(names[name]), taken, *begun.get(name, ()))
    branching, sender = a_run(), Sender(1, 1, new_family())
    store.add_run(branching, origin_of(a_run(run_id=run_id), checkpoint_id=1, epoch=0))
    names["branching"] = branching.run_id
    begun_behind = (sender.opens(1), sender.reports(1), sender.triggers(1))
    Coordinator(store).apply(branching.run_id, claim(family=sender.family), *begun_behind)
    guard = (attempt_id(2, family), 2)
    Coordinator(store).apply(RunId(names["older"]), keeps(1))
    Coordinator(store).fall_back(RunId(names["fallen"]), *guard, checkpoint_id=2, reason="a file is missing")
    second = Sender(2, 2, family)
    again = (second.opens(2), second.reports(2), second.triggers(2), second.completes(4))
    Coordinator(store).apply(RunId(names["fallen"]), *again)
    store.add_run(a_run(), origin_of(a_run(run_id=RunId(names["older"])), checkpoint_id=2, epoch=1))
    store.close()
    connection = psycopg2.connect(dsn(store_url))
    yield Rows(connection, names)
    connection.close()
