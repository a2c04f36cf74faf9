"""Which breaks of B3 and B4, tasks and operators that have finished, was a test seen to catch?"""

from __future__ import annotations

from tests.semantics.guard import guard

_PROTOCOL = "iteration_lib/protocol"
_UNIT = "unit/protocol"
_ALIGNMENT = f"{_PROTOCOL}/alignment.py"
_CHECKPOINT = f"{_PROTOCOL}/checkpoint.py"
_EDGE = f"{_PROTOCOL}/edge.py"
_LEASE = f"{_PROTOCOL}/lease.py"
_LEGALITY = f"{_PROTOCOL}/legality.py"
_EVOLUTION = "iteration_lib/model/evolution.py"

GUARDS = (
    guard(
        "B3.1",
        "a new attempt begins with the failures of the old one",
        f"{_UNIT}/test_failure.py::test_next_attempt_begins_without_failures",
        _LEASE,
        "            checkpoint_failures=0,\n        ),\n        tuple(commands),\n    )\n\n\ndef _check_drivable",
        "        ),\n        tuple(commands),\n    )\n\n\ndef _check_drivable",
    ),
    guard(
        "B3.1",
        "an epoch opens before what it begins with is restored",
        "unit/driver/test_drive.py::test_attempt_opens_restores_runs_commits_and_releases_in_this_order",
        "iteration_lib/driver/drive.py",
        "    carried = restore_carried(",
        "    Boundary(context, until_epoch=until_epoch).open_first()\n    carried = restore_carried(",
    ),
    guard(
        "B3.2",
        "no token is checked",
        f"{_UNIT}/test_lease.py::test_superseded_attempt_is_refused_whatever_it_says",
        f"{_PROTOCOL}/run.py",
        "        check_token(state, event)\n",
        "        pass\n",
    ),
    guard(
        "B3.3",
        "an error leaves the pending checkpoint behind",
        "integration/test_checkpointing.py::test_attempt_that_fails_lets_the_pending_checkpoint_complete_first",
        "iteration_lib/driver/boundary.py",
        "            self._uploads.wait_for_pending()\n",
        "",
    ),
    guard(
        "B3.3",
        "the error of a checkpoint hides that of the epoch",
        "integration/test_checkpointing.py::test_attempt_that_fails_waits_for_a_checkpoint_that_hangs_until_it_expires",
        "iteration_lib/driver/upload.py",
        "            except Exception:  # noqa: BLE001, S112 - whatever befell one of them\n",
        "            except ZeroDivisionError:\n",
    ),
    guard(
        "B3.4",
        "an attempt that has ended aligns an epoch",
        f"{_UNIT}/test_hold.py::test_what_an_ended_attempt_left_held_is_aligned_by_nobody",
        _ALIGNMENT,
        "if state.attempt is None or epoch is None or not epoch.is_held:",
        "if epoch is None or not epoch.is_held:",
    ),
    guard(
        "B3.5",
        "state may go without a word",
        "unit/model/test_evolution.py::test_operator_with_state_may_be_removed_only_where_a_person_drops_its_state",
        _EVOLUTION,
        "if operator_id in kept:",
        "if operator_id in ():",
    ),
    guard(
        "B3.6",
        "an error beside the epochs is lost",
        "integration/test_checkpointing.py::"
        "test_error_in_the_asynchronous_part_that_nobody_foresaw_ends_the_attempt_and_no_durable_epoch",
        "iteration_lib/driver/upload.py",
        "            upload.job.result()\n",
        "            pass\n",
    ),
    guard(
        "B4.1",
        "every input counts as wide",
        f"{_UNIT}/test_resume.py::"
        "test_bucket_of_a_narrow_input_is_enough_to_begin_and_one_of_a_wide_input_that_runs_is_enough_to_wait",
        f"{_PROTOCOL}/topology.py",
        "found[taken.operator_id] = Exchange.WIDE if self.is_global else taken.exchange",
        "found[taken.operator_id] = Exchange.WIDE",
    ),
    guard(
        "B4.1",
        "every input counts as narrow",
        f"{_UNIT}/test_resume.py::test_one_bucket_of_a_wide_input_that_runs_keeps_all_of_an_operator_waiting",
        f"{_PROTOCOL}/topology.py",
        "found[taken.operator_id] = Exchange.WIDE if self.is_global else taken.exchange",
        "found[taken.operator_id] = Exchange.NARROW",
    ),
    guard(
        "B4.2",
        "a part is marked after its epoch has aligned",
        f"{_UNIT}/test_edge.py::test_part_that_comes_after_the_epoch_has_aligned_is_not_marked",
        _EDGE,
        "if epoch is None or epoch.status is not EpochStatus.OPEN:\n            return state, ()\n",
        "if epoch is None:\n            return state, ()\n",
    ),
    guard(
        "B4.3",
        "ranges that touch stay two",
        f"{_UNIT}/test_edge.py::test_parts_that_touch_become_one_range",
        _EDGE,
        "if merged and merged[-1][1] == first:",
        "if merged and merged[-1][1] > first:",
    ),
    guard(
        "B4.3",
        "a later manifest forgets who had finished",
        "integration/test_checkpointing.py::"
        "test_manifest_says_of_each_operator_whether_it_has_finished_and_so_do_later_ones",
        "iteration_lib/driver/checkpoint.py",
        "bool(snapshot.outputs) or operator.name in snapshot.finished",
        "bool(snapshot.outputs) or (operator.name in snapshot.finished and snapshot.epoch == 0)",
    ),
    guard(
        "B4.4",
        "a global operator may be half finished",
        f"{_UNIT}/test_legality.py::test_global_operator_that_is_half_finished_is_refused",
        _LEGALITY,
        "if vertex.is_global and status is OperatorStatus.PARTIALLY_FINISHED:",
        "if vertex.is_variable and status is OperatorStatus.PARTIALLY_FINISHED:",
    ),
    guard(
        "B4.5",
        "a part is marked before its inputs",
        f"{_UNIT}/test_invariants.py::test_i15_part_comes_after_the_switch_and_after_its_inputs_and_a_takeover_keeps_it",
        _EDGE,
        "if not _is_behind(state, epoch, source, part, is_wide=source in part.after_wide):",
        "if not source:",
    ),
    guard(
        "B4.6",
        "a run finishes while a checkpoint is pending",
        f"{_UNIT}/test_checkpoint.py::test_run_publishes_nothing_while_a_hand_made_checkpoint_is_pending",
        f"{_PROTOCOL}/finished.py",
        "if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:",
        "if state.status is not RunStatus.TERMINATING or state.epochs:",
    ),
    guard(
        "B4.7",
        "an operator finishes twice",
        f"{_UNIT}/test_invariants.py::test_i11_operator_finishes_once_and_its_marker_outlives_every_attempt",
        f"{_PROTOCOL}/finished.py",
        "    if event.operator_id in state.finished_operators:\n        return state, ()\n",
        "",
    ),
    guard(
        "B4.7",
        "an operator whose edge is durable is called again",
        "integration/test_durable_edges.py::test_nothing_that_was_marked_runs_again_and_the_run_ends_with_the_same_bits",
        "iteration_lib/driver/epoch.py",
        "        if edge is not None:\n            _logger.info(",
        "        if edge is not None and self._epoch < 0:\n            _logger.info(",
    ),
    guard(
        "B4.7",
        "an operator that finished for good is called again",
        "integration/test_killed_run.py::"
        "test_run_killed_at_any_point_resumes_to_the_same_bits_without_repeating_what_was_durable",
        "iteration_lib/driver/streams.py",
        "        if saved is not None:\n            _logger.info(",
        "        if saved is not None and not saved.files:\n            _logger.info(",
    ),
    guard(
        "B4.8",
        "any input counts as finished",
        f"{_UNIT}/test_legality.py::test_finished_operator_with_an_input_that_is_not_is_refused",
        _LEGALITY,
        "if source is not None and markers.status(source) is OperatorStatus.FINISHED:",
        "if source is not None:",
    ),
    guard(
        "B4.8",
        "first values that are computed again count as finished",
        f"{_UNIT}/test_legality.py::test_edge_of_epoch_0_without_the_first_values_that_it_was_computed_from_is_refused",
        _LEGALITY,
        "if source is not None and markers.status(source) is OperatorStatus.FINISHED:",
        "if source is not None and (source.is_variable or markers.status(source) is OperatorStatus.FINISHED):",
    ),
    guard(
        "B4.8",
        "an epochs task submits before it looks",
        "integration/test_airflow_epochs.py::"
        "test_task_of_a_run_that_may_not_go_on_says_which_operators_stand_in_the_way_and_submits_nothing",
        "iteration_lib/airflow/work.py",
        "        check_restorable(store, run)\n",
        "",
    ),
    guard(
        "B4.8",
        "an attempt opens before its markers are looked at",
        "unit/test_legal_restore.py::test_attempt_behind_an_illegal_marker_is_refused_with_the_names_before_it_opens",
        "iteration_lib/launch.py",
        "    _checked_continuation(store, run, graph, drive)  # a refusal must not supersede a live attempt\n",
        "",
    ),
    guard(
        "B4.8",
        "what the attempt before marked until it was superseded is not looked at",
        "unit/test_launch.py::test_what_the_attempt_before_finished_until_it_was_superseded_is_checked",
        "iteration_lib/launch.py",
        "        continuation = _checked_continuation(store, find_run(store, run.run_id), graph, drive)\n",
        "        continuation = read_continuation(store, find_run(store, run.run_id), graph)\n",
    ),
    guard(
        "B4.8",
        "an attempt is judged by what was read before and after others drop an operator",
        "unit/test_ids_that_come_back.py::"
        "test_attempt_is_judged_by_the_operators_of_one_definition_though_another_one_drops_some_meanwhile",
        "iteration_lib/continuation.py",
        "return read_under_one_definition(store, run, lambda known: "
        "_read(store, known, graph, ignore_edges=ignore_edges))\n",
        "return _read(store, run, graph, ignore_edges=ignore_edges)\n",
    ),
    guard(
        "B4.8",
        "a part needs a wide input no more than a narrow one",
        f"{_UNIT}/test_legality.py::test_part_of_an_operator_whose_wide_input_is_not_finished_is_refused",
        _LEGALITY,
        "if source is None or exchange is Exchange.WIDE or source.total",
        "if source is None or source.total",
    ),
    guard(
        "B4.8",
        "any bucket of a narrow input is enough for a part",
        f"{_UNIT}/test_legality.py::test_part_of_an_operator_whose_narrow_input_lacks_those_buckets_is_refused",
        _LEGALITY,
        "    if not lacking:\n",
        "    if not lacking or source_edge is not None:\n",
    ),
    guard(
        "B4.8",
        "of a narrow and a wide input the first one counts",
        f"{_UNIT}/test_topology.py::test_of_several_inputs_from_one_operator_the_wide_one_counts",
        f"{_PROTOCOL}/topology.py",
        "if found.get(taken.operator_id) is not Exchange.WIDE:",
        "if taken.operator_id not in found:",
    ),
    guard(
        "B4.8",
        "an unknown operator counts as what its marker says",
        f"{_UNIT}/test_legality.py::test_unknown_operator_counts_as_one_that_runs",
        _LEGALITY,
        "if source is not None and markers.status(source) is OperatorStatus.FINISHED:",
        "if input_id in markers.finished or (source and markers.status(source) is OperatorStatus.FINISHED):",
    ),
    guard(
        "B4.8",
        "the first offence alone is named",
        f"{_UNIT}/test_legality.py::test_every_offence_is_named",
        _LEGALITY,
        "for offence in _offences(topology, markers, vertex))",
        "for offence in _offences(topology, markers, vertex)[:1])",
    ),
    guard(
        "B4.9",
        "other names void the open epoch's edges",
        "unit/test_launch.py::test_renamed_operator_whose_edge_is_durable_is_not_called_again",
        "iteration_lib/continuation.py",
        "            kept=tuple(edge.operator_id for edge in self.kept.edges if edge.epoch != NO_EPOCH),\n",
        "",
    ),
    guard(
        "B4.9",
        "a name counts as code",
        "unit/model/test_evolution.py::test_renamed_operators_may_go_on",
        "iteration_lib/model/definition.py",
        "if has_names else code_digest(operator),",
        "if operator else code_digest(operator),",
    ),
    guard(
        "B4.10",
        "edges outlive their epoch",
        f"{_UNIT}/test_edge.py::test_edges_are_dropped_once_their_epoch_is_durable",
        _CHECKPOINT,
        "edges=tuple(edge for edge in state.edges if not NO_EPOCH < edge.epoch <= completed.epoch),",
        "edges=state.edges,",
    ),
)
