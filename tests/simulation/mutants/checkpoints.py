"""What becomes of a checkpoint, and of the epochs that it covers (I6, I7, I8)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_CHECKPOINT = "protocol/checkpoint.py"
_HAS_BEGUN = "event.last_checkpoint_id != state.last_checkpoint_id or "

CHECKPOINTS = (
    Mutant(
        name="decision never binds",
        rule="I6",
        file=_CHECKPOINT,
        old="terminated_by = decision.terminated_by if decision is not None else None",
        new="terminated_by = None",
    ),
    Mutant(
        name="epochs do not become durable",
        rule="I6",
        file=_CHECKPOINT,
        old="commands += [*aborted, MakeEpochsDurable(through=completed.epoch), *stored]",
        new="commands += [*aborted, *stored]",
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
        old="if epoch is None or epoch.status is not EpochStatus.ALIGNED:",
        new="if epoch is None:",
    ),
    Mutant(
        name="trigger that is repeated begins another checkpoint",
        rule="I7",
        file=_CHECKPOINT,
        old="    if 0 <= event.epoch <= last_covered(state):\n",
        new="    if 0 <= event.epoch <= state.last_durable_epoch:\n",
        also=((_CHECKPOINT, _HAS_BEGUN, ""),),
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
        old="    if event.manifest_path is None or event.manifest_sha256 is None:\n        acknowledged",
        new="    if not all(reports.reported == reports.expected for reports in participants):\n        acknowledged",
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
        old="        commands.append(SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))\n",
        new="        pass\n",
    ),
    Mutant(
        name="older checkpoint is subsumed after the newer one completes",
        rule="I8",
        file=_CHECKPOINT,
        old="        commands.append(SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))\n"
        "    commands += completing\n",
        new="        commands += completing\n"
        "        commands.append(SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))\n"
        "    else:\n        commands += completing\n",
    ),
    Mutant(
        name="trigger that comes again after an abort begins another checkpoint",
        rule="I7",
        file=_CHECKPOINT,
        old=_HAS_BEGUN,
        new="",
    ),
    Mutant(
        name="trigger that comes after the next epoch is open begins a checkpoint",
        rule="I7",
        file=_CHECKPOINT,
        old=" or state.epochs[-1].epoch > event.epoch",
        new="",
    ),
    Mutant(
        name="checkpoint of an epoch that is held cannot be asked for",
        rule="I14",
        file=_CHECKPOINT,
        old="if epoch is not None and (epoch.is_held or _is_repeated(state, event)):",
        new="if epoch is not None and _is_repeated(state, event):",
    ),
    Mutant(
        name="more checkpoints begin than may be pending",
        rule="I14",
        file=_CHECKPOINT,
        old="    if kind is None or has_failed(state) or len(state.pending) >= state.policy.max_pending:\n",
        new="    if kind is None or has_failed(state):\n",
        equivalent="an epoch only aligns while fewer are pending, and its checkpoint begins before any other could",
    ),
    Mutant(
        name="older checkpoint that completes late takes the place of a newer one",
        rule="I8",
        file=_CHECKPOINT,
        old="is_late = state.completed is not None and state.completed.epoch >= checkpoint.epoch",
        new="is_late = False",
    ),
    Mutant(
        name="older pending checkpoints go on beside a newer one that completed",
        rule="I8",
        file=_CHECKPOINT,
        old="        if known.checkpoint_id < completed.checkpoint_id and known.kind is not CheckpointKind.MANUAL\n",
        new="        if known.checkpoint_id < 0\n",
    ),
    Mutant(
        name="hand-made checkpoint is subsumed before it is complete",
        rule="I8",
        file=_CHECKPOINT,
        old="if known.checkpoint_id < completed.checkpoint_id and known.kind is not CheckpointKind.MANUAL",
        new="if known.checkpoint_id < completed.checkpoint_id",
        in_short=True,
    ),
    Mutant(
        name="newer pending checkpoints are aborted by an older one",
        rule="I8",
        file=_CHECKPOINT,
        old="if known.checkpoint_id < completed.checkpoint_id and known.kind is not CheckpointKind.MANUAL",
        new="if known.checkpoint_id != completed.checkpoint_id and known.kind is not CheckpointKind.MANUAL",
    ),
    Mutant(
        name="success does not end a row of failures",
        rule="I13",
        file=_CHECKPOINT,
        old="    if failures != state.checkpoint_failures:\n",
        new="    if failures > state.checkpoint_failures:\n",
    ),
    Mutant(
        name="declined checkpoint is not counted",
        rule="I13",
        file=_CHECKPOINT,
        old="    state, counted = count_failure(state, checkpoint.kind)\n",
        new="    counted: tuple[Command, ...] = ()\n",
    ),
    Mutant(
        name="attempt declines in a person's name",
        rule="I13",
        file=_CHECKPOINT,
        old="    if not event.failure.is_counted:\n",
        new="    if event.failure is CheckpointFailure.SUBSUMED:\n",
    ),
    Mutant(
        name="checkpoint that was declined twice is an error",
        rule="I8",
        file=_CHECKPOINT,
        old="    if checkpoint is None:\n        return state, ()\n    state, aborted",
        new="    if checkpoint is None:\n        raise ProtocolViolationError('late')\n    state, aborted",
    ),
    Mutant(
        name="requests are not answered",
        rule="requests",
        file=_CHECKPOINT,
        old="        commands += answered\n    state = replace(state, last_checkpoint_id",
        new="    state = replace(state, last_checkpoint_id",
    ),
    Mutant(
        name="protocol forgets that it has answered requests",
        rule="requests",
        file=_CHECKPOINT,
        old="return replace(state, requests=requests), (AnswerRequests",
        new="return state, (AnswerRequests",
    ),
)
