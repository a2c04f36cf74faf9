"""What does a manifest say of a stream that was written to files?

Every address is relative to the run's own folder, so that a checkpoint can be moved to another root.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast


class FileFormat(enum.Enum):
    """How rows lie in a file: Arrow IPC for state (mapped into memory, exact), Parquet for what is published."""

    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """One file, written once. `sha256` is of its bytes; `row_digest` (published files only) of its rows.

    `first_bucket` and `end_bucket` bound the buckets inside, one Arrow record batch per bucket, in order; they are
    None where the stream has no buckets.
    """

    path: str
    size_bytes: int
    sha256: str
    rows: int
    first_bucket: int | None = None
    end_bucket: int | None = None
    row_digest: str | None = None

    @property
    def buckets(self) -> range:
        """The buckets inside; none where the stream has no buckets."""
        return range(self.first_bucket or 0, self.end_bucket or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStream:
    """A stream in files. `kind` is value, buckets or frame; `schema` is the Arrow schema's IPC bytes, in hex."""

    kind: str
    format: FileFormat
    schema: str
    files: tuple[SavedFile, ...]

    @property
    def rows(self) -> int:
        """The stream's records."""
        return sum(file.rows for file in self.files)

    @classmethod
    def of_nothing(cls, kind: str) -> SavedStream:
        """Return what stands for an output that was never written; see `is_used_up`."""
        return cls(kind=kind, format=FileFormat.ARROW, schema="", files=())

    @property
    def is_used_up(self) -> bool:
        """Whether this stands for an output that was never written, since all that took it are durable."""
        return not self.files and not self.schema

    def to_json(self) -> dict[str, object]:
        """Return the JSON that a manifest holds."""
        return {
            "kind": self.kind,
            "format": self.format.value,
            "schema": self.schema,
            "files": [{name: getattr(file, name) for name in SavedFile.__dataclass_fields__} for file in self.files],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, object]) -> SavedStream:
        """Rebuild what `to_json` gave; fields that a newer version added are passed over."""
        known = SavedFile.__dataclass_fields__
        return cls(
            kind=str(found["kind"]),
            format=FileFormat(found["format"]),
            schema=str(found["schema"]),
            files=tuple(
                SavedFile(**{name: value for name, value in file.items() if name in known})
                for file in cast("list[dict[str, Any]]", found["files"])  # Any: JSON, checked by the dataclass's use
            ),
        )


def join_parts(parts: Sequence[SavedStream]) -> SavedStream:
    """Return parts of one stream, of which there is at least one, as one: its files in the order of their buckets."""
    if len({(part.kind, part.format) for part in parts}) > 1:
        raise ValueError("these are parts of several streams")
    files = itertools.chain.from_iterable(part.files for part in parts)
    return replace(parts[0], files=tuple(sorted(files, key=lambda file: file.buckets.start)))
