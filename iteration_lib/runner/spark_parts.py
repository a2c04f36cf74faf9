"""How does the driver hear of a part while the job that computes the others still runs?

A task that has written its part leaves a sidecar; a thread of the driver looks for new ones. A task that was repeated,
or run twice, may leave two for the same buckets: the one that is told first counts, and its file is what the stream is
made of, whatever the job's result says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import pyarrow as pa

from iteration_lib.errors import StateLocationError
from iteration_lib.model.operator import Kind
from iteration_lib.runner.latch import Latch
from iteration_lib.runner.part_header import PartHeader, read_sidecars
from iteration_lib.runner.parts import Target
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from iteration_lib.state.streams import read_schema

_POLL_SECONDS = 0.2

_logger = logging.getLogger(__name__)


class Teller:
    """Tells of the new parts of one stream, of each once; for one thread at a time."""

    def __init__(self, target: Target) -> None:
        """Tell whoever the target says."""
        self._target = target
        self._told: dict[int, PartHeader] = {}
        self._schema = read_schema(target.done.schema) if target.done is not None else None

    def tell(self, header: PartHeader) -> None:
        """Tell of a part, unless its buckets have been told of, or its columns are others: those fail the job."""
        schema = read_schema(header.schema)
        if header.buckets.start in self._told or header.file is None or not self._is_right(schema):
            return
        self._told[header.buckets.start] = header
        self._schema = schema
        part = SavedStream(
            kind=Kind.BUCKETS.value, format=self._target.file_format, schema=header.schema, files=(header.file,)
        )
        self._target.tell(part)

    def told_instead_of(self, header: PartHeader) -> PartHeader:
        """Return what was told of the buckets of a header, or that header."""
        return self._told.get(header.buckets.start, header)

    def _is_right(self, schema: pa.Schema) -> bool:
        return self._schema is None or schema.equals(self._schema, check_metadata=True)


class SidecarWatch:
    """Tells what sidecars in a folder say while the block runs, and at its end, however it ends.

    It does so in a thread of its own, to which no signal comes, and the end of the block, once begun, waits for it
    through one signal: what was written is told of also where the process is told to end meanwhile.

    What `tell` raises calls `stop`, which is to end the block, and is raised in the place of what the block raises.
    """

    def __init__(
        self, location: StateLocation, folder: str, tell: Callable[[PartHeader], None], *, stop: Callable[[], None]
    ) -> None:
        """Look for nothing yet."""
        self._location = location
        self._folder = folder
        self._tell = tell
        self._stop = stop
        self._known: set[str] = set()
        self._has_ended = Latch()
        self._has_looked = Latch()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name="sidecar-watch", daemon=True)

    def __enter__(self) -> None:
        """Begin to look."""
        self._thread.start()

    def __exit__(
        self, _kind: type[BaseException] | None, _err: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Wait for the last look."""
        try:
            self._end()
        except BaseException:  # it came from outside, while the last look was waited for
            self._end()
            raise
        if self._error is not None:
            raise self._error
        with suppress(StateLocationError):
            self._location.remove(self._folder)

    def _end(self) -> None:
        self._has_ended.open()
        self._has_looked.wait()

    def _watch(self) -> None:
        try:
            while not self._has_ended.wait(_POLL_SECONDS):
                self._look()
            self._look()
        except BaseException as err:  # noqa: BLE001 - raised in the caller's thread, whatever it is
            self._error = err
            if not self._has_ended.is_open:  # else what runs by now is another block
                self._stop()
        finally:
            self._has_looked.open()

    def _look(self) -> None:
        try:
            headers = read_sidecars(self._location, self._folder, known=self._known)
        except StateLocationError as err:  # the job's own result will say the same
            _logger.warning("event=sidecars_unreadable folder=%s reason=%s", self._folder, err)
            return
        for header in headers:
            self._tell(header)
