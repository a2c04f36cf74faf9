"""How does a Spark Connect server run on one machine, on the loopback address, until it is ended?"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iteration_lib.airflow.driver_process import spark_environment
from iteration_lib.airflow.standalone.processes import StandaloneError
from iteration_lib.airflow.standalone.settings import LOOPBACK

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # its Python workers inherit them
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10


@contextmanager
def connect_server(port: int, *, log: Path, master: str = "local[*]", timeout_seconds: float = 90) -> Iterator[str]:
    """Start a server, give its address once it listens, and end it afterwards; may raise StandaloneError."""
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    environment = {**os.environ, **spark_environment(os.environ), **dict.fromkeys(_ONE_THREAD, "1")}
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", master, "--class", _CLASS]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with log.open("wb") as output:
        server = subprocess.Popen(  # noqa: S603  (Spark's own command, from this environment)
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        _wait_until_listening(server, port, log=log, timeout_seconds=timeout_seconds)
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        _end(server)


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.create_server((LOOPBACK, 0)) as opened:
        port: int = opened.getsockname()[1]
    return port


def _wait_until_listening(server: subprocess.Popen[bytes], port: int, *, log: Path, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        if server.poll() is not None or time.monotonic() > deadline:
            raise StandaloneError(f"the Spark Connect server does not listen on port {port}", log=log)
        time.sleep(_POLL_SECONDS)


def _end(server: subprocess.Popen[bytes]) -> None:
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_GRACE_SECONDS)
            return
