"""The driver's order of effects, and what it hands on from epoch to epoch and from attempt to attempt."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_ATTEMPT = "driver/attempt.py"
_BOUNDARY = "driver/boundary.py"
_DRIVE = "driver/drive.py"
_EPOCH = "driver/epoch.py"
_STREAMS = "driver/streams.py"
_MANIFEST = "driver/checkpoint.py"

DRIVERS = (
    Mutant(
        name="finished operator runs again after a takeover",
        rule="I11",
        file=_STREAMS,
        old="        saved = self.finished.get(operator.name)\n",
        new="        saved = self.finished.get(operator.name) if operator.name in self._kept else None\n",
        in_short=True,
    ),
    Mutant(
        name="operator that finished for good is not marked",
        rule="I11",
        file=_STREAMS,
        old="            self._attempt.apply(\n                OperatorFinished(**self._attempt.guard, "
        "operator_id=operator.operator_id, output=written.to_json())\n            )\n",
        new="",
    ),
    Mutant(
        name="attempts share their folders",
        rule="files",
        file=_ATTEMPT,
        old='return f"{fencing_token:06d}-{attempt_id[:8]}"',
        new='return "attempt"',
    ),
    Mutant(
        name="attempts' folders carry no token, only what other attempts' ids may have as well",
        rule="files",
        file=_ATTEMPT,
        old='return f"{fencing_token:06d}-{attempt_id[:8]}"',
        new='return f"{attempt_id[:8]}"',
    ),
    Mutant(
        name="checkpoint is completed before its manifest is written",
        rule="I8",
        file=_MANIFEST,
        old="    sha256 = write_bytes(context.location, path, manifest.to_bytes()).sha256\n",
        new="    import hashlib\n    sha256 = hashlib.sha256(manifest.to_bytes()).hexdigest()\n",
    ),
    Mutant(
        name="variables start from their first values again",
        rule="I6",
        file=_DRIVE,
        old="restore_carried(context, streams, manifest) if manifest is not None else streams.first_values()",
        new="streams.first_values()",
    ),
    Mutant(
        name="resumed run repeats its last durable epoch",
        rule="I6",
        file=_BOUNDARY,
        old="epoch = self.state.last_durable_epoch + 1",
        new="epoch = max(0, self.state.last_durable_epoch)",
    ),
    Mutant(
        name="outputs are not written with the final checkpoint",
        rule="manifest",
        file=_BOUNDARY,
        old="outputs=written if terminates else {},",
        new="outputs={},",
    ),
    Mutant(
        name="next epoch receives the variables of the one before",
        rule="manifest",
        file=_DRIVE,
        old="        carried = result.variables\n",
        new="",
    ),
    Mutant(
        name="restored variables are those of any checkpoint",
        rule="manifest",
        file="store/memory.py",
        old="if known.status is CheckpointStatus.COMPLETED]",
        new="if known.manifest_path is not None]",
    ),
    Mutant(
        name="attempt goes on after an error without ending",
        rule="errors",
        file=_ATTEMPT,
        old="            _end_after(attempt, err)\n        raise\n",
        new="            _end_after(attempt, err)\n",
    ),
    Mutant(
        name="end of the attempt by a takeover is reported as a lost execution",
        rule="errors",
        file=_ATTEMPT,
        old="        if heartbeat.is_superseded:\n",
        new="        if False:\n",
        also=((_ATTEMPT, "    if is_lost and not is_interrupt:\n", "    if False:\n"),),
    ),
    Mutant(
        name="superseded attempt tries to end itself",
        rule="I2",
        file=_ATTEMPT,
        old="    except SupersededError:\n        raise\n",
        new="",
        equivalent="its token is refused, and the first error is raised all the same",
    ),
    Mutant(
        name="data is pinned again by every attempt",
        rule="pins",
        file=_STREAMS,
        old="        pinned = self._pins.get(operator.operator_id)\n",
        new="        pinned: PinnedData | None = None\n",
    ),
    Mutant(
        name="records of partitions are counted for the wrong subtask",
        rule="I4",
        file=_EPOCH,
        old="reports[partition * over // len(records)] += count",
        new="reports[partition * over // (len(records) + 1)] += count",
    ),
    Mutant(
        name="outputs of all attempts lie in one folder",
        rule="files",
        file="driver/publish.py",
        old='folder = f"outputs/{output}/{context.attempt.folder}-epoch-{epoch:06d}"',
        new='folder = f"outputs/{output}/epoch-{epoch:06d}"',
    ),
    Mutant(
        name="attempt runs one epoch more than it was asked for",
        rule="runs",
        file=_BOUNDARY,
        old="return self._until_epoch is not None and epoch + 1 >= self._until_epoch",
        new="return self._until_epoch is not None and epoch >= self._until_epoch",
    ),
    Mutant(
        name="observer hears of a durable epoch before it is",
        rule="I6",
        file=_BOUNDARY,
        old="        _log_aligned(self.state, self._aligned(epoch))\n",
        new="        self._context.observer.epoch_durable(epoch, metrics=result.metrics, seconds=result.seconds)\n",
    ),
    Mutant(
        name="manifest forgets what finished for good before this attempt",
        rule="manifest",
        file=_STREAMS,
        old="            if operator.output is not None\n",
        new="            if operator.output is not None and not self._pins\n",
    ),
    Mutant(
        name="operator's result is computed again where it is needed twice",
        rule="runs",
        file=_EPOCH,
        old="        if name in self._results:\n            return self._results[name]\n",
        new="        if name in self._results:\n            return self._compute(self._context.graph.operator(name))\n",
    ),
)
