"""Do the errors of foreign libraries stop where files are read and written?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iteration_lib.errors import StateCorruptedError, StateLocationError
from iteration_lib.state.files import read_bytes, write_bytes
from iteration_lib.state.location import StateLocation
from tests.locked_store import NoCredentialsError

REASON = "NoCredentialsError: unable to locate credentials"


@pytest.mark.parametrize(
    ("act", "problem", "is_passing"),
    [
        (StateLocation.check_writable, "cannot be written", False),
        (StateLocation.list_files, "cannot list its files", True),
        (lambda location: location.list_files("epoch"), "cannot list epoch", True),
        (lambda location: location.remove("scratch"), "cannot remove scratch", True),
        (lambda location: write_bytes(location, "a.bin", b"x"), "cannot hold a.bin", True),
    ],
)
def test_error_of_a_foreign_library_names_the_location_and_what_failed(
    act: Callable[[StateLocation], object], problem: str, *, is_passing: bool
) -> None:
    with pytest.raises(StateLocationError) as caught:
        act(StateLocation("locked://bucket/run"))

    assert f"'locked://bucket/run' {problem} ({REASON})" in str(caught.value)
    assert is_passing is caught.value.is_passing


def test_error_of_a_foreign_library_names_the_file_that_it_cannot_read() -> None:
    with pytest.raises(StateCorruptedError, match=REASON) as caught:
        read_bytes(StateLocation("locked://bucket/run"), "a.bin", sha256="")

    assert "locked://bucket/run/a.bin" == caught.value.uri


def test_store_that_cannot_be_opened_is_named_with_the_reason() -> None:
    with pytest.raises(StateLocationError, match=r"cannot be opened .unable to locate credentials") as caught:
        StateLocation("closed://bucket")

    assert isinstance(caught.value.__cause__, NoCredentialsError)


def test_address_that_is_no_text_is_none() -> None:
    with pytest.raises(StateLocationError, match=r"'/caf\\udce9' cannot be opened \('utf-8' codec can't encode"):
        StateLocation("/caf\udce9")


def test_folder_of_a_store_without_folders_is_an_address() -> None:
    assert "locked://bucket/run/scratch" == StateLocation("locked://bucket/run").make_folder("scratch")


def test_password_of_an_address_is_in_no_error_of_it() -> None:
    address = "nowhere://ann:b@d@host/state"

    with pytest.raises(StateLocationError) as caught:
        StateLocation(address)

    assert "state location 'nowhere://***@host/state' cannot be opened" in str(caught.value)
    assert "b@d" not in f"{caught.value} {caught.value.uri} {caught.value.problem}"
