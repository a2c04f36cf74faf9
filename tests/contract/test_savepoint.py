"""Is a savepoint whole or none, does it need nothing of its origin, and is whatever is wrong with it named?

The same on a local disk and on a store that knows neither rename nor fsync.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.errors import StateCorruptedError, StateLocationError, UsageError
from iteration_lib.model.params import Scalar
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.runner.pins import check_pinned, is_own
from iteration_lib.savepoint import SAVEPOINT_FILE, Savepoint, checkpoint_of, copy_pin, open_savepoint, write_savepoint
from iteration_lib.state.copies import copy_checkpoint
from iteration_lib.state.location import StateLocation, filesystem_of
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.streams import load_whole
from tests.fixture.object_store import object_store, write_once
from tests.kept_checkpoints import FreshRun, kept_manifest, kept_run


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Savepoint:
    """The final checkpoint of a run, in the run's folder."""
    fresh = FreshRun.begin(tmp_path_factory.mktemp("origin"))
    fresh.drive()
    return fresh.checkpoint(3)


@pytest.fixture(params=["local", "memory"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StateLocation]:
    """Give an empty folder, another one each time."""

    def give() -> StateLocation:
        name = secrets.token_hex(8)
        return StateLocation(str(tmp_path / name) if request.param == "local" else f"memory://{name}/saved")

    return give


def content(location: StateLocation) -> dict[str, bytes]:
    """Return every file in a folder, and what is in it."""
    found = {path: filesystem_of(location.path(path)) for path in location.list_files()}
    return {path: filesystem.cat_file(full) for path, (filesystem, full) in found.items()}


def put(location: StateLocation, path: str, what: bytes) -> None:
    """Put a file somewhere, as any tool would."""
    filesystem, full = filesystem_of(location.path(path))
    filesystem.makedirs(full.rpartition("/")[0], exist_ok=True)
    filesystem.pipe_file(full, what)


def own_paths(savepoint: Savepoint) -> set[str]:
    """Return the paths of all files that a savepoint consists of, but the one that names them."""
    pinned = {file.path for pin in savepoint.pins.values() for file in pin.files if is_own(file.path)}
    return pinned | {file.path for stream in savepoint.manifest.streams for file in stream.files}


def test_savepoint_holds_the_files_that_a_run_goes_on_from_and_no_others(
    origin: Savepoint, new_place: Callable[[], StateLocation]
) -> None:
    """Nothing of earlier epochs, nothing of the run's other checkpoints."""
    place = new_place()

    written = write_savepoint(origin, place)

    assert dataclasses.replace(origin, location=place) == written == open_savepoint(place.uri)
    found = content(place)
    assert {SAVEPOINT_FILE, *own_paths(origin)} == set(found)
    assert {path: content(origin.location)[path] for path in own_paths(origin)} == {
        path: what for path, what in found.items() if path != SAVEPOINT_FILE
    }
    assert {"finished", "pins", "outputs", "epoch-000002"} == {
        path.split("/")[0 if path.startswith("outputs/") else 1] for path in own_paths(origin)
    }


def test_savepoint_is_whole_wherever_its_folder_is_moved(
    origin: Savepoint, new_place: Callable[[], StateLocation]
) -> None:
    first, second = new_place(), new_place()
    write_savepoint(origin, first)

    for path, what in content(first).items():
        put(second, path, what)
    filesystem, folder = filesystem_of(first.uri)
    filesystem.rm(folder, recursive=True)

    assert dataclasses.replace(origin, location=second) == open_savepoint(second.uri)


def test_no_file_of_a_savepoint_is_a_link(origin: Savepoint, tmp_path: Path) -> None:
    """A bit that turns in the run's folder would turn in the savepoint too."""
    write_savepoint(origin, StateLocation(str(tmp_path)))

    files = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert {(1, False)} == {(path.stat().st_nlink, path.is_symlink()) for path in files}


def test_copy_that_was_cut_short_anywhere_is_no_savepoint_and_is_completed_by_the_same_call(
    origin: Savepoint, new_place: Callable[[], StateLocation]
) -> None:
    """Some files are whole, the next one is torn, or lies there under another name; the one that names them is last."""
    whole = new_place()
    write_savepoint(origin, whole)
    files = content(whole)
    paths = sorted(files.keys() - {SAVEPOINT_FILE})
    for done, torn in enumerate(paths):
        place = new_place()
        for path in paths[:done]:
            put(place, path, files[path])
        put(place, torn, files[torn][:7])

        with pytest.raises(StateCorruptedError, match=SAVEPOINT_FILE):
            open_savepoint(place.uri)
        write_savepoint(origin, place)

        assert files == content(place)


def spoil(path: Path) -> None:
    """Turn a bit of a file."""
    harmed = bytearray(path.read_bytes())
    harmed[len(harmed) // 2] ^= 1
    path.write_bytes(harmed)


@pytest.mark.parametrize("harm", [spoil, Path.unlink])
def test_bad_file_of_the_origin_is_named_and_no_savepoint_is_left(
    origin: Savepoint, tmp_path: Path, new_place: Callable[[], StateLocation], harm: Callable[[Path], None]
) -> None:
    """The file itself is not copied either, under any name."""
    for path in own_paths(origin):
        copied = Path(shutil.copytree(origin.location.uri, tmp_path / secrets.token_hex(4)))
        harm(copied / path)
        place = new_place()

        with pytest.raises(StateCorruptedError) as caught:
            write_savepoint(dataclasses.replace(origin, location=StateLocation(str(copied))), place)

        assert str(copied / path) == caught.value.uri
        assert own_paths(origin) - {path} >= set(place.list_files())


def test_place_that_cannot_be_written_is_not_taken_for_a_bad_origin(origin: Savepoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(StateLocationError, match="cannot hold "):
        write_savepoint(origin, StateLocation(str(tmp_path / "file")))


def test_folder_of_which_nobody_can_tell_whether_it_holds_a_savepoint_is_left_as_it_is(
    origin: Savepoint, tmp_path: Path
) -> None:
    """What keeps its savepoint.json from being read may pass, and then it is somebody's."""
    unreadable = tmp_path / SAVEPOINT_FILE
    unreadable.symlink_to(unreadable)

    with pytest.raises(StateLocationError, match=f"cannot read {SAVEPOINT_FILE}"):
        write_savepoint(origin, StateLocation(str(tmp_path)))

    assert [unreadable] == list(tmp_path.iterdir())
    assert unreadable.is_symlink()


def test_copy_that_cannot_be_read_is_left_as_it_is_and_a_bad_one_is_made_anew(
    origin: Savepoint, tmp_path: Path
) -> None:
    """It may be whole, and what is written over it might not be."""
    write_savepoint(origin, StateLocation(str(tmp_path)))
    copied = tmp_path / min(own_paths(origin))
    content = copied.read_bytes()
    copied.unlink()
    copied.symlink_to(copied)

    with pytest.raises(StateLocationError, match=f"cannot read {min(own_paths(origin))}"):
        write_savepoint(origin, StateLocation(str(tmp_path)))

    assert copied.is_symlink()
    copied.unlink()
    copied.write_bytes(content)
    spoil(copied)
    write_savepoint(origin, StateLocation(str(tmp_path)))
    assert content == copied.read_bytes()


def test_folder_that_holds_another_savepoint_is_refused_and_left_as_it_is(
    origin: Savepoint, new_place: Callable[[], StateLocation]
) -> None:
    place = new_place()
    write_savepoint(origin, place)
    before = content(place)

    with pytest.raises(UsageError, match="holds another savepoint already; choose a folder of its own"):
        write_savepoint(dataclasses.replace(origin, params={"max_epochs": 7}), place)
    write_savepoint(origin, place)

    assert before == content(place)


def test_savepoint_is_written_twice_where_no_object_is_ever_replaced(origin: Savepoint) -> None:
    with object_store(write_once) as address:
        place = StateLocation(f"{address}/saved")

        written = [write_savepoint(origin, place) for _ in range(2)]

        assert [open_savepoint(place.uri)] * 2 == written


@pytest.mark.parametrize("folder", ["", "000001-0000000b/kept"], ids=["itself", "an attempt's"])
@pytest.mark.parametrize("is_linked", [False, True], ids=["as it is", "by a link"])
def test_folder_of_the_run_itself_is_refused_and_left_as_it_is(
    origin: Savepoint, tmp_path: Path, folder: str, *, is_linked: bool
) -> None:
    """Nothing would be copied, and the run lets go of its files; or `iteration gc` removes what nobody knows of."""
    before, link = content(origin.location), tmp_path / "link"
    link.symlink_to(origin.location.uri)
    place = StateLocation(f"{link if is_linked else origin.location.uri}/{folder}")

    with pytest.raises(UsageError, match=f"lies in {origin.location.uri}, .*; choose a folder elsewhere"):
        write_savepoint(origin, place)

    assert before == content(origin.location)


def test_folder_of_the_origin_is_refused_however_it_is_written(origin: Savepoint) -> None:
    first = StateLocation("memory://refused/saved")
    saved = write_savepoint(origin, first)

    with pytest.raises(UsageError, match="lies in memory://refused/saved"):
        write_savepoint(saved, StateLocation("memory://refused//saved/"))
    beside = write_savepoint(saved, StateLocation("memory://refused/saved-too"))

    assert content(first) == content(beside.location)


@pytest.mark.parametrize(
    "harm",
    [
        lambda what: what[:-1],
        lambda what: what + b"\0",
        lambda what: what[: len(what) // 2] + bytes([what[len(what) // 2] ^ 1]) + what[len(what) // 2 + 1 :],
        lambda _: None,
    ],
    ids=["cut", "longer", "spoilt", "missing"],
)
def test_bad_file_of_a_savepoint_is_named_when_it_is_opened(
    origin: Savepoint, new_place: Callable[[], StateLocation], harm: Callable[[bytes], bytes | None]
) -> None:
    place = new_place()
    write_savepoint(origin, place)
    for path, what in content(place).items():
        harmed = harm(what)
        place.remove(path)
        if harmed is not None:
            put(place, path, harmed)

        with pytest.raises(StateCorruptedError, match=re.escape("or give the folder of a whole savepoint")) as caught:
            open_savepoint(place.uri)

        assert place.path(path) == caught.value.uri
        put(place, path, what)
    assert dataclasses.replace(origin, location=place) == open_savepoint(place.uri)


@given(st.integers(0), st.integers(0, 7))
def test_bit_that_turned_in_what_names_the_files_is_noticed(origin: Savepoint, byte: int, bit: int) -> None:
    """Also between two fields, where no digest would notice it."""
    place = StateLocation("memory://turned/saved")
    if not place.list_files():
        write_savepoint(origin, place)
    what = bytearray(dataclasses.replace(origin, location=place).to_bytes())
    what[byte % len(what)] ^= 1 << bit
    put(place, SAVEPOINT_FILE, bytes(what))

    with pytest.raises(StateCorruptedError) as caught:
        open_savepoint(place.uri)

    assert place.path(SAVEPOINT_FILE) == caught.value.uri


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), SCALARS, max_size=4))
def test_whatever_a_definition_and_parameters_hold_comes_back(
    origin: Savepoint, definition: dict[str, object], params: dict[str, Scalar]
) -> None:
    place = StateLocation("memory://round-trip/saved")
    nothing = dataclasses.replace(origin.manifest, variables={}, states={}, finished={}, outputs={})
    saved = Savepoint(location=place, manifest=nothing, definition=definition, params=params, pins={})
    put(place, SAVEPOINT_FILE, saved.to_bytes())

    assert saved == open_savepoint(place.uri)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        (b"", "is no manifest"),
        (b"[]", "is no manifest"),
        (kept_manifest(2, 2).read_bytes(), "is the manifest of a checkpoint, but no savepoint"),
        (json.dumps({"format_version": 99}).encode(), "has format version 99"),
    ],
)
def test_file_that_is_no_savepoint_is_refused_with_what_it_is(tmp_path: Path, what: bytes, problem: str) -> None:
    (tmp_path / SAVEPOINT_FILE).write_bytes(what)

    with pytest.raises(StateCorruptedError, match=problem) as caught:
        open_savepoint(str(tmp_path))

    assert str(tmp_path / SAVEPOINT_FILE) == caught.value.uri


@pytest.mark.parametrize("uri", ["surely-no-such-protocol://folder", "", "/nowhere/at/all"])
def test_place_where_nothing_can_be_is_refused_by_its_name(uri: str) -> None:
    with pytest.raises(StateCorruptedError, match="give the folder of a whole savepoint") as caught:
        open_savepoint(uri)

    assert f"{uri}/{SAVEPOINT_FILE}" == caught.value.uri


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret", "file:///etc/passwd", "a\0b", ""])
def test_path_that_leads_out_of_the_folder_is_refused(origin: Savepoint, tmp_path: Path, path: str) -> None:
    """Somebody has made it up, and got its digest right."""
    centre = origin.manifest.variables["middle"]
    stray = dataclasses.replace(centre, files=(dataclasses.replace(centre.files[0], path=path),))
    manifest = dataclasses.replace(origin.manifest, variables={"middle": stray})
    put(StateLocation(str(tmp_path)), SAVEPOINT_FILE, dataclasses.replace(origin, manifest=manifest).to_bytes())

    with pytest.raises(StateCorruptedError, match="cannot be used"):
        open_savepoint(str(tmp_path))


def test_copy_of_a_checkpoint_keeps_the_version_that_its_names_are_of(tmp_path: Path, origin: Savepoint) -> None:
    """One that claimed to be of version 2 would hold no variable by its id."""
    path = kept_manifest(1, 2)
    manifest = Manifest.from_bytes(path.read_bytes(), path=str(path))
    old = dataclasses.replace(origin, location=StateLocation(str(kept_run(1))), manifest=manifest, pins={})

    write_savepoint(old, StateLocation(str(tmp_path)))

    found = open_savepoint(str(tmp_path)).manifest
    assert (1, {"centre", "ranks"}) == (found.format_version, set(found.variables))


def test_checkpoint_is_copied_below_a_folder_of_another_run(
    origin: Savepoint, new_place: Callable[[], StateLocation]
) -> None:
    """As a branch needs it: what its first checkpoint names then lies in its own folder."""
    place, folder = new_place(), "000001-0000000b/origin"

    manifest = copy_checkpoint(origin.location, origin.manifest, destination=place, folder=folder)
    pins = {n: copy_pin(origin.location, pin, destination=place, folder=folder) for n, pin in origin.pins.items()}

    copied = dataclasses.replace(origin, location=place, manifest=manifest, pins=pins)
    assert {f"{folder}/{path}" for path in own_paths(origin)} == own_paths(copied) == set(place.list_files())
    for stream, before in zip(manifest.streams, origin.manifest.streams, strict=True):
        assert load_whole(origin.location, before).equals(load_whole(place, stream))
    check_pinned(place, pins["points"])
    assert origin.pins["points"].fingerprint != pins["points"].fingerprint
    assert origin.pins["points"].rows == pins["points"].rows


def test_run_goes_on_from_a_savepoint_alone_to_the_same_bits(tmp_path: Path) -> None:
    """Its origin's store and folder are gone; another run has nothing but the savepoint's files in its folder."""
    first, second = FreshRun.begin(tmp_path / "first"), FreshRun.begin(tmp_path / "second")
    first.drive(until_epoch=2)
    second.drive(until_epoch=2)
    write_savepoint(first.checkpoint(2), StateLocation(str(tmp_path / "saved")))
    shutil.rmtree(first.folder)
    second.go_on_from(tmp_path / "saved", SAVEPOINT_FILE)
    second.pin(open_savepoint(str(tmp_path / "saved")))

    finished = second.drive()

    expected = json.loads((kept_run(2) / "outputs.json").read_text())["state_digest"]
    assert expected == finished.state_digest


def test_checkpoint_that_has_no_files_makes_no_savepoint(tmp_path: Path) -> None:
    fresh = FreshRun.begin(tmp_path)
    fresh.drive()
    (record, *_) = fresh.store.list_checkpoints(fresh.run.run_id)
    discarded = dataclasses.replace(record, status=CheckpointStatus.DISCARDED)
    pending = dataclasses.replace(record, status=CheckpointStatus.PENDING, manifest_path=None)

    for gone in (discarded, pending):
        with pytest.raises(UsageError, match=f"checkpoint 1 of run 'kept' is {gone.status.value}: it has no files"):
            checkpoint_of(fresh.store, fresh.run, gone)
