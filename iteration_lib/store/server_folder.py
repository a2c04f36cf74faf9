"""Where do the pieces of one embedded server lie?

    <folder>/password       the superuser's password, 0600
    <folder>/turn, users    lock files: whose turn it is to start or stop the server, and who uses it
    <folder>/postgres.log   what the server says
    <folder>/server/        data/ and socket/, owned by the server's account, 0700
    <folder>/socket         only where server/socket would be too long for a socket: a link to a short private folder

For root, `server` is a link to a folder of its own under /var/lib/iteration/servers: the server's account could not
enter root's home or a private temporary folder, and opening those up is not ours to do. Root writes nothing below that
folder once it belongs to that account: an account with fewer rights could redirect such a write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from iteration_lib.errors import EmbeddedStoreError
from iteration_lib.store.postgres_binaries import Account, make_public_folder, server_account

SYSTEM_FOLDER = Path("/var/lib/iteration")
_LONGEST_SOCKET_PATH = 107
_LOG_BYTES_KEPT = 10_000_000
_LOG_TAIL_BYTES = 2_000


def default_folder() -> Path:
    """Return where the embedded store lies unless told otherwise; outside home folders when root."""
    if os.geteuid() == 0:
        return SYSTEM_FOLDER / "store"
    return platformdirs.user_data_path("iteration") / "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFolder:
    """The layout of one server's folder; making what is missing is the caller's turn, under the folder's lock."""

    folder: Path
    system_folder: Path = SYSTEM_FOLDER

    @property
    def server(self) -> Path:
        """Return the real path of what belongs to the server's account."""
        return (self.folder / "server").resolve()

    @property
    def data(self) -> Path:
        """Return Postgres' data folder."""
        return self.server / "data"

    @property
    def log(self) -> Path:
        """Return the server's log file."""
        return self.folder / "postgres.log"

    @property
    def cluster(self) -> str:
        """Return the name that every process of the server carries in its title."""
        return "iteration-" + hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]

    @property
    def socket(self) -> Path:
        """Return the folder that holds the server's socket."""
        inside = self.server / "socket"
        if inside.is_dir():
            return inside
        link = self.folder / "socket"
        return link.readlink() if link.is_symlink() else inside

    @property
    def account(self) -> Account:
        """Return the account that owns the server's data."""
        owner = self.server.stat()
        return Account(user_id=owner.st_uid, group_id=owner.st_gid)

    @property
    def password(self) -> str:
        """Return the superuser's password."""
        return (self.folder / "password").read_text()

    def make(self) -> None:
        """Make what is missing; nothing that exists changes its owner or its mode."""
        if not (self.folder / "password").exists():
            self._make_password()
        if not (self.folder / "server").is_symlink() and not (self.folder / "server").is_dir():
            self._make_server()
        if not self.server.is_dir():
            raise EmbeddedStoreError(
                f"the embedded store {self.folder} points to its data in {self.server}, which is gone; "
                f"bring that folder back, or remove {self.folder} to start with an empty store"
            )
        if not self._has_socket():
            self._make_socket()

    def open_log(self) -> int:
        """Open the log for appending; one that has grown large becomes postgres.log.1 first."""
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_KEPT:
            self.log.replace(self.log.with_name("postgres.log.1"))
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def log_tail(self) -> str:
        """Return the server's last words, for an error."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace").strip()

    def remove(self) -> None:
        """Remove everything that belongs to the server, and the folder where nothing else lies in it."""
        link = self.folder / "socket"
        if link.is_symlink():
            if self._has_socket():
                _remove_tree(link.readlink())
            link.unlink()
        if (self.folder / "server").exists():
            _remove_tree(self.server)
        if (self.folder / "server").is_symlink():
            (self.folder / "server").unlink()
        for name in ("password", "postgres.log", "postgres.log.1", "users", "turn"):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _make_password(self) -> None:
        if (self.folder / "server" / "data").exists():
            raise EmbeddedStoreError(
                f"the embedded store {self.folder} has data but its password file is gone; "
                f"bring {self.folder / 'password'} back"
            )
        descriptor, draft = tempfile.mkstemp(dir=self.folder, prefix=".password-")
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(24))
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(self.folder / "password")

    def _make_server(self) -> None:
        if os.geteuid() == 0:
            make_public_folder(self.system_folder / "servers")
            server = Path(tempfile.mkdtemp(dir=self.system_folder / "servers", prefix="server-"))
        else:
            server = self.folder / "server"
            server.mkdir(mode=0o700)
        account = server_account()
        inside = server / "socket"
        if _is_fit_for_socket(inside):
            inside.mkdir(mode=0o700)
            _hand_over(inside, account)
        _hand_over(server, account)
        if server.parent != self.folder:
            (self.folder / "server").symlink_to(server)

    def _has_socket(self) -> bool:
        """Tell whether the socket's folder is there and still the server's: /tmp is emptied, and open to everybody."""
        try:
            found = self.socket.lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == self.account.user_id

    def _make_socket(self) -> None:
        short = Path(tempfile.mkdtemp(dir="/tmp", prefix="iteration-"))
        _hand_over(short, self.account)
        (self.folder / "socket").unlink(missing_ok=True)
        (self.folder / "socket").symlink_to(short)


def _hand_over(path: Path, account: Account) -> None:
    if not account.is_ourselves:
        os.chown(path, account.user_id, account.group_id, follow_symlinks=False)


def _is_fit_for_socket(folder: Path) -> bool:
    """Tell whether a socket in the folder has an address short and plain enough to stand in a URL unescaped."""
    address = os.fsencode(folder / ".s.PGSQL.65535")
    return len(address) <= _LONGEST_SOCKET_PATH and re.fullmatch(rb"[A-Za-z0-9_./~-]+", address) is not None


def _remove_tree(path: Path) -> None:
    """Remove a folder that may change under our hands: a server's last temporary files go by themselves."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
