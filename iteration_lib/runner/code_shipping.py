"""How does a user's code reach executors that do not share the driver's disks?

As one zip of the user's top-level package (or module) and of this one. Functions of importable modules travel by name,
so an executor must be able to import what the driver imported. Equal code gives an equal zip: names are sorted and
times fixed. What the code needs besides (numpy, pyarrow, ...) has to be installed there.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from iteration_lib.errors import IterationNotFoundError
from iteration_lib.runner.spark_session import is_local_master

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold


def ship_code(spark: SparkSession, reference: str) -> str | None:
    """Send the package of `module:object` and this one to the session's executors, and return the zip's SHA-256.

    Returns None on a local master, whose workers have the driver's own Python path.
    """
    if is_local_master(spark):
        return None
    folder = Path(tempfile.mkdtemp(prefix="iteration-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors may ask for it until the end
    archive = folder / "iteration_code.zip"
    digest = write_zip(archive, _packages_of(reference))
    spark.addArtifacts(str(archive), pyfile=True)
    return digest


def digest_code(reference: str) -> str:
    """Return the SHA-256 of what `ship_code` would send."""
    with tempfile.TemporaryDirectory(prefix="iteration-code-") as folder:
        return write_zip(Path(folder) / "iteration_code.zip", _packages_of(reference))


def write_zip(archive: Path, packages: tuple[str, ...]) -> str:
    """Write top-level packages or modules into a zip that Python imports from, and return its SHA-256."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, path in sorted(entry for package in packages for entry in _files_of(package)):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.external_attr = 0o644 << 16
            target.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def _packages_of(reference: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([reference.partition(":")[0].partition(".")[0], __name__.partition(".")[0]]))


def _files_of(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise IterationNotFoundError(package, "there is no such module on the Python path; set PYTHONPATH")
    if spec.submodule_search_locations is None:
        if spec.origin is not None:
            yield Path(spec.origin).name, Path(spec.origin)
        return
    for root in map(Path, spec.submodule_search_locations):
        for path in root.rglob("*"):
            inner = path.relative_to(root)
            if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in inner.parts):
                yield f"{package}/{inner.as_posix()}", path
