"""Which breaks of B1, epoch alignment and termination, was a test seen to catch?"""

from __future__ import annotations

from tests.semantics.guard import guard

_PROTOCOL = "iteration_lib/protocol"
_UNIT = "unit/protocol"
_ALIGNMENT = f"{_PROTOCOL}/alignment.py"
_CHECKPOINT = f"{_PROTOCOL}/checkpoint.py"
_ABORT = f"{_PROTOCOL}/abort.py"
_LEASE = f"{_PROTOCOL}/lease.py"
_INTERLEAVINGS = "contract/test_store_interleavings.py"
_WRITES = "sql/queries/write.sql"
_LOCK = "SELECT revision, attempt_id FROM runs WHERE run_id = :run_id"

GUARDS = (
    guard(
        "B1.1",
        "the run's failure loses its cause",
        f"{_UNIT}/test_lease.py::test_failed_attempt_marks_the_run_failed_with_the_reason",
        _LEASE,
        "terminated_by=state.terminated_by, failure=event.reason",
        'terminated_by=state.terminated_by, failure="an error"',
    ),
    guard(
        "B1.1",
        "a transaction does not lock the run",
        f"{_INTERLEAVINGS}::test_outcome_of_two_calls_at_once_is_that_of_one_order[claims-claims]",
        _WRITES,
        f"{_LOCK} FOR NO KEY UPDATE\n)\nSELECT revision",
        f"{_LOCK}\n)\nSELECT revision",
    ),
    guard(
        "B1.1",
        "what is sent in one message does not lock the run",
        f"{_INTERLEAVINGS}::test_outcome_of_two_calls_at_once_is_that_of_one_order[takes over-asks]",
        _WRITES,
        f"{_LOCK} FOR NO KEY UPDATE\n)\nSELECT 1 / count(*)",
        f"{_LOCK}\n)\nSELECT 1 / count(*)",
    ),
    guard(
        "B1.2",
        "a report may contradict an earlier one",
        f"{_UNIT}/test_alignment.py::test_report_that_contradicts_an_aligned_epoch_is_refused",
        _ALIGNMENT,
        "if merged[subtask_index] not in (None, value):",
        "if merged[subtask_index] is value is None:",
    ),
    guard(
        "B1.3",
        "empty criteria do not terminate",
        f"{_UNIT}/test_alignment.py::test_termination_follows_the_table",
        _ALIGNMENT,
        "elif records.get(CRITERIA) == 0:",
        "elif records.get(CRITERIA) == 1:",
    ),
    guard(
        "B1.4",
        "an open-ended iteration may have criteria",
        "unit/model/test_graph.py::test_open_ended_iteration_has_no_criteria",
        "iteration_lib/model/graph.py",
        "check_open_ended(iteration, ordered, criteria)",
        "check_open_ended(iteration, ordered, None)",
    ),
    guard(
        "B1.5",
        "an open-ended iteration may have a last epoch",
        "unit/model/test_graph.py::test_open_ended_iteration_has_no_last_epoch",
        "iteration_lib/model/iteration.py",
        'if open_ended and "max_epochs" in',
        'if open_ended and "last_epoch" in',
    ),
    guard(
        "B1.6",
        "a variable that nothing feeds back passes",
        "unit/model/test_graph.py::test_variable_that_nothing_feeds_back_is_refused_by_its_id",
        "iteration_lib/model/wiring.py",
        "if name not in feedback:",
        "if name not in variables:",
    ),
    guard(
        "B1.7",
        "a takeover leaves the open epoch",
        f"{_UNIT}/test_lease.py::test_new_attempt_voids_what_is_not_durable_and_aborts_what_is_pending",
        _LEASE,
        "commands.append(VoidEpochs(after=state.last_durable_epoch))",
        "commands.append(VoidEpochs(after=state.last_durable_epoch + 1))",
    ),
    guard(
        "B1.8",
        "an epoch may leave a gap",
        f"{_UNIT}/test_invariants.py::test_i3_epoch_that_leaves_a_gap_is_refused_and_so_is_one_before_the_last",
        _ALIGNMENT,
        "if event.epoch != state.last_epoch + 1:",
        "if event.epoch < state.last_epoch + 1:",
    ),
    guard(
        "B1.9",
        "an epoch opens after the one that terminates",
        f"{_UNIT}/test_invariants.py::test_i9_no_epoch_opens_after_one_that_terminates_the_run",
        _ALIGNMENT,
        "if state.status is not RunStatus.RUNNING or is_terminating(state):",
        "if state.status is not RunStatus.RUNNING:",
    ),
    guard(
        "B1.10",
        "operators run in reverse",
        "unit/model/test_graph.py::test_operators_run_in_an_order_in_which_each_comes_after_its_inputs",
        "iteration_lib/model/wiring.py",
        "return tuple(by_name[name] for name in sorter.static_order())",
        "return tuple(by_name[name] for name in reversed([*sorter.static_order()]))",
    ),
    guard(
        "B1.11",
        "a listener hears of an epoch twice",
        f"{_UNIT}/test_listener.py::test_listener_hears_of_each_durable_epoch_once_and_in_order",
        f"{_PROTOCOL}/finished.py",
        "if event.epoch <= known:",
        "if event.epoch < known:",
    ),
    guard(
        "B1.12",
        "an epoch receives what the one before received",
        "simulation/test_schedules.py::test_schedule_without_faults_gives_what_the_reference_gives",
        "iteration_lib/driver/drive.py",
        "        carried = result.variables\n",
        "",
    ),
    guard(
        "B1.13",
        "only the size of an input is compared",
        "contract/test_runner.py::test_input_that_changed_after_it_was_pinned_is_named",
        "iteration_lib/runner/input_file.py",
        "        if (now.size_bytes, now.version) == (file.size_bytes, file.version):\n",
        "        if now.size_bytes == file.size_bytes:\n",
    ),
    guard(
        "B1.14",
        "a state of one column passes for none",
        "contract/test_carry.py::test_operators_that_carry_state_compute_what_plain_calls_do",
        "iteration_lib/runner/pair.py",
        "return bool(state.num_columns)",
        "return state.num_columns > 1",
    ),
    guard(
        "B1.15",
        "all calls share one scratch folder",
        "contract/test_runner_parts.py::test_every_call_gets_an_empty_folder_below_the_one_that_is_named",
        "iteration_lib/runner/scratch.py",
        'return self.location.make_folder(f"{self.folder}/{name}-{token_hex(8)}")',
        'return self.location.make_folder(f"{self.folder}")',
    ),
    guard(
        "B1.16",
        "no epoch is held but the run's last",
        "integration/test_checkpointing.py::test_next_epoch_computes_but_does_not_align_while_a_checkpoint_is_being_written",
        _ALIGNMENT,
        "if len(state.pending) >= state.policy.max_pending:",
        "if len(state.pending) >= state.policy.max_pending and epoch.epoch + 1 == state.max_epochs:",
    ),
    guard(
        "B1.17",
        "a person's abort releases nothing",
        f"{_UNIT}/test_hold.py::test_what_ends_the_checkpoint_aligns_the_held_epoch_in_the_same_step",
        _ABORT,
        "    state, released = release_alignment(state)\n    return state, (*commands, *released)",
        "    return state, (*commands,)",
    ),
    guard(
        "B1.18",
        "one acknowledgement per participant is enough",
        f"{_UNIT}/test_invariants.py::test_i8_checkpoint_completes_only_with_every_acknowledgement_and_its_manifest",
        _CHECKPOINT,
        "if any(reports.reported != reports.expected for reports in participants):",
        "if any(not reports.reported for reports in participants):",
    ),
    guard(
        "B1.19",
        "a takeover keeps the reports of the old token",
        f"{_UNIT}/test_invariants.py::test_i4_epoch_that_was_aligned_under_an_old_token_aligns_again_under_the_new_one",
        _LEASE,
        "            epochs=(),\n",
        "",
    ),
    guard(
        "B1.20",
        "renewing a lease waits for the run's lock",
        "contract/test_store.py::test_renewing_a_lease_does_not_wait_for_the_runs_lock",
        "sql/queries/write.sql",
        "WHERE run_id = :run_id AND fencing_token = :fencing_token AND attempt_id = :attempt_id AND ended_at IS NULL;",
        "WHERE run_id = (SELECT run_id FROM runs WHERE run_id = :run_id FOR NO KEY UPDATE)\n"
        "    AND fencing_token = :fencing_token AND attempt_id = :attempt_id AND ended_at IS NULL;",
    ),
    guard(
        "B1.20",
        "an epoch is computed under the run's lock",
        "integration/test_checkpointing.py::"
        "test_run_is_locked_by_nobody_while_an_operator_runs_and_a_checkpoint_is_written",
        "iteration_lib/driver/drive.py",
        "                result = runner.run(is_saved=boundary.expects_checkpoint(epoch))\n",
        "                with context.store.transaction(context.run.run_id):\n"
        "                    result = runner.run(is_saved=boundary.expects_checkpoint(epoch))\n",
    ),
)
