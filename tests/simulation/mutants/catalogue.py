"""Which mistakes in the core must the simulation notice? Tiny patches, each one a plausible slip.

By rule: guards removed, comparisons flipped, effects in another order, commands dropped. `old` is in its file exactly
once; when the code moves on, the patch has to follow. One with `equivalent` cannot be noticed, for the reason given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch of iteration_lib, of one file as a rule."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()  # further patches: file, old, new
    equivalent: str | None = None
    in_short: bool = False  # part of what runs on every change


_LEASE = "protocol/lease.py"
_ALIGNMENT = "protocol/alignment.py"
_CHECKPOINT = "protocol/checkpoint.py"
_FINISHED = "protocol/finished.py"
_RUN = "protocol/run.py"
_COORDINATOR = "coordinator.py"
_MEMORY = "store/memory.py"
_ROWS = "store/memory_write.py"
_ATTEMPT = "driver/attempt.py"
_DRIVE = "driver/drive.py"
_EPOCH = "driver/epoch.py"
_STREAMS = "driver/streams.py"
_RESTORE = "driver/restore.py"
_MANIFEST = "driver/checkpoint.py"
_PUBLISH = "driver/publish.py"
_FILES = "state/files.py"
_HEARTBEAT = "heartbeat.py"

_ROWS_GUARD = 'if not isinstance(command, OpenAttempt | EndAttempt) and run.run["fencing_token"] != fencing_token:'
_POINTER = "    _write_pointer(context.location, json.dumps(pointer, indent=1, sort_keys=True).encode())\n"
_POINTER_WRITTEN = "    context.crash_plan.reach(CrashPoint.POINTER_WRITTEN)\n"
_PUBLISHED = """    state = context.attempt.apply(
        OutputsPublished(
            **context.attempt.guard,
            outputs={output: context.location.path(folder) for output, folder in folders.items()},
            state_digest=digest,
        )
    )
"""
_POINTER_FIRST = _POINTER + _POINTER_WRITTEN + _PUBLISHED
_POINTER_LAST = _PUBLISHED + _POINTER + _POINTER_WRITTEN

MUTANTS: tuple[Mutant, ...] = (
    # I1: one live attempt, under the greatest token
    Mutant(
        name="token is not increased by a takeover",
        rule="I1",
        file=_LEASE,
        old="fencing_token=state.fencing_token + 1,",
        new="fencing_token=max(1, state.fencing_token),",
    ),
    Mutant(
        name="claim that is repeated gets another token",
        rule="I1",
        file=_LEASE,
        old="if live is not None and live.attempt_id == event.attempt_id:",
        new="if live is None and state.ended_attempt_id == event.attempt_id:",
    ),
    Mutant(
        name="attempt that has ended comes back",
        rule="I1",
        file=_LEASE,
        old="if state.ended_attempt_id == event.attempt_id:",
        new="if state.ended_attempt_id == state.run_id:",
    ),
    Mutant(
        name="older attempt is not ended",
        rule="I1",
        file=_LEASE,
        old="        commands.append(EndAttempt(fencing_token=live.fencing_token, "
        "outcome=AttemptOutcome.SUPERSEDED, reason=reason))\n",
        new="",
    ),
    Mutant(
        name="lease holds nobody off",
        rule="lease",
        file=_LEASE,
        old="if not (event.takeover or event.gone_attempt_id == live.attempt_id or live.lease_expires_at <= now):",
        new="if False:",
        in_short=True,
    ),
    Mutant(
        name="lease is compared the wrong way round",
        rule="lease",
        file=_LEASE,
        old="or live.lease_expires_at <= now):",
        new="or live.lease_expires_at >= now):",
    ),
    Mutant(
        name="lease holds in the instant in which it runs out",
        rule="lease",
        file=_LEASE,
        old="or live.lease_expires_at <= now):",
        new="or live.lease_expires_at < now):",
    ),
    Mutant(
        name="proof of any attempt's end is one of the live attempt's",
        rule="lease",
        file=_LEASE,
        old="event.gone_attempt_id == live.attempt_id or",
        new="event.gone_attempt_id is not None or",
    ),
    Mutant(
        name="person's word counts for nothing",
        rule="lease",
        file=_LEASE,
        old="if not (event.takeover or",
        new="if not (",
    ),
    # I2: the fence
    Mutant(
        name="no token is checked",
        rule="I2",
        file=_RUN,
        old="    check_token(state, event)\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="only the attempt's id is checked",
        rule="I2",
        file=_LEASE,
        old="if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):",
        new="if live is None or live.attempt_id != event.attempt_id:",
    ),
    Mutant(
        name="only the token is checked",
        rule="I2",
        file=_LEASE,
        old="if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):",
        new="if live is None or live.fencing_token != event.fencing_token:",
    ),
    Mutant(
        name="older tokens are let through",
        rule="I2",
        file=_LEASE,
        old="if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):",
        new="if live is None or live.fencing_token < event.fencing_token:",
    ),
    Mutant(
        name="last word counts for whoever says it",
        rule="I2",
        file=_LEASE,
        old="return can_be_last and ended == (event.attempt_id, event.fencing_token)",
        new="return can_be_last and ended[1] == event.fencing_token",
    ),
    Mutant(
        name="last word may not be repeated",
        rule="I2",
        file=_RUN,
        old="    if is_last_word_again(state, event):\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="store's commands are written under any token",
        rule="I2",
        file=_ROWS,
        old=_ROWS_GUARD,
        new="if not command:",
        equivalent="the transaction compares the token once more when it counts up the revision",
    ),
    Mutant(
        name="store writes under any token",
        rule="I2",
        file=_ROWS,
        old=_ROWS_GUARD,
        new="if not command:",
        also=((_MEMORY, 'if self._run.run["fencing_token"] != fencing_token:', "if fencing_token < 0:"),),
        in_short=True,
    ),
    Mutant(
        name="coordinator trusts the state that it had, whoever wrote since",
        rule="I2",
        file=_COORDINATOR,
        old="is_known = cached is not None and cached.revision == transaction.revision and not _asks_for_lease(events)",
        new="is_known = cached is not None and not _asks_for_lease(events)",
        in_short=True,
    ),
    Mutant(
        name="coordinator trusts the lease that it knew, though it was renewed",
        rule="lease",
        file=_COORDINATOR,
        old=" and not _asks_for_lease(events)",
        new="",
    ),
    Mutant(
        name="revision does not grow",
        rule="I2",
        file=_MEMORY,
        old='self._run.run["revision"] += 1',
        new='self._run.run["revision"] += 0',
    ),
    # I3 and I9: which epoch may open
    Mutant(
        name="epochs may leave a gap",
        rule="I3",
        file=_ALIGNMENT,
        old="if event.epoch != state.last_epoch + 1:",
        new="if event.epoch < state.last_epoch + 1:",
    ),
    Mutant(
        name="epoch opens behind one that is open",
        rule="I3",
        file=_ALIGNMENT,
        old="if state.epochs and state.epochs[-1].status is EpochStatus.OPEN:",
        new="if state.epochs and state.epochs[-1].status is EpochStatus.VOIDED:",
    ),
    Mutant(
        name="epoch opens without heads",
        rule="I3",
        file=_ALIGNMENT,
        old="if not heads or any(head.expected < 1 for head in heads):",
        new="if any(head.expected < 1 for head in heads):",
    ),
    Mutant(
        name="epoch that was opened may not be opened again",
        rule="I3",
        file=_ALIGNMENT,
        old="if known is not None and [(h.name, h.expected) for h in known.heads]",
        new="if known is None and [(h.name, h.expected) for h in heads][:0]",
    ),
    Mutant(
        name="durable epoch may not be opened again by a repetition",
        rule="I6",
        file=_ALIGNMENT,
        old="    if 0 <= event.epoch <= state.last_durable_epoch:\n        return state, ()\n    if state.status",
        new="    if state.status",
    ),
    Mutant(
        name="epoch opens after the one that terminates the run",
        rule="I9",
        file=_ALIGNMENT,
        old="if state.status is not RunStatus.RUNNING or is_terminating(state):",
        new="if state.status is not RunStatus.RUNNING:",
    ),
    # I4: alignment
    Mutant(
        name="epoch is aligned when one head is complete",
        rule="I4",
        file=_ALIGNMENT,
        old="if all(head.reported == head.expected for head in heads):",
        new="if any(head.reported == head.expected for head in heads):",
        in_short=True,
    ),
    Mutant(
        name="epoch is aligned by any report",
        rule="I4",
        file=_ALIGNMENT,
        old="if all(head.reported == head.expected for head in heads):",
        new="if heads:",
    ),
    Mutant(
        name="subtask may change what it reported",
        rule="I4",
        file=_ALIGNMENT,
        old="if merged[subtask_index] not in (None, value):",
        new="if value < 0:",
    ),
    Mutant(
        name="subtask may be one that is not there",
        rule="I4",
        file=_ALIGNMENT,
        old="if not 0 <= subtask_index < len(merged) or value < 0:",
        new="if not subtask_index < len(merged) or value < 0:",
    ),
    Mutant(
        name="negative counts are taken",
        rule="I4",
        file=_ALIGNMENT,
        old="if not 0 <= subtask_index < len(merged) or value < 0:",
        new="if not 0 <= subtask_index < len(merged):",
    ),
    Mutant(
        name="report is not folded into those before",
        rule="I4",
        file=_ALIGNMENT,
        old="merged = list(known.values)",
        new="merged = [None for _ in known.values]",
    ),
    Mutant(
        name="repeated report aligns once more",
        rule="I4",
        file=_ALIGNMENT,
        old="    if heads == epoch.heads:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="report of a durable epoch is refused when it is repeated",
        rule="I4",
        file=_ALIGNMENT,
        old="        if 0 <= event.epoch <= state.last_durable_epoch:\n            return state, ()\n        raise",
        new="        raise",
    ),
    Mutant(
        name="reports are kept over a takeover",
        rule="I4",
        file=_LEASE,
        old="            epochs=(),\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="reports are kept over a takeover, in the rows as well",
        rule="I6",
        file=_LEASE,
        old="    if state.epochs:\n        commands.append(VoidEpochs(after=state.last_durable_epoch))\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="store voids nothing",
        rule="I6",
        file=_ROWS,
        old='epoch["status"] = "VOIDED"',
        new='epoch["status"] = epoch["status"]',
    ),
    # I5: the decision
    Mutant(
        name="criteria terminate when they should not",
        rule="I5",
        file=_ALIGNMENT,
        old="elif records.get(CRITERIA) == 0:",
        new="elif records.get(CRITERIA):",
    ),
    Mutant(
        name="criteria count for nothing",
        rule="I5",
        file=_ALIGNMENT,
        old="elif records.get(CRITERIA) == 0:",
        new="elif records.get(CRITERIA) == -1:",
    ),
    Mutant(
        name="feedback of one head that runs dry ends the run",
        rule="I5",
        file=_ALIGNMENT,
        old="if sum(records.values()) == 0:",
        new="if min(records.values()) == 0:",
    ),
    Mutant(
        name="run makes one epoch more than max_epochs",
        rule="I5",
        file=_ALIGNMENT,
        old="epoch + 1 >= max_epochs",
        new="epoch >= max_epochs",
    ),
    Mutant(
        name="max_epochs comes before the criteria",
        rule="I5",
        file=_ALIGNMENT,
        old="    elif records.get(CRITERIA) == 0:\n        terminated_by = TerminatedBy.CRITERIA\n"
        "    elif max_epochs is not None and epoch + 1 >= max_epochs:\n"
        "        terminated_by = TerminatedBy.MAX_EPOCHS\n",
        new="    elif max_epochs is not None and epoch + 1 >= max_epochs:\n"
        "        terminated_by = TerminatedBy.MAX_EPOCHS\n"
        "    elif records.get(CRITERIA) == 0:\n        terminated_by = TerminatedBy.CRITERIA\n",
    ),
    Mutant(
        name="decision is made from the reports before the last ones",
        rule="I5",
        file=_ALIGNMENT,
        old="decision = decide_termination(epoch.epoch, heads, max_epochs=state.max_epochs)",
        new="decision = decide_termination(epoch.epoch, epoch.heads, max_epochs=state.max_epochs)",
    ),
    Mutant(
        name="decision binds as soon as the epoch is aligned",
        rule="I6",
        file=_ALIGNMENT,
        old="    return replace(state, epochs=epochs), tuple(commands)",
        new="    if aligned.decision is not None and aligned.decision.terminated_by is not None:\n"
        "        from iteration_lib.protocol.command import SetRunStatus\n"
        "        by = aligned.decision.terminated_by\n"
        "        state = replace(state, status=RunStatus.TERMINATING, terminated_by=by)\n"
        "        commands.append(SetRunStatus(status=RunStatus.TERMINATING, terminated_by=by))\n"
        "    return replace(state, epochs=epochs), tuple(commands)",
    ),
    # I6 and I8: durability and checkpoints
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
        name="store overwrites checkpoints whose id is used again",
        rule="I7",
        file=_ROWS,
        old='    run.run["last_checkpoint_id"] = command.checkpoint_id\n',
        new="",
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
    Mutant(
        name="pending checkpoints survive a takeover",
        rule="I8",
        file=_LEASE,
        old='    state, aborted = abort_pending(state, "its attempt was superseded")\n',
        new="    aborted: tuple[Command, ...] = ()\n",
    ),
    Mutant(
        name="pending checkpoints survive the end of their attempt",
        rule="I8",
        file=_LEASE,
        old='    state, aborted = abort_pending(state, f"its attempt ended: {event.outcome.value}")\n',
        new="    aborted: tuple[Command, ...] = ()\n",
    ),
    Mutant(
        name="epoch ids below 0 are taken for durable ones",
        rule="I3",
        file=_ALIGNMENT,
        old="    if 0 <= event.epoch <= state.last_durable_epoch:\n        return state, ()\n    if state.status",
        new="    if event.epoch <= state.last_durable_epoch:\n        return state, ()\n    if state.status",
    ),
    # I10 and the end of a run
    Mutant(
        name="outputs of a run that goes on are published",
        rule="I10",
        file=_FINISHED,
        old="if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:",
        new="if state.pending:",
        also=((_FINISHED, "    check_transition(state.status, RunStatus.FINISHED)\n", ""),),
    ),
    Mutant(
        name="outputs are published while epochs wait to be voided",
        rule="I10",
        file=_FINISHED,
        old="if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:",
        new="if state.status is not RunStatus.TERMINATING:",
        equivalent="the last epoch is durable in TERMINATING, so there are no others and nothing is pending",
    ),
    Mutant(
        name="run may finish from any status",
        rule="I10",
        file=_FINISHED,
        old="    check_transition(state.status, RunStatus.FINISHED)\n",
        new="",
        equivalent="the line before has seen that the run is TERMINATING; the table says the same",
    ),
    Mutant(
        name="finished run is driven again",
        rule="I10",
        file=_LEASE,
        old="    if state.status is RunStatus.FINISHED:\n        raise RunFinishedError(state.run_id)\n",
        new="",
    ),
    Mutant(
        name="run that failed while terminating goes on running",
        rule="I9",
        file=_LEASE,
        old="status = RunStatus.RUNNING if state.terminated_by is None else RunStatus.TERMINATING",
        new="status = RunStatus.RUNNING",
        in_short=True,
    ),
    Mutant(
        name="publishing does not end the attempt",
        rule="I10",
        file=_FINISHED,
        old="            EndAttempt(fencing_token=event.fencing_token, "
        "outcome=AttemptOutcome.FINISHED, reason=None),\n",
        new="",
    ),
    Mutant(
        name="attempt ends itself as whatever it likes",
        rule="I1",
        file=_LEASE,
        old="if event.outcome not in (AttemptOutcome.RELEASED, AttemptOutcome.FAILED):",
        new="if event.outcome is AttemptOutcome.FINISHED:",
    ),
    # I11: finished for good
    Mutant(
        name="marker of a finished operator is written again",
        rule="I11",
        file=_FINISHED,
        old="    if event.operator_id in state.finished_operators:\n        return state, ()\n",
        new="",
    ),
    Mutant(
        name="data that changed is pinned over",
        rule="pins",
        file=_FINISHED,
        old="    if known is not None:\n        raise InputError(",
        new="    if known == event.name:\n        raise InputError(",
    ),
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
        old="        self._attempt.apply(\n            OperatorFinished(**self._attempt.guard, "
        "operator_id=operator.operator_id, output=written.to_json())\n        )\n",
        new="",
    ),
    # I12: a refused event leaves nothing
    Mutant(
        name="events of one transaction are committed one by one",
        rule="I12",
        file=_COORDINATOR,
        old="                return self._apply_once(run_id, events)\n            except",
        new="                return [self._apply_once(run_id, (event,)) for event in events][-1]\n            except",
    ),
    Mutant(
        name="commands are written event by event",
        rule="I12",
        file=_COORDINATOR,
        old="                commands += decided\n            transaction.write(commands, state.fencing_token)\n",
        new="                transaction.write(decided, state.fencing_token)\n",
        equivalent="it is still one transaction, which keeps all of it or nothing",
    ),
    Mutant(
        name="store keeps what was written before an error",
        rule="I12",
        file=_MEMORY,
        old="working = self._runs[run_id].copy()",
        new="working = self._runs[run_id]",
    ),
    # the driver's order of effects
    Mutant(
        name="attempts share their folders",
        rule="files",
        file=_ATTEMPT,
        old='return f"{self.fencing_token:06d}-{self.attempt_id[:8]}"',
        new='return "attempt"',
    ),
    Mutant(
        name="attempts' folders carry no token, and the same process may come again",
        rule="files",
        file=_ATTEMPT,
        old='return f"{self.fencing_token:06d}-{self.attempt_id[:8]}"',
        new='return f"{self.attempt_id[:8]}"',
        equivalent="an attempt's id is unique for ever, so the token in the path is for people who read it",
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
        old="restore_variables(context) if state.completed is not None else streams.first_values()",
        new="streams.first_values()",
    ),
    Mutant(
        name="resumed run repeats its last durable epoch",
        rule="I6",
        file=_DRIVE,
        old="epoch = state.last_durable_epoch + 1",
        new="epoch = max(0, state.last_durable_epoch)",
    ),
    Mutant(
        name="outputs are not written with the final checkpoint",
        rule="manifest",
        file=_DRIVE,
        old="outputs = runner.write_outputs() if decision.terminated_by is not None else {}",
        new="outputs: Mapping[str, SavedStream] = {}",
    ),
    Mutant(
        name="next epoch receives the variables of the one before",
        rule="manifest",
        file=_DRIVE,
        old="        variables = result.variables\n",
        new="",
    ),
    Mutant(
        name="restored variables are those of any checkpoint",
        rule="manifest",
        file=_RESTORE,
        old="        if record.status is not CheckpointStatus.COMPLETED:\n            continue\n",
        new="",
    ),
    Mutant(
        name="pointer is written before the run terminates",
        rule="publishing",
        file=_PUBLISH,
        old="    if state.status is not RunStatus.TERMINATING:\n        return state\n",
        new="    if state.status is RunStatus.FINISHED:\n        return state\n",
    ),
    Mutant(
        name="pointer is written after the run is marked as finished",
        rule="publishing",
        file=_PUBLISH,
        old=_POINTER_FIRST,
        new=_POINTER_LAST,
        in_short=True,
    ),
    Mutant(
        name="pointer that was torn stays so",
        rule="publishing",
        file=_PUBLISH,
        old="        write_bytes(location, POINTER, content, replaces=True)\n",
        new="        write_bytes(location, POINTER, content)\n",
    ),
    Mutant(
        name="files of failed tasks are published too",
        rule="publishing",
        file=_PUBLISH,
        old="            location.remove(stray)\n",
        new="            pass\n",
    ),
    Mutant(
        name="the named files are removed and the strays kept",
        rule="publishing",
        file=_PUBLISH,
        old="        if stray not in named:\n",
        new="        if stray in named:\n",
    ),
    Mutant(
        name="half a file passes for a whole one",
        rule="files",
        file=_FILES,
        old="    if filesystem.size(inner) != new.written.size_bytes:\n",
        new="    if filesystem.size(inner) > new.written.size_bytes:\n",
    ),
    Mutant(
        name="digests are not verified",
        rule="files",
        file=_FILES,
        old="    if found != sha256:\n",
        new="    if not found:\n",
    ),
    Mutant(
        name="heartbeat takes a lost connection for a takeover",
        rule="lease",
        file=_HEARTBEAT,
        old='            _logger.warning("event=lease_not_renewed error=%s", err)\n            return True\n',
        new='            _logger.warning("event=lease_not_renewed error=%s", err)\n            renewed = False\n',
    ),
    Mutant(
        name="store renews the lease of whoever asks",
        rule="lease",
        file=_MEMORY,
        old='if attempt is None or attempt["attempt_id"] != attempt_id or attempt["ended_at"] is not None:',
        new='if attempt is None or attempt["attempt_id"] != attempt_id:',
    ),
    Mutant(
        name="attempt goes on after an error without ending",
        rule="errors",
        file=_ATTEMPT,
        old="            _end_after(attempt, err)\n            raise\n",
        new="            _end_after(attempt, err)\n",
    ),
    Mutant(
        name="end of the attempt by a takeover is reported as a lost execution",
        rule="errors",
        file=_ATTEMPT,
        old="            if heartbeat.is_superseded:\n",
        new="            if False:\n",
    ),
    Mutant(
        name="attempt that finished the run takes its own end for a takeover",
        rule="errors",
        file=_PUBLISH,
        old="    context.attempt.heartbeat.stop()\n",
        new="",
    ),
    Mutant(
        name="superseded attempt tries to end itself",
        rule="I2",
        file=_ATTEMPT,
        old="        except SupersededError:\n            raise\n",
        new="",
        equivalent="its token is refused, and the first error is raised all the same",
    ),
    Mutant(
        name="lease runs out at once",
        rule="lease",
        file=_LEASE,
        old="lease_expires_at=now + timedelta(seconds=event.lease_ttl_seconds),",
        new="lease_expires_at=now,",
    ),
    Mutant(
        name="data is pinned again by every attempt",
        rule="pins",
        file=_STREAMS,
        old="        pinned = self._pins.get(operator.name)\n",
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
        file=_EPOCH,
        old='folder = f"outputs/{output}/{self._attempt.folder}-epoch-{self._epoch:06d}"',
        new='folder = f"outputs/{output}/epoch-{self._epoch:06d}"',
    ),
    Mutant(
        name="attempt runs one epoch more than it was asked for",
        rule="runs",
        file=_DRIVE,
        old="goes_on = decision.terminated_by is None and (until_epoch is None or epoch + 1 < until_epoch)",
        new="goes_on = decision.terminated_by is None and (until_epoch is None or epoch < until_epoch)",
    ),
    Mutant(
        name="observer hears of a durable epoch before it is",
        rule="I6",
        file=_DRIVE,
        old="        state = attempt.apply(acknowledged, *following)\n",
        new="        context.observer.epoch_durable(epoch, metrics=result.metrics, seconds=result.seconds)\n"
        "        state = attempt.apply(acknowledged, *following)\n",
    ),
    Mutant(
        name="run terminates without its checkpoint",
        rule="I10",
        file=_DRIVE,
        old="        acknowledged = write_manifest(context, state, result, streams, outputs)\n",
        new="        if decision.terminated_by is not None:\n            return state\n"
        "        acknowledged = write_manifest(context, state, result, streams, outputs)\n",
    ),
    Mutant(
        name="next epoch opens before the checkpoint completes",
        rule="I6",
        file=_DRIVE,
        old="        state = attempt.apply(acknowledged, *following)\n",
        new="        state = attempt.apply(*following, acknowledged)\n",
        equivalent="both are in one transaction, and an epoch may open while the one before waits for its checkpoint",
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
        old="        return self._results[name] if name in self._results else self._streams.get(name)",
        new="        operator = self._context.graph.operator(name)\n"
        "        return self._streams.get(name) if name not in self._results else self._compute(operator)",
    ),
)
