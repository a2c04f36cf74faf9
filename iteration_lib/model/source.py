"""What may a data stream be read from?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iteration_lib.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource:
    """Parquet files: one file, a folder, or any address that fsspec opens. `columns` None means all."""

    path: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSource:
    """Rows given by the program itself, as columns of one length; small, for tests and first steps."""

    columns: Mapping[str, Sequence[object]]


def parquet(path: str, *, columns: Sequence[str] | None = None) -> ParquetSource:
    """Read a data stream from Parquet; rows are numbered by file name, then by their place in the file.

    Of a folder that is all *.parquet files below it, also behind links, but each folder once, and nothing whose name
    (or whose folder's) begins with _ or ., as Spark has it. Raises InputError for a choice of no columns.
    """
    if columns is not None and not columns:
        raise InputError(f"columns=[] leaves nothing of the input {path!r}; name some, or leave it out to read all")
    return ParquetSource(path=path, columns=tuple(columns) if columns is not None else None)


def records(**columns: Sequence[object]) -> RecordsSource:
    """Make a data stream of the given columns, all of one length."""
    return RecordsSource(columns=columns)
