"""How does a task start the Spark application that drives its epochs, follow it and end it?

Through the provider's SparkSubmitHook and a connection of type spark. The driver gets the store's address by its
environment alone; it watches the task's process and ends when that is gone. In cluster deploy mode neither would
reach it, so that mode is refused.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from iteration_lib.airflow.interface import AirflowException, AirflowNotFoundException
from iteration_lib.airflow.submission import GRACE_SECONDS, Submission
from iteration_lib.engine import SPARK_STARTED
from iteration_lib.errors import ConnectionNotFoundError, ExecutionLostError, UsageError
from iteration_lib.interrupt import TERMINATED_EXIT_CODE
from iteration_lib.runner.java import find_java_home

_DEPLOY_MODE = "spark.submit.deployMode"
_DEFAULT_CONF = {
    _DEPLOY_MODE: "client",  # whatever spark-defaults.conf says
    "spark.log.level": "WARN",  # a task's log is for the driver's own lines
    "spark.ui.showConsoleProgress": "false",
}
_EXIT_CODE = re.compile(r"Error code is: (\d+)")
_SPARK_STARTED = re.compile(SPARK_STARTED.replace("%s", r"(\S+)"))


class DriverProcess(SparkSubmitHook):
    """One submission, from `run()` until its driver has ended."""

    def __init__(
        self, submission: Submission, *, when_started: Callable[[str, str], None] = lambda _id, _address: None
    ) -> None:
        """Read the connection; raises ConnectionNotFoundError when there is none (the provider would turn to YARN).

        `when_started` hears the Spark application's id, and where Spark shows it or a word that is no address.
        """
        try:
            self.get_connection(submission.conn_id)
        except AirflowNotFoundException as error:
            way_out = (
                "add it (type spark, host local[*] or the master's address) under Admin, Connections, or name another "
                "with conn_id="
            )
            raise ConnectionNotFoundError(submission.conn_id, way_out) from error
        conf = {**_DEFAULT_CONF, **submission.conf}
        super().__init__(
            conn_id=submission.conn_id,
            conf=conf,
            name=submission.name,
            application_args=list(submission.arguments),
        )
        self._submission = submission
        self._deploy_modes = (self._connection["deploy_mode"], conf[_DEPLOY_MODE])
        self._when_started = when_started
        self._submit_sp: subprocess.Popen[str] | None = None

    def run(self, *, environ: Mapping[str, str] = os.environ) -> None:
        """Submit, log the driver's lines, and return once it has ended well.

        Raises UsageError when the driver calls it the user's mistake, ExecutionLostError for any other end. Whether
        its epochs are durable is for the store to say.
        """
        if "cluster" in self._deploy_modes:
            raise UsageError(
                f"the connection {self._submission.conn_id!r}, or spark_conf, asks for deploy mode cluster, in which a "
                "driver gets no environment and so no store; use client mode"
            )
        environment = {**environ, **spark_environment(environ), **self._submission.environment}
        try:
            self.submit(str(self._submission.application), env=environment, start_new_session=True)
        except AirflowException as error:
            code = _EXIT_CODE.search(str(error))
            if code is not None and int(code[1]) == UsageError.exit_code:
                raise UsageError(str(error)) from error
            raise ExecutionLostError(str(error)) from error
        finally:
            self._end()

    def on_kill(self) -> None:
        """End the driver; raises SystemExit when there is none yet, so that none is started any more."""
        if self._submit_sp is None:
            sys.exit(TERMINATED_EXIT_CODE)
        self._end()

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        """Hear the driver's lines while the provider logs them."""
        super()._process_spark_submit_log(self._heard(itr))

    def _heard(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            started = _SPARK_STARTED.search(line)
            if started is not None:
                self._when_started(started[1], started[2])
            yield line

    def _end(self) -> None:
        """End the driver's Python and its JVM; harmless when they have ended."""
        submitted = self._submit_sp
        if submitted is None:
            return
        drivers = _processes_that_run(self._submission.application, below=submitted.pid)
        for driver in drivers:
            with contextlib.suppress(psutil.NoSuchProcess):
                driver.terminate()  # alone: what it captures now, it may need the JVM for
        if not drivers:
            _signal_group(submitted.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            submitted.wait(GRACE_SECONDS)
        _signal_group(submitted.pid, signal.SIGKILL)
        super().on_kill()


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what spark-submit needs to find: Java, Spark, this Python; what the environment names already stays."""
    found = {"JAVA_HOME": str(find_java_home(environ))}
    spec = importlib.util.find_spec("pyspark")
    installed = next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
    spark_home = environ.get("SPARK_HOME") or installed
    if spark_home is not None:
        found["SPARK_HOME"] = spark_home
    found["PYSPARK_PYTHON"] = environ.get("PYSPARK_PYTHON") or sys.executable
    found["PYSPARK_DRIVER_PYTHON"] = environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable
    found["PYTHONSAFEPATH"] = "1"  # else the application's own folder comes first, and hides a user's module `model`
    given = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]  # "" would be the cwd
    found["PYTHONPATH"] = os.pathsep.join([*_own_folders(), *given])
    folders = [str(Path(sys.executable).parent), environ.get("PATH", os.defpath)]
    if spark_home is not None:
        folders.insert(0, str(Path(spark_home) / "bin"))
    return {**found, "PATH": os.pathsep.join(folders)}


def _own_folders() -> list[str]:
    """Return where this process finds modules beyond its Python's own: Airflow adds the DAGs' and the plugins' folder.

    The driver imports the iteration from there, and ships it to the executors itself.
    """
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {Path(entry).resolve() for entry in site.getsitepackages()}
    folders = [Path(entry).resolve() for entry in sys.path if entry and Path(entry).is_dir()]
    return [str(folder) for folder in folders if not installed & {folder, *folder.parents}]


def _processes_that_run(application: Path, *, below: int) -> list[psutil.Process]:
    """Return the Python of a submission's driver: Spark's launcher starts it as `python APPLICATION ARGUMENTS`."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(below).children(recursive=True)
        return [child for child in children if _command(child)[1:2] == [str(application)]]
    return []


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _signal_group(pid: int, signal_number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal_number)
