"""Is an input that cannot be read named, whatever the library that reads it raises?"""

from __future__ import annotations

import pytest

from iteration_lib.errors import InputError
from iteration_lib.model.source import parquet
from iteration_lib.runner.pins import check_pinned, pin_parquet
from iteration_lib.runner.rows import RowReader
from iteration_lib.runner.seam import PinnedData, PinnedFile
from iteration_lib.state.location import StateLocation
from tests import locked_store

ADDRESS = f"{locked_store.LockedFileSystem.protocol[0]}://bucket/a.parquet"
PINNED = PinnedData(
    files=(PinnedFile(path=ADDRESS, size_bytes=1, version="1", rows=1),), columns=None, fingerprint="fingerprint"
)
REASON = "NoCredentialsError: unable to locate credentials"


def test_error_of_a_foreign_library_names_the_input_that_is_to_be_pinned() -> None:
    with pytest.raises(InputError, match=f"input {ADDRESS} cannot be read .{REASON}"):
        pin_parquet(parquet(ADDRESS))


def test_input_of_a_store_that_cannot_be_opened_is_named_with_the_reason() -> None:
    with pytest.raises(InputError, match=r"'closed://bucket' cannot be opened .unable to locate credentials"):
        pin_parquet(parquet("closed://bucket"))


def test_error_of_a_foreign_library_names_the_input_that_was_pinned() -> None:
    with pytest.raises(InputError, match=f"input {ADDRESS} cannot be read .{REASON}"):
        check_pinned(StateLocation("memory://run"), PINNED)


def test_error_of_a_foreign_library_names_the_input_whose_rows_are_read() -> None:
    with pytest.raises(InputError, match=f"input {ADDRESS} cannot be read any more .{REASON}"):
        RowReader(StateLocation("memory://run"), PINNED)
