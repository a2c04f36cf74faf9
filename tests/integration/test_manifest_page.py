"""Does docs/manifest.md tell the truth? Its reader reads checkpoints of every version that there was, and of today."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from iteration_lib.garbage import collect_garbage
from iteration_lib.runner.seam import Runner
from iteration_lib.savepoint import Savepoint, write_savepoint
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import FORMAT_VERSION, Manifest
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import dump_schema, load_whole, save_batches
from iteration_lib.store.record import RunRecord
from iteration_lib.verification import verify_run
from tests.kept_checkpoints import CARRYING, REFERENCE, VERSIONS, FreshRun, kept_manifest, kept_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs/manifest.md").read_text()
READER = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def read_checkpoint" in block)
Tables = dict[tuple[str, str], pa.Table]

# What tests/iterations/kept.py leaves behind epoch 1, worked out by hand.
HALVES = [0.5, 1.0, 1.5, 2.0, 2.5]
EPOCH_0 = [1.0 + half for half in HALVES]
EPOCH_1 = [rank + half - 3.5 for rank, half in zip(EPOCH_0, HALVES, strict=True)]


@pytest.fixture
def read() -> Callable[[Path, Path], Tables]:
    """The page's reader, which knows nothing of this project."""
    names: dict[str, Any] = {}
    exec(READER, names)  # noqa: S102 - a page of ours
    read: Callable[[Path, Path], Tables] = names["read_checkpoint"]
    return read


def values(tables: Tables) -> dict[tuple[str, str], dict[str, list[float]]]:
    return {where: {name: sorted(column) for name, column in t.to_pydict().items()} for where, t in tables.items()}


def test_reader_has_at_most_30_lines_and_needs_pyarrow_alone() -> None:
    imported = re.findall(r"^(?:import|from) (.+)", READER, re.MULTILINE)

    assert len(READER.splitlines()) <= 30
    assert f"these {len(READER.splitlines())} lines are enough" in PAGE
    assert ["hashlib, json", "pathlib import Path", "pyarrow as pa", "pyarrow.parquet as pq"] == imported


@pytest.mark.parametrize("version", VERSIONS)
def test_reader_reads_the_checkpoints_of_every_version(read: Callable[[Path, Path], Tables], version: int) -> None:
    """Only the names of variables are others: in version 1 they are not the operators' ids."""
    centre = {1: "centre", 2: "middle"}[version]

    tables = read(kept_manifest(version, 2), kept_run(version))

    assert {
        ("variables", centre): {"at": [max(EPOCH_0) / 2.0 + max(EPOCH_1)]},
        ("variables", "ranks"): {"r": sorted(EPOCH_1)},
        ("finished", "halves"): {"h": HALVES},
    } == values(tables)


def test_reader_reads_the_states_of_version_2(read: Callable[[Path, Path], Tables]) -> None:
    """The levels are 1, then 6 / 2 + 1: each bucket has kept both, and the operator on the whole has counted to 2."""
    tables = read(kept_manifest(2, 2, CARRYING), kept_run(2, CARRYING))

    assert {
        ("variables", "level"): {"l": [(5.0 + 1.0 + 4.0) / 2.0 + 2.0]},
        ("states", "hoarded.state"): {"h": [1.0, 1.0, 1.0, 4.0, 4.0, 4.0]},
        ("states", "steps.state"): {"n": [2.0]},
    } == values(tables)


@pytest.mark.parametrize("version", VERSIONS)
def test_reader_reads_what_a_run_of_every_version_published(read: Callable[[Path, Path], Tables], version: int) -> None:
    tables = values(read(kept_manifest(version, 3), kept_run(version)))

    variable = {1: "centre", 2: "middle"}[version]
    assert tables["outputs", "centre"] == tables["variables", variable]
    assert tables["outputs", "ranks"] == tables["variables", "ranks"]
    assert 5 == len(tables["outputs", "ranks"]["r"])


@pytest.mark.parametrize("reference", ["tests.iterations.kept:kept", "tests.iterations.stateful:stateful"])
def test_reader_reads_what_the_code_of_today_writes(
    read: Callable[[Path, Path], Tables], tmp_path: Path, reference: str
) -> None:
    """Of the second one it reads states too. What the project's own reader says is the same, to the bit."""
    fresh = FreshRun.begin(tmp_path, reference=reference)
    fresh.drive(until_epoch=2)

    tables = read(fresh.manifest_path(2), Path(fresh.location.uri))

    manifest = fresh.checkpoint(2).manifest
    sections = ("variables", "states", "finished", "outputs")
    assert {(section, name) for section in sections for name in getattr(manifest, section)} == set(tables)
    for (section, name), table in tables.items():
        saved = getattr(manifest, section)[name]
        assert pa.Table.from_batches([load_whole(fresh.location, saved)]).equals(table), name


@pytest.mark.parametrize("values", [["a", "b", None], [3, None, 1], [1.5, 1.5]], ids=["texts", "integers", "fractions"])
def test_reader_reads_a_published_dictionary_of_any_values(
    read: Callable[[Path, Path], Tables], tmp_path: Path, values: list[object]
) -> None:
    """What pandas calls a categorical; Parquet knows dictionaries of texts alone."""
    kind = pa.dictionary(pa.int8(), pa.array(values).type, ordered=True)
    rows = pa.RecordBatch.from_pydict({"x": pa.array(values).dictionary_encode().cast(kind)})
    location = StateLocation(str(tmp_path))
    files = [
        save_batches(location, f"part-{number}.parquet", [rows], file_format=FileFormat.PARQUET) for number in range(2)
    ]
    stream = SavedStream(kind="value", format=FileFormat.PARQUET, schema=dump_schema(rows.schema), files=tuple(files))
    manifest = tmp_path / "checkpoint-000001.json"
    manifest.write_text(json.dumps({"format_version": FORMAT_VERSION, "outputs": {"model": stream.to_json()}}))

    table = read(manifest, tmp_path)["outputs", "model"]

    assert (rows.schema, {"x": values * 2}) == (table.schema, table.to_pydict())


def test_reader_reads_tensors_and_none(read: Callable[[Path, Path], Tables], tmp_path: Path) -> None:
    """Of a tensor whose axes have an order Arrow makes no empty table by itself."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8.0).reshape(2, 2, 2))
    rows = pa.RecordBatch.from_arrays([tensors], ["x"])
    location = StateLocation(str(tmp_path))
    file = save_batches(location, "part.parquet", [rows], file_format=FileFormat.PARQUET)
    schema = dump_schema(rows.schema)
    streams = [
        SavedStream(kind="value", format=FileFormat.PARQUET, schema=schema, files=files) for files in ((file,), ())
    ]
    outputs = {name: stream.to_json() for name, stream in zip(["two", "none"], streams, strict=True)}
    manifest = tmp_path / "checkpoint-000001.json"
    manifest.write_text(json.dumps({"format_version": FORMAT_VERSION, "outputs": outputs}))

    tables = read(manifest, tmp_path)

    expected = [pa.Table.from_batches([rows]), pa.Table.from_batches([rows.slice(2)])]
    assert expected == [tables["outputs", "two"], tables["outputs", "none"]]
    assert expected == [pa.Table.from_batches([load_whole(location, stream)]) for stream in streams]


@pytest.mark.spark
def test_reader_reads_dataframes_that_executors_wrote(
    read: Callable[[Path, Path], Tables], tmp_path: Path, spark: SparkSession
) -> None:
    """Each file has the rows of one partition; none has rows when the run ends."""

    def open_runner(run: RunRecord, location: StateLocation, scratch: str) -> AbstractContextManager[Runner]:
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415 - most tests need no Spark

        return closing(SparkRunner(spark, location, max_buckets=run.max_buckets, parallelism=2, scratch=scratch))

    fresh = FreshRun.begin(tmp_path, reference="tests.iterations.emptying:emptying")
    fresh.drive(open_runner=open_runner)

    tables = [read(fresh.manifest_path(number), Path(fresh.location.uri)) for number in (1, 2, 3)]

    assert [[1, 2], [2], []] == [sorted(found["variables", "frontier"]["id"].to_pylist()) for found in tables]
    assert (["id"], 0) == (tables[-1]["outputs", "frontier"].schema.names, len(tables[-1]["outputs", "frontier"]))
    collect_garbage(fresh.store, fresh.run)
    assert [] == [file for file in verify_run(fresh.store, fresh.run) if file.problem is not None]


def test_reader_reads_a_savepoint_whose_run_is_gone(read: Callable[[Path, Path], Tables], tmp_path: Path) -> None:
    fresh = FreshRun.begin(tmp_path)
    fresh.drive()
    folder = tmp_path / "saved"
    write_savepoint(fresh.checkpoint(3), StateLocation(str(folder)))
    expected = read(fresh.manifest_path(3), Path(fresh.location.uri))

    shutil.rmtree(fresh.location.uri)

    assert expected == read(folder / "savepoint.json", folder)


def test_reader_names_the_file_that_is_not_what_was_written(
    read: Callable[[Path, Path], Tables], tmp_path: Path
) -> None:
    root = shutil.copytree(kept_run(2), tmp_path / "run")
    (spoilt,) = root.glob("*/epoch-000001/moved/*")
    content = spoilt.read_bytes()
    spoilt.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])

    with pytest.raises(ValueError, match=re.escape(str(spoilt))):
        read(root / kept_manifest(2, 2).relative_to(kept_run(2)), root)


def test_reader_refuses_a_version_that_it_does_not_know(read: Callable[[Path, Path], Tables], tmp_path: Path) -> None:
    newer = tmp_path / "checkpoint-000001.json"
    newer.write_text(json.dumps({**json.loads(kept_manifest(2, 2).read_text()), "format_version": 3}))

    with pytest.raises(ValueError, match="has format version 3"):
        read(newer, kept_run(2))


def test_page_describes_every_field_and_the_versions_that_there_are() -> None:
    """Whoever adds a field, or a version, is told to describe it, and to keep a checkpoint of it."""
    fields = {*json.loads(kept_manifest(2, 2).read_text()), *SavedFile.__dataclass_fields__}
    fields |= {*Manifest.__dataclass_fields__, *SavedStream.__dataclass_fields__}
    fields |= {f"savepoint.{name}" for name in Savepoint.__dataclass_fields__} - {
        "savepoint.location",
        "savepoint.manifest",
    }

    assert [] == sorted(name for name in fields if f"`{name}`" not in PAGE)
    assert [str(version) for version in VERSIONS] == re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert VERSIONS[-1] == FORMAT_VERSION


@pytest.mark.parametrize(("version", "reference"), [*((version, REFERENCE) for version in VERSIONS), (2, CARRYING)])
def test_run_goes_on_from_a_checkpoint_of_every_version_to_the_same_bits(
    tmp_path: Path, version: int, reference: str
) -> None:
    """The last epoch is computed from nothing but what the code of that time wrote, the pinned input included."""
    fresh = FreshRun.begin(tmp_path, reference=reference)
    fresh.drive(until_epoch=2)
    manifest = kept_manifest(version, 2, reference)
    old = kept_run(version, reference)
    (pinned,) = old.glob("*/pins/points/*")
    fresh.go_on_from(old, str(manifest.relative_to(old)))
    fresh.pin(moved_pin(fresh.checkpoint(2), str(pinned.relative_to(old)), pinned.read_bytes()))

    finished = fresh.drive()

    assert json.loads((old / "outputs.json").read_text())["state_digest"] == finished.state_digest


def moved_pin(savepoint: Savepoint, path: str, content: bytes) -> Savepoint:
    """Return a savepoint whose pin reads one file, as it lies there."""
    pin = savepoint.pins["points"]
    file = dataclasses.replace(
        pin.files[0], path=path, size_bytes=len(content), version=hashlib.sha256(content).hexdigest()
    )
    return dataclasses.replace(savepoint, pins={"points": dataclasses.replace(pin, files=(file,))})
