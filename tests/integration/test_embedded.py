"""The embedded Postgres on the real thing: starting, sharing, crashing, leaving nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL

import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from iteration_lib.errors import EmbeddedStoreError
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.server_folder import SYSTEM_FOLDER

pytestmark = pytest.mark.postgres

_USER_PROCESS = """
import sys
from pathlib import Path
from iteration_lib.store.embedded import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
print("out", flush=True)
"""

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE DATABASE%%'"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a socket's path fits into, which pytest's own need not be: it grows with user, worker and test."""
    with tempfile.TemporaryDirectory(prefix="store-", dir="/tmp") as place:
        yield from _removed_afterwards(Path(place) / "store")


@pytest.fixture
def long_system_folder() -> Iterator[Path]:
    """A place for root's data, as deep as an ordinary user's own folder may be; not used otherwise."""
    folder = SYSTEM_FOLDER / f"test-{secrets.token_hex(4)}" / ("x" * 90)
    yield folder
    if folder.parent.exists():
        shutil.rmtree(folder.parent)


def test_database_is_reached_by_psycopg2_and_asyncpg(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        server.ensure_database("some-base")
        server.ensure_database("some-base")

        found = (_query(server, "some-base"), asyncio.run(_query_async(server, "some-base")))

    assert (("some-base", "on"), ("some-base", "on")) == found


def test_idle_transaction_limit_holds_for_its_database_alone(folder: Path) -> None:
    question = "SELECT current_setting('idle_in_transaction_session_timeout'), ''"
    with EmbeddedPostgres(folder) as server:
        server.ensure_database("limited", idle_in_transaction_seconds=90)
        server.ensure_database("free")

        found = (_query(server, "limited", question), _query(server, "free", question))

    assert (("90s", ""), ("0", "")) == found


def test_committed_rows_and_address_survive_kill_9_of_server(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        address = server.url("postgres")
        _execute(server, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
        killed = _server_pid(folder)
        os.kill(killed, SIGKILL)

        server.start()

        assert address == server.url("postgres")
        assert killed != _server_pid(folder)
        assert (1000, 500500) == _query(server, "postgres", "SELECT count(*), sum(number) FROM kept")


@pytest.mark.parametrize("ended", [False, True], ids=["another program", "a zombie"])
def test_start_passes_over_stale_pid_file_whose_number_is_taken(folder: Path, *, ended: bool) -> None:
    """Postgres itself refuses to start as long as a process of that number exists."""
    with EmbeddedPostgres(folder):
        note = _note(folder).read_text()
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    if ended:
        other.kill()
        _until(lambda: Path(f"/proc/{other.pid}/cmdline").read_bytes() == b"")
    _note(folder).write_text("\n".join([str(other.pid), *note.splitlines()[1:]]) + "\n")

    try:
        with EmbeddedPostgres(folder) as server:
            assert "postgres" == _query(server, "postgres")[0]
            assert other.poll() is None or ended
    finally:
        other.communicate()


def test_server_runs_until_last_of_two_processes_has_left(folder: Path) -> None:
    with _user_process(folder) as first, EmbeddedPostgres(folder) as second:
        shared = _server_pid(folder)
        first.communicate()

        assert "postgres" == _query(second, "postgres")[0]
        assert shared == _server_pid(folder)

    assert not _is_running(shared)


def test_server_stays_for_other_process_when_first_to_start_leaves_first(folder: Path) -> None:
    with EmbeddedPostgres(folder), _user_process(folder) as other:
        shared = _server_pid(folder)
        with EmbeddedPostgres(folder):
            pass

        assert _is_running(shared)

        assert "out\n" == other.communicate()[0]
        assert _is_running(shared)

    assert not _is_running(shared)


def test_server_left_by_killed_process_is_adopted_and_stopped_by_next_user(folder: Path) -> None:
    with _user_process(folder) as killed:
        left = _server_pid(folder)
        killed.kill()
        killed.communicate()
    assert _is_running(left)

    with EmbeddedPostgres(folder):
        assert left == _server_pid(folder)

    assert not _is_running(left)


def test_many_users_starting_at_once_share_one_server(folder: Path) -> None:
    servers = [EmbeddedPostgres(folder) for _ in range(6)]
    threads = [threading.Thread(target=server.start) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    pid = _server_pid(folder)
    assert ["postgres"] * 6 == [_query(server, "postgres")[0] for server in servers]
    for server in servers[:-1]:
        server.stop()
    assert _is_running(pid)
    servers[-1].stop()
    assert not _is_running(pid)


def test_database_asked_for_by_several_at_once_is_made_once(folder: Path) -> None:
    """All of them see that it is missing before any of them makes it: a lock on the catalogue holds them there."""
    refused: list[BaseException] = []

    def ensure() -> None:
        try:
            server.ensure_database("one")
        except psycopg2.Error as error:
            refused.append(error)

    with EmbeddedPostgres(folder) as server:
        engine = sqlalchemy.create_engine(server.url("postgres"), poolclass=sqlalchemy.NullPool)
        threads = [threading.Thread(target=ensure) for _ in range(3)]
        with engine.begin() as catalogue:
            catalogue.exec_driver_sql("LOCK TABLE pg_database IN SHARE MODE")
            for thread in threads:
                thread.start()
            _until(lambda: _query(server, "postgres", _WAITING) == (3,))
        for thread in threads:
            thread.join()

        assert [] == refused
        assert "one" == _query(server, "one")[0]


def test_forked_child_cannot_stop_server_of_its_parent(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        pid = os.fork()
        if pid == 0:
            server.stop()
            os._exit(0)
        os.waitpid(pid, 0)

        assert "postgres" == _query(server, "postgres")[0]


def test_wrong_password_is_refused(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        address = sqlalchemy.make_url(server.url("postgres"))

        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(host=address.query["host"], user="iteration", password="guess", dbname="postgres")


def test_nobody_else_may_read_password_or_enter_server_folder(folder: Path) -> None:
    with EmbeddedPostgres(folder):
        modes = [
            oct((folder / part).stat().st_mode & 0o777)
            for part in ("password", "server", "server/data", "server/socket", "postgres.log")
        ]

    assert ["0o600", "0o700", "0o700", "0o700", "0o600"] == modes


def test_tcp_is_offered_on_loopback_alone_and_only_on_request(folder: Path) -> None:
    port = _free_port()
    with EmbeddedPostgres(folder) as server:
        assert ("", "") == _query(server, "postgres", "SELECT current_setting('listen_addresses'), ''")

        with pytest.raises(EmbeddedStoreError, match=f"in use without TCP port {port}"):
            EmbeddedPostgres(folder, tcp_port=port).start()

    with EmbeddedPostgres(folder, tcp_port=port) as server, EmbeddedPostgres(folder) as joined:
        password = sqlalchemy.make_url(server.url("postgres")).password
        psycopg2.connect(host="127.0.0.1", port=port, user="iteration", password=password, dbname="postgres").close()
        assert not _is_listening("127.0.0.2", port)
        assert server.url("postgres") == joined.url("postgres")
        assert "postgres" == _query(joined, "postgres")[0]


def test_folder_that_no_socket_fits_gets_short_private_socket_folder(tmp_path: Path, long_system_folder: Path) -> None:
    folder = tmp_path / ("a store, 'long' & odd " + "x" * 100)
    server = EmbeddedPostgres(folder, system_folder=long_system_folder)
    try:
        with server:
            place = Path(str(sqlalchemy.make_url(server.url("postgres")).query["host"]))

            assert "postgres" == _query(server, "postgres")[0]
            assert 0o700 == place.stat().st_mode & 0o777
            assert "%" not in server.url("postgres")
    finally:
        server.destroy()

    assert not place.exists()


def test_interrupted_initdb_is_started_afresh(folder: Path) -> None:
    with EmbeddedPostgres(folder):
        pass
    data = (folder / "server" / "data").resolve()
    data.rename(data.with_name("making-0000"))
    (data.with_name("making-0000") / "PG_VERSION").unlink()

    with EmbeddedPostgres(folder) as server:
        assert "postgres" == _query(server, "postgres")[0]

    assert ["data", "socket"] == sorted(path.name for path in data.parent.iterdir())


def test_server_that_cannot_start_says_its_last_words(folder: Path) -> None:
    with EmbeddedPostgres(folder):
        pass
    (folder / "server" / "data" / "postgresql.auto.conf").write_text("no_such_setting = 1\n")

    with pytest.raises(EmbeddedStoreError, match="no_such_setting"):
        EmbeddedPostgres(folder).start()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EmbeddedStoreError, match=str(tmp_path / "file" / "store")):
        EmbeddedPostgres(tmp_path / "file" / "store").start()


def test_address_is_refused_before_start(folder: Path) -> None:
    with pytest.raises(EmbeddedStoreError, match=r"call start\(\) first"):
        EmbeddedPostgres(folder).url("postgres")


def test_missing_wheel_is_answered_with_what_to_install(tmp_path: Path) -> None:
    packages = Path(sqlalchemy.__file__).parent.parent
    for entry in packages.iterdir():
        if not entry.name.startswith("pixeltable"):
            (tmp_path / entry.name).symlink_to(entry)
    source = Path(__file__).parents[2]
    code = "import sys; from pathlib import Path; from iteration_lib.store.embedded import EmbeddedPostgres\n"
    code += "server = EmbeddedPostgres(Path(sys.argv[1]), system_folder=Path(sys.argv[2]))\n"
    code += "try: server.start()\nfinally: server.destroy()"

    ended = subprocess.run(
        [sys.executable, "-S", "-c", code, str(tmp_path / "store"), str(tmp_path / "system")],
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(source)])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 'pip install "iteration-lib[embedded]"' in ended.stderr.splitlines()[-1]


def test_destroy_is_refused_while_somebody_else_uses_the_server(folder: Path) -> None:
    with EmbeddedPostgres(folder) as user:
        with pytest.raises(EmbeddedStoreError, match="in use"):
            EmbeddedPostgres(folder).destroy()

        assert "postgres" == _query(user, "postgres")[0]


def test_destroy_leaves_nothing_behind_but_foreign_files(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        place = (folder / "server").resolve()
        (folder / "note").touch()

    server.destroy()

    assert ["note"] == [path.name for path in folder.iterdir()]
    assert not place.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="concerns root alone")
def test_root_runs_server_as_another_account_and_opens_no_folder_up(folder: Path) -> None:
    folder.parent.chmod(0o700)
    before = {parent: parent.stat().st_mode for parent in folder.parents}

    with EmbeddedPostgres(folder):
        uid = Path(f"/proc/{_server_pid(folder)}").stat().st_uid

        assert 0 != uid
        assert uid == (folder / "server").resolve().stat().st_uid
    assert before == {parent: parent.stat().st_mode for parent in folder.parents}


def _removed_afterwards(folder: Path) -> Iterator[Path]:
    yield folder
    EmbeddedPostgres(folder).destroy()


def _note(folder: Path) -> Path:
    return folder / "server" / "data" / "postmaster.pid"


def _server_pid(folder: Path) -> int:
    return int(_note(folder).read_text().splitlines()[0])


def _is_running(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False


def _until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline


@contextlib.contextmanager
def _user_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _USER_PROCESS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "in\n" == process.stdout.readline()
        yield process


def _query(
    server: EmbeddedPostgres, database: str, question: str = "SELECT current_database(), current_setting('fsync')"
) -> tuple[object, ...]:
    engine = sqlalchemy.create_engine(server.url(database), poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return tuple(connection.exec_driver_sql(question).one())


async def _query_async(server: EmbeddedPostgres, database: str) -> tuple[object, ...]:
    engine = create_async_engine(server.async_url(database), poolclass=sqlalchemy.NullPool)
    async with engine.connect() as connection:
        question = "SELECT current_database()::text, current_setting('fsync')"
        return tuple((await connection.exec_driver_sql(question)).one())


def _execute(server: EmbeddedPostgres, statement: str) -> None:
    engine = sqlalchemy.create_engine(server.url("postgres"), poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
