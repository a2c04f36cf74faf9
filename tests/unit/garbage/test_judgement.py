"""May a file go? Never one that is needed, that a live attempt may still name, or that is not ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.garbage.judgement import Fate, JudgedFile, References, judge_files

ENDED, LIVE, NEVER_SEEN = "000001-aaaaaaaa", "000002-bbbbbbbb", "000003-cccccccc"
NOTHING = References(attempts={ENDED: True, LIVE: False}, needed={}, let_go={})
WRITTEN = st.sampled_from(
    [
        "{}/checkpoint-000001.json",
        "{}/epoch-000000/moved/part-00000-00.arrow",
        "{}/epoch-000000/moved/.part-00000-00.arrow.01.tmp",
        "{}/finished/scaled/part-00000-01.arrow",
        "{}/pins/points/part-00000-02.parquet",
        "{}/scratch/a file of somebody's",
        "outputs/model/{}-epoch-000003/part-00000-03.parquet",
    ]
)
PATHS = st.one_of(
    st.builds(str.format, WRITTEN, st.sampled_from([ENDED, LIVE, NEVER_SEEN, "savepoints"])),
    st.sampled_from(["outputs.json", ".outputs.json.0a1b.tmp", "notes.txt", "outputs/model/notes.txt"]),
)
NAMED = st.dictionaries(PATHS, st.just("somebody"), max_size=8)
REFERENCES = st.builds(
    References,
    attempts=st.dictionaries(st.sampled_from([ENDED, LIVE]), st.booleans()),
    needed=NAMED,
    let_go=NAMED,
)
FILES = st.dictionaries(PATHS, st.integers(0, 2**40))


def fates(files: dict[str, int], references: References) -> dict[str, Fate]:
    return {judged.path: judged.fate for judged in judge_files(files, references)}


def garbage(files: dict[str, int], references: References) -> set[str]:
    return {path for path, fate in fates(files, references).items() if fate is Fate.GARBAGE}


def fate(path: str, references: References = NOTHING) -> Fate:
    return fates({path: 1}, references)[path]


@given(FILES, REFERENCES)
def test_every_file_is_judged_once_with_its_size_and_why(files: dict[str, int], references: References) -> None:
    judged = judge_files(files, references)

    assert sorted(files.items()) == [(file.path, file.size_bytes) for file in judged]
    assert all(file.reason for file in judged)


@given(FILES, REFERENCES)
def test_file_that_is_needed_never_goes(files: dict[str, int], references: References) -> None:
    assert set() == garbage(files, references) & references.needed.keys()


@given(FILES, REFERENCES)
def test_only_what_was_let_go_or_lies_in_the_folder_of_an_attempt_that_ended_goes(
    files: dict[str, int], references: References
) -> None:
    ended = [folder for folder, has_ended in references.attempts.items() if has_ended]

    for path in garbage(files, references) - references.let_go.keys() - {".outputs.json.0a1b.tmp"}:
        assert any(path.startswith((f"{folder}/", f"outputs/model/{folder}-epoch-")) for folder in ended), path


@given(FILES, REFERENCES, NAMED)
def test_one_more_reference_saves_its_files_and_no_other(
    files: dict[str, int], references: References, more: dict[str, str]
) -> None:
    before = garbage(files, references)

    after = garbage(files, replace(references, needed={**references.needed, **more}))

    assert before - more.keys() == after


@given(FILES, REFERENCES)
def test_garbage_stays_garbage_when_attempts_end_and_new_ones_come(
    files: dict[str, int], references: References
) -> None:
    """So a judgement that is late removes nothing that a judgement of now would keep."""
    later = replace(references, attempts={**dict.fromkeys(references.attempts, True), NEVER_SEEN: False})

    expected = {path for path in garbage(files, references) if not path.startswith(".outputs.json")}
    assert expected <= garbage(files, later)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{ENDED}/checkpoint-000001.json", Fate.GARBAGE),
        (f"{ENDED}/epoch-000000/moved/.part-00000-00.arrow.01.tmp", Fate.GARBAGE),
        (f"outputs/model/{ENDED}-epoch-000003/part-00000-03.parquet", Fate.GARBAGE),
        (f"outputs/model/{ENDED}-epoch-1000000/part-00000-03.parquet", Fate.GARBAGE),
        (f"{LIVE}/epoch-000000/moved/part-00000-00.arrow", Fate.LIVE),
        (f"outputs/model/{LIVE}-epoch-000003/part-00000-03.parquet", Fate.LIVE),
        (f"{NEVER_SEEN}/epoch-000000/moved/part-00000-00.arrow", Fate.UNKNOWN),
        (f"outputs/model/{NEVER_SEEN}-epoch-000003/part-00000-03.parquet", Fate.UNKNOWN),
        (f"outputs/{ENDED}-epoch-000003/part-00000-03.parquet", Fate.UNKNOWN),
        (f"outputs/model/{ENDED}/part-00000-03.parquet", Fate.UNKNOWN),
        (ENDED, Fate.UNKNOWN),
        (f"{ENDED}-of-mine/notes.txt", Fate.UNKNOWN),
        ("notes.txt", Fate.UNKNOWN),
        ("writable-0123456789abcdef", Fate.UNKNOWN),
        ("outputs.json", Fate.UNKNOWN),
        (".outputs.json.0a1b.tmp", Fate.LIVE),
    ],
)
def test_whose_a_file_is_its_path_says(path: str, expected: Fate) -> None:
    assert expected is fate(path)


def test_half_a_pointer_goes_when_no_attempt_is_live() -> None:
    """Its name does not say who was writing it."""
    assert Fate.GARBAGE is fate(".outputs.json.0a1b.tmp", replace(NOTHING, attempts={ENDED: True}))


def test_what_was_let_go_goes_under_a_live_attempt_too_unless_somebody_else_needs_it() -> None:
    path = f"{LIVE}/epoch-000000/moved/part-00000-00.arrow"
    let_go = replace(NOTHING, let_go={path: "checkpoint 1 was discarded"})

    judged = judge_files({path: 7}, let_go)

    assert (JudgedFile(path=path, size_bytes=7, fate=Fate.GARBAGE, reason="checkpoint 1 was discarded"),) == judged
    assert Fate.REFERENCED is fate(path, replace(let_go, needed={path: "checkpoint 2 holds it"}))
