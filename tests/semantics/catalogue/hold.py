"""Which breaks of B1.16 to B1.20, epochs beside a checkpoint and after a restart, was a test seen to catch?"""

from __future__ import annotations

from tests.semantics.guard import guard

_PROTOCOL = "iteration_lib/protocol"
_UNIT = "unit/protocol"
_ALIGNMENT = f"{_PROTOCOL}/alignment.py"
_CHECKPOINT = f"{_PROTOCOL}/checkpoint.py"
_ABORT = f"{_PROTOCOL}/abort.py"
_LEASE = f"{_PROTOCOL}/lease.py"
_DRIVE = "iteration_lib/driver/drive.py"
_RESTORED = (
    "    carried = restore_carried(context, streams, manifest) if manifest is not None else streams.first_values()\n"
)

GUARDS = (
    guard(
        "B1.16",
        "no epoch is held but the run's last",
        "integration/test_checkpointing.py::test_next_epoch_computes_but_does_not_align_while_a_checkpoint_is_being_written",
        _ALIGNMENT,
        "if len(state.pending) >= state.policy.max_pending:",
        "if len(state.pending) >= state.policy.max_pending and epoch.epoch + 1 == state.max_epochs:",
    ),
    guard(
        "B1.16",
        "what an operator returned is not copied from its memory",
        "integration/test_checkpointing.py::test_checkpoint_holds_what_the_epoch_returned_whatever_the_next_one_does_to_the_same_memory",
        "iteration_lib/state/block.py",
        "return column if _is_for_ever(column) else column.copy()",
        "return column",
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
        "B1.17",
        "a checkpoint that completes releases nothing",
        f"{_UNIT}/test_hold.py::test_what_ends_the_checkpoint_aligns_the_held_epoch_in_the_same_step",
        _CHECKPOINT,
        "    state, released = release_alignment(state)\n    return state, (*done, *released)\n",
        "    return state, done\n",
    ),
    guard(
        "B1.17",
        "`iteration abort` releases nothing",
        "integration/test_verbs.py::test_abort_releases_a_run_whose_checkpoint_hangs",
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
        "B1.18",
        "a checkpoint completes and its epochs stay as they are",
        f"{_UNIT}/test_checkpoint.py::test_manifest_completes_the_checkpoint_and_makes_its_epoch_durable_in_one_step",
        _CHECKPOINT,
        "commands += [*aborted, MakeEpochsDurable(through=completed.epoch), *stored]",
        "commands += [*aborted, *stored]",
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
        "B1.19",
        "pins are checked after what is durable was restored",
        "unit/driver/test_drive.py::test_resumed_epoch_0_uses_none_of_its_edges_before_the_pins_were_checked",
        _DRIVE,
        f"    streams.check_pins()\n{_RESTORED}",
        f"{_RESTORED}    streams.check_pins()\n",
    ),
    guard(
        "B1.20",
        "renewing a lease waits for the run's lock",
        "contract/test_store.py::test_renewing_a_lease_does_not_wait_for_the_runs_lock",
        "sql/queries/write.sql",
        "WHERE run_id = :run_id AND fencing_token = :fencing_token AND attempt_id = :attempt_id AND ended_at IS NULL\n",
        "WHERE run_id = (SELECT run_id FROM runs WHERE run_id = :run_id FOR NO KEY UPDATE)\n"
        "    AND fencing_token = :fencing_token AND attempt_id = :attempt_id AND ended_at IS NULL\n",
    ),
    guard(
        "B1.20",
        "a lease is renewed while somebody decides by it",
        "contract/test_lease_interleavings.py::test_lease_that_was_found_over_is_not_renewed_any_more",
        "sql/queries/write.sql",
        "lease_expires_at <= :now\nFOR NO KEY UPDATE;",
        "lease_expires_at <= :now;",
    ),
    guard(
        "B1.20",
        "a lease is not renewed while rows go into the store's own database",
        "contract/test_lease_interleavings.py::test_lease_is_renewed_while_rows_go_into_the_stores_own_database",
        "iteration_lib/coordinator.py",
        "                until_commit.enter_context(self._locking(run_id))\n",
        "                until_commit.enter_context(self._locking(run_id))\n"
        "                transaction.write(commands, state.fencing_token)\n"
        "                transaction.read_state()  # sends what was written\n"
        "                commands = []\n",
    ),
    guard(
        "B1.20",
        "a renewed lease lasts from before it was waited for",
        "contract/test_lease_interleavings.py::test_lease_that_was_waited_for_lasts_from_then_on",
        "sql/queries/write.sql",
        "AND attempt_id = :attempt_id AND ended_at IS NULL\n    FOR NO KEY UPDATE\n",
        "AND attempt_id = :attempt_id AND ended_at IS NULL\n",
    ),
    guard(
        "B1.20",
        "an epoch is computed under the run's lock",
        "integration/test_checkpointing.py::"
        "test_run_is_locked_by_nobody_while_an_operator_runs_and_a_checkpoint_is_written",
        _DRIVE,
        "                result = runner.run(is_saved=boundary.expects_checkpoint(epoch))\n",
        "                with context.store.transaction(context.run.run_id):\n"
        "                    result = runner.run(is_saved=boundary.expects_checkpoint(epoch))\n",
    ),
)
