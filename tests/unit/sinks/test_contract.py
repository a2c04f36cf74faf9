"""Does the suite for sinks find a sink that breaks a promise, and by which check?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.errors import StateCorruptedError
from iteration_lib.sinks import Publication, SinkTransaction
from iteration_lib.sinks.contract import Row, SinkContract
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from tests import json_lines_sink
from tests.json_lines_sink import JsonLinesSink, read_lines


class ShowsWhatIsPrepared(JsonLinesSink):
    def prepared(self, transaction: SinkTransaction) -> Path:
        return self.folder / f"{transaction.transaction_id}.jsonl"


class CommitsLineByLine(JsonLinesSink):
    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        with (self.folder / str(committable["name"])).open("w") as shown:
            for line in self.prepared(transaction).read_text().splitlines(keepends=True):
                shown.write(line)
                shown.flush()


class CommitsTwice(JsonLinesSink):
    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        with (self.folder / str(committable["name"])).open("a") as shown:
            shown.write(self.prepared(transaction).read_text())


class CommitsIntoOneFile(JsonLinesSink):
    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        return {**super().prepare(transaction, publication), "name": "all.jsonl"}


class CannotCommitAgain(JsonLinesSink):
    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        self.prepared(transaction).rename(self.folder / str(committable["name"]))


class ShowsTheNewestLast(JsonLinesSink):
    """Names a file by how many there are, so that readers find them in the order of commits."""

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        for shown in self.folder.glob(f"*-{committable['name']}"):
            shown.rename(self.prepared(transaction))
        count = len(list(self.folder.glob("*.jsonl")))
        self.prepared(transaction).rename(self.folder / f"{count}-{committable['name']}")


class PreparesOnlyOnce(JsonLinesSink):
    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepared(transaction).touch(exist_ok=False)
        return super().prepare(transaction, publication)


class ClearsBeforeItPrepares(JsonLinesSink):
    """Takes away what the same transaction may have left, the published file too."""

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        for left in self.folder.glob(f"{transaction.transaction_id}.jsonl"):
            left.unlink()
        committable = super().prepare(transaction, publication)
        self.commit(transaction, committable)
        return committable


class SharesWhatIsPrepared(JsonLinesSink):
    def prepared(self, transaction: SinkTransaction) -> Path:
        return self.folder / f"{transaction.run_key}-{transaction.epoch}.prepared"


class TakesOutputsForOne(JsonLinesSink):
    """Tells runs, epochs and attempts apart, as a name of one's own making may."""

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        return super().prepare(replace(transaction, output="any"), publication)

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        super().commit(replace(transaction, output="any"), committable)

    def abort(self, transaction: SinkTransaction) -> None:
        super().abort(replace(transaction, output="any"))


class TrustsItsFiles(JsonLinesSink):
    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        try:
            return super().prepare(transaction, publication)
        except StateCorruptedError:
            return {"name": "trusted.jsonl"}


class AbortsOnlyWhatIsThere(JsonLinesSink):
    def abort(self, transaction: SinkTransaction) -> None:
        self.prepared(transaction).unlink()


class AbortsTheWholeAttempt(JsonLinesSink):
    """Drops what the attempt has prepared of every epoch."""

    def abort(self, transaction: SinkTransaction) -> None:
        for epoch in range(10):
            super().abort(replace(transaction, epoch=epoch))


class AbortsInEveryRun(JsonLinesSink):
    """Drops what any run has prepared of the epoch."""

    def abort(self, transaction: SinkTransaction) -> None:
        for prepared in self.folder.glob(self.prepared(replace(transaction, run_id="*")).name):
            prepared.unlink(missing_ok=True)


class CannotPrepareNothing(JsonLinesSink):
    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        next(publication.batches())
        return super().prepare(transaction, publication)


class RemembersInTheProcess(JsonLinesSink):
    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        return {**super().prepare(transaction, publication), "path": self.folder}


class ForgetsTheEpoch(JsonLinesSink):
    """Which goes well while each epoch is committed before the next one is prepared."""

    def prepared(self, transaction: SinkTransaction) -> Path:
        return self.folder / f"{transaction.run_id}-{transaction.output}-{transaction.fencing_token}.prepared"


class ReadsTheFilesLater(JsonLinesSink):
    """Remembers in `prepare` where the run's files are, and copies them in `commit`."""

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        super().prepare(transaction, publication)
        found = {"uri": publication.location.uri, "stream": publication.stream.to_json()}
        return {"name": f"{transaction.transaction_id}.jsonl", **found}

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, Any]) -> None:
        location, stream = StateLocation(committable["uri"]), SavedStream.from_json(committable["stream"])
        super().prepare(transaction, Publication(location=location, stream=stream))
        super().commit(transaction, committable)


class KnowsRunsByTheirKeys(JsonLinesSink):
    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        super().prepare(transaction, publication)
        return {"name": f"{transaction.run_key}-{transaction.epoch}-{transaction.output}.jsonl"}


class PreparesByTheRunsKey(JsonLinesSink):
    """Shows the rows of each run by itself, but a late commit of one takes what another one has prepared."""

    def prepared(self, transaction: SinkTransaction) -> Path:
        whole = f"{transaction.run_key}-{transaction.epoch}-{transaction.output}-{transaction.fencing_token}"
        return self.folder / f"{whole}.prepared"


class TalksTooMuch(JsonLinesSink):
    def describe(self) -> str:
        return "a folder\nof files"


class IsCalledLikeEveryOther(JsonLinesSink):
    def describe(self) -> str:
        return "the JSON lines"


class IsCalledAnewEachTime(JsonLinesSink):
    def describe(self) -> str:
        return f"{super().describe()} {id(self)}"


class IsKnownByItsClass(JsonLinesSink):
    describe = None  # type: ignore[assignment]  # as a sink without the method


class Suite(SinkContract):
    modules = (json_lines_sink,)

    def __init__(self, sink_type: type[JsonLinesSink], folder: Path) -> None:
        self._sink_type = sink_type
        self._folder = folder

    def sink(self, target: str) -> JsonLinesSink:
        return self._sink_type(self._folder / target)

    def read(self, target: str) -> Sequence[Row]:
        return read_lines(self._folder / target)

    def failed(self) -> set[str]:
        checks = [name.removeprefix("test_") for name in dir(self) if name.startswith("test_")]
        return {check for check in checks if not self.passes(check)}

    def passes(self, check: str) -> bool:
        run = getattr(self, f"test_{check}")  # a check that is not there is no check that fails
        try:
            run()
        except Exception:  # noqa: BLE001 - as pytest does
            return False
        return True


@pytest.mark.parametrize(
    ("sink_type", "check"),
    [
        (ShowsWhatIsPrepared, "prepared_rows_are_not_seen"),
        (CommitsLineByLine, "reader_never_sees_half_of_an_epoch"),
        (CommitsTwice, "commit_may_be_repeated"),
        (CommitsIntoOneFile, "committed_rows_are_seen_epoch_by_epoch"),
        (CannotCommitAgain, "commits_at_the_same_time_show_rows_once"),
        (ShowsTheNewestLast, "commit_of_an_older_epoch_that_is_repeated_late_changes_nothing"),
        (PreparesOnlyOnce, "prepare_may_be_repeated"),
        (PreparesOnlyOnce, "prepares_at_the_same_time_are_one"),
        (ClearsBeforeItPrepares, "prepare_that_is_repeated_after_the_commit_changes_nothing"),
        (SharesWhatIsPrepared, "aborted_transaction_is_never_seen_and_takes_nothing_along"),
        (SharesWhatIsPrepared, "superseded_attempt_that_prepares_late_is_never_seen"),
        (TakesOutputsForOne, "outputs_of_an_epoch_are_all_seen"),
        (TakesOutputsForOne, "outputs_at_the_same_time_do_not_disturb_each_other"),
        (TakesOutputsForOne, "abort_takes_nothing_of_another_output_epoch_or_run_along"),
        (TrustsItsFiles, "rows_that_are_not_what_was_written_are_not_published"),
        (AbortsOnlyWhatIsThere, "abort_may_be_repeated_and_finds_nothing_to_drop"),
        (AbortsTheWholeAttempt, "abort_takes_nothing_of_another_output_epoch_or_run_along"),
        (AbortsInEveryRun, "abort_takes_nothing_of_another_output_epoch_or_run_along"),
        (CannotPrepareNothing, "no_rows_are_published_as_none"),
        (RemembersInTheProcess, "commit_may_be_repeated"),
        (ForgetsTheEpoch, "epochs_of_one_checkpoint_are_prepared_before_the_first_is_committed"),
        (ReadsTheFilesLater, "committed_rows_are_seen_epoch_by_epoch"),
        (KnowsRunsByTheirKeys, "run_that_has_the_key_of_a_deleted_one_is_another"),
        (PreparesByTheRunsKey, "run_that_has_the_key_of_a_deleted_one_is_another"),
        (IsCalledLikeEveryOther, "description_is_the_targets_own"),
        (IsCalledAnewEachTime, "description_is_the_targets_own"),
        (TalksTooMuch, "sink_describes_itself_in_one_line_and_can_be_used"),
    ],
)
def test_sink_that_breaks_a_promise_is_found(tmp_path: Path, sink_type: type[JsonLinesSink], check: str) -> None:
    assert not Suite(sink_type, tmp_path).passes(check)


@pytest.mark.parametrize("sink_type", [JsonLinesSink, IsKnownByItsClass])
def test_sink_that_keeps_them_passes(tmp_path: Path, sink_type: type[JsonLinesSink]) -> None:
    assert set() == Suite(sink_type, tmp_path).failed()


def test_sink_of_which_no_line_is_seen_is_not_taken_for_one_that_passes(tmp_path: Path) -> None:
    """Its lines are elsewhere: the checks that crash it, or look between its lines, would check nothing."""
    suite = Suite(JsonLinesSink, tmp_path)
    suite._files = lambda sink: frozenset()  # type: ignore[method-assign]  # noqa: ARG005

    assert suite.failed() == {
        "crash_at_any_line_of_abort_is_no_hindrance_to_another_one",
        "crash_at_any_line_of_commit_shows_all_or_nothing",
        "crash_at_any_line_of_prepare_is_aborted",
        "crash_at_any_line_of_prepare_is_no_hindrance_to_another_one",
        "reader_never_sees_half_of_an_epoch",
    }
