"""Which statements write a command?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from iteration_lib.protocol import Command
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AlignEpoch,
    CompleteCheckpoint,
    MakeEpochsDurable,
    RecordAcknowledgements,
    RecordReports,
    SubsumeCheckpoint,
    TriggerCheckpoint,
    VoidEpochs,
)
from iteration_lib.protocol.state import Decision, Reports
from iteration_lib.protocol.status import CheckpointFailure, CheckpointKind
from iteration_lib.store import command_sql
from tests.protocol_script import DIGEST, MANIFEST, NOW

HEADS = (Reports(name="centroids", values=(1, 2)),)
REPORTED = RecordReports(epoch=3, heads=HEADS, metrics={"loss": 0.5}, seconds=0.25)
MEASURED = {"epoch": 3, "records": '{"centroids": [1, 2]}', "metrics": '{"loss": 0.5}', "seconds": 0.25}
ALIGNED = AlignEpoch(epoch=3, decision=Decision(records={"centroids": 3}, terminated_by=None))
DECISION = '{"records": {"centroids": 3}, "terminated_by": null}'


def written(*commands: Command) -> list[tuple[str, Mapping[str, object], str]]:
    """Return the named queries that write commands, with their parameters and how many rows each touches."""
    calls: list[tuple[str, Mapping[str, object], str]] = []
    command_sql.write_commands(commands, lambda *call: calls.append(call))
    return calls


def test_epoch_whose_last_report_aligns_it_is_one_update() -> None:
    together = {**MEASURED, "decision": DECISION}

    assert [("measure_and_align_epoch", together, "[1,1]")] == written(REPORTED, ALIGNED)


def test_epoch_that_is_held_is_measured_and_aligns_later() -> None:
    assert [("measure_epoch", MEASURED, "[1,1]")] == written(REPORTED)
    assert [("align_epoch", {"epoch": 3, "decision": DECISION}, "[1,1]")] == written(ALIGNED)
    assert ["align_epoch", "measure_epoch"] == [name for name, _, _ in written(ALIGNED, REPORTED)]


def test_epoch_that_lacks_a_report_is_not_measured() -> None:
    partly = RecordReports(epoch=3, heads=(Reports(name="centroids", values=(1, None)),))

    assert [("record_reports", {"epoch": 3, "records": '{"centroids": [1, null]}'}, "[1,1]")] == written(partly)


def test_commands_are_written_in_their_order_and_what_completes_a_checkpoint_is_one_update() -> None:
    acknowledged = RecordAcknowledgements(checkpoint_id=2, participants=(Reports(name="centroids", values=(1,)),))
    completed = CompleteCheckpoint(
        checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=64, completed_at=NOW
    )

    names = [
        name
        for name, _, _ in written(
            acknowledged,
            SubsumeCheckpoint(checkpoint_id=1),
            completed,
            SubsumeCheckpoint(checkpoint_id=1),
            acknowledged,
            completed,
            acknowledged,
            completed,
            MakeEpochsDurable(through=2),
            REPORTED,
            ALIGNED,
            REPORTED,
            VoidEpochs(after=2),
            completed,
        )
    ]

    assert [
        "record_acknowledgements",
        "subsume_checkpoint",
        "complete_checkpoint",
        "subsume_and_complete_checkpoint",
        "acknowledge_and_complete_checkpoint",
        "make_epochs_durable",
        "measure_and_align_epoch",
        "measure_epoch",
        "void_epochs",
        "complete_checkpoint",
    ] == names


def test_commands_about_different_things_are_not_written_together() -> None:
    heads = (Reports(name="centroids", values=(1,)),)
    triggered = TriggerCheckpoint(checkpoint_id=5, epoch=4, kind=CheckpointKind.PERIODIC, participants=heads)
    aborted = AbortCheckpoint(checkpoint_id=5, failure=CheckpointFailure.ABORTED_BY_USER, reason="x")
    acknowledged = RecordAcknowledgements(checkpoint_id=5, participants=heads)
    completed = CompleteCheckpoint(
        checkpoint_id=5, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=64, completed_at=NOW
    )
    subsumed = SubsumeCheckpoint(checkpoint_id=4)

    def names(*commands: Command) -> list[str]:
        return [name for name, _, _ in written(*commands)]

    assert ["trigger_aborted_checkpoint"] == names(triggered, aborted)
    assert ["trigger_checkpoint", "abort_checkpoint"] == names(triggered, replace(aborted, checkpoint_id=4))
    assert ["acknowledge_and_complete_checkpoint"] == names(acknowledged, completed)
    assert ["record_acknowledgements", "complete_checkpoint"] == names(
        replace(acknowledged, checkpoint_id=4), completed
    )
    assert ["subsume_and_complete_checkpoint"] == names(subsumed, acknowledged, completed)
    assert ["subsume_checkpoint", "record_acknowledgements", "complete_checkpoint"] == names(
        subsumed, replace(acknowledged, checkpoint_id=4), completed
    )
    assert ["measure_epoch", "align_epoch"] == names(replace(REPORTED, epoch=2), ALIGNED)


def test_write_says_how_many_rows_it_touches() -> None:
    assert [("make_epochs_durable", {"through": 2}, "[1,1]")] == written(MakeEpochsDurable(through=2))
    assert [("void_epochs", {"after": 2}, "[1,)")] == written(VoidEpochs(after=2))
