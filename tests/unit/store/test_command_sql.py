"""Which statements write a command?"""

from __future__ import annotations

from collections.abc import Mapping

from iteration_lib.protocol import Command
from iteration_lib.protocol.command import (
    AlignEpoch,
    CompleteCheckpoint,
    MakeEpochsDurable,
    MeasureEpoch,
    RecordAcknowledgements,
    VoidEpochs,
)
from iteration_lib.protocol.state import Decision, Reports
from iteration_lib.store import command_sql
from tests.protocol_script import DIGEST, MANIFEST, NOW

MEASURED = MeasureEpoch(epoch=3, metrics={"loss": 0.5}, seconds=0.25)
ALIGNED = AlignEpoch(epoch=3, decision=Decision(records={"centroids": 3}, terminated_by=None))
DECISION = '{"records": {"centroids": 3}, "terminated_by": null}'


def written(*commands: Command) -> list[tuple[str, Mapping[str, object], str]]:
    """Return the named queries that write commands, with their parameters and how many rows each touches."""
    calls: list[tuple[str, Mapping[str, object], str]] = []
    command_sql.write_commands(commands, lambda *call: calls.append(call))
    return calls


def test_epoch_that_is_measured_and_aligned_at_once_is_one_update() -> None:
    together = {"epoch": 3, "decision": DECISION, "metrics": '{"loss": 0.5}', "seconds": 0.25}

    assert [("align_epoch", together, "[1,1]")] == written(MEASURED, ALIGNED)


def test_epoch_that_was_held_keeps_what_it_measured() -> None:
    alone = {"epoch": 3, "decision": DECISION, "metrics": None, "seconds": None}

    assert [("align_epoch", alone, "[1,1]")] == written(ALIGNED)
    assert ["measure_epoch"] == [name for name, _, _ in written(MEASURED)]
    assert ["align_epoch", "measure_epoch"] == [name for name, _, _ in written(ALIGNED, MEASURED)]


def test_commands_are_written_in_their_order() -> None:
    acknowledged = RecordAcknowledgements(checkpoint_id=2, participants=(Reports(name="centroids", values=(1,)),))
    completed = CompleteCheckpoint(
        checkpoint_id=2, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=64, completed_at=NOW
    )

    names = [
        name
        for name, _, _ in written(
            acknowledged, completed, MakeEpochsDurable(through=2), MEASURED, ALIGNED, MEASURED, VoidEpochs(after=2)
        )
    ]

    assert [
        "record_acknowledgements",
        "complete_checkpoint",
        "make_epochs_durable",
        "advance_run",
        "align_epoch",
        "measure_epoch",
        "void_epochs",
    ] == names


def test_write_says_how_many_rows_it_touches() -> None:
    assert [("make_epochs_durable", {"through": 2}, "[1,)"), ("advance_run", {"through": 2}, "[1,1]")] == written(
        MakeEpochsDurable(through=2)
    )
