"""Which breaks of B5, unaligned checkpoints, was a test seen to catch?"""

from __future__ import annotations

from tests.semantics.guard import guard

_PROTOCOL = "iteration_lib/protocol"
_UNIT = "unit/protocol"
_CHECKPOINT = f"{_PROTOCOL}/checkpoint.py"
_ABORT = f"{_PROTOCOL}/abort.py"
_EDGE = f"{_PROTOCOL}/edge.py"
_PREEMPTION = "integration/test_preemption.py"
_METRICS = "            self._metrics[operator.operator_id] = metrics or {}\n"
_NOTED = (
    "            self._noted.setdefault(operator.operator_id, []).append(saved)  "
    "# from here on a signal finds all of it\n"
)
_EVOLUTION = "iteration_lib/model/evolution.py"
_AS_IT_WAS = "test_open_epoch_goes_on_with_edges_of_what_and_of_what_is_before_it_is_as_it_was"

GUARDS = (
    guard(
        "B5.1",
        "an aligned epoch switches",
        f"{_UNIT}/test_edge.py::test_epoch_that_has_aligned_meanwhile_switches_no_more",
        _EDGE,
        "if epoch.status is not EpochStatus.OPEN or epoch.unaligned_by is not None:",
        "if epoch.unaligned_by is not None:",
    ),
    guard(
        "B5.2",
        "an epoch switches twice",
        f"{_UNIT}/test_edge.py::test_epoch_switches_once",
        _EDGE,
        "if epoch.status is not EpochStatus.OPEN or epoch.unaligned_by is not None:",
        "if epoch.status is not EpochStatus.OPEN:",
    ),
    guard(
        "B5.2",
        "no timer fires",
        "integration/test_durable_edges.py::test_epoch_switches_on_time_while_nothing_finishes",
        "iteration_lib/driver/edge.py",
        "self._context.background.after(timeout, self._mark_beside) if timeout else None",
        "None",
    ),
    guard(
        "B5.2",
        "an operator of which a part was told of passes for captured",
        f"{_PREEMPTION}::test_part_that_the_end_came_too_soon_to_tell_of_is_captured_with_what_was_told_of",
        "iteration_lib/driver/epoch.py",
        "self._edges.is_whole(operator) or not",
        "self._edges.is_noted(operator) or not",
    ),
    guard(
        "B5.2",
        "what was told of is written again",
        f"{_PREEMPTION}::test_part_that_the_end_came_too_soon_to_tell_of_is_captured_with_what_was_told_of",
        "iteration_lib/driver/edge.py",
        "parts = [*found, *self._parts(operator).values()]",
        "parts = [*found]",
    ),
    guard(
        "B5.2",
        "of an operator that finishes for good only what was told of is captured",
        f"{_PREEMPTION}::test_part_of_an_operator_that_finishes_for_good_is_captured_though_it_was_not_told_of",
        "iteration_lib/driver/streams.py",
        "if is_left and stream",
        "if False and stream",
    ),
    guard(
        "B5.2",
        "what an operator that finishes for good has written is captured while it runs alone",
        f"{_PREEMPTION}::test_operator_that_finishes_for_good_is_captured_though_the_end_came_before_its_marker",
        "iteration_lib/driver/streams.py",
        "            self._context.crash_plan.reach(CrashPoint.OPERATOR_WRITTEN)\n",
        "        if True:\n            self._context.crash_plan.reach(CrashPoint.OPERATOR_WRITTEN)\n",
    ),
    guard(
        "B5.2",
        "a signal keeps what Spark has written from being told of",
        "unit/runner/test_spark_parts.py::test_what_was_written_is_told_of_also_where_a_signal_comes_meanwhile",
        "iteration_lib/runner/spark_parts.py",
        "            self._end()\n            raise",
        "            raise",
    ),
    guard(
        "B5.2",
        "a part is noted before its metrics are",
        "unit/driver/test_edge.py::test_part_is_captured_with_its_metrics_though_the_end_comes_as_it_is_noted",
        "iteration_lib/driver/edge.py",
        f"{_METRICS}{_NOTED}",
        f"{_NOTED}{_METRICS}",
    ),
    guard(
        "B5.2",
        "the epoch after one that switched has switched too",
        f"{_UNIT}/test_edge.py::test_next_epoch_starts_aligned_again",
        f"{_PROTOCOL}/alignment.py",
        "status=EpochStatus.OPEN, heads=heads)",
        "status=EpochStatus.OPEN, heads=heads, unaligned_by=next((e.unaligned_by for e in state.epochs), None))",
    ),
    guard(
        "B5.2",
        "operators leave files where no timeout asks for them",
        "integration/test_durable_edges.py::test_run_without_a_timeout_leaves_no_edges_and_writes_nothing_for_them",
        "iteration_lib/driver/edge.py",
        "return self._is_of_use and self._context.alignment_timeout_seconds is not None",
        "return self._is_of_use",
    ),
    guard(
        "B5.3",
        "a held epoch cannot switch",
        f"{_UNIT}/test_hold.py::test_held_epoch_may_still_switch_and_marks_its_parts_when_it_is_released",
        _EDGE,
        "if epoch.status is not EpochStatus.OPEN or epoch.unaligned_by is not None:",
        "if epoch.status is not EpochStatus.OPEN or epoch.unaligned_by is not None or epoch.is_held:",
    ),
    guard(
        "B5.3",
        "a held epoch that has switched never aligns",
        f"{_UNIT}/test_hold.py::test_held_epoch_that_has_switched_completes_as_one_that_has_not",
        f"{_PROTOCOL}/alignment.py",
        "if state.attempt is None or epoch is None or not epoch.is_held:",
        "if state.attempt is None or epoch is None or not epoch.is_held or epoch.unaligned_by is not None:",
    ),
    guard(
        "B5.3",
        "an epoch that has switched gets no checkpoint of its own",
        f"{_UNIT}/test_hold.py::test_held_epoch_that_has_switched_completes_as_one_that_has_not",
        _CHECKPOINT,
        "if epoch is not None and (epoch.is_held or _is_repeated(state, event)):",
        "if epoch is not None and (epoch.is_held or epoch.unaligned_by is not None or _is_repeated(state, event)):",
    ),
    guard(
        "B5.4",
        "any bucket of an input is enough",
        f"{_UNIT}/test_edge.py::test_part_before_what_it_was_computed_from_is_refused",
        _EDGE,
        "return edge.covers(part.first_bucket, part.end_bucket)",
        "return True",
    ),
    guard(
        "B5.4",
        "what was captured is written once more for the checkpoint",
        "unit/driver/test_captured.py::test_checkpoint_names_the_very_files_that_were_captured",
        "iteration_lib/driver/epoch.py",
        "        if edge is not None:\n            written",
        "        if edge is not None and folder is not None:\n            written",
    ),
    guard(
        "B5.5",
        "what is never captured is an edge",
        "integration/test_durable_edges.py::"
        "test_operator_that_may_not_be_captured_holds_back_itself_and_everything_behind_it",
        "iteration_lib/driver/edge.py",
        "is_asked = self._is_of_use and operator.capture",
        "is_asked = self._is_of_use",
    ),
    guard(
        "B5.5",
        "what was used up is marked without those who took it",
        f"{_PREEMPTION}::test_what_was_fused_is_not_passed_over_for_a_user_that_could_not_be_marked",
        "iteration_lib/driver/edge.py",
        "            if not asked:\n",
        "            if True:\n",
    ),
    guard(
        "B5.5",
        "what nobody takes passes for used up",
        f"{_PREEMPTION}::test_what_was_fused_is_not_passed_over_for_a_user_that_could_not_be_marked",
        "iteration_lib/driver/epoch.py",
        "return bool(graph.consumers(operator.name)) and not",
        "return not",
    ),
    guard(
        "B5.5",
        "nothing passes for used up",
        f"{_PREEMPTION}::test_operator_that_was_computed_inside_what_takes_it_needs_no_files_once_that_is_whole",
        "iteration_lib/driver/epoch.py",
        "            if self._may_be_used_up(operator):\n",
        "            if False:\n",
    ),
    guard(
        "B5.6",
        "an abort drops the epoch's edges",
        f"{_UNIT}/test_abort.py::test_abort_leaves_the_edges_of_the_epoch",
        _ABORT,
        "    return replace(state, pending=pending), commands",
        "    return replace(state, pending=pending, edges=()), commands",
    ),
    guard(
        "B5.7",
        "a hand-made checkpoint begins inside an epoch",
        f"{_UNIT}/test_pacing.py::test_request_that_is_made_while_an_epoch_is_open_waits_for_it",
        _CHECKPOINT,
        "if epoch is None or epoch.status is not EpochStatus.ALIGNED:",
        "if epoch is None:",
    ),
    guard(
        "B5.8",
        "edges of other operators are kept",
        f"{_UNIT}/test_finished.py::test_changed_definition_voids_what_was_durable_inside_the_open_epoch",
        f"{_PROTOCOL}/finished.py",
        "    state, voided = void_edges(state, keeping=frozenset(event.kept) - dropped)\n",
        "    voided: tuple[Command, ...] = ()\n",
    ),
    guard(
        "B5.8",
        "an edge of what takes others now is kept",
        f"unit/model/test_evolution.py::{_AS_IT_WAS}[one takes another]",
        _EVOLUTION,
        "    if operator.operator_id in evolution.moved:\n        return f",
        "    if operator.operator_id in evolution.added:\n        return f",
    ),
    guard(
        "B5.8",
        "an edge behind it is kept",
        f"unit/model/test_evolution.py::{_AS_IT_WAS}[one is another]",
        _EVOLUTION,
        "    source = next((ids[name] for name in operator.inputs if ids[name] in unfit), None)\n",
        "    source = next((ids[name] for name in operator.inputs if ids[name] not in ids.values()), None)\n",
    ),
    guard(
        "B5.8",
        "a result without rows passes for one that nobody asks for",
        "unit/test_planning.py::test_edge_of_a_result_without_rows_is_as_good_as_any",
        "iteration_lib/state/saved.py",
        "return not self.files and not self.schema",
        "return not self.files",
    ),
    guard(
        "B5.8",
        "a first value, long ago, voids what follows it",
        f"unit/model/test_evolution.py::{_AS_IT_WAS}[a first value, long ago]",
        _EVOLUTION,
        "            if operator.operator_id in unfit or (has_values and operator.role is Role.VARIABLE):\n",
        "            if operator.operator_id in unfit:\n",
    ),
    guard(
        "B5.8",
        "one without files is kept though others ask for it",
        "unit/model/test_evolution.py::"
        "test_operator_without_files_is_kept_while_nobody_asks_for_them[another user comes]",
        _EVOLUTION,
        "            if why is None and operator.operator_id in used_up:\n",
        "            if why is None and operator.operator_id not in ids.values():\n",
    ),
    guard(
        "B5.8",
        "an operator that is gone takes its edge with it unasked",
        "unit/test_planning.py::"
        "test_operator_that_is_gone_with_what_it_left_in_the_open_epoch_is_refused_unless_that_may_go",
        _EVOLUTION,
        "{*finished, *stateful, *captured}",
        "{*finished, *stateful}",
    ),
    guard(
        "B5.8",
        "edges are used that a person ignores",
        "integration/test_edited_run_verbs.py::test_open_epoch_begins_anew_where_a_person_ignores_its_edges",
        f"{_PROTOCOL}/lease.py",
        "ignore_edges(state) if event.ignore_edges else (state, ())",
        "ignore_edges(state) if event.ignore_edges and not state.edges else (state, ())",
    ),
    guard(
        "B5.9",
        "durable buckets are computed again",
        "contract/test_runner_parts.py::"
        "test_buckets_that_are_done_are_kept_and_the_others_divided_among_the_subtasks_of_now",
        "iteration_lib/runner/parts.py",
        "missing = (range(count),) if done is None else missing_buckets(self.location, done, count=count)",
        "missing = (range(count),)",
    ),
)
