"""What sink may a user write? One for local disks: a file of JSON lines per epoch, which a rename shows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from iteration_lib.sinks import Publication, SinkTransaction
from iteration_lib.sinks.contract import Row


class JsonLinesSink:
    """Publish an output into a folder, in which `*.jsonl` is what readers look at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> str:
        return f"the JSON lines in {self.folder.absolute()}"

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.prepared(transaction).open("w") as file:
            for batch in publication.batches():
                file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())
            file.flush()
            os.fsync(file.fileno())
        self.sync()
        return {"name": f"{transaction.transaction_id}.jsonl"}

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        shown = self.folder / str(committable["name"])
        try:
            self.prepared(transaction).rename(shown)
        except FileNotFoundError:  # it has its name already, or is lost
            if not shown.exists():
                raise
        self.sync()

    def abort(self, transaction: SinkTransaction) -> None:
        self.prepared(transaction).unlink(missing_ok=True)

    def prepared(self, transaction: SinkTransaction) -> Path:
        return self.folder / f"{transaction.transaction_id}.prepared"

    def sync(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY)  # else a loss of power takes back what a file is called
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_lines(folder: Path) -> list[Row]:
    """Return what readers see in a folder, in the order of runs and epochs."""
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
