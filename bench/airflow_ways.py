"""What do the three ways to run epochs under Airflow take, beside a DAG that submits an application per epoch?

K-means of the digits, `--epochs` of them, on one Airflow (LocalExecutor) on this machine:

    naive     one SparkSubmitOperator per epoch, which hands Parquet over
    submit    one application, one task for all epochs
    watch     one application, one task per epoch that follows it
    connect   one task per epoch, each a client of a warm Spark Connect server

A way's time is its DAG run's, from start to end; what Airflow and the Connect server take to start is in none of them.
The median task is that of those that have epochs, from its start to its end, waiting included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.airflow.driver_process import spark_environment
from iteration_lib.airflow.standalone.api import AirflowApi
from iteration_lib.airflow.standalone.connect_server import connect_server, free_port
from iteration_lib.airflow.standalone.processes import StandaloneAirflow
from iteration_lib.airflow.standalone.settings import Settings, connection_of_url
from iteration_lib.launch import read_outputs
from iteration_lib.library.datasets import write_digits
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.opening import find_run
from iteration_lib.store.postgres import PostgresStore, open_engine

WAYS = ("connect", "watch", "submit", "naive")
WANTED = {"submit": 8, "watch": 8, "connect": 3}
K, MASTER = 10, "local[2]"
DAGS = Path(__file__).with_name("ways")
TIMEOUT_SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a DAG run took."""

    run_id: str
    seconds: float
    task_seconds: float


def main() -> None:
    """Run the ways one after the other, and print their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="airflow-ways-"))
    write_input(folder)
    with ExitStack() as stack:
        port = free_port()
        stack.enter_context(connect_server(port, log=folder / "connect.log", master=MASTER))
        airflow, store = start_airflow(stack, folder, epochs=options.epochs, connect_port=port)
        found = {way: run_way(airflow.api(), way) for way in options.ways}
        print_times(found, epochs=options.epochs)
        print_difference(folder, store, found, epochs=options.epochs)


def write_input(folder: Path) -> None:
    """Write the digits, and the centres that every way starts from."""
    write_digits(folder / "points.parquet")
    points = pq.read_table(folder / "points.parquet").column("features").to_pylist()
    chosen = np.random.default_rng(2).choice(len(points), K, replace=False)
    centres = [[float(value) for value in points[row]] for row in chosen]
    table = pa.table({"number": list(range(K)), "features": centres})
    pq.write_table(table, folder / "centres.parquet")


def start_airflow(
    stack: ExitStack, folder: Path, *, epochs: int, connect_port: int
) -> tuple[StandaloneAirflow, PostgresStore]:
    """Start Postgres and Airflow with the DAGs of bench/ways."""
    postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres"))
    for name in ("airflow", "iteration"):
        postgres.ensure_database(name)
    url = postgres.url("iteration")
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()
    settings = Settings(
        home=folder / "home",
        dags=DAGS,
        plugins=folder / "plugins",
        metadata_url=postgres.url("airflow"),
        metadata_async_url=postgres.async_url("airflow"),
        connections={
            "iteration_store": connection_of_url(url),
            "spark_default": f'{{"conn_type": "spark", "host": "{MASTER}"}}',
            "spark_connect_default": f'{{"conn_type": "spark_connect", "host": "127.0.0.1", "port": {connect_port}}}',
        },
        extra={
            **spark_environment(os.environ),
            "AIRFLOW__ITERATION__STATE_URI": str(folder / "state"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "WAYS_FOLDER": str(folder),
            "WAYS_EPOCHS": str(epochs),
        },
    )
    airflow = stack.enter_context(StandaloneAirflow(settings))
    store = PostgresStore(url)
    stack.callback(store.close)
    while any(airflow.api().dag(way) is None for way in WAYS):
        for error in airflow.api().import_errors():
            raise SystemExit(error["stack_trace"])
        time.sleep(1)
    return airflow, store


def run_way(api: AirflowApi, way: str) -> Taken:
    """Run a DAG, and return what it took; ends the program where it does not succeed."""
    run_id = api.trigger(way)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (run := api.dag_run(way, run_id))["state"] not in ("success", "failed"):
        if time.monotonic() > deadline:
            raise SystemExit(f"{way} takes longer than {TIMEOUT_SECONDS} s")
        time.sleep(0.5)
    if run["state"] == "failed":
        raise SystemExit(f"{way} failed")
    seconds = (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run["start_date"])).total_seconds()
    tasks = api.task_instances(way, run_id).items()
    task_seconds = statistics.median(task["duration"] for name, task in tasks if name.split(".")[-1].startswith("e"))
    print(f"{way}: {seconds:.1f} s", flush=True)
    return Taken(run_id=run_id, seconds=seconds, task_seconds=task_seconds)


def print_times(found: Mapping[str, Taken], *, epochs: int) -> None:
    """Print each way's time, and how many times faster than the naive one it is."""
    print(f"\n| way | s for {epochs} epochs | median task, s | times faster | wanted |\n|---|---|---|---|---|")
    for way, taken in found.items():
        faster = f"{found['naive'].seconds / taken.seconds:.1f}" if "naive" in found else "-"
        print(f"| {way} | {taken.seconds:.1f} | {taken.task_seconds:.1f} | {faster} | {WANTED.get(way, '-')} |")


def print_difference(folder: Path, store: PostgresStore, found: Mapping[str, Taken], *, epochs: int) -> None:
    """Say whether the ways' results are the same to the bit, and how far the naive one's is from them."""
    runs = [find_run(store, f"{way}/{taken.run_id}") for way, taken in found.items() if way != "naive"]
    print(f"\nstate digests of our ways: {len({run.state_digest for run in runs})} (1 means equal to the bit)")
    if runs and "naive" in found:
        ours = np.array(read_outputs(store, runs[0])["model"].column("centre").to_pylist())
        theirs = pq.read_table(folder / f"{found['naive'].run_id}-{epochs}.parquet").sort_by("number")
        distance = np.abs(ours - np.array(theirs.column("features").to_pylist())).max()
        print(f"largest difference to the naive centres: {distance:.1e}")


if __name__ == "__main__":
    main()
