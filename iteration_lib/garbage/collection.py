"""How is garbage removed? File by file, while others drive the run; what cannot be removed is left to the next time.

Calling it at any time, any number of times, from any number of processes is harmless, and so is being cut short.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from iteration_lib.driver.restore import read_manifest
from iteration_lib.driver.sweep import FRESH_STATE, RUNNER_SCRATCH
from iteration_lib.errors import StateCorruptedError, StateLocationError
from iteration_lib.garbage.judgement import Fate, JudgedFile, References, judge_files, writer_of
from iteration_lib.garbage.references import read_references
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import CheckpointRecord, RunRecord
from iteration_lib.store.seam import History

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What lies below a run's folder, judged. `left` says by path which garbage could not be removed, and why."""

    files: tuple[JudgedFile, ...]
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def garbage(self) -> tuple[JudgedFile, ...]:
        """The files that go."""
        return tuple(file for file in self.files if file.fate is Fate.GARBAGE)


def collect_garbage(
    store: History,
    run: RunRecord,
    *,
    dry_run: bool = False,
    is_deleted: bool = False,
    as_discarded: Container[int] = (),
) -> Collection:
    """Remove every file of a run that nobody needs; with `dry_run` only say which.

    For a run that `is_deleted` see read_references, and for what counts `as_discarded` too. Raises StateCorruptedError
    for a manifest that is needed and cannot be read, and StateLocationError when the files cannot be listed; then
    nothing was removed.
    """
    location = StateLocation(run.state_uri).below(run.run_id)
    listed = location.list_sizes()
    references = read_references(store, run, location, listed, is_deleted=is_deleted, as_discarded=as_discarded)
    judged = Collection(files=judge_files(listed, references))
    if dry_run:
        return judged
    left = _remove(location, judged)
    _remove_empty_folders(location, references, judged.garbage)
    if is_deleted and all(references.attempts.values()):
        StateLocation(run.state_uri).remove_empty_folders(run.run_id)
    removed = [file for file in judged.garbage if _unit(file.path) not in left]
    _logger.info(
        "event=garbage_collected run_id=%s files=%s bytes=%s left=%s",
        run.run_id,
        len(removed),
        sum(file.size_bytes for file in removed),
        len(left),
    )
    return Collection(files=judged.files, left=left)


def check_newest(store: History, run: RunRecord) -> None:
    """Check that all of the newest checkpoint's files are there: as long as they are not, the older ones are needed.

    Raises StateCorruptedError for one that is missing or has another size, and StateLocationError when the files
    cannot be listed.
    """
    location = StateLocation(run.state_uri).below(run.run_id)
    newest = store.find_completed(run.run_id)
    while newest is not None:
        try:
            _check_files(location, newest)
        except StateCorruptedError:
            looked_at, newest = newest, store.find_completed(run.run_id)
            if newest == looked_at:  # else it was let go meanwhile
                raise
        else:
            return


def _check_files(location: StateLocation, checkpoint: CheckpointRecord) -> None:
    listed = location.list_sizes()
    for stream in read_manifest(location, checkpoint).streams:
        for file in stream.files:
            if listed.get(file.path) != file.size_bytes:
                problem = "has another size than was written" if file.path in listed else "is missing"
                raise StateCorruptedError(location.path(file.path), problem)


def _remove(location: StateLocation, judged: Collection) -> dict[str, str]:
    """Remove what is garbage, manifests last: what they name is found again, should this be cut short."""
    left: dict[str, str] = {}
    units = {_unit(file.path) for file in judged.garbage}
    for unit in sorted(units, key=lambda path: (path.endswith(".json"), path)):
        try:
            location.remove(unit)
        except StateLocationError as err:
            _logger.warning("event=garbage_left path=%s error=%s", unit, err)
            left[unit] = str(err)
    return left


def _unit(path: str) -> str:
    """Return what is removed at once: a file, or the scratch folder that holds it, where its name is somebody's own."""
    attempt, *inner = path.split("/")
    is_scratch = attempt == writer_of(path) and len(inner) > 1 and inner[0] in (RUNNER_SCRATCH, FRESH_STATE)
    return f"{attempt}/{inner[0]}" if is_scratch else path  # an output may be called so, too


def _remove_empty_folders(location: StateLocation, references: References, garbage: Iterable[JudgedFile]) -> None:
    """Remove folders in which nobody makes files any more; others may be a live attempt's in this very moment."""
    ended = {folder for folder, has_ended in references.attempts.items() if has_ended}
    outputs = {file.path.rpartition("/")[0] for file in garbage if writer_of(file.path) in ended}
    for folder in sorted(ended | outputs):
        try:
            location.remove_empty_folders(folder)
        except StateLocationError as err:  # a link that leads out of the root
            _logger.warning("event=garbage_left path=%s error=%s", folder, err)
