"""What does a task say of a part of a stream of buckets that it computed?

The same text, whether it comes as the job's result or, before the job has ended, from a *sidecar*: a small file that
the task leaves in a folder of the job's own, under the name of its digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.files import read_bytes, write_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHeader:
    """One part: its buckets, the rows of each, its schema, and its file, unless it goes back to the driver.

    `calls` holds the columns that each call of the plan gave: (a bucket, their schema), by the call's number.
    """

    buckets: range
    rows: tuple[int, ...]
    schema: str
    calls: Mapping[int, tuple[int, str]]
    file: SavedFile | None

    def to_json(self) -> str:
        """Return the header as text."""
        return json.dumps(
            {
                "buckets": [self.buckets.start, self.buckets.stop],
                "rows": self.rows,
                "schema": self.schema,
                "calls": self.calls,
                "file": asdict(self.file) if self.file is not None else None,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> PartHeader:
        """Rebuild what `to_json` gave."""
        found = json.loads(text)
        return cls(
            buckets=range(*found["buckets"]),
            rows=tuple(found["rows"]),
            schema=found["schema"],
            calls={int(number): (bucket, schema) for number, (bucket, schema) in found["calls"].items()},
            file=SavedFile(**found["file"]) if found["file"] is not None else None,
        )


def write_sidecar(location: StateLocation, folder: str, header: PartHeader) -> None:
    """Leave a header for the driver; the file that it names is durable already."""
    content = header.to_json().encode()
    write_bytes(location, f"{folder}/{hashlib.sha256(content).hexdigest()}.json", content)


def read_sidecars(location: StateLocation, folder: str, *, known: set[str]) -> list[PartHeader]:
    """Return the headers in a folder that are not `known`, and note them there; one that is torn may come later.

    They are in the order of their buckets. Raises StateLocationError where the folder cannot be listed.
    """
    headers = []
    for path in location.list_files(folder):
        digest = PurePosixPath(path).name.removesuffix(".json")
        with suppress(StateCorruptedError):
            if path not in known:
                headers.append(PartHeader.from_json(read_bytes(location, path, sha256=digest)))
                known.add(path)
    return sorted(headers, key=lambda header: header.buckets.start)
