"""How is the embedded server's data folder made, and how is its server process started?"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from iteration_lib.errors import EmbeddedStoreError
from iteration_lib.store.postgres_binaries import PostgresBinaries
from iteration_lib.store.server_folder import ServerFolder


def data_version(data: Path) -> int | None:
    """Return the major version that wrote the data folder; None where there is no data yet."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None


def make_data(layout: ServerFolder, binaries: PostgresBinaries, *, user: str) -> None:
    """Make the data folder, under another name first: a half-made one is never taken for a whole one."""
    for leftover in layout.server.glob("making-*"):
        shutil.rmtree(leftover)
    draft = layout.server / f"making-{secrets.token_hex(4)}"
    with _password_file(layout, binaries) as password, _log(layout) as log:
        command = [binaries.program("initdb"), f"--pgdata={draft}", f"--username={user}", f"--pwfile={password}"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"]
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if binaries.start(command, output=log, error=log).wait() != 0:
            raise EmbeddedStoreError(f"initdb failed in {layout.server}; its last words: {layout.log_tail()}")
    draft.rename(layout.data)


def launch_server(
    layout: ServerFolder, binaries: PostgresBinaries, *, port: int, tcp: bool, max_connections: int
) -> int:
    """Start the server process and return its id; it is not ready yet.

    It is not our child: it outlives us, and is reaped when it ends.
    """
    settings = {
        "cluster_name": layout.cluster,
        "unix_socket_directories": layout.socket,
        "unix_socket_permissions": "0700",
        "listen_addresses": "127.0.0.1" if tcp else "",
        "port": port,
        "max_connections": max_connections,
        "client_connection_check_interval": "1s",  # a query whose client has died does not run on
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %q%u@%d ",
    }
    command = [binaries.program("postgres"), "-D", str(layout.data)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    detach = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh"]
    with _log(layout) as log:
        answer, _ = binaries.start(detach + command, output=subprocess.PIPE, error=log).communicate()
    return int(answer)


@contextlib.contextmanager
def _log(layout: ServerFolder) -> Iterator[int]:
    log = layout.open_log()
    try:
        yield log
    finally:
        os.close(log)


@contextlib.contextmanager
def _password_file(layout: ServerFolder, binaries: PostgresBinaries) -> Iterator[Path]:
    """Lend the account a copy of the password, in a folder that it can enter and cannot change."""
    descriptor, name = tempfile.mkstemp(dir=layout.server.parent, prefix=".password-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(layout.password)
            if not binaries.account.is_ourselves:
                os.fchown(file.fileno(), binaries.account.user_id, binaries.account.group_id)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
