"""What goes on beside the epochs: uploads and listeners; and what is carried from epoch to epoch (I8, I16)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_BOUNDARY = "driver/boundary.py"
_DRIVE = "driver/drive.py"
_FINISHED = "protocol/finished.py"
_LISTENER = "driver/listener.py"
_PUBLISH = "driver/publish.py"
_RESTORE = "driver/restore.py"
_STREAMS = "driver/streams.py"
_SWEEP = "driver/sweep.py"
_UPLOAD = "driver/upload.py"
_RELEASED = "            self.state = self._attempt.apply(*follow)\n            self._uploads.check(self.state)\n"

BESIDES = (
    Mutant(
        name="checkpoint that cannot be written ends the attempt",
        rule="I13",
        file=_UPLOAD,
        old="            self._failure = err\n            return self._decline(snapshot, err)\n",
        new="            raise\n",
    ),
    Mutant(
        name="failures of checkpoints are not looked at",
        rule="I13",
        file=_UPLOAD,
        old="        if has_failed(state):\n",
        new="        if state.checkpoint_failures < 0:\n",
    ),
    Mutant(
        name="errors beside the epochs go unheard",
        rule="errors",
        file=_UPLOAD,
        old="            upload.job.result()\n",
        new="            upload.job.exception()\n",
    ),
    Mutant(
        name="checkpoint that hangs does not expire",
        rule="expiry",
        file=_UPLOAD,
        old="late = [upload for upload in writing if self._is_late(self._since(upload))]",
        new="late = [upload for upload in writing if upload.started_seconds < 0]",
    ),
    Mutant(
        name="checkpoint expires before its time",
        rule="expiry",
        file=_UPLOAD,
        old="late = [upload for upload in writing if self._is_late(self._since(upload))]",
        new="late = list(writing)",
    ),
    Mutant(
        name="expired checkpoint is declined by nobody's fault",
        rule="I13",
        file=_UPLOAD,
        old="            failure=CheckpointFailure.EXPIRED,\n",
        new="            failure=CheckpointFailure.SUBSUMED,\n",
    ),
    Mutant(
        name="attempt does not wait for its last checkpoint",
        rule="I6",
        file=_UPLOAD,
        old="        while state.pending or (state.uncommitted and self._uploads):\n",
        new="        while state.pending and state.epochs and state.epochs[-1].decision is None:\n",
    ),
    Mutant(
        name="waiting attempt does not see that it is superseded",
        rule="errors",
        file="driver/attempt.py",
        old="        if live is None or live.fencing_token != self.fencing_token:\n            current",
        new="        if live is not None and live.fencing_token < 0:\n            current",
    ),
    Mutant(
        name="snapshot is written for whichever checkpoint is pending",
        rule="manifest",
        file=_BOUNDARY,
        old="next((known for known in self.state.pending if known.epoch == epoch), None)",
        new="next((known for known in self.state.pending), None)",
    ),
    Mutant(
        name="checkpoint that is pending is not written",
        rule="liveness",
        file=_BOUNDARY,
        old="        if pending is not None:\n",
        new="        if pending is not None and pending.kind.value == 'PERIODIC':\n",
    ),
    Mutant(
        name="failure between the release and the next epoch goes unseen",
        rule="I13",
        file=_BOUNDARY,
        old=_RELEASED,
        new="            self.state = self._attempt.apply(*follow)\n",
    ),
    Mutant(
        name="nothing follows an alignment that was held",
        rule="I14",
        file=_BOUNDARY,
        old=_RELEASED,
        new="",
    ),
    Mutant(
        name="driver does not say which epoch is its last",
        rule="pace",
        file=_BOUNDARY,
        old="            is_last=is_last,\n",
        new="",
    ),
    Mutant(
        name="driver does not say which checkpoint it knows of",
        rule="I7",
        file=_BOUNDARY,
        old="            last_checkpoint_id=self._last_checkpoint_id,\n",
        new="",
    ),
    Mutant(
        name="driver does not learn which checkpoints have begun",
        rule="I7",
        file=_BOUNDARY,
        old="        self._last_checkpoint_id = self.state.last_checkpoint_id\n",
        new="",
    ),
    Mutant(
        name="attempt opens an epoch that it will not run",
        rule="runs",
        file=_BOUNDARY,
        old="return [triggered] if is_last else [triggered, self._opened(epoch + 1, if_ready=True)]",
        new="return [triggered, self._opened(epoch + 1, if_ready=True)]",
    ),
    Mutant(
        name="scratch of an epoch is left",
        rule="files",
        file=_DRIVE,
        old="        runner.drop_scratch()  #",
        new="        pass  #",
    ),
    Mutant(
        name="sweep removes whole attempts",
        rule="files",
        file=_SWEEP,
        old='/{name}"\n',
        new='"\n',
    ),
    Mutant(
        name="carried states begin anew with every attempt",
        rule="manifest",
        file=_RESTORE,
        old="        if saved is not None:\n            restored",
        new="        if saved is not None and name in context.graph.feedback:\n            restored",
        in_short=True,
    ),
    Mutant(
        name="data that comes once comes again",
        rule="manifest",
        file=_STREAMS,
        old="if operator.role is not Role.DATA or operator.replays or epoch <= 0:",
        new="if operator.role is not Role.DATA or operator.replays or epoch <= 1:",
    ),
    Mutant(
        name="data that comes once never comes",
        rule="manifest",
        file=_STREAMS,
        old="if operator.role is not Role.DATA or operator.replays or epoch <= 0:",
        new="if operator.role is not Role.DATA or operator.replays or epoch < 0:",
    ),
    Mutant(
        name="data that comes once stays away before epoch 0",
        rule="manifest",
        file=_STREAMS,
        old="if operator.role is not Role.DATA or operator.replays or epoch <= 0:",
        new="if operator.role is not Role.DATA or operator.replays or epoch == 0:",
    ),
    Mutant(
        name="listener hears of epochs that are not durable",
        rule="I16",
        file=_LISTENER,
        old="return [epoch for epoch in found if epoch.durable_at is not None]",
        new="return [epoch for epoch in found if epoch.aligned_at is not None]",
    ),
    Mutant(
        name="listener hears of the last epoch only",
        rule="I16",
        file=_LISTENER,
        old="for epoch in self._durable_epochs(heard + 1):",
        new="for epoch in self._durable_epochs(heard + 1)[-1:]:",
    ),
    Mutant(
        name="listener hears of an epoch again",
        rule="I16",
        file=_LISTENER,
        old="for epoch in self._durable_epochs(heard + 1):",
        new="for epoch in self._durable_epochs(max(heard, 0)):",
    ),
    Mutant(
        name="listener's notice is not kept",
        rule="I16",
        file=_LISTENER,
        old="        state = self._context.attempt.apply(notified)\n",
        new="        state = self._context.attempt.look()\n",
        in_short=True,
    ),
    Mutant(
        name="listener's effect is not kept",
        rule="I16",
        file=_LISTENER,
        old="            effect=_checked(listener, effect),\n",
        new="            effect=None,\n",
    ),
    Mutant(
        name="effects of all epochs have one id",
        rule="I16",
        file=_LISTENER,
        old="effect_id(self._context.run.run_id, listener.listener_id, epoch)",
        new="effect_id(self._context.run.run_id, listener.listener_id, 0)",
    ),
    Mutant(
        name="effects have another id in every attempt",
        rule="I16",
        file=_LISTENER,
        old="effect_id(self._context.run.run_id, listener.listener_id, epoch)",
        new="effect_id(self._context.attempt.attempt_id, listener.listener_id, epoch)",
    ),
    Mutant(
        name="listeners are not told while the run goes on",
        rule="I16",
        file=_BOUNDARY,
        old="        self.state = self._listeners.notify_durable(self.state)\n",
        new="",
    ),
    Mutant(
        name="listeners are not told by an attempt that only publishes",
        rule="I16",
        file=_DRIVE,
        old="        return Listeners(context).notify_durable(state)\n    sweep",
        new="        return state\n    sweep",
    ),
    Mutant(
        name="listeners of the end are told before the run has ended",
        rule="I16",
        file=_PUBLISH,
        old="    context.attempt.heartbeat.stop()\n    state = context.attempt.apply(\n        *terminated,\n",
        new="    for told in terminated:\n        context.attempt.apply(told)\n"
        "    context.attempt.heartbeat.stop()\n    state = context.attempt.apply(\n",
    ),
    Mutant(
        name="notice of an epoch that is not durable is taken",
        rule="I16",
        file=_FINISHED,
        old="    if event.epoch > state.last_durable_epoch:\n",
        new="    if event.epoch > state.last_durable_epoch + 1:\n",
    ),
    Mutant(
        name="notices are taken in any order",
        rule="I16",
        file=_FINISHED,
        old="    if not event.is_final and event.epoch != known + 1:\n",
        new="    if not event.is_final and event.epoch < 0:\n",
    ),
    Mutant(
        name="notice that is repeated is another one",
        rule="I16",
        file=_FINISHED,
        old="    if event.epoch <= known:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="notice of the end is taken while the run goes on",
        rule="I16",
        file=_FINISHED,
        old="if event.is_final and (state.status is not RunStatus.TERMINATING or event.epoch",
        new="if event.is_final and (state.status is RunStatus.FAILED or event.epoch",
    ),
    Mutant(
        name="operators change in the middle of an epoch",
        rule="I11",
        file=_FINISHED,
        old="known is not None or state.epochs or state.status",
        new="known is not None or state.pending or state.status",
    ),
)
