"""What becomes of a run whose sink fails, hangs, or is gone? A sink of the user's own, on a real store."""

from __future__ import annotations

import dataclasses
import re
import threading
import uuid
from concurrent.futures import wait
from contextlib import AbstractContextManager, closing
from pathlib import Path

import psycopg2
import pytest

from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator, Publish
from iteration_lib.driver.attempt import Attempt, Claim, open_attempt
from iteration_lib.driver.background import Job
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import CheckpointFailedError, SinkTargetError
from iteration_lib.launch import Drive, drive_run
from iteration_lib.model.definition import describe
from iteration_lib.process import this_holder
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import DefinitionChanged, StopRequested
from iteration_lib.protocol.state import AttemptId, RunId
from iteration_lib.protocol.status import CheckpointStatus, RunStatus, StopKind
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import RunRecord
from tests.command_line import CommandLine
from tests.driven_here import DEADLINE_SECONDS, Here, MortalCoordinator, be_told_to_end
from tests.iterations.delivering import EPOCHS, delivering, silent
from tests.json_lines_sink import read_lines
from tests.protocol_script import stop_id
from tests.sink_reader import dsn
from tests.store_script import new_family

pytestmark = pytest.mark.postgres

WHOLE = [{"l": 2.0 + epoch} for epoch in range(EPOCHS)]


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, delivering)


def launch(here: Here, **options: object) -> RunRecord:
    """Drive the run as a process does, from settings."""
    settings = Settings(store_url=None, state_uri=here.run.state_uri)
    open_runner = Engine(kind=EngineKind.LOCAL).open_runner
    drive = Drive(holder=this_holder(), open_runner=open_runner, parallelism=2, takeover=True, **options)
    return drive_run(here.store, settings, dataclasses.replace(here.found, reference=here.run.reference), drive)


def shown(here: Here) -> list[object]:
    """Return the rows that readers see, epoch by epoch."""
    return [*read_lines(here.desk / "shown")]


@pytest.mark.parametrize(
    ("order", "said"),
    [("fail", "RuntimeError: told to fail: prepare 1"), ("garble", r"ValueError: no such file: caf\udce9\0")],
)
def test_error_of_a_users_sink_declines_the_checkpoint_and_the_next_one_publishes_the_epoch(
    here: Here, order: str, said: str
) -> None:
    here.order(order, "prepare 1")

    run = here.drive(script={"epoch_aligned@2": lambda: here.clear(order)}, tolerable_failures=1)

    assert (RunStatus.FINISHED, WHOLE) == (run.status, shown(here))
    declined = [known for known in here.checkpoints if known.status is CheckpointStatus.ABORTED]
    assert [f"the SteeredSink of output 'levels' failed in prepare ({said})"] == [
        known.reason.split(";")[0] for known in declined
    ]


def test_error_of_a_users_sink_in_commit_ends_the_attempt_and_names_it(here: Here) -> None:
    here.order("fail", "commit 1")

    failure = here.drive_and_fail()

    assert isinstance(failure, SinkTargetError)
    said = "the SteeredSink of output 'levels' failed in commit (RuntimeError: told to fail: commit 1)"
    assert str(failure).startswith(said)
    assert str(failure) == here.found.failure
    here.clear("fail")
    assert (RunStatus.FINISHED, WHOLE) == (here.drive().status, shown(here))


def test_committable_that_no_store_keeps_declines_the_checkpoint_and_names_the_sink(here: Here) -> None:
    here.order("forget", "prepare 0")

    failure = here.drive_and_fail()

    said = "the SteeredSink of output 'levels' failed in prepare (TypeError: Object of type set is not JSON"
    assert str(failure).startswith(said)
    assert [CheckpointStatus.ABORTED] == [known.status for known in here.checkpoints]


def test_commit_that_ends_while_the_driver_looks_is_no_late_one(here: Here) -> None:
    """What the driver saw was not committed, and the job that commits it has ended when the driver goes on."""
    is_seen, jobs = threading.Event(), list[Job]()

    class Slow(MortalCoordinator):
        """Answers a look, at a run whose last outputs are being committed, when they are."""

        def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
            state = super().apply(run_id, *events, publish=publish)
            if not events and state.uncommitted and state.last_durable_epoch == EPOCHS - 1:
                is_seen.set()
                wait(jobs, timeout=DEADLINE_SECONDS)
            return state

    def commit_once_it_is_seen() -> None:
        assert is_seen.wait(DEADLINE_SECONDS), "the driver does not look"

    script = {f"checkpoint_completed@{EPOCHS - 1}": commit_once_it_is_seen}
    run = here.drive(script=script, coordinator_class=Slow, jobs=jobs)

    assert (RunStatus.FINISHED, WHOLE) == (run.status, shown(here))


def test_own_copy_of_what_was_prepared_may_stay_where_it_cannot_be_removed(here: Here) -> None:
    """What is prepared is safe at the target: no checkpoint is declined for a clean-up."""
    run = here.drive(script={"sink_prepared@1": lambda: lead_out(here, epoch=1)})

    assert (RunStatus.FINISHED, WHOLE) == (run.status, shown(here))
    assert [] == [known.reason for known in here.checkpoints if known.status is CheckpointStatus.ABORTED]


def lead_out(here: Here, *, epoch: int) -> None:
    """Put a link in place of what was written of an epoch, which nothing follows: it leads out of the run's folder."""
    (written,) = (here.folder / "outputs" / "levels").glob(f"*-epoch-{epoch:06d}")
    written.symlink_to(written.rename(here.desk / "elsewhere"))


def test_function_that_cannot_make_its_sink_supersedes_nobody(here: Here) -> None:
    here.order("fail", "make the sink")

    with pytest.raises(SinkTargetError, match="output 'levels' failed in making its sink"):
        launch(here)

    assert () == here.store.list_attempts(here.run.run_id)


def test_run_that_is_to_stop_shows_first_what_it_could_not_commit(here: Here) -> None:
    """Nobody may drive a STOPPED run: what its last attempt did not commit would wait for a person to resume it."""
    here.order("fail", "commit 1")
    assert isinstance(here.drive_and_fail(script={"epoch_written@1": lambda: ask_to_stop(here)}), SinkTargetError)
    here.clear("fail")
    here.log()

    run = here.drive()

    assert (RunStatus.STOPPED, WHOLE[:2]) == (run.status, shown(here))
    assert {"make the sink": 1, "commit 1": 1} == here.log()


def ask_to_stop(here: Here) -> None:
    event = StopRequested(stop_id=stop_id(1, new_family()), kind=StopKind.STOP, requested_by="ann")
    Coordinator(here.store).apply(here.run.run_id, event)


def test_who_stops_or_deletes_a_run_is_told_what_its_sinks_do_not_show(here: Here) -> None:
    """Its attempt was told to end between the checkpoint and the commit."""
    shell, key = CommandLine(store_url=here.store.url, folder=here.desk), here.run.run_key
    here.drive_and_fail(script={"checkpoint_completed@1": be_told_to_end})
    waits = "output 'levels' of epoch 1 is not committed to its sink"

    stopped, asked = shell.call("stop", key), shell.call("delete", key)
    shell.call("delete", key, "--yes")
    explained = shell.call("explain", here.run.run_id, "1")

    assert f"`iteration resume {key}` lets it go on; until then {waits}\n" in stopped.out
    assert f"error: this deletes run '{key}' with its outputs, for ever: {waits}; give --yes to do it\n" == asked.err
    assert "is prepared for the folder shown, and its run was deleted before that was committed" in explained.out


def test_sink_that_is_gone_while_something_waits_for_it_is_missed_whatever_the_definition_says_by_now(
    here: Here,
) -> None:
    """An attempt that went on without it was told to end before it committed: no task may pass for done by that."""
    here.drive_and_fail(until_epoch=2, script={"checkpoint_completed@1": be_told_to_end})
    with attempt_of(here) as attempt:
        definition = describe(silent.graph())
        attempt.apply(DefinitionChanged(**attempt.guard, definition=definition, changes=("no sink",), dropped=()))
    here = dataclasses.replace(
        here, run=dataclasses.replace(here.found, reference="tests.iterations.delivering:silent")
    )

    with pytest.raises(SinkTargetError, match="waits for output 'levels' of epoch 1, which goes to no sink"):
        launch(here, until_epoch=2)


def attempt_of(here: Here) -> AbstractContextManager[Attempt]:
    """Open an attempt that does what the test wants."""
    claim = Claim(attempt_id=AttemptId(str(uuid.uuid4())), holder=this_holder())
    return open_attempt(here.store, Coordinator(here.store), here.run.run_id, claim)


def test_output_that_can_never_be_committed_is_given_up_as_the_docs_say(here: Here) -> None:
    """Its target is gone, say. The error says that there is a way out, and nothing claims that it was committed."""
    here.order("fail", "commit 1")
    failure = here.drive_and_fail()
    page = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()
    (statement,) = re.findall(r"^DELETE .*?;$", page, re.MULTILINE | re.DOTALL)

    assert "(or give output 'levels' of epoch 1 up, as docs/sinks.md says), then run the same command" in str(failure)
    execute(here.store, statement.replace("RUN_ID", here.run.run_id).replace("OUTPUT", "levels").replace("EPOCH", "1"))

    assert (RunStatus.FINISHED, [WHOLE[0], *WHOLE[2:]]) == (here.drive().status, shown(here))
    assert [0, 2, 3] == [known.epoch for known in here.store.list_committables(here.run.run_id)]


def execute(store: PostgresStore, statement: str) -> None:
    with closing(psycopg2.connect(dsn(store.url))) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)
        assert cursor.rowcount == 1


def test_attempt_that_begins_with_a_commit_that_hangs_ends_when_the_checkpoints_time_is_over(here: Here) -> None:
    here.drive_and_fail(until_epoch=2, script={"checkpoint_completed@1": be_told_to_end})
    here.order("hold", "commit 1")

    failure = here.drive_and_fail(timeout_seconds=5)

    assert isinstance(failure, CheckpointFailedError)
    told = "what its sinks had to be told first was not committed within 5 seconds; mend the cause and resume the run"
    assert f"run {here.run.run_id}: {told}" == str(failure)
    here.clear("hold")
    assert (RunStatus.FINISHED, WHOLE) == (here.drive().status, shown(here))


def test_run_whose_last_commit_hangs_says_that_its_outputs_are_missing_and_nothing_else(here: Here) -> None:
    here.order("hold", "commit 3")

    failure = here.drive_and_fail(timeout_seconds=5)

    problem = "epoch 3 is durable, and its outputs were not committed within 5 seconds"
    assert f"run {here.run.run_id}: {problem}; mend the cause and resume the run" == str(failure)
    here.clear("hold")
    assert (RunStatus.FINISHED, WHOLE) == (here.drive().status, shown(here))
