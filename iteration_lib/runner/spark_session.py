"""How does this process get a Spark session, and what does it say about the one it has?

Whatever the installation, spark-submit or the environment has set stays; this module only fills gaps. On a local
master the driver's JVM is started here, on loopback addresses only, with the driver's own Python and Python path.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from iteration_lib.errors import IterationError, SparkUnavailableError
from iteration_lib.runner.calling import ONE_THREAD
from iteration_lib.runner.java import find_java_home

_CONNECT = "sc://"
_CONNECT_PORT = 15002  # where an address names none
_LISTENING_SECONDS = 5
_GONE = "INVALID_HANDLE"  # what a server says of a session that it has closed
_DETAILS = re.compile(r'^\s*details = "(.+?)"?$', re.MULTILINE)  # of a gRPC error, whose first line says nothing


def open_session(master: str | None, app_name: str, *, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session on `master`: that of spark-submit, if there is one, else local[*], where it is None.

    A master that starts with sc:// is a Spark Connect server. Raises JavaNotFoundError where a JVM has to be started
    and there is no Java for it, SparkUnavailableError for anything else that leaves no session.
    """
    try:
        return _open(master, app_name, conf=conf)
    except IterationError:
        raise
    except Exception as err:  # whatever Spark, py4j or the network raise: there is no session, and nothing has run
        raise SparkUnavailableError(master, _said_by(err)) from err


def _said_by(err: Exception) -> str:
    """Return the one line of an error that says something."""
    text = str(err).strip()
    details = _DETAILS.search(text)
    return details[1] if details is not None else text.partition("\n")[0] or type(err).__name__


def _open(master: str | None, app_name: str, *, conf: Mapping[str, str] | None) -> SparkSession:
    if master is not None and master.startswith(_CONNECT):
        return SparkSession.builder.remote(master).appName(app_name).getOrCreate()
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    given = SparkConf(loadDefaults=False).setAll(list((conf or {}).items()))
    if not is_submitted and SparkContext._gateway is None:  # noqa: SLF001 - pyspark has no public way to ask
        _prepare_environment(is_local=master is None or master.startswith("local"))
    SparkContext._ensure_initialized(conf=given)  # noqa: SLF001 - only a JVM knows what spark-submit or its files set
    found = SparkConf()
    address: str = master or found.get("spark.master") or "local[*]"
    builder = SparkSession.builder.appName(app_name).master(address)
    for name, value in _settings(is_local=address.startswith("local")).items():
        if not found.contains(name):
            builder = builder.config(name, value)
    if not is_submitted:
        builder = builder.config("spark.ui.showConsoleProgress", "false")  # pyspark switches it on for a shell
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # it prints what it then raises as well
    session: SparkSession = builder.getOrCreate()
    return session


def open_warm_session(server: str, app_name: str, *, key: str) -> SparkSession:
    """Return the session of a Spark Connect server that this key names, with all that it still holds.

    It is there until somebody stops it, or the server finds it idle; then it is gone for good, and this is a new one
    without a name. Raises SparkUnavailableError.
    """
    separator = ";" if "/;" in server else "/;"
    named = f"{server.rstrip('/;')}{separator}session_id={uuid.uuid5(uuid.NAMESPACE_OID, key)}"
    try:
        return open_session(named, app_name)
    except SparkUnavailableError as err:
        if _GONE not in str(err):
            raise
        closed = SparkSession.getActiveSession()
        if closed is not None:  # else pyspark hands it out again
            closed.stop()
        return open_session(server, app_name)


def check_listening(server: str) -> None:
    """Raise SparkUnavailableError where nobody listens at a Spark Connect server's address.

    Asked before what may as well be left undone: pyspark's client itself tries for ten minutes.
    """
    try:
        address = urlsplit(server)
        with socket.create_connection((address.hostname, address.port or _CONNECT_PORT), timeout=_LISTENING_SECONDS):
            pass
    except (OSError, ValueError) as err:
        raise SparkUnavailableError(server, str(err)) from err


def classic_context(spark: SparkSession) -> SparkContext | None:
    """Return the session's context; None for a Spark Connect session, which has none."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def activate(spark: SparkSession) -> None:
    """Make a session this thread's active one, which a user's function may ask for."""
    context, session = classic_context(spark), cast("Any", spark)  # Any: pyspark has no public way
    if context is None:
        session._set_default_and_active_session(session)  # noqa: SLF001 - see above
    else:
        session._get_j_spark_session_class(context._jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001 - see above


def is_local_master(spark: SparkSession) -> bool:
    """Whether the session's tasks run inside the driver's JVM, on this machine."""
    context = classic_context(spark)
    return context is not None and (context.master or "").startswith("local")


def jvm_pid(spark: SparkSession) -> int | None:
    """Return the process id of the driver's JVM; None where it is not on this machine (Spark Connect)."""
    context = classic_context(spark)
    if context is None or context._jvm is None:  # noqa: SLF001 - the one place that asks the JVM itself
        return None
    return int(context._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - likewise


def _settings(*, is_local: bool) -> dict[str, str]:
    found: dict[str, Any] = {  # Any: shown as text below
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 16 if is_local else 200,
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.pythonUDF.arrow.enabled": "true",
        **{f"spark.executorEnv.{name}": 1 for name in ONE_THREAD},
    }
    if is_local:
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
    return {name: str(value) for name, value in found.items()}


def _prepare_environment(*, is_local: bool) -> None:
    """Set what a JVM that this process starts, and the Python workers that it starts, must inherit."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {quiet}".strip()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
