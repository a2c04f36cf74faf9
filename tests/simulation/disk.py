"""Where do the files of simulated runs lie? In dicts, behind a file system that fails, tears and loses answers.

The production code of iteration_lib/state/files.py runs on it, by its way for stores without a rename. A path is
written once; `written_by` keeps by whom. A damaged file can be mended: what it held is kept.

What is in `whole_puts` is never torn: the pointer, once the run is FINISHED. A superseded attempt may write it over by
itself even then, so that a store which tears what it writes over can lose it. No such store is simulated.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import fsspec
from fsspec.spec import AbstractFileSystem

from tests.simulation.fiber import Call, Fate, ask, current_attempt, current_fiber

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.attempt import SimulatedAttempt

_ROOT = "disk"
STATE_URI = f"sim://{_ROOT}"


class Disk:
    """Every file of one run, by its path relative to the run's folder."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.written_by: dict[str, SimulatedAttempt | None] = {}
        self.torn: dict[str, int] = {}  # to the length that was meant
        self.damaged: dict[str, bytes] = {}  # to what it held
        self.spoilt: set[str] = set()  # what was ever damaged
        self.ever_torn: set[str] = set()
        self.whole_puts: set[str] = set()
        self.on_write: Callable[[str, bytes, bytes | None], None] = lambda _path, _content, _before: None
        self.on_remove: Callable[[str], None] = lambda _path: None
        self.on_read: Callable[[str], None] = lambda _path: None

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file."""
        return path in self.files

    def put(self, path: str, content: bytes) -> None:
        """Write a file, whole unless fate has it otherwise; raises OSError when it says that it failed."""
        fate = ask(Call.PUT, path)
        if fate is Fate.FAIL:
            raise self._failed("no space", path)
        if fate in (Fate.TEAR, Fate.TEAR_UNSEEN, Fate.TEAR_AND_DIE) and path not in self.whole_puts:
            self.torn[path] = len(content)
            self.ever_torn.add(path)
            self._write(path, content[: len(content) // 2])
            _hurt("put")
            if fate is Fate.TEAR_AND_DIE:
                ask(Call.DIE, path)
            if fate is Fate.TEAR:
                raise self._failed("connection reset", path)
            return
        self.torn.pop(path, None)
        self._write(path, content)
        if fate is Fate.STRAY:
            self.files.setdefault(f"{path}.stray", content)
        if ask(Call.PUT_DONE, path) is Fate.LOST:
            raise self._failed("connection reset", path)

    def get(self, path: str) -> bytes:
        """Return a file's bytes; raises OSError."""
        if ask(Call.GET, path) is Fate.FAIL:
            _hurt("get")
            raise OSError(5, "cannot be read just now", path)
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        self.on_read(path)
        return self.files[path]

    def size(self, path: str) -> int:
        """Return a file's size; raises OSError."""
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return len(self.files[path])

    def list_below(self, folder: str) -> list[str]:
        """Return the paths below a folder, or all of them; raises OSError."""
        if ask(Call.LIST, folder) is Fate.FAIL:
            _hurt("list")
            raise OSError(5, "cannot be listed just now", folder)
        return sorted(path for path in self.files if not folder or path.startswith(f"{folder}/"))

    def remove(self, path: str) -> None:
        """Remove a file, or every file in a folder, one by one; raises OSError, also where it has been removed."""
        if not self._inside(path):
            raise FileNotFoundError(2, "no such file", path)
        for known in self._inside(path):
            fate = ask(Call.REMOVE, known)
            if fate is Fate.FAIL:
                _hurt("remove")
                raise OSError(5, "cannot be removed just now", known)
            if known in self.files:  # nobody has removed it meanwhile
                self.on_remove(known)
                del self.files[known]
                self.damaged.pop(known, None)
            if fate is Fate.LOST:
                _hurt("remove")
                raise OSError(5, "connection reset", known)

    def _inside(self, path: str) -> list[str]:
        return [path] if path in self.files else [known for known in self.files if known.startswith(f"{path}/")]

    def damage(self, path: str) -> None:
        """Change a byte, or take the file away where it has none."""
        content = self.files[path]
        self.damaged[path] = content
        self.spoilt.add(path)
        self.files[path] = bytes([content[0] ^ 1]) + content[1:] if content else b"x"

    def mend(self) -> None:
        """Put back what was damaged, whole, also where a write over it was torn since."""
        self.files |= self.damaged
        self.torn = {path: meant for path, meant in self.torn.items() if path not in self.damaged}
        self.damaged.clear()

    def whole(self, path: str) -> bytes | None:
        """Return what a file holds, or held before it was damaged; None where it is not there."""
        return self.damaged.get(path, self.files.get(path))

    def _write(self, path: str, content: bytes) -> None:
        before = self.files.get(path)
        self.files[path] = content
        self.on_write(path, content, before)
        self.written_by.setdefault(path, current_attempt())

    @staticmethod
    def _failed(problem: str, path: str) -> OSError:
        _hurt("put")
        return OSError(28, problem, path)


def _hurt(port: str) -> None:
    """Note that a port failed whoever asked, the one who drives or one who writes a checkpoint beside it."""
    fiber = current_fiber()
    if fiber is not None:
        fiber.process.fail(f"{port} beside" if fiber.is_beside else port)


class SimulatedFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """What iteration_lib/state asks of fsspec, on the disks of the schedule under way: one for each run's folder."""

    protocol = "sim"
    disks: ClassVar[dict[str, Disk]] = {}

    @classmethod
    def disk_of(cls, run_id: str) -> Disk:
        """Return the disk of a run's folder; a file that lies beside those folders has one by itself."""
        return cls.disks.setdefault(run_id, Disk())

    def exists(self, path: str, **_options: object) -> bool:
        """See fsspec."""
        disk, inner = self._inside(path)
        return disk.exists(inner) or any(not inner or known.startswith(f"{inner}/") for known in disk.files)

    def put_file(self, lpath: str, rpath: str, **_options: object) -> None:
        """See fsspec."""
        disk, inner = self._inside(rpath)
        disk.put(inner, Path(lpath).read_bytes())

    def size(self, path: str) -> int:
        """See fsspec."""
        disk, inner = self._inside(path)
        return disk.size(inner)

    def cat_file(self, path: str, **_options: object) -> bytes:
        """See fsspec."""
        disk, inner = self._inside(path)
        return disk.get(inner)

    def find(self, path: str, **_options: object) -> dict[str, dict[str, int]]:
        """See fsspec, with detail=True."""
        disk, inner = self._inside(path)
        root = path.removesuffix(inner).rstrip("/")
        return {f"{root}/{found}": {"size": len(disk.files[found])} for found in disk.list_below(inner)}

    def rm(self, path: str, **_options: object) -> None:
        """See fsspec."""
        disk, inner = self._inside(path)
        disk.remove(inner)

    def rm_file(self, path: str) -> None:
        """See fsspec."""
        self.rm(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        """See fsspec; there is no cache."""

    def _open(self, path: str, mode: str = "rb", **_options: object) -> BytesIO:  # noqa: ARG002 - fsspec's signature
        return BytesIO(self.cat_file(path))

    def _inside(self, path: str) -> tuple[Disk, str]:
        run_id, _, inner = path.removeprefix(_ROOT).lstrip("/").partition("/")
        return self.disk_of(run_id), inner


fsspec.register_implementation("sim", SimulatedFileSystem, clobber=True)
