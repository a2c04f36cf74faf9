"""What does the framework add to an epoch, compared with a loop that calls the same operator functions?

K-means of the digits, `--epochs` passes without a criterion, in rounds that alternate between

    loop, Python       the functions of iteration_lib.library.kmeans, called by a for loop over 16 buckets in memory
    run, Python        the same iteration, driven on the plain-Python runner: reports, checkpoints, Postgres, files
    loop, Spark        the functions called in one mapInArrow job per epoch over buckets in mapped files
    run, Spark         the same iteration, driven on Spark

The framework's own cost per epoch is the difference of the medians: run less loop.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from iteration_lib import Iteration
from iteration_lib.config import Settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.launch import Drive, Request, drive_run, open_run
from iteration_lib.library import kmeans as library
from iteration_lib.library.datasets import write_digits
from iteration_lib.model.metrics import Metrics
from iteration_lib.process import this_holder
from iteration_lib.runner.spark_session import open_session
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine

K, BUCKETS, PARALLELISM = 10, 16, 2
Block = dict[str, Any]

lloyd = Iteration("lloyd", params=library.KMeansParams)  # the library's K-means without its criterion
lloyd.data(library.points)
lloyd.data(library.start)
lloyd.map_buckets(finishes=True)(library.candidates)
lloyd.variable(library.centres)
lloyd.map_buckets(library.sums)
lloyd.operator(library.moved)
lloyd.feedback(centres=library.moved)


class Timings:
    """An observer that keeps when each epoch became durable."""

    def __init__(self) -> None:
        """Start empty."""
        self.marks: list[float] = []

    def run_restored(self, _run: object, **_: object) -> None:
        """Note the start of the first epoch."""
        self.mark()

    def epoch_durable(self, _epoch: int, **_: object) -> None:
        """Note the end of an epoch."""
        self.mark()

    def mark(self) -> None:
        """Note the time."""
        self.marks.append(time.perf_counter())

    def milliseconds(self) -> list[float]:
        """Return each epoch's time, without the first, which also warms up."""
        return [1000 * (b - a) for a, b in pairwise(self.marks[1:])]


def buckets_of(features: np.ndarray) -> list[np.ndarray]:
    """Cut rows into buckets as the runners do."""
    ends = [-(-len(features) * bucket // BUCKETS) for bucket in range(BUCKETS + 1)]
    return [features[start:end] for start, end in pairwise(ends)]


def move(partial: list[Block], centres: Block) -> Block:
    """Reduce the buckets' sums in order."""
    sums = {name: np.concatenate([block[name] for block in partial]) for name in partial[0]}
    return library.moved(sums, centres, Metrics(operator_id="moved"))


def loop_python(buckets: list[np.ndarray], epochs: int) -> list[float]:
    """Call the operators in a loop."""
    centres: Block = {"centre": buckets[0][:K]}
    timings = Timings()
    timings.mark()
    for _ in range(epochs):
        centres = move([library.sums({"features": rows}, centres) for rows in buckets], centres)
        timings.mark()
    return timings.milliseconds()


def loop_spark(spark: SparkSession, folder: Path, epochs: int, first: np.ndarray) -> list[float]:
    """Call the operators in one job per epoch, each bucket's rows in a file that the workers map."""
    centres: Block = {"centre": first}
    timings = Timings()
    timings.mark()
    for _ in range(epochs):
        given = centres

        def partial(batches: Iterator[pa.RecordBatch], centres: Block = given) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for bucket in batch.column(0).to_pylist():
                    rows = np.load(folder / f"{bucket}.npy", mmap_mode="r")
                    block = library.sums({"features": np.asarray(rows)}, centres)
                    columns = [pa.array([bucket]), *(pa.array([block[name].tobytes()]) for name in NAMES)]
                    yield pa.RecordBatch.from_arrays(columns, names=["bucket", *NAMES])

        frame = spark.range(0, BUCKETS, 1, PARALLELISM)
        schema = "bucket long, " + ", ".join(f"{name} binary" for name in NAMES)
        collected = sorted(frame.mapInArrow(partial, schema).collect(), key=lambda row: row["bucket"])
        blocks = [
            {
                "sum": np.frombuffer(row["sum"]).reshape(K, -1),
                "count": np.frombuffer(row["count"], dtype=np.int64),
                "inertia": np.frombuffer(row["inertia"]),
            }
            for row in collected
        ]
        centres = move(blocks, centres)
        timings.mark()
    return timings.milliseconds()


NAMES = ("sum", "count", "inertia")


def run(store: PostgresStore, settings: Settings, engine: Engine, *, path: Path, epochs: int) -> list[float]:
    """Drive the iteration."""
    request = Request(
        reference="epoch_cost:lloyd",
        run_key=uuid.uuid4().hex,
        params={"input": str(path), "k": K, "max_epochs": epochs},
        max_buckets=BUCKETS,
    )
    timings = Timings()
    drive = Drive(holder=this_holder(), open_runner=engine.open_runner, parallelism=PARALLELISM, observer=timings)
    drive_run(store, settings, open_run(store, settings, request), drive)
    return timings.milliseconds()


def report(measured: dict[str, list[float]]) -> None:
    """Print medians and the differences."""
    medians = {name: statistics.median(values) for name, values in measured.items() if values}
    print(f"{'':<16}{'median ms/epoch':>16}{'p90':>10}")
    for name, values in measured.items():
        if values:
            print(f"{name:<16}{medians[name]:>16.2f}{statistics.quantiles(values, n=10)[-1]:>10.2f}")
    for where in ("Python", "Spark"):
        if f"run, {where}" in medians:
            loop, driven = medians[f"loop, {where}"], medians[f"run, {where}"]
            print(f"own cost on {where}: {driven - loop:.2f} ms per epoch, {driven / loop:.2f} times the loop")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-spark", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = open_bench_store(stack, folder)
        settings = Settings(store_url=None, state_uri=str(folder / "state"))
        measure(store, settings, folder, options)


def open_bench_store(stack: ExitStack, folder: Path) -> PostgresStore:
    """Open a store on a new embedded Postgres; both are gone with the stack."""
    server = EmbeddedPostgres(folder / "store")
    stack.callback(server.destroy)
    server.start()
    server.ensure_database("bench")
    engine = open_engine(server.url("bench"))
    upgrade(engine)
    engine.dispose()
    store = PostgresStore(server.url("bench"))
    stack.callback(store.close)
    return store


def measure(store: PostgresStore, settings: Settings, folder: Path, options: argparse.Namespace) -> None:
    """Alternate between the ways, and report."""
    path = write_digits(folder / "digits.parquet")
    features = np.stack(pq.read_table(path)["features"].to_numpy())
    buckets = buckets_of(features)
    ways: dict[str, Callable[[], list[float]]] = {
        "loop, Python": lambda: loop_python(buckets, options.epochs),
        "run, Python": lambda: run(store, settings, Engine(kind=EngineKind.LOCAL), path=path, epochs=options.epochs),
    }
    if not options.no_spark:
        for number, rows in enumerate(buckets):
            np.save(folder / f"{number}.npy", rows)
        ways |= {
            "loop, Spark": lambda: in_spark(folder, buckets[0][:K], options.epochs),
            "run, Spark": lambda: run(
                store,
                settings,
                Engine(kind=EngineKind.SPARK, master=f"local[{PARALLELISM}]"),
                path=path,
                epochs=options.epochs,
            ),
        }
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            measured[name] += way()
    report(measured)


def in_spark(folder: Path, first: np.ndarray, epochs: int) -> list[float]:
    """Run the loop in a session of its own, as the driven run has one."""
    spark = open_session(f"local[{PARALLELISM}]", "loop")
    try:
        return loop_spark(spark, folder, epochs, first)
    finally:
        spark.stop()


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    main()
