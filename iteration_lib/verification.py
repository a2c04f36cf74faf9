"""Are the files of a run still the bytes that were written? All of them, whatever is wrong with the first.

What is verified is whatever an attempt, a reader of the outputs or a person who goes back may want: the manifests of
the completed and subsumed checkpoints and every file that they name, what operators that finished for good left, the
durable edges in force, inputs that were copied into the run's folder, and what was published. A run that is deleted
goes on no more: of it only the checkpoints are wanted that somebody keeps, and what they name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from iteration_lib.driver.publish import POINTER, folder_of, pointer_to
from iteration_lib.errors import CheckpointNotFoundError, StateCorruptedError, UsageError
from iteration_lib.marker import parts_in_force
from iteration_lib.protocol.bucket_range import show_buckets
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import CheckpointKind, RunStatus
from iteration_lib.runner.pins import is_own, pinned_from_json
from iteration_lib.savepoint import pins_to_take_over, read_savepoint
from iteration_lib.state.digest import state_digest
from iteration_lib.state.files import read_bytes, verify_file
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import BranchRecord, CheckpointRecord, RunRecord
from iteration_lib.store.seam import History


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """One file and whose it is; `problem` says what is wrong with it, None if nothing is.

    Of one that `is_unreadable` nobody can tell whether it is whole.
    """

    owner: str
    path: str
    size_bytes: int
    problem: str | None = None
    is_unreadable: bool = False


def verify_run(store: History, run: RunRecord, *, checkpoint_id: int | None = None) -> tuple[CheckedFile, ...]:
    """Verify every file of a run, each once, or those of one checkpoint; nothing is changed.

    Somebody may drive the run meanwhile. A file goes after the row that named it, so what is bad is looked for in rows
    that are read after that. Raises CheckpointNotFoundError, or UsageError for a checkpoint that has no files.
    """
    files = _verify(store, run, checkpoint_id)
    good = {file.path: file for file in files if file.problem is None}
    if len(good) == len(files):
        return files
    again = _verify(store, run, checkpoint_id, passing_over=frozenset(good))
    return tuple({**good, **{file.path: file for file in again}}.values())  # a manifest may name files that are new


def verify_streams(location: StateLocation, owner: str, streams: Iterable[SavedStream]) -> tuple[CheckedFile, ...]:
    """Verify the files of streams, each once."""
    check = _Check(location=location)
    for stream in streams:
        check.stream(owner, stream)
    return tuple(check.files)


def _verify(
    store: History, run: RunRecord, checkpoint_id: int | None, *, passing_over: frozenset[str] = frozenset()
) -> tuple[CheckedFile, ...]:
    """Read the rows of a run, and verify the files that they name."""
    run = replace(run, status=(store.find_run(run.run_id) or run).status)
    check = _Check(location=StateLocation(run.state_uri).below(run.run_id), seen=set(passing_over))
    checkpoints = store.list_checkpoints(run.run_id)
    if checkpoint_id is not None:
        check.checkpoint(run, _find(run, checkpoints, checkpoint_id))
        return tuple(check.files)
    is_deleted = run.status is RunStatus.DELETED
    if not is_deleted:
        check.what_goes_on(store, run)
    for pin in store.list_pins(run.run_id) if not is_deleted or any(known.has_files for known in checkpoints) else ():
        for file in pinned_from_json(pin.pin).files:
            if is_own(file.path):
                check.file(f"data stream {pin.name!r}", file.path, size_bytes=file.size_bytes, sha256=file.version)
    for checkpoint in checkpoints:
        if checkpoint.has_files:
            check.checkpoint(run, checkpoint)
    branch = store.find_branch(run.run_id)
    origin = _verify_origin(store, branch) if branch is not None and branch.holds_origin else ()
    return (*check.files, *origin)


def _verify_origin(store: History, branch: BranchRecord) -> tuple[CheckedFile, ...]:
    """Verify the checkpoint that a branch starts from, as long as it needs it; its paths are full addresses."""
    location = StateLocation(branch.uri)
    check = _Check(location=location)
    if check.manifest("origin", branch.manifest_path, branch.manifest_sha256) is not None:
        is_savepoint = branch.origin_run_id is None
        pins = read_savepoint(branch.uri).pins if is_savepoint else pins_to_take_over(store, branch)
        for name, pin in pins.items():
            for file in pin.files:
                if is_own(file.path):
                    owner = f"origin, data stream {name!r}"
                    check.file(owner, file.path, size_bytes=file.size_bytes, sha256=file.version)
    return tuple(replace(file, path=location.path(file.path)) for file in check.files)


@dataclass(slots=True, kw_only=True)
class _Check:
    """What has been verified of a run so far."""

    location: StateLocation
    files: list[CheckedFile] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def what_goes_on(self, store: History, run: RunRecord) -> None:
        """Verify what the next attempt finds beside checkpoints: of finished operators, and edges in force."""
        operators = store.list_operators(run.run_id)
        for operator in operators:
            if operator.output is not None:
                self.stream(f"operator {operator.operator_id!r}", SavedStream.from_json(operator.output))
        for part in parts_in_force(run, operators, store.list_live_parts(run.run_id)):
            buckets = show_buckets(((part.first_bucket, part.end_bucket),))
            where = f"of epoch {part.epoch}" if part.epoch != NO_EPOCH else "for good"
            self.stream(f"edge of {part.operator_id!r} {where}, buckets {buckets}", SavedStream.from_json(part.output))

    def checkpoint(self, run: RunRecord, checkpoint: CheckpointRecord) -> None:
        """Verify a checkpoint's manifest and what it names, and what readers of published outputs see."""
        owner = f"checkpoint {checkpoint.checkpoint_id}"
        manifest = self.manifest(owner, str(checkpoint.manifest_path), str(checkpoint.manifest_sha256))
        if manifest is None:
            return
        for stream in manifest.outputs.values():
            self.stream("outputs", stream)
        if checkpoint.kind is CheckpointKind.FINAL and run.status is RunStatus.FINISHED:
            self._published(run, manifest)

    def manifest(self, owner: str, path: str, sha256: str) -> Manifest | None:
        """Verify a manifest and what an attempt needs of it; of a bad manifest nothing that it says counts."""
        size_bytes = 0
        try:
            content = read_bytes(self.location, path, sha256=sha256)
            size_bytes = len(content)
            manifest = Manifest.from_bytes(content, path=path)
        except StateCorruptedError as err:
            self._add(owner, path, size_bytes, err.problem, is_unreadable=err.is_unreadable)
            return None
        self._add(owner, path, size_bytes, None)
        for streams in (manifest.variables, manifest.states, manifest.finished):
            for stream in streams.values():
                self.stream(owner, stream)
        return manifest

    def stream(self, owner: str, stream: SavedStream) -> None:
        """Verify the files of a stream."""
        for file in stream.files:
            self.file(owner, file.path, size_bytes=file.size_bytes, sha256=file.sha256)

    def file(self, owner: str, path: str, *, size_bytes: int, sha256: str) -> None:
        """Verify a file, unless it was before."""
        if path in self.seen:
            return
        try:
            verify_file(self.location, path, size_bytes=size_bytes, sha256=sha256)
        except StateCorruptedError as err:
            self._add(owner, path, size_bytes, err.problem, is_unreadable=err.is_unreadable)
        else:
            self._add(owner, path, size_bytes, None)

    def _published(self, run: RunRecord, manifest: Manifest) -> None:
        """Verify what readers of the outputs see: the pointer, and folders without files that nobody published."""
        digest = state_digest(manifest.outputs)
        if digest != run.state_digest:
            problem = f"names outputs with the digest {digest}, but {run.state_digest} was published"
            self._add("outputs", POINTER, 0, problem)
            return
        pointer = pointer_to(manifest)
        self.file("outputs", POINTER, size_bytes=len(pointer), sha256=hashlib.sha256(pointer).hexdigest())
        for stream in manifest.outputs.values():
            for path in self.location.list_files(folder_of(stream)):
                if path not in self.seen:
                    self._add("outputs", path, 0, "lies among the published files, but was not published")

    def _add(self, owner: str, path: str, size_bytes: int, problem: str | None, *, is_unreadable: bool = False) -> None:
        self.seen.add(path)
        self.files.append(
            CheckedFile(owner=owner, path=path, size_bytes=size_bytes, problem=problem, is_unreadable=is_unreadable)
        )


def _find(run: RunRecord, checkpoints: tuple[CheckpointRecord, ...], checkpoint_id: int) -> CheckpointRecord:
    found = next((known for known in checkpoints if known.checkpoint_id == checkpoint_id), None)
    if found is None:
        raise CheckpointNotFoundError(run.run_id, checkpoint_id, last=run.last_checkpoint_id)
    if not found.has_files:
        raise UsageError(f"checkpoint {checkpoint_id} is {found.status.value}: it has no files to verify")
    return found
