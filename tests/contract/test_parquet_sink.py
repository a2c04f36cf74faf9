"""What does a reader of Parquet files find, in which order, and what if somebody meddled with them?"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import fsspec
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from iteration_lib.errors import SinkTargetError, StateCorruptedError, StateLocationError
from iteration_lib.sinks import ParquetSink, Published, SinkTransaction, latest, parquet, published
from iteration_lib.sinks.pointer import dump_pointer, pointer_path
from iteration_lib.sinks.trial import publication_of, rows_of, transaction_of
from iteration_lib.state.files import write_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from tests.fixture.object_store import object_store, without_conditions, write_once

_FIRST = transaction_of(0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "yet"


def publish(root: Path, *transactions: SinkTransaction) -> list[Mapping[str, object]]:
    sink = ParquetSink(str(root))
    committables = []
    for transaction in transactions:
        committables.append(sink.prepare(transaction, publication_of(transaction.epoch)))
        sink.commit(transaction, committables[-1])
    return committables


def transactions_of(found: tuple[Published, ...]) -> list[SinkTransaction]:
    return [one.transaction for one in found]


def pointer(root: Path, transaction: SinkTransaction = _FIRST) -> Path:
    return root / pointer_path(transaction)


def test_published_files_hold_the_rows_that_were_prepared_byte_for_byte(root: Path) -> None:
    publication = publication_of(0)
    sink = ParquetSink(str(root))

    sink.commit(_FIRST, sink.prepare(_FIRST, publication))

    (found,) = published(str(root))
    assert _FIRST == found.transaction
    assert [replace(file, path=found.publication.files[n].path) for n, file in enumerate(publication.files)] == list(
        found.publication.files
    )
    tables = [pq.read_table(file).to_pylist() for file in found.files]
    assert rows_of(0) == [tuple(row.values()) for table in tables for row in table]


def test_publications_are_listed_by_the_age_of_their_run_and_by_epoch_whenever_they_were_committed(root: Path) -> None:
    older = [replace(transaction_of(epoch), run_id="z", run_key="older") for epoch in (2, 11)]
    created_at = _FIRST.run_created_at + timedelta(microseconds=1)
    newer = [replace(transaction_of(epoch), run_id="a", run_created_at=created_at) for epoch in (1, 3)]

    publish(root, newer[1], older[1], newer[0], older[0])

    assert [*older, *newer] == transactions_of(published(str(root)))
    assert older == transactions_of(published(str(root), run="older"))
    assert newer == transactions_of(published(str(root), run="a"))


def test_latest_is_the_last_of_what_is_listed(root: Path) -> None:
    run = [transaction_of(epoch) for epoch in range(2)]

    assert latest(str(root)) is None

    committables = publish(root, *run)
    ParquetSink(str(root)).commit(run[0], committables[0])

    newest = latest(str(root))
    assert newest is not None
    assert run[1] == newest.transaction
    assert newest == published(str(root))[-1]


def test_one_folder_serves_several_outputs_of_an_epoch(root: Path) -> None:
    outputs = [replace(_FIRST, output=name) for name in ("model", "model-2", "scores")]

    publish(root, *outputs)

    assert outputs == transactions_of(published(str(root)))
    for output in outputs:
        assert [output] == transactions_of(published(str(root), output=output.output))


def test_run_time_of_another_zone_is_the_same_run(root: Path) -> None:
    elsewhere = replace(_FIRST, run_created_at=datetime.fromisoformat("2026-01-01T05:30:00+05:30"))

    assert _FIRST.run_created_at.tzinfo is UTC
    publish(root, _FIRST)
    publish(root, elsewhere)

    assert [_FIRST] == transactions_of(published(str(root)))


def test_somebody_who_reads_the_whole_folder_sees_neither_data_nor_pointers(root: Path) -> None:
    publish(root, _FIRST)

    assert [] == pads.dataset(str(root), format="parquet").files


def test_what_a_crash_left_beside_the_pointers_is_passed_over(root: Path) -> None:
    publish(root, _FIRST)
    (pointer(root).parent / f".{pointer(root).name}.0123456789abcdef.tmp").write_bytes(b"{")

    assert [_FIRST] == transactions_of(published(str(root)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:0],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-2],
        lambda whole: whole.replace(b'"rows": 3', b'"rows": 4', 1),
        lambda whole: b"[" + whole + b"]",
        lambda whole: b"\xff" + whole,
    ],
)
def test_damaged_pointer_is_named_and_commit_mends_it(root: Path, damage: Callable[[bytes], bytes]) -> None:
    (committable,) = publish(root, _FIRST)
    whole = pointer(root).read_bytes()
    pointer(root).write_bytes(damage(whole))

    with pytest.raises(StateCorruptedError, match="is no pointer") as caught:
        published(str(root))
    ParquetSink(str(root)).commit(_FIRST, committable)

    assert str(pointer(root)) == caught.value.uri
    assert whole == pointer(root).read_bytes()


def test_pointer_under_another_name_is_refused(root: Path) -> None:
    publish(root, _FIRST)
    pointer(root).rename(pointer(root, transaction_of(7)))

    with pytest.raises(StateCorruptedError, match=r"is the pointer of _published/.*/0000000000-scores\.json"):
        published(str(root))


def test_pointer_of_a_later_format_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("iteration_lib.sinks.pointer._FORMAT_VERSION", 2)
        publish(root, _FIRST)

    with pytest.raises(StateCorruptedError, match="the format 2"):
        published(str(root))


def test_missing_data_file_is_named_when_it_is_read(root: Path) -> None:
    publish(root, _FIRST)
    (found,) = published(str(root))
    Path(found.files[1]).unlink()

    with pytest.raises(StateCorruptedError, match=re.escape(f"{found.files[1]} is missing")):
        list(found.publication.batches())


def test_what_another_attempt_published_is_neither_replaced_nor_passed_for_ones_own(root: Path) -> None:
    """The store was restored from an older copy, and another attempt made the epoch durable once more."""
    publish(root, _FIRST)
    sink, other = ParquetSink(str(root)), transaction_of(0, token=2)
    committable = sink.prepare(other, publication_of(0))

    with pytest.raises(SinkTargetError, match=r"published by attempt 1, .* restored from an older copy") as caught:
        sink.commit(other, committable)
    seen = transactions_of(published(str(root)))
    (removed,) = re.findall(r"remove (\S+),", str(caught.value))
    Path(removed).unlink()
    sink.commit(other, committable)

    assert str(sink.describe()) == caught.value.target
    assert ([_FIRST], [other]) == (seen, transactions_of(published(str(root))))


def test_attempt_that_has_the_number_of_another_one_does_not_pass_for_it(root: Path) -> None:
    """A store that was restored from an older copy counts its attempts from there."""
    publish(root, _FIRST)
    publication = publication_of(0)
    moved = tuple(replace(file, path=f"{file.path}-moved") for file in publication.files)
    for file, other in zip(publication.files, moved, strict=True):
        fsspec.filesystem("memory").mv(*map(publication.location.path, (file.path, other.path)))
    before, sink = rows_shown(root), ParquetSink(str(root))
    stream = replace(publication.stream, files=moved)
    committable = sink.prepare(_FIRST, replace(publication, stream=stream))

    with pytest.raises(SinkTargetError, match="output 'scores' of epoch 0 already, published by attempt 1"):
        sink.commit(_FIRST, committable)

    assert before == rows_shown(root)


def test_abort_leaves_what_is_shown(root: Path) -> None:
    """In a store that was restored from an older copy the epoch never was durable, and is void."""
    publish(root, _FIRST)
    before = rows_shown(root)

    ParquetSink(str(root)).abort(_FIRST)

    assert before == rows_shown(root)


def rows_shown(root: Path) -> list[object]:
    return [batch.to_pylist() for one in published(str(root)) for batch in one.publication.batches()]


def test_what_a_later_version_published_is_left_as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can tell by the pointer whose it is."""
    with monkeypatch.context() as patch:
        patch.setattr("iteration_lib.sinks.pointer._FORMAT_VERSION", 2)
        (committable,) = publish(root, _FIRST)
    sink, before = ParquetSink(str(root)), StateLocation(str(root)).list_sizes()

    sink.abort(_FIRST)
    with pytest.raises(SinkTargetError, match="published by a later version"):
        sink.commit(_FIRST, committable)

    assert before == StateLocation(str(root)).list_sizes()


def says_more(patch: pytest.MonkeyPatch) -> None:
    """Let this be a version that says more of a file, as one did that added its row digest."""
    known = SavedStream.to_json

    def to_json(stream: SavedStream) -> dict[str, Any]:
        found: dict[str, Any] = known(stream)
        return {**found, "files": [{**file, "compression": "zstd"} for file in found["files"]]}

    patch.setattr(SavedStream, "to_json", to_json)


@pytest.mark.parametrize("is_newer", [False, True], ids=["older", "newer"])
def test_what_another_version_has_committed_is_left_as_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, is_newer: bool
) -> None:
    """It says less of the files, or more; they are the same."""
    with monkeypatch.context() as patch:
        if is_newer:
            says_more(patch)
        (committable,) = publish(root, _FIRST)
    before = pointer(root).read_bytes()
    if not is_newer:
        says_more(monkeypatch)

    ParquetSink(str(root)).commit(_FIRST, committable)

    assert before == pointer(root).read_bytes()


def test_publication_that_was_given_up_does_not_come_back_by_a_late_commit(root: Path) -> None:
    (committable,) = publish(root, _FIRST)
    for file in published(str(root))[0].files:
        Path(file).unlink()
    pointer(root).unlink()

    with pytest.raises(SinkTargetError, match=r"does not hold _data/.* any more"):
        ParquetSink(str(root)).commit(_FIRST, committable)

    assert () == published(str(root))


def test_abort_leaves_no_data(root: Path) -> None:
    sink = ParquetSink(str(root))
    sink.prepare(_FIRST, publication_of(0))
    left = StateLocation(str(root)).list_files()

    sink.abort(_FIRST)

    assert 2 == len(left)
    assert () == StateLocation(str(root)).list_files()


def test_changed_source_is_named(root: Path) -> None:
    publication = publication_of(0)
    changed = publication.location.path(publication.files[0].path)
    with fsspec.open(changed, "ab") as file:
        file.write(b"x")

    with pytest.raises(StateCorruptedError, match=r"bytes, but .* were written") as caught:
        ParquetSink(str(root)).prepare(_FIRST, publication)

    assert changed == caught.value.uri


def test_folder_that_cannot_be_used_is_refused_by_name_with_what_to_do() -> None:
    sink = ParquetSink("/proc/nowhere")

    for call in (sink.check, lambda: sink.prepare(_FIRST, publication_of(0))):
        with pytest.raises(SinkTargetError, match=r"^the Parquet folder /proc/nowhere cannot .*; make it writable"):
            call()


@pytest.mark.parametrize("read", [published, latest])
def test_folder_that_cannot_be_read_is_not_taken_for_one_in_which_nothing_was_published(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    root = tmp_path / "out"
    root.symlink_to(root)  # permissions bind everybody but root

    with pytest.raises(SinkTargetError, match=rf"{root} cannot list _published .*Too many levels of symbolic links"):
        read(str(root))


@pytest.mark.parametrize("address", ["out", "./out", Path("out"), "file://out", "local://out", "file:out"], ids=str)
def test_folder_that_is_another_one_in_another_working_directory_is_refused_before_anything_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | Path
) -> None:
    """A run that is driven from two of them would publish some epochs here and some there.

    It may have a durable epoch when its output is given the sink: then nobody checks it.
    """
    monkeypatch.chdir(tmp_path)
    sink, said = ParquetSink(address), r"out is another folder for .*; name it by its absolute path, then run"

    for call in (sink.check, lambda: sink.prepare(_FIRST, publication_of(0))):
        with pytest.raises(SinkTargetError, match=said):
            call()

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["{}", "{}/../out", "file://{}", "file:{}", "local://{}", "~/out"])
def test_folder_that_is_the_same_everywhere_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    ParquetSink(address.format(tmp_path)).check()


@pytest.mark.parametrize("address", ["sftp://me:secret@127.0.0.1:1/out", "ftp://me:half@secret@127.0.0.1:1/out"])
def test_password_in_an_address_is_not_shown(address: str) -> None:
    sink, errors = ParquetSink(address), []
    host = address.rpartition("@")[2]

    for call in (
        sink.check,
        lambda: sink.prepare(_FIRST, publication_of(0)),
        lambda: sink.abort(_FIRST),
        lambda: published(address),
        lambda: latest(address),
    ):
        with pytest.raises(SinkTargetError, match=f"{re.escape(host)} cannot be opened .*make it writable") as caught:
            call()
        errors.append("".join(traceback.format_exception(caught.value)))

    told = [sink.describe(), repr(sink), *errors]
    assert f"the Parquet folder {address.partition(':')[0]}://***@{host}" == told[0]
    assert [] == [text for text in told if "secret" in text]


def test_damaged_pointer_is_named_without_a_password() -> None:
    address = "memory://me:secret@damaged"
    sink = ParquetSink(address)
    sink.commit(_FIRST, sink.prepare(_FIRST, publication_of(0)))
    with fsspec.open(f"{address}/{pointer_path(_FIRST)}", "wb") as file:
        file.write(b"{")

    with pytest.raises(StateCorruptedError, match=r"memory://\*\*\*@damaged/_published/.* is no pointer"):
        published(address)


def test_folder_may_be_given_as_a_path(root: Path) -> None:
    sink = ParquetSink(root)
    sink.check()

    sink.commit(_FIRST, sink.prepare(_FIRST, publication_of(0)))

    newest = latest(root)
    assert newest is not None
    assert (newest,) == published(str(root))


@pytest.mark.parametrize("is_newer", [False, True], ids=["same version", "newer version"])
def test_pointer_that_another_process_wrote_meanwhile_is_no_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, is_newer: bool
) -> None:
    """On a store that never replaces an object, whose answer to the second is a refusal."""
    sink = ParquetSink(str(root))
    committable = sink.prepare(_FIRST, publication_of(0))

    def come_second(location: StateLocation, path: str, content: bytes, *, replaces: bool) -> None:
        with monkeypatch.context() as patch:
            if is_newer:
                says_more(patch)
            stream = SavedStream.from_json(cast("Mapping[str, object]", committable["stream"]))
            content = dump_pointer(_FIRST, stream)
        write_bytes(location, path, content, replaces=replaces)
        raise StateLocationError(location.uri, "is there already")

    monkeypatch.setattr(parquet, "write_bytes", come_second)
    sink.commit(_FIRST, committable)

    assert [_FIRST] == transactions_of(published(str(root)))


def test_pointer_that_cannot_be_written_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ParquetSink(str(root))
    committable = sink.prepare(_FIRST, publication_of(0))

    def fail(location: StateLocation, *_arguments: object, **_options: object) -> None:
        raise StateLocationError(location.uri, "is full", is_passing=True)

    monkeypatch.setattr(parquet, "write_bytes", fail)

    with pytest.raises(SinkTargetError, match="is full") as caught:
        sink.commit(_FIRST, committable)
    assert caught.value.is_passing


def test_object_stores_of_these_tests_are_what_they_are_called() -> None:
    """Otherwise the suite of sinks would pass on them for no reason."""
    with object_store(without_conditions) as address:
        filesystem = fsspec.filesystem("s3")
        filesystem.pipe_file(f"{address}/a", b"1")
        filesystem.pipe_file(f"{address}/a", b"2")
        with pytest.raises(OSError, match="no conditional put"):
            filesystem.pipe_file(f"{address}/b", b"1", mode="create")
    with object_store(write_once) as address:
        filesystem = fsspec.filesystem("s3")
        filesystem.pipe_file(f"{address}/a", b"1")
        with pytest.raises(OSError, match="pre-conditions"):
            filesystem.pipe_file(f"{address}/a", b"2")
