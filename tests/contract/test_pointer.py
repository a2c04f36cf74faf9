"""Does a run get its pointer, whatever an attempt before, or another one at the same time, left in its place?"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import pytest

from iteration_lib.driver import publish
from iteration_lib.driver.publish import POINTER, _write_pointer
from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.files import read_bytes, write_bytes
from iteration_lib.state.location import StateLocation, filesystem_of

_CONTENT = b'{"outputs": {"model": "outputs/model/000003-0000000a-epoch-000004"}}'


@pytest.fixture(params=["local", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StateLocation:
    return StateLocation(
        str(tmp_path / "state") if request.param == "local" else f"memory://{secrets.token_hex(8)}/run"
    )


def pointer(location: StateLocation) -> bytes:
    return read_bytes(location, POINTER, sha256=hashlib.sha256(_CONTENT).hexdigest())


@pytest.mark.parametrize("left", [None, b"", _CONTENT[:9], _CONTENT])
def test_pointer_is_whole_whatever_an_attempt_before_left(location: StateLocation, left: bytes | None) -> None:
    if left is not None:
        write_bytes(location, POINTER, left)

    _write_pointer(location, _CONTENT)

    assert _CONTENT == pointer(location)
    assert (POINTER,) == location.list_files()


def test_pointer_that_another_attempt_writes_meanwhile_is_no_error(
    location: StateLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The superseded attempt comes between the look whether it is there and the write."""

    def look_too_early(*_arguments: object, **_options: object) -> None:
        filesystem, path = filesystem_of(location.path(POINTER))
        filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(path, _CONTENT)
        raise StateCorruptedError(POINTER, "is missing")

    monkeypatch.setattr(publish, "verify_file", look_too_early)

    _write_pointer(location, _CONTENT)

    assert _CONTENT == pointer(location)
