"""What does a checkpoint consist of? A file that every later version can read, or that is refused by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.manifest import FORMAT_VERSION, Manifest
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream

PATH = "000001-abcdef01/checkpoint-000001.json"
FILES = st.builds(
    SavedFile,
    path=st.text(min_size=1),
    size_bytes=st.integers(0, 2**60),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    rows=st.integers(0, 2**60),
    first_bucket=st.none() | st.integers(0, 99),
    end_bucket=st.none() | st.integers(0, 99),
    row_digest=st.none() | st.text("0123456789abcdef"),
)
STREAMS = st.builds(
    SavedStream,
    kind=st.sampled_from(["value", "buckets", "frame"]),
    format=st.sampled_from(FileFormat),
    schema=st.text("0123456789abcdef"),
    files=st.lists(FILES, max_size=3).map(tuple),
)
NAMED = st.dictionaries(st.text(min_size=1), STREAMS, max_size=3)
MANIFESTS = st.builds(
    Manifest,
    run_id=st.text(),
    run_key=st.text(),
    reference=st.text(),
    checkpoint_id=st.integers(1),
    epoch=st.integers(0),
    fencing_token=st.integers(1),
    max_buckets=st.integers(1),
    variables=NAMED,
    finished=NAMED,
    operators=st.dictionaries(st.text(), st.sampled_from(["RUNNING", "PARTIALLY_FINISHED", "FINISHED"])),
    outputs=NAMED,
)


def stream(*sizes: int) -> SavedStream:
    files = tuple(
        SavedFile(path=f"part-{number}", size_bytes=size, sha256="ab" * 32, rows=1) for number, size in enumerate(sizes)
    )
    return SavedStream(kind="value", format=FileFormat.ARROW, schema="00", files=files)


MANIFEST = Manifest(
    run_id="id",
    run_key="key",
    reference="team.km:km",
    checkpoint_id=1,
    epoch=0,
    fencing_token=1,
    max_buckets=16,
    variables={"a": stream(10, 20), "b": stream(1)},
    finished={"scaled": stream(1000)},
    operators={"scaled": "FINISHED", "moved": "RUNNING"},
    outputs={"model": stream(300)},
)


@given(MANIFESTS)
def test_manifest_is_the_same_after_it_was_a_file(manifest: Manifest) -> None:
    assert manifest == Manifest.from_bytes(manifest.to_bytes(), path=PATH)


@given(MANIFESTS)
def test_equal_manifests_give_equal_bytes(manifest: Manifest) -> None:
    """Whatever order their names came in."""
    turned = replace(manifest, variables=dict(reversed(list(manifest.variables.items()))))

    assert manifest.to_bytes() == turned.to_bytes()


def test_size_is_of_what_the_checkpoint_itself_wrote() -> None:
    """Finished operators wrote theirs once, long before."""
    assert 10 + 20 + 1 + 300 == MANIFEST.size_bytes


def test_file_tells_its_version_and_holds_no_sentinels() -> None:
    found = json.loads(MANIFEST.to_bytes())

    assert FORMAT_VERSION == found["format_version"]
    assert {"scaled": "FINISHED", "moved": "RUNNING"} == found["operators"]


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    found = json.loads(MANIFEST.to_bytes())
    change(found)
    return json.dumps(found).encode()


def test_fields_that_a_newer_version_adds_are_passed_over() -> None:
    def add(found: dict[str, Any]) -> None:
        found["more"] = {"of": ["it"]}
        found["variables"]["a"]["more"] = 1
        found["variables"]["a"]["files"][0]["more"] = 1

    assert MANIFEST == Manifest.from_bytes(changed(add), path=PATH)


def test_newer_format_is_refused_with_what_to_do() -> None:
    newer = changed(lambda found: found.update(format_version=FORMAT_VERSION + 1))

    with pytest.raises(StateCorruptedError) as caught:
        Manifest.from_bytes(newer, path=PATH)

    assert PATH == caught.value.uri
    assert (
        f"state file {PATH} has format version {FORMAT_VERSION + 1}, this code reads up to {FORMAT_VERSION}; upgrade "
        "iteration-lib"
    ) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        MANIFEST.to_bytes()[:-1],
        MANIFEST.to_bytes()[: len(MANIFEST.to_bytes()) // 2],
        changed(lambda found: found.update(format_version="1")),
        changed(lambda found: found.update(format_version=None)),
        changed(lambda found: found.update(format_version=0)),
        changed(lambda found: found.pop("format_version")),
        changed(lambda found: found.pop("epoch")),
        changed(lambda found: found.pop("operators")),
        changed(lambda found: found.pop("variables")),
        changed(lambda found: found.update(variables=[])),
        changed(lambda found: found.update(variables={"a": []})),
        changed(lambda found: found["variables"]["a"].pop("kind")),
        changed(lambda found: found["variables"]["a"].update(format="pickle")),
        changed(lambda found: found["variables"]["a"].update(files=None)),
        changed(lambda found: found["variables"]["a"].update(files=[3])),
        changed(lambda found: found["variables"]["a"]["files"][0].pop("sha256")),
    ],
)
def test_file_that_is_no_manifest_is_refused_by_its_name(content: bytes) -> None:
    with pytest.raises(StateCorruptedError) as caught:
        Manifest.from_bytes(content, path=PATH)

    assert PATH == caught.value.uri
    assert PATH in str(caught.value)


LIKE_A_MANIFEST = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["format_version", "variables", "files", "operators", "x"]), inner)
    ),
).map(lambda value: json.dumps(value).encode())


@given(st.binary() | LIKE_A_MANIFEST)
def test_whatever_bytes_there_are_they_are_refused_by_their_name(content: bytes) -> None:
    with pytest.raises(StateCorruptedError):
        Manifest.from_bytes(content, path=PATH)
