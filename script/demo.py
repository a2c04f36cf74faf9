"""What does script/demo show? A training DAG on a real Airflow, from the trigger to the published model.

Starts the embedded Postgres and Airflow's processes, triggers `kmeans_digits`, follows its epochs in the store, prints
the result, and ends every process that it started, whatever happens. Installed is everything in .venv; what the demo
writes lies in this user's data folder, which it names.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from iteration_lib.airflow.standalone.api import AirflowApi
from iteration_lib.airflow.standalone.processes import StandaloneAirflow
from iteration_lib.airflow.standalone.settings import Settings, connection_of_url
from iteration_lib.config import user_folder
from iteration_lib.errors import IterationError
from iteration_lib.interrupt import INTERRUPTED_EXIT_CODE
from iteration_lib.store.embedded import EmbeddedPostgres, default_folder
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.record import EpochRecord, RunRecord

ROOT = Path(__file__).parents[1]
DAG_ID = "kmeans_digits"
METRIC = "inertia"
_POLL_SECONDS = 0.5
_DAG_SECONDS = 60
_RUN_SECONDS = 600
_LOG_LINES = 30

console = Console(highlight=False, soft_wrap=True)


class DemoFailedError(IterationError):
    """The demo's DAG run did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where the demo writes."""

    postgres: Path
    airflow: Path
    state: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Everything that runs while the demo is up."""

    airflow: StandaloneAirflow
    api: AirflowApi
    store: PostgresStore
    show: str


def main() -> int:
    """Run the demo and return its exit code."""
    arguments = argparse.ArgumentParser(prog="script/demo", description=__doc__)
    arguments.add_argument("--exit", action="store_true", help="leave when the run has ended")
    arguments.add_argument("--data", type=Path, help="keep Postgres, Airflow and state here, not in your data folder")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folders = find_folders(given.data.absolute() if given.data is not None else None)
    try:
        with open_site(folders) as site:
            run, dag_run_id = show_run(site)
            print_result(site, run, dag_run_id)
            if not given.exit:
                stay_up(site)
    except KeyboardInterrupt:
        console.print("interrupted; every process has ended")
        return INTERRUPTED_EXIT_CODE
    except IterationError as error:
        console.print(f"script/demo failed: {escape(str(error))}")
        console.print(f"logs: {folders.airflow / 'logs'}")
        return error.exit_code
    return 0


def find_folders(data: Path | None) -> Folders:
    """Return where the demo writes: where the `iteration` command looks without being told, or below `data`."""
    if data is None:
        return Folders(postgres=default_folder(), airflow=user_folder() / "airflow", state=user_folder() / "state")
    return Folders(postgres=data / "store", airflow=data / "airflow", state=data / "state")


@contextmanager
def open_site(folders: Folders) -> Iterator[Site]:
    """Start Postgres and Airflow; on the way out all of it has ended."""
    with ExitStack() as stack:
        postgres = EmbeddedPostgres(folders.postgres)
        say(f"Postgres in {folders.postgres}: databases airflow (Airflow's own) and iteration (the store)")
        stack.enter_context(postgres)
        store = stack.enter_context(_open_store(postgres))
        airflow = StandaloneAirflow(_settings(folders, postgres))
        stack.callback(airflow.stop)
        stack.callback(_ignore_interrupts)  # runs first: nothing stops the ending of the rest
        say(f"Airflow in {folders.airflow}: {airflow.url}")
        airflow.start(say=say)
        with console.status("waiting until Airflow is healthy"):
            airflow.wait_until_healthy()
        is_default = folders.postgres == default_folder()
        show = ".venv/bin/iteration show" + ("" if is_default else f" --store '{postgres.url('iteration')}'")
        yield Site(airflow=airflow, api=airflow.api(), store=store, show=show)


def show_run(site: Site) -> tuple[RunRecord, str]:
    """Trigger the DAG and show its epochs until the DAG run has ended; raises DemoFailedError unless it succeeded."""
    _wait_for_dag(site)
    site.api.unpause(DAG_ID)
    dag_run_id = site.api.trigger(DAG_ID)
    say(f"triggered {DAG_ID}: {dag_run_id}")
    deadline = time.monotonic() + _RUN_SECONDS
    with EpochBar() as bar:
        while (state := site.api.dag_run(DAG_ID, dag_run_id)["state"]) not in ("success", "failed"):
            bar.follow(site.store, f"{DAG_ID}/{dag_run_id}")
            site.airflow.check()
            if time.monotonic() > deadline:
                raise DemoFailedError(f"the DAG run has not ended after {_RUN_SECONDS} s")
            time.sleep(_POLL_SECONDS)
        bar.follow(site.store, f"{DAG_ID}/{dag_run_id}")
    run = site.store.find_run(f"{DAG_ID}/{dag_run_id}")
    if state != "success" or run is None:
        raise DemoFailedError(f"the DAG run ended as {state}\n{_failed_log(site.api, dag_run_id)}")
    return run, dag_run_id


class EpochBar:
    """A bar over epochs with the metric; where there is no terminal, a line whenever it is asked and there is news."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn(DAG_ID),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[news]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("epochs", total=None, news="starting Spark")
        self._shown = -1

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop drawing."""
        self._progress.stop()

    def follow(self, store: PostgresStore, run_key: str) -> None:
        """Show where the run is."""
        run = store.find_run(run_key)
        if run is None or run.last_durable_epoch <= self._shown:
            return
        self._shown = run.last_durable_epoch
        news = _news(store.list_epochs(run.run_id, run.last_durable_epoch)[0])
        total = run.epochs if run.terminated_by is not None else run.max_epochs
        self._progress.update(self._bar, completed=run.epochs, total=total, news=news)
        if not console.is_terminal:
            say(f"epoch {run.last_durable_epoch}: {news}")


def print_result(site: Site, run: RunRecord, dag_run_id: str) -> None:
    """Say what came out, where it lies and where to look at it."""
    metrics = site.store.list_epochs(run.run_id, run.last_durable_epoch)[0].metrics
    page = f"{site.airflow.url}/dags/{DAG_ID}/runs/{quote(dag_run_id)}/plugin/iteration"
    facts = {
        "status": run.status.value,
        "terminated by": run.terminated_by.value if run.terminated_by is not None else "",
        "epochs": str(run.epochs),
        METRIC: f"{metrics[METRIC]:.6f}",
        "state digest": run.state_digest or "",
        **{f"output {name}": uri for name, uri in (run.outputs or {}).items()},
        "from a shell": f"{site.show} {run.run_key}",
        "the run's page": page,
        "login": f"admin, password {site.airflow.passwords['admin']}",
    }
    console.print()
    for name, value in facts.items():
        console.print(f"  [dim]{name:>16}[/dim]  {escape(value)}")
    console.print()


def stay_up(site: Site) -> None:
    """Leave Airflow to the person until Ctrl-C; raises StandaloneError when one of its processes ends by itself."""
    console.print("Airflow stays up; Ctrl-C ends all of it.")
    try:
        while True:
            site.airflow.check()
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        console.print("ending every process")


def say(what: str) -> None:
    """Print a step."""
    console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(what)}")


def _settings(folders: Folders, postgres: EmbeddedPostgres) -> Settings:
    return Settings(
        home=folders.airflow,
        dags=ROOT / "dags",
        plugins=ROOT / "plugins",
        metadata_url=postgres.url("airflow"),
        metadata_async_url=postgres.async_url("airflow"),
        connections={
            "iteration_store": connection_of_url(postgres.url("iteration")),
            "spark_default": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        },
        extra={"AIRFLOW__ITERATION__STATE_URI": str(folders.state)},
    )


@contextmanager
def _open_store(postgres: EmbeddedPostgres) -> Iterator[PostgresStore]:
    postgres.ensure_database("airflow", idle_in_transaction_seconds=60)
    postgres.ensure_database("iteration")
    engine = open_engine(postgres.url("iteration"))
    upgrade(engine)
    engine.dispose()
    store = PostgresStore(postgres.url("iteration"))
    try:
        yield store
    finally:
        store.close()


def _wait_for_dag(site: Site) -> None:
    deadline = time.monotonic() + _DAG_SECONDS
    while site.api.dag(DAG_ID) is None:
        site.airflow.check()
        if time.monotonic() > deadline:  # not before: an error of an earlier day stays until the file is parsed again
            traces = "\n".join(str(error["stack_trace"]) for error in site.api.import_errors())
            raise DemoFailedError(f"Airflow has not found the DAG {DAG_ID} after {_DAG_SECONDS} s\n{traces}".strip())
        time.sleep(_POLL_SECONDS)


def _failed_log(api: AirflowApi, dag_run_id: str) -> str:
    for name, task in api.task_instances(DAG_ID, dag_run_id).items():
        if task["state"] == "failed":
            lines = api.log(DAG_ID, dag_run_id, name, try_number=task["try_number"]).splitlines()
            return f"the end of the log of {name}:\n" + "\n".join(lines[-_LOG_LINES:])
    return "no task has failed"


def _news(epoch: EpochRecord) -> str:
    value = epoch.metrics.get(METRIC)
    return f"{METRIC} {value:.2f}" if value is not None else ""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
