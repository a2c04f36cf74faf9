"""Which breaks of B2, the life cycle of a checkpoint, was a test seen to catch?"""

from __future__ import annotations

from tests.semantics.guard import guard

_PROTOCOL = "iteration_lib/protocol"
_UNIT = "unit/protocol"
_ALIGNMENT = f"{_PROTOCOL}/alignment.py"
_CHECKPOINT = f"{_PROTOCOL}/checkpoint.py"
_ABORT = f"{_PROTOCOL}/abort.py"
_LEASE = f"{_PROTOCOL}/lease.py"

GUARDS = (
    guard(
        "B2.1",
        "nobody hears a decline",
        f"{_UNIT}/test_rules.py::test_every_event_has_one_rule",
        f"{_PROTOCOL}/run.py",
        "    CheckpointDeclined: decline_checkpoint,\n",
        "",
    ),
    guard(
        "B2.2",
        "a checkpoint that never began is acknowledged",
        f"{_UNIT}/test_checkpoint.py::"
        "test_checkpoint_that_was_never_triggered_can_neither_be_acknowledged_nor_declined",
        _CHECKPOINT,
        "if not 1 <= checkpoint_id <= state.last_checkpoint_id:",
        "if checkpoint_id < 1:",
    ),
    guard(
        "B2.3",
        "an abort of the next id is forgotten",
        f"{_UNIT}/test_abort.py::test_next_checkpoint_may_be_aborted_before_it_begins",
        _CHECKPOINT,
        "if checkpoint.checkpoint_id <= state.aborted_through:",
        "if checkpoint.checkpoint_id < state.aborted_through:",
    ),
    guard(
        "B2.4",
        "an aborted checkpoint stays pending",
        f"{_UNIT}/test_abort.py::test_aborted_checkpoint_stays_aborted_whatever_arrives_late",
        _ABORT,
        "    return replace(state, pending=pending), commands",
        "    return state, commands",
    ),
    guard(
        "B2.5",
        "the error of the write is lost",
        "integration/test_checkpointing.py::"
        "test_error_of_the_write_is_the_error_that_is_shown_and_the_run_can_be_resumed",
        "iteration_lib/driver/upload.py",
        "        self._declined[snapshot.checkpoint_id] = err\n",
        "",
    ),
    guard(
        "B2.6",
        "every operator gets a state",
        "unit/model/test_carry.py::test_operator_without_state_stays_as_it_was_declared",
        "iteration_lib/model/carry.py",
        "if operator.state is not StateScope.CARRY:",
        "if operator.state is StateScope.FRESH:",
    ),
    guard(
        "B2.7",
        "a listener hears of an aligned epoch",
        f"{_UNIT}/test_listener.py::test_listener_does_not_hear_of_an_epoch_that_is_not_durable",
        f"{_PROTOCOL}/finished.py",
        "if event.epoch > state.last_durable_epoch:",
        "if event.epoch > state.last_epoch:",
    ),
    guard(
        "B2.8",
        "an abort of the next id is not remembered",
        f"{_UNIT}/test_abort.py::test_abort_of_the_next_checkpoint_outlives_the_attempt",
        _ABORT,
        "        state = replace(state, aborted_through=event.checkpoint_id)\n",
        "",
    ),
    guard(
        "B2.9",
        "the checkpoint before stays completed",
        f"{_UNIT}/test_checkpoint.py::test_completing_subsumes_the_checkpoint_before_first",
        _CHECKPOINT,
        "        commands.append(SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))\n",
        "        pass\n",
    ),
    guard(
        "B2.10",
        "nobody waits for the last checkpoint of an attempt that is asked for some epochs",
        "integration/test_checkpointing.py::test_last_epoch_of_an_attempt_is_durable_before_it_ends_whatever_the_pace",
        "iteration_lib/driver/boundary.py",
        "        self.state = self._uploads.wait_for_all(self.state)\n        self._announce()\n        if",
        "        if self._until_epoch is None:\n            self.state = self._uploads.wait_for_all(self.state)\n"
        "        self._announce()\n        if",
    ),
    guard(
        "B2.11",
        "what an ended attempt left stays pending",
        f"{_UNIT}/test_lease.py::test_ending_aborts_what_is_pending_and_leaves_the_epochs_to_the_next_attempt",
        _LEASE,
        "return abort_checkpoints(state, state.pending, CheckpointFailure.ATTEMPT_ENDED, reason)",
        "return state, ()",
    ),
    guard(
        "B2.12",
        "the reason of a decline is lost",
        f"{_UNIT}/test_checkpoint.py::test_declined_checkpoint_is_aborted_with_its_reason",
        _CHECKPOINT,
        "abort_checkpoints(state, (checkpoint,), event.failure, event.reason)",
        'abort_checkpoints(state, (checkpoint,), event.failure, "declined")',
    ),
    guard(
        "B2.13",
        "an attempt that has ended is heard",
        f"{_UNIT}/test_lease.py::test_attempt_that_has_ended_is_refused_whatever_it_says",
        _LEASE,
        "if live is None or (live.attempt_id, live.fencing_token)",
        "if live is not None and (live.attempt_id, live.fencing_token)",
    ),
    guard(
        "B2.14",
        "a checkpoint comes one epoch late",
        f"{_UNIT}/test_pacing.py::test_checkpoint_is_due_every_so_many_epochs",
        f"{_PROTOCOL}/pacing.py",
        "return epoch - last_covered(state) >= state.policy.every_epochs",
        "return epoch - last_covered(state) > state.policy.every_epochs",
    ),
    guard(
        "B2.14",
        "each completed checkpoint begins a removal of its own",
        "integration/test_branching.py::test_removal_that_is_slow_is_the_only_one_and_what_goes_meanwhile_goes_behind_it",
        "iteration_lib/driver/retention.py",
        "            if self._is_removing:\n",
        "            if False:\n",
    ),
    guard(
        "B2.15",
        "a repeated acknowledgement is written again",
        f"{_UNIT}/test_checkpoint.py::test_acknowledgement_that_comes_twice_is_counted_once",
        _CHECKPOINT,
        "if participants != checkpoint.participants:",
        "if batch:",
    ),
    guard(
        "B2.15",
        "whoever has the token may acknowledge",
        "contract/test_store.py::test_acknowledgement_by_another_runs_attempt_is_refused_and_changes_neither_run[memory]",
        _LEASE,
        "(live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token)",
        "live.fencing_token != event.fencing_token",
    ),
    guard(
        "B2.16",
        "an older pending checkpoint stays",
        f"{_UNIT}/test_checkpoint.py::test_completing_aborts_older_checkpoints_that_are_still_pending",
        _CHECKPOINT,
        "if known.checkpoint_id < completed.checkpoint_id and known.kind is not CheckpointKind.MANUAL",
        "if known.checkpoint_id < completed.checkpoint_id and known.kind is CheckpointKind.FINAL",
    ),
    guard(
        "B2.17",
        "one failure more is tolerated",
        f"{_UNIT}/test_failure.py::test_attempt_opens_no_epoch_after_one_failure_more_than_it_puts_up_with",
        _ALIGNMENT,
        "return state.checkpoint_failures > state.policy.tolerable_failures",
        "return state.checkpoint_failures > state.policy.tolerable_failures + 1",
    ),
    guard(
        "B2.17",
        "an attempt that has failed begins a checkpoint",
        f"{_UNIT}/test_failure.py::test_attempt_that_has_failed_begins_no_checkpoint_that_nobody_would_write",
        _CHECKPOINT,
        "kind is None or has_failed(state) or len(",
        "kind is None or len(",
    ),
)
