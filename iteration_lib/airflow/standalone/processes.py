"""How do Airflow's processes start on one machine, when are they ready, and how do all of them end?

The database is migrated first; then api-server, scheduler, dag-processor and triggerer start at once. Only one starter
works in a folder at a time; what an earlier one left behind, because it was killed itself, ends before the next start.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from iteration_lib.airflow.standalone.api import AirflowApi
from iteration_lib.airflow.standalone.marked import end_marked, mark_environment
from iteration_lib.airflow.standalone.settings import Settings, ensure_secrets, environment_of, free_ports
from iteration_lib.errors import IterationError
from iteration_lib.store.file_lock import FileLock

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
_GRACE_SECONDS = 5
_POLL_SECONDS = 0.5
_TAIL_LINES = 25

_logger = logging.getLogger(__name__)


class StandaloneError(IterationError):
    """A standalone Airflow did not start, or one of its processes ended by itself."""

    def __init__(self, problem: str, *, log: Path | None = None) -> None:
        self.log = log
        tail = f"; its last words:\n{tail_of(log)}\nAll of it: {log}" if log is not None else ""
        super().__init__(f"{problem}{tail}")


@dataclass(slots=True)
class _Component:
    name: str
    log: Path
    process: subprocess.Popen[bytes]


class StandaloneAirflow:
    """One Airflow in one folder, from `start()` to `stop()`."""

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._mark = uuid.uuid4().hex
        self._lock = FileLock(settings.home / "lock")
        self._secrets = ensure_secrets(settings)
        self._ports = free_ports()
        own = {**environ, **environment_of(settings, self._secrets, self._ports)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
        self._environment = mark_environment({**own, "PATH": path}, self._mark)
        self._components: list[_Component] = []

    def __enter__(self) -> Self:
        """Start and wait until it is healthy."""
        try:
            self.start()
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process."""
        self.stop()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that its processes run with: what another `airflow` command needs to join them."""
        return self._environment

    @property
    def url(self) -> str:
        """Where a person reaches it."""
        return self._environment["AIRFLOW__API__BASE_URL"]

    @property
    def passwords(self) -> Mapping[str, str]:
        """Each user's password."""
        return self._secrets.passwords

    def api(self, user: str = "admin") -> AirflowApi:
        """Return its REST interface as one of its users sees it."""
        return AirflowApi(self.url, user=user, password=self.passwords[user])

    def start(self, *, say: Callable[[str], None] = lambda _: None) -> None:
        """Migrate the database and start the processes; returns before they are ready."""
        self._take_folder()
        say("migrating Airflow's database")
        self._migrate()
        say("starting " + ", ".join(COMPONENTS))
        self._components = [self._start(name) for name in COMPONENTS]

    def wait_until_healthy(self, *, timeout_seconds: float = 180) -> None:
        """Return once every process has reported itself healthy; raises StandaloneError when one has ended."""
        deadline = time.monotonic() + timeout_seconds
        api = self.api()
        while sick := [name for name, status in api.health().items() if status != "healthy"]:
            self.check()
            if time.monotonic() > deadline:
                name = "api-server" if len(sick) == len(COMPONENTS) else sick[0].replace("_", "-")
                raise StandaloneError(
                    f"not healthy after {timeout_seconds:g} s: {', '.join(sick)}", log=self._log_of(name)
                )
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise StandaloneError when a process has ended."""
        for component in self._components:
            code = component.process.poll()
            if code is not None:
                raise StandaloneError(f"Airflow's {component.name} ended with code {code}", log=component.log)

    def stop(self) -> None:
        """End every process that was started, with all that they have started; repeating the call is harmless.

        Running tasks are killed: their runs resume from the last durable epoch.
        """
        left = end_marked(self._mark, grace_seconds=_GRACE_SECONDS)
        for component in self._components:
            component.process.wait()
        self._components = []
        self._lock.release()
        if left:
            _logger.warning("processes_left pids=%s", left)

    def _take_folder(self) -> None:
        self._settings.logs.mkdir(parents=True, exist_ok=True)
        if not self._lock.try_exclusive():
            self._lock.release()
            raise StandaloneError(f"another Airflow runs in {self._settings.home}; end it first")
        mark = self._settings.home / "mark"
        if mark.exists():
            end_marked(mark.read_text(), grace_seconds=_GRACE_SECONDS)
        mark.write_text(self._mark)

    def _migrate(self) -> None:
        migration = self._start("db", "migrate")
        if code := migration.process.wait():
            raise StandaloneError(f"`airflow db migrate` ended with code {code}", log=migration.log)

    def _start(self, *command: str) -> _Component:
        name = command[0]
        log = self._log_of(name)
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  (Airflow's own command, from this environment)
                [sys.executable, "-m", "airflow", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._settings.home,
                start_new_session=True,  # a terminal's Ctrl-C is for the starter, which ends them in order
            )
        return _Component(name=name, log=log, process=process)

    def _log_of(self, name: str) -> Path:
        return self._settings.logs / f"{name}.log"


def tail_of(log: Path, *, lines: int = _TAIL_LINES) -> str:
    """Return a log's last lines."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error})"
