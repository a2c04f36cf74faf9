"""A Parquet sink whose process dies in the middle of what it writes, by SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from iteration_lib.sinks import ParquetSink, Publication, SinkTransaction
from iteration_lib.sinks.trial import at_every_line
from iteration_lib.state import files

DEADLY = "ITERATION_TEST_DEADLY"  # a pattern of paths below the sink's folder; without it nobody dies


class MortalParquetSink(ParquetSink):
    """Kills its process at the first line of `state/files.py` before which a file matches the deadly pattern."""

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        """See Sink."""
        with self._mortal():
            return super().prepare(transaction, publication)

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        """See Sink."""
        with self._mortal():
            super().commit(transaction, committable)

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        pattern = os.environ.get(DEADLY)
        if pattern is None:
            yield
            return

        def look() -> None:
            if any(Path(self.uri).glob(pattern)):
                os.kill(os.getpid(), signal.SIGKILL)

        with at_every_line(frozenset({files.__file__}), look):
            yield
