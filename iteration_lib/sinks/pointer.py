"""What has been published under an address, and in which order? Pointers, read and written.

A pointer is a JSON file that names the files of one publication and carries a digest of itself. Its path says where it
stands: publications are ordered by when their run was created, then by epoch and output, whenever they were committed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast

from iteration_lib.errors import StateCorruptedError, without_user
from iteration_lib.sinks.folder import Address, opened_folder
from iteration_lib.sinks.seam import Publication, SinkTransaction
from iteration_lib.state.files import read_if_there
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream

POINTERS = "_published"
_NAME = re.compile(rf"{POINTERS}/([^/]+)/(\d{{10}})-([^/]+)\.json")
_FORMAT_VERSION = 1
_WHOSE = ("run_id", "output", "epoch", "fencing_token")
_WAY_OUT = "or resume its run, which commits it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One output of one epoch, as a reader finds it."""

    transaction: SinkTransaction
    publication: Publication

    @property
    def files(self) -> tuple[str, ...]:
        """The addresses of its Parquet files, as in `spark.read.parquet(*files)`."""
        return tuple(self.publication.location.path(file.path) for file in self.publication.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a pointer shows, and no more of it than every version that writes it says; of a later format nothing."""

    format_version: int
    whose: tuple[object, ...] | None = None
    files: tuple[tuple[str, str], ...] = ()

    def may_be(self, transaction: SinkTransaction) -> bool:
        """Whether it may show what a transaction prepared."""
        return self.whose in (None, tuple(getattr(transaction, name) for name in _WHOSE))

    @property
    def publisher(self) -> str:
        """Who published it, for people."""
        return "a later version" if self.whose is None else f"attempt {self.whose[-1]}"


def published(uri: Address, *, run: str | None = None, output: str | None = None) -> tuple[Published, ...]:
    """Return what was published under an address, oldest first; of one run, by its id or key, and of one output.

    Raises SinkTargetError where the folder cannot be read, StateCorruptedError that names a pointer which is not what
    was written.
    """
    return tuple(reversed(list(_newest_first(uri, run, output))))


def latest(uri: Address, *, run: str | None = None, output: str | None = None) -> Published | None:
    """Return the newest of `published`, None where there is none; older pointers are not read."""
    return next(_newest_first(uri, run, output), None)


def run_folder(transaction: SinkTransaction) -> str:
    """Return the name of a run's folders: those of runs that were created later are greater."""
    return f"{transaction.run_created_at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{transaction.run_id}"


def pointer_path(transaction: SinkTransaction) -> str:
    """Return where the pointer of a transaction lies: no two that may both be committed have the same."""
    return f"{POINTERS}/{run_folder(transaction)}/{transaction.epoch:010d}-{transaction.output}.json"


def dump_pointer(transaction: SinkTransaction, stream: SavedStream) -> bytes:
    """Return the pointer's bytes: these and no others, whoever of one version writes them."""
    described = asdict(transaction) | {"run_created_at": transaction.run_created_at.astimezone(UTC).isoformat()}
    body = {"format_version": _FORMAT_VERSION, "transaction": described, "stream": stream.to_json()}
    return json.dumps({**body, "sha256": _digest(body)}, indent=1, sort_keys=True).encode()


def shown_by(content: bytes) -> Shown | None:
    """Return whose files a pointer shows, and which, None for bytes that are no whole pointer."""
    body = _body(content)
    if body is None:
        return None
    version = cast("int", body["format_version"])
    if version != _FORMAT_VERSION:
        return Shown(format_version=version)
    described, stream = (cast("Mapping[str, Any]", body[name]) for name in ("transaction", "stream"))  # Any: JSON
    return Shown(
        format_version=version,
        whose=tuple(described[name] for name in _WHOSE),
        files=tuple((file["path"], file["sha256"]) for file in stream["files"]),
    )


def _newest_first(uri: Address, run: str | None, output: str | None) -> Iterator[Published]:
    with opened_folder(uri) as location:
        listed = location.list_files(POINTERS)
    names = [name for name in map(_NAME.fullmatch, listed) if name]  # a crash leaves other names
    for name in sorted(names, key=lambda name: name.groups(), reverse=True):
        if output not in (None, name[3]):
            continue
        path = name[0]
        with opened_folder(uri):
            content = read_if_there(location, path)
        if content is None:  # removed since
            continue
        found = _load(location, path, content)
        if run in (None, found.transaction.run_id, found.transaction.run_key):
            yield found


def _load(location: StateLocation, path: str, content: bytes) -> Published:
    body, shown = _body(content), without_user(location.path(path))
    if body is None:
        raise StateCorruptedError(shown, "is no pointer that was written whole", way_out=_WAY_OUT)
    if body["format_version"] != _FORMAT_VERSION:
        problem = f"is a pointer of the format {body['format_version']}, and this version reads {_FORMAT_VERSION}"
        raise StateCorruptedError(shown, problem, way_out="or install the version that wrote it")
    described = cast("Mapping[str, Any]", body["transaction"])  # Any: JSON, digested as it was written
    created_at = datetime.fromisoformat(described["run_created_at"])
    transaction = SinkTransaction(**{**described, "run_created_at": created_at})
    if pointer_path(transaction) != path:
        problem = f"is the pointer of {pointer_path(transaction)}"
        raise StateCorruptedError(shown, problem, way_out=_WAY_OUT)
    stream = SavedStream.from_json(cast("Mapping[str, object]", body["stream"]))
    return Published(transaction=transaction, publication=Publication(location=location, stream=stream))


def _body(content: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    sha256 = found.pop("sha256", None)
    return found if sha256 == _digest(found) else None


def _digest(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
