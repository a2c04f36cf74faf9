"""Is every part told once, by whatever way the driver hears of it first?"""

from __future__ import annotations

import secrets
import signal
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from iteration_lib.interrupt import ToldToEnd, end_in_order
from iteration_lib.runner.part_header import PartHeader, read_sidecars, write_sidecar
from iteration_lib.runner.parts import Target
from iteration_lib.runner.spark_parts import SidecarWatch, Teller
from iteration_lib.state.files import write_bytes
from iteration_lib.state.location import StateLocation, filesystem_of
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import dump_schema
from tests import locked_store

NUMBERS = dump_schema(pa.schema([("number", pa.int64())]))
OTHERS = dump_schema(pa.schema([("number", pa.float64())]))
FOLDER = "scratch/told"
DEADLINE_SECONDS = 30


@pytest.fixture
def location() -> StateLocation:
    return StateLocation(f"memory://{secrets.token_hex(8)}")


def header_of(first: int, end: int, *, path: str | None = None, schema: str = NUMBERS) -> PartHeader:
    file = SavedFile(
        path=path or f"out/part-{first}",
        size_bytes=9,
        sha256="a" * 64,
        rows=end - first,
        first_bucket=first,
        end_bucket=end,
    )
    return PartHeader(
        buckets=range(first, end), rows=(1,) * (end - first), schema=schema, calls={0: (first, schema)}, file=file
    )


def teller_of(told: list[SavedStream], *, done: SavedStream | None = None) -> Teller:
    location = StateLocation("memory://run")
    return Teller(Target(location=location, folder="out", file_format=FileFormat.ARROW, done=done, on_part=told.append))


def saved(*headers: PartHeader) -> SavedStream:
    files = tuple(header.file for header in headers if header.file is not None)
    return SavedStream(kind="buckets", format=FileFormat.ARROW, schema=headers[0].schema, files=files)


# What a task leaves


def test_header_comes_back_as_it_was() -> None:
    header = header_of(3, 6)

    assert header == PartHeader.from_json(header.to_json())
    assert replace(header, file=None) == PartHeader.from_json(replace(header, file=None).to_json())


def test_sidecars_are_read_once_each_in_the_order_of_their_buckets(location: StateLocation) -> None:
    first, second, third = header_of(0, 4), header_of(4, 8), header_of(8, 9)
    known: set[str] = set()

    assert [] == read_sidecars(location, FOLDER, known=known)
    for header in (third, first):
        write_sidecar(location, FOLDER, header)
    assert [first, third] == read_sidecars(location, FOLDER, known=known)
    write_sidecar(location, FOLDER, second)
    assert [second] == read_sidecars(location, FOLDER, known=known)
    assert [] == read_sidecars(location, FOLDER, known=known)


def test_sidecar_that_is_torn_is_read_once_it_is_whole(location: StateLocation) -> None:
    write_sidecar(location, FOLDER, header_of(0, 4))
    (path,) = location.list_files(FOLDER)
    filesystem, full = filesystem_of(location.path(path))
    content = filesystem.cat_file(full)
    known: set[str] = set()
    filesystem.pipe_file(full, content[:-1])

    assert [] == read_sidecars(location, FOLDER, known=known)
    filesystem.pipe_file(full, content)
    assert [header_of(0, 4)] == read_sidecars(location, FOLDER, known=known)


def test_what_is_no_sidecar_is_passed_over(location: StateLocation) -> None:
    write_bytes(location, f"{FOLDER}/part-00000-abc.arrow", b"rows")
    write_bytes(location, f"{FOLDER}/.{'a' * 64}.json.0123.tmp", b"{}")

    assert [] == read_sidecars(location, FOLDER, known=set())


# Who is told


def test_first_of_two_parts_with_the_same_buckets_is_told_and_counts() -> None:
    told: list[SavedStream] = []
    teller = teller_of(told)
    first, again, other = header_of(0, 4), header_of(0, 4, path="out/again"), header_of(4, 8)

    for header in (first, again, other, first):
        teller.tell(header)

    assert [saved(first), saved(other)] == told
    assert [first, other] == [teller.told_instead_of(header) for header in (again, other)]
    assert header_of(8, 9) == teller.told_instead_of(header_of(8, 9))


def test_part_with_other_columns_is_not_told() -> None:
    told: list[SavedStream] = []
    teller = teller_of(told)

    teller.tell(header_of(0, 4))
    teller.tell(header_of(4, 8, schema=OTHERS))

    assert [saved(header_of(0, 4))] == told


def test_part_with_other_columns_than_what_is_done_is_not_told() -> None:
    told: list[SavedStream] = []

    teller_of(told, done=saved(header_of(0, 4))).tell(header_of(4, 8, schema=OTHERS))

    assert [] == told


# While a job runs


class StoppedError(Exception):
    """What a job raises that is stopped."""


class NotedError(Exception):
    """What whoever is told may raise."""


def test_sidecar_is_told_while_the_job_runs_and_the_last_at_its_end(location: StateLocation) -> None:
    told: list[PartHeader] = []
    is_told = threading.Event()

    def tell(header: PartHeader) -> None:
        told.append(header)
        is_told.set()

    with SidecarWatch(location, FOLDER, tell, stop=lambda: None):
        write_sidecar(location, FOLDER, header_of(0, 4))
        assert is_told.wait(DEADLINE_SECONDS)
        assert [header_of(0, 4)] == told
        write_sidecar(location, FOLDER, header_of(4, 8))

    assert [header_of(0, 4), header_of(4, 8)] == told
    assert () == location.list_files(FOLDER)


def test_error_of_who_is_told_stops_the_job_and_is_raised_in_its_place(location: StateLocation) -> None:
    error, is_stopped = NotedError("no more"), threading.Event()

    def tell(_header: PartHeader) -> None:
        raise error

    def run() -> None:
        with SidecarWatch(location, FOLDER, tell, stop=is_stopped.set):
            write_sidecar(location, FOLDER, header_of(0, 4))
            is_stopped.wait(DEADLINE_SECONDS)  # what is stopped raises
            raise StoppedError

    with pytest.raises(NotedError) as caught:
        run()
    assert error is caught.value
    assert is_stopped.is_set()


def test_error_of_who_is_told_when_the_job_has_ended_stops_no_other(location: StateLocation) -> None:
    is_asked, stopped = threading.Event(), []

    def tell(_header: PartHeader) -> None:
        is_asked.set()
        watch._has_ended.wait(DEADLINE_SECONDS)
        raise NotedError

    def run() -> None:
        with watch:
            write_sidecar(location, FOLDER, header_of(0, 4))
            is_asked.wait(DEADLINE_SECONDS)

    watch = SidecarWatch(location, FOLDER, tell, stop=lambda: stopped.append("the next job"))
    with pytest.raises(NotedError):
        run()
    assert [] == stopped


def test_error_of_who_is_told_at_the_end_is_raised(location: StateLocation) -> None:
    def tell(_header: PartHeader) -> None:
        raise NotedError

    with pytest.raises(NotedError), SidecarWatch(location, FOLDER, tell, stop=lambda: None):
        write_sidecar(location, FOLDER, header_of(0, 4))


def test_what_a_failed_job_left_is_told(location: StateLocation) -> None:
    told: list[PartHeader] = []

    def run() -> None:
        with SidecarWatch(location, FOLDER, told.append, stop=lambda: None):
            write_sidecar(location, FOLDER, header_of(0, 4))
            raise StoppedError

    with pytest.raises(StoppedError):
        run()
    assert [header_of(0, 4)] == told


def test_what_was_written_is_told_of_also_where_a_signal_comes_meanwhile(location: StateLocation) -> None:
    told: list[PartHeader] = []
    is_heard = threading.Event()

    def hear(*_: object) -> None:
        is_heard.set()
        end_in_order()

    def tell(header: PartHeader) -> None:
        if not told:
            assert watch._has_ended.wait(DEADLINE_SECONDS)  # from now on whoever runs the job waits for the last look
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            assert is_heard.wait(DEADLINE_SECONDS)
        told.append(header)

    def run() -> list[PartHeader]:
        try:
            with watch:
                write_sidecar(location, FOLDER, header_of(0, 4))
                write_sidecar(location, FOLDER, header_of(4, 8))
        except ToldToEnd:
            return list(told)
        pytest.fail("no signal came")

    watch = SidecarWatch(location, FOLDER, tell, stop=lambda: pytest.fail("stopped"))
    before = signal.signal(signal.SIGTERM, hear)
    try:
        told_by_then = run()
    finally:
        signal.signal(signal.SIGTERM, before)

    assert [header_of(0, 4), header_of(4, 8)] == told_by_then


def test_folder_that_cannot_be_listed_does_not_stop_the_job() -> None:
    locked = StateLocation(f"{locked_store.LockedFileSystem.protocol[0]}://bucket/run")
    told: list[PartHeader] = []

    with SidecarWatch(locked, FOLDER, told.append, stop=lambda: pytest.fail("stopped")):
        pass

    assert [] == told
