"""The locks in requirements/, and whether what is installed is what they name."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "requirements"
_LOCKS = ("bootstrap", "demo", "dev", "bench")


@pytest.mark.parametrize("lock", _LOCKS)
def test_lock_names_no_address_path_or_option(lock: str) -> None:
    lines = _lines(lock)

    assert [] == [line for line in lines if "://" in line or "/" in line or " @ " in line or line.startswith("-")]


@pytest.mark.parametrize("lock", _LOCKS)
def test_every_locked_requirement_is_pinned_and_has_a_hash(lock: str) -> None:
    requirements = _requirements(lock)

    assert requirements
    assert [] == [
        line for line in requirements if not re.match(r"[a-z0-9._-]+(\[[a-z,-]+\])?==[^ ]+( ;.*)? --hash=", line)
    ]
    assert [] == [line for line in requirements if not re.search(r" --hash=sha256:[0-9a-f]{64}$", line)]


def test_development_lock_agrees_with_what_the_demo_runs() -> None:
    assert set() == _pins("demo") - _pins("dev")


def test_pyspark_client_is_neither_locked_nor_installed() -> None:
    """Its files lie in pyspark's own folder, so that the one installed last would win."""
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("pyspark-client")
    assert [] == [pin for lock in _LOCKS for pin in _pins(lock) if pin.startswith("pyspark-client")]


def test_installed_pyspark_files_are_those_of_its_own_wheel() -> None:
    distribution = importlib.metadata.distribution("pyspark")
    recorded = [file for file in distribution.files or () if file.hash is not None]

    changed = [str(file) for file in recorded if file.hash and file.hash.value != _digest(Path(str(file.locate())))]

    assert len(recorded) > 1000
    assert [] == changed


def _lines(lock: str) -> list[str]:
    return (_FOLDER / f"{lock}.txt").read_text().splitlines()


def _requirements(lock: str) -> list[str]:
    """Return one line per requirement, its hashes included."""
    return re.sub(r" *\\\n *", " ", "\n".join(_lines(lock))).splitlines()


def _pins(lock: str) -> set[str]:
    return {line.split(" --hash=")[0] for line in _requirements(lock)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
