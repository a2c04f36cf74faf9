"""What does the store take to record an epoch, a batch of reports, and epoch 10,000 of a run?

    epoch     the two transactions of an epoch with 16 head subtasks and one variable, in rounds that alternate with a
              bare one-row insert (autocommit); then, where `dbos` is installed, in rounds that alternate with a step of
              DBOS in the same database, in a process of its own: its threads slow what runs beside them in one
    reports   one event with the reports of 10,000 subtasks, of one head and of four, in rounds that alternate with a
              bare `INSERT ... SELECT unnest` of the same 10,000 rows
    growth    one run of 10,000 epochs; its last, in rounds that alternate with the early epochs of another: in the
              session that recorded all before, and in new ones; dead rows

A ratio is the median of those of 20 slices of the rounds, with its range, so that it shows what else the machine did.
Each is printed with what is owed; the exit code is 1 where one is missed, or is not measured.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812 - the class has a function's name
from sqlalchemy.engine import make_url

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.event import (
    AttemptOpened,
    CheckpointAcknowledged,
    CheckpointTriggered,
    EpochOpened,
    SubtasksAligned,
)
from iteration_lib.protocol.state import AttemptId, Holder, RunId, RunState
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.record import NewRun

SUBTASKS, REPORTS, SLICES, WARM_UP, TURNS = 16, 10_000, 20, 50, 50
OWED = {  # the least and the most that a ratio may be
    "epoch / bare insert": (0.0, 9.0),
    "epoch / DBOS step": (0.0, 1.0),
    "unnest / one head": (0.7, math.inf),
    "unnest / four heads": (0.7, math.inf),
    "late / early": (0.0, 1.1),
}
Timings = dict[str, list[float]]
Ways = Mapping[str, Callable[[int], object]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that is driven by events alone: nothing is computed, and no file is written."""

    coordinator: Coordinator
    run_id: RunId
    attempt_id: AttemptId
    heads: Mapping[str, int]

    def open(self, epoch: int) -> None:
        """Open an epoch in a transaction of its own."""
        self.coordinator.apply(self.run_id, self._opened(epoch))

    def report(self, epoch: int) -> None:
        """Report every subtask of an epoch, in one event."""
        self.coordinator.apply(self.run_id, self._reports(epoch))

    def complete(self, epoch: int) -> None:
        """Take an aligned epoch's checkpoint, in two transactions."""
        self._acknowledge(epoch, self.coordinator.apply(self.run_id, self._trigger(epoch)))

    def record(self, epoch: int) -> None:
        """Record an epoch as the driver does: align, trigger, open the next; then complete the checkpoint."""
        aligned = self.coordinator.apply(
            self.run_id, self._reports(epoch), self._trigger(epoch), self._opened(epoch + 1)
        )
        self._acknowledge(epoch, aligned)

    def _acknowledge(self, epoch: int, state: RunState) -> None:
        event = CheckpointAcknowledged(
            attempt_id=self.attempt_id,
            fencing_token=1,
            checkpoint_id=state.pending[0].checkpoint_id,
            acknowledgements={head: tuple(range(count)) for head, count in self.heads.items()},
            manifest_path=f"000001-{self.attempt_id[:8]}/checkpoint-{epoch:06d}.json",
            manifest_sha256="ab" * 32,
            size_bytes=4096,
        )
        self.coordinator.apply(self.run_id, event)

    def _opened(self, epoch: int) -> EpochOpened:
        return EpochOpened(attempt_id=self.attempt_id, fencing_token=1, epoch=epoch, heads=self.heads)

    def _trigger(self, epoch: int) -> CheckpointTriggered:
        return CheckpointTriggered(
            attempt_id=self.attempt_id,
            fencing_token=1,
            epoch=epoch,
            participants=self.heads,
            last_checkpoint_id=epoch,
        )

    def _reports(self, epoch: int) -> SubtasksAligned:
        return SubtasksAligned(
            attempt_id=self.attempt_id,
            fencing_token=1,
            epoch=epoch,
            reports={head: {index: 1000 + index for index in range(count)} for head, count in self.heads.items()},
            metrics={"loss": 1 / (epoch + 1)},
            seconds=0.25,
        )


def open_attempt(store: PostgresStore, **heads: int) -> Attempt:
    """Add a run and open its first epoch."""
    operators = {head: {"name": head, "role": "variable", "kind": "value"} for head in heads}
    run = NewRun(
        run_id=RunId(str(uuid.uuid4())),
        run_key=uuid.uuid4().hex,
        reference="store_records:records",
        definition={"iteration": "records", "operators": operators},
        params={},
        state_uri="/nowhere",
        max_buckets=SUBTASKS,
        max_epochs=None,
    )
    store.add_run(run)
    attempt = Attempt(Coordinator(store), run.run_id, AttemptId(str(uuid.uuid4())), heads)
    holder = Holder(host="here", pid=1, process_started="1")
    attempt.coordinator.apply(
        run.run_id, AttemptOpened(attempt_id=attempt.attempt_id, holder=holder, lease_ttl_seconds=86_400.0)
    )
    attempt.open(0)
    return attempt


class Bare:
    """What there is to compare with: one connection that commits after every statement."""

    def __init__(self, connection: Connection) -> None:
        """Make the tables."""
        connection.autocommit = True
        self._cursor = connection.cursor()
        self._cursor.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, payload text NOT NULL)")
        self._cursor.execute(
            "CREATE TABLE bare_reports (epoch bigint, subtask integer, records bigint NOT NULL, "
            "PRIMARY KEY (epoch, subtask))"
        )

    def insert(self, epoch: int) -> None:
        """Insert one row."""
        self._cursor.execute("INSERT INTO bare (payload) VALUES (%s)", (f"{epoch:040d}",))

    def insert_reports(self, epoch: int) -> None:
        """Insert a row per report."""
        subtasks, records = list(range(REPORTS)), [1000 + index for index in range(REPORTS)]
        self._cursor.execute(
            "INSERT INTO bare_reports SELECT %s, * FROM unnest(%s::integer[], %s::bigint[])",
            (epoch, subtasks, records),
        )

    def show(self, statement: str) -> None:
        """Print what a query finds."""
        self._cursor.execute(statement)
        for row in self._cursor.fetchall():
            print("   ", *row)


def measure_epoch(database: Database, rounds: int) -> bool:
    """Alternate between the ways to record something, and print; tell whether it kept to all that is owed."""
    attempt = open_attempt(database.store, centroids=SUBTASKS)
    ways: dict[str, Callable[[int], object]] = {"bare insert": database.bare.insert, "epoch": attempt.record}
    keeps = report(alternate(ways, rounds), "epoch", over=("bare insert",))
    if find_spec("dbos") is None:
        print("dbos is not installed: what is owed against its step is NOT MEASURED")
        return False
    print("and with steps of DBOS:")
    context = multiprocessing.get_context("spawn")
    orders, theirs = context.Pipe()
    peer = context.Process(target=take_steps, args=(database.url.replace("+psycopg2", ""), theirs), daemon=True)
    peer.start()
    theirs.close()  # or nobody would hear that the peer has died
    timings: Timings = {"epoch": [], "DBOS step": []}
    for epoch in range(rounds, 2 * rounds):
        timings["epoch"].append(timed(attempt.record, epoch))
        orders.send(True)
        timings["DBOS step"].append(orders.recv())
    orders.send(False)
    peer.join()
    return report(timings, "epoch", over=("DBOS step",)) and keeps


def take_steps(url: str, orders: Pipe) -> None:
    """Take a step of DBOS whenever one is asked for, and answer with its time, until no more are."""
    from dbos import DBOS  # noqa: PLC0415 - a peer that may be missing

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "WARNING", "run_admin_server": False})

    @DBOS.step()
    def step(epoch: int) -> dict[str, int]:
        return {"epoch": epoch}

    @DBOS.workflow()
    def workflow() -> None:
        while orders.recv():
            orders.send(timed(step, 0))

    DBOS.launch()
    workflow()
    DBOS.destroy()


def measure_reports(database: Database, rounds: int) -> bool:
    """Alternate between a batch of reports and a bare insert of as many rows, and print; return as measure_epoch."""
    one = open_attempt(database.store, centroids=REPORTS)
    four = open_attempt(database.store, **{f"head_{number}": REPORTS // 4 for number in range(4)})
    ways = {"unnest": database.bare.insert_reports, "one head": one.report, "four heads": four.report}

    def go_on(epoch: int) -> None:
        for attempt in (one, four):
            attempt.complete(epoch)
            attempt.open(epoch + 1)

    timings = alternate(ways, rounds, after=go_on)
    return report(timings, "unnest", over=("one head", "four heads"))


def measure_growth(old: Database, young: Database, epochs: int) -> bool:
    """Drive one run, then alternate between its late epochs and a young run's early ones; return as measure_epoch."""
    attempt, fresh = (open_attempt(database.store, centroids=SUBTASKS) for database in (old, young))
    width = min(1500, epochs // 4)
    late, early = epochs - 2 * width, 10
    for number in range(late):
        attempt.record(number)
    for number in range(early):
        fresh.record(number)
    print("the last, in the session of all before, in rounds with the first of another run:")
    ways = {"late": partial(record_at, attempt, late), "early": partial(record_at, fresh, early)}
    keeps = report(alternate(ways, width), "late", over=("early",))
    late, early, rounds = late + width, early + width, max(10, width // TURNS)
    print(f"the same in new sessions, {TURNS} of each:")
    ratios = []
    for _ in range(TURNS):  # a connection of each alone may be some way faster or slower than the other for good
        with closing(PostgresStore(old.url)) as of_old, closing(PostgresStore(young.url)) as of_young:
            ways = {
                "late": partial(record_at, replace(attempt, coordinator=Coordinator(of_old)), late),
                "early": partial(record_at, replace(fresh, coordinator=Coordinator(of_young)), early),
            }
            timings = alternate(ways, rounds)
        late, early = late + rounds, early + rounds
        ratios.append(statistics.median(timings["late"][5:]) / statistics.median(timings["early"][5:]))
    keeps &= judge("late / early", ratios)
    old.bare.show(
        "SELECT relname, 'live', n_live_tup, 'dead', n_dead_tup, 'updates', n_tup_upd, 'HOT', n_tup_hot_upd, "
        "pg_size_pretty(pg_total_relation_size(relid)) FROM pg_stat_user_tables "
        "WHERE n_tup_ins > 0 AND relname NOT LIKE 'bare%' ORDER BY relname"
    )
    return keeps


def record_at(attempt: Attempt, first: int, number: int) -> None:
    """Record an epoch that is counted from `first`."""
    attempt.record(first + number)


def alternate(ways: Ways, rounds: int, after: Callable[[int], object] = lambda _: None) -> Timings:
    """Time each way once per round, each round beginning with another one; milliseconds by way."""
    timings: Timings = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            timings[name].append(timed(ways[name], number))
        after(number)
    return timings


def timed(way: Callable[[int], object], number: int) -> float:
    """Return how many milliseconds a way takes."""
    started = time.perf_counter()
    way(number)
    return 1000 * (time.perf_counter() - started)


def report(timings: Timings, way: str, over: tuple[str, ...]) -> bool:
    """Print what each way took, and the ratio of one to the others; return whether every ratio is what is owed."""
    warm_up = min(WARM_UP, len(timings[way]) // 5)
    warm = {name: times[warm_up:] for name, times in timings.items()}
    for name, times in warm.items():
        print(f"{name:<12} {_quantiles(times)}")
    parts = _slices(len(warm[way]))
    kept = []
    for other in over:
        ratios = [statistics.median(warm[way][part]) / statistics.median(warm[other][part]) for part in parts]
        kept.append(judge(f"{way} / {other}", ratios))
    return all(kept)


def judge(name: str, ratios: list[float]) -> bool:
    """Print the ratio of two ways beside what is owed; return whether it is that."""
    found, (least, most) = statistics.median(ratios), OWED[name]
    keeps = least <= found <= most
    owed = f"{least:g} to {most:g} is owed{'' if keeps else ': MISSED'}"
    print(f"{name}: {found:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {owed}")
    return keeps


def _slices(length: int) -> list[slice]:
    count = min(SLICES, length // 5)
    return [slice(length * number // count, length * (number + 1) // count) for number in range(count)]


def _quantiles(times: list[float]) -> str:
    hundredths = statistics.quantiles(times, n=100)
    return f"p50 {hundredths[49]:.2f} ms, p99 {hundredths[98]:.2f} ms"


@dataclass(frozen=True, slots=True)
class Database:
    """A new database with a store, and beside it what there is to compare with."""

    url: str
    store: PostgresStore
    bare: Bare


def open_database(stack: ExitStack, server: EmbeddedPostgres, name: str) -> Database:
    """Make a database; its connections are closed with the stack."""
    server.ensure_database(name)
    url = server.url(name)
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()
    store = stack.enter_context(closing(PostgresStore(url)))
    return Database(url, store, Bare(stack.enter_context(closing(connect(url)))))


def main() -> int:
    """Measure and print; exit code 1 where a ratio is not what is owed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["epoch", "reports", "growth"])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=10_000)
    options = parser.parse_args()
    is_kept = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = EmbeddedPostgres(folder / "store")
        stack.callback(server.destroy)
        server.start()
        for what in options.what:
            print(f"\n{what}")
            database = open_database(stack, server, what)
            if what == "epoch":
                is_kept &= measure_epoch(database, options.rounds)
            elif what == "reports":
                is_kept &= measure_reports(database, options.batches)
            else:
                young = open_database(stack, server, "young")
                is_kept &= measure_growth(database, young, options.epochs)
    return 0 if is_kept else 1


def connect(url: str) -> Connection:
    """Connect without any layer between."""
    address = make_url(url)
    return psycopg2.connect(
        host=address.query["host"],
        port=address.query["port"],
        dbname=address.database,
        user=address.username,
        password=address.password,
    )


if __name__ == "__main__":
    sys.exit(main())
