"""What becomes of a checkpoint, and of the epochs that it covers (I6, I7, I8)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_CHECKPOINT = "protocol/checkpoint.py"

CHECKPOINTS = (
    Mutant(
        name="decision never binds",
        rule="I6",
        file=_CHECKPOINT,
        old="terminated_by = covered.decision.terminated_by if covered.decision is not None else None",
        new="terminated_by = None",
    ),
    Mutant(
        name="epochs do not become durable",
        rule="I6",
        file=_CHECKPOINT,
        old="    commands.append(MakeEpochsDurable(through=completed.epoch))\n",
        new="",
    ),
    Mutant(
        name="protocol forgets which epoch is durable",
        rule="I6",
        file=_CHECKPOINT,
        old="            last_durable_epoch=completed.epoch,\n",
        new="",
    ),
    Mutant(
        name="durable epoch stays among those that are not",
        rule="I6",
        file=_CHECKPOINT,
        old="if epoch.epoch > completed.epoch),",
        new="if epoch.epoch >= completed.epoch),",
    ),
    Mutant(
        name="checkpoint of an epoch that is not aligned",
        rule="I6",
        file=_CHECKPOINT,
        old="if epoch is None or epoch.status is not EpochStatus.ALIGNED or epoch.decision is None:",
        new="if epoch is None:",
    ),
    Mutant(
        name="trigger that is repeated begins another checkpoint",
        rule="I7",
        file=_CHECKPOINT,
        old="    if 0 <= event.epoch <= covered:\n        return state, ()\n",
        new="    if 0 <= event.epoch <= state.last_durable_epoch:\n        return state, ()\n",
    ),
    Mutant(
        name="checkpoint ids are used again after an abort",
        rule="I7",
        file=_CHECKPOINT,
        old="checkpoint_id=state.last_checkpoint_id + 1,",
        new="checkpoint_id=(state.completed.checkpoint_id if state.completed else 0) + 1,",
        in_short=True,
    ),
    Mutant(
        name="checkpoint completes without every acknowledgement",
        rule="I8",
        file=_CHECKPOINT,
        old="if any(reports.reported != reports.expected for reports in participants):",
        new="if any(reports.reported > reports.expected for reports in participants):",
    ),
    Mutant(
        name="checkpoint completes without a manifest",
        rule="I8",
        file=_CHECKPOINT,
        old="    if event.manifest_path is None or event.manifest_sha256 is None:\n"
        "        return state, tuple(commands)\n",
        new="    if not all(reports.reported == reports.expected for reports in participants):\n"
        "        return state, tuple(commands)\n",
    ),
    Mutant(
        name="half a manifest is enough",
        rule="I8",
        file=_CHECKPOINT,
        old="if (event.manifest_path is None) != (event.manifest_sha256 is None):",
        new="if event.manifest_path is None and event.manifest_sha256 is not None and not state.pending:",
    ),
    Mutant(
        name="completed checkpoint takes another manifest",
        rule="I8",
        file=_CHECKPOINT,
        old="if known.manifest_sha256 != event.manifest_sha256:",
        new="if known.manifest_sha256 is None:",
    ),
    Mutant(
        name="acknowledgements of an ended checkpoint are an error",
        rule="I8",
        file=_CHECKPOINT,
        old="    if checkpoint is None:\n        return state, ()\n    batch",
        new="    if checkpoint is None:\n        raise ProtocolViolationError('late')\n    batch",
    ),
    Mutant(
        name="older checkpoint is not subsumed",
        rule="I8",
        file=_CHECKPOINT,
        old="        commands.insert(0, SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))\n",
        new="        pass\n",
    ),
    Mutant(
        name="older checkpoint is subsumed after the newer one completes",
        rule="I8",
        file=_CHECKPOINT,
        old="commands.insert(0, SubsumeCheckpoint",
        new="commands.append(SubsumeCheckpoint",
    ),
)
