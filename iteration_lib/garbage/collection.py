"""How is garbage removed? File by file, while others drive the run; what cannot be removed is left to the next time.

Calling it at any time, any number of times, from any number of processes is harmless, and so is being cut short.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from iteration_lib.driver.publish import POINTER
from iteration_lib.driver.sweep import FRESH_STATE, RUNNER_SCRATCH
from iteration_lib.errors import StateCorruptedError, StateLocationError
from iteration_lib.garbage.judgement import Fate, JudgedFile, References, judge_files, writer_of
from iteration_lib.garbage.references import read_references
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import History

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What lies below a run's folder, judged. `left` says by path which garbage could not be removed, and why.

    `missing` is what is needed and was not there when the files were listed; it may have been written since.
    """

    files: tuple[JudgedFile, ...]
    missing: frozenset[str] = frozenset()
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
    missing = frozenset(references.needed.keys() - listed.keys() - {POINTER})
    judged = Collection(files=judge_files(listed, references), missing=missing)
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
    return replace(judged, left=left)


def check_whole(store: History, run: RunRecord, *, is_deleted: bool, as_discarded: Container[int]) -> None:
    """Check that all is there that a run needs without some checkpoints, which are its way back as long as it is not.

    Others write and remove meanwhile: what they do is missing in one of two looks at most. Raises as `collect_garbage`,
    and StateCorruptedError for a file that is missing.
    """
    missing: frozenset[str] | None = None
    for _ in range(2):
        look = collect_garbage(store, run, dry_run=True, is_deleted=is_deleted, as_discarded=as_discarded)
        missing = look.missing if missing is None else missing & look.missing
        if not missing:
            return
    path = StateLocation(run.state_uri).below(run.run_id).path(min(missing or ()))
    raise StateCorruptedError(path, "is missing", way_out="nothing was discarded")


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
