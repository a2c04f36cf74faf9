"""Which turned comparisons does the simulation not notice, and which tests do? And which can nobody notice?

An entry is the name of one of `compared`, or, with a blank at its end, how several begin. Of the places that are named
some are never come to (settings are drawn to make sense, a program's operators are in order), some are asked by people
and by Airflow alone, and some are met so seldom that some hundred schedules did not show them.
"""

from __future__ import annotations

_UNMET = {
    "unit/model/test_checkpointing.py": (
        "protocol/policy.py __post_init__: ",
        "protocol/policy.py _check_count: ",
        "protocol/policy.py check_seconds: ",
    ),
    "unit/protocol/test_abort.py": (
        "protocol/abort.py check_goes_on: state.status is RunStatus.FINISHED with 'is' turned",
        (
            "protocol/finished.py publish_outputs: "
            "state.status is not RunStatus.TERMINATING or state.pending or state.epochs with 'or' turned"
        ),
        (
            "protocol/finished.py publish_outputs: "
            "state.status is not RunStatus.TERMINATING or state.pending or state.epochs with 'or' turned, no. 2"
        ),
    ),
    "unit/protocol/test_bucket_range.py": ("protocol/bucket_range.py ",),
    "unit/protocol/test_edge.py": (
        "protocol/checkpoint.py _complete: NO_EPOCH < edge.epoch <= completed.epoch ",
        "protocol/edge.py _is_behind: edge.total != part.total with '!=' turned",
        "protocol/edge.py _mark: first < part.end_bucket with '<' turned",
    ),
    "unit/protocol/test_failure.py": (
        "protocol/checkpoint.py _answer_requests: answer in (None, number) with 'in' turned",
    ),
    "unit/protocol/test_fallback.py": (
        "protocol/fallback.py check_unheard: ",
        "protocol/fallback.py fall_back: edge.epoch == NO_EPOCH with '==' turned",
        (
            "protocol/fallback.py fall_back: newest is None or older.checkpoint_id > newest.checkpoint_id "
            "or older.epoch >= newest.epoch "
        ),
        "protocol/fallback.py fall_back: newest is not None with 'is not' turned",
        "protocol/fallback.py fall_back: older.epoch >= newest.epoch with '>=' turned",
    ),
    "unit/protocol/test_finished.py": (
        (
            "protocol/finished.py change_definition: live is None or known is not None or state.epochs "
            "or (state.status is not RunStatus.RUNNING) with 'or' turned"
        ),
        "protocol/finished.py pin_data: known == event.fingerprint with '==' turned",
    ),
    "unit/protocol/test_lease.py": (
        "protocol/lease.py end_attempt: stops and event.reason is None with 'and' turned",
        "protocol/lease.py is_last_word_again: finishes and state.status is RunStatus.FINISHED with 'and' turned",
        "protocol/legality.py check_restored_epoch: restored != NO_EPOCH with '!=' turned",
    ),
    "unit/protocol/test_legality.py": (
        "protocol/legality.py _offence: edge is None with 'is' turned",
        "protocol/legality.py _offence: exchange is Exchange.WIDE with 'is' turned",
        "protocol/legality.py _offence: markers.status(vertex) is OperatorStatus.FINISHED with 'is' turned",
        "protocol/legality.py _offence: not lacking with 'not' turned",
        "protocol/legality.py _offence: source is None with 'is' turned",
        (
            "protocol/legality.py _offence: source is None or exchange is Exchange.WIDE "
            "or source.total != vertex.total or (edge is None) "
        ),
        (
            "protocol/legality.py _offence: source is not None and markers.status(source) is OperatorStatus.FINISHED "
            "with 'and' turned"
        ),
        "protocol/legality.py _offence: source is not None with 'is not' turned, no. 2",
        "protocol/legality.py _offence: source.total != vertex.total with '!=' turned",
        "protocol/legality.py _offence: source_edge is not None with 'is not' turned",
        "protocol/legality.py of: ",
    ),
    "unit/protocol/test_pacing.py": ("protocol/pacing.py has_paused: completed_at <= now < completed_at + pause ",),
    "unit/protocol/test_resume.py": (
        "protocol/resume.py _ready: exchange is Exchange.NARROW ",
        "protocol/resume.py _ready: source.total == vertex.total with '==' turned",
        "protocol/resume.py _step: unused is not None with 'is not' turned",
        "protocol/resume.py _usable: left != kept with '!=' turned",
        "protocol/resume.py _usable: reason or f'its input {input_id!r} runs again' with 'or' turned",
        "protocol/resume.py _why_run: ",
        "protocol/resume.py _why_stray: ",
        "protocol/resume.py step: ",
        "protocol/resume.py usable_edges: edge not in edges.values() with 'not in' turned",
    ),
    "unit/protocol/test_retention.py": (
        "protocol/policy.py _check_retention: ",
        "protocol/policy.py discards: ",
    ),
    "unit/protocol/test_state.py": ("protocol/state.py is_of_dag_run: ", "protocol/state.py is_of_task: "),
    "unit/protocol/test_stop.py": (
        "protocol/lease.py end_attempt: event.reason is None with 'is' turned",
        "protocol/lease.py open_attempt: not state.epochs with 'not' turned",
        "protocol/lease.py open_attempt: not state.uncommitted with 'not' turned",
        "protocol/stop.py _check_stoppable: kind is StopKind.DRAIN with 'is' turned",
        (
            "protocol/stop.py may_stop: "
            "state.status in (RunStatus.RUNNING, RunStatus.FAILED) and state.terminated_by is None with 'and' turned"
        ),
        (
            "protocol/stop.py request_stop: "
            "driven_by(state, now, gone_attempt_id=event.gone_attempt_id) is None with 'is' turned"
        ),
        "protocol/stop.py request_stop: state.status is not RunStatus.RUNNING with 'is not' turned",
        (
            "protocol/stop.py resume_run: stop is None or not is_meant or state.status is not RunStatus.STOPPED "
            "with 'or' turned"
        ),
        "protocol/stop.py resume_run: stop is not None with 'is not' turned, no. 2",
    ),
    "unit/protocol/test_topology.py": (
        "protocol/topology.py predecessors: found.get(taken.operator_id) is not Exchange.WIDE with 'is not' turned",
        "protocol/topology.py __post_init__: late is not None or vertex.operator_id in seen with 'or' turned",
    ),
}
TESTED = {name: test for test, names in _UNMET.items() for name in names}
EQUIVALENT = {
    "protocol/checkpoint.py acknowledge_checkpoint: event.manifest_path is None or event.manifest_sha256 is None "
    "with 'or' turned": "half a manifest was refused before",
    "protocol/checkpoint.py acknowledge_checkpoint: state.completed.epoch >= checkpoint.epoch with '>=' turned": (
        "no two checkpoints that complete are of one epoch: none begins of an epoch that another covers"
    ),
    "protocol/checkpoint.py trigger_checkpoint: len(state.pending) >= state.policy.max_pending with '>=' turned": (
        "an epoch only aligns while fewer are pending, and its checkpoint begins before any other could"
    ),
    "protocol/checkpoint.py _complete: known.checkpoint_id < completed.checkpoint_id with '<' turned": (
        "what completes is pending no more"
    ),
    "protocol/fallback.py fall_back: older.checkpoint_id > newest.checkpoint_id with '>' turned": (
        "the newest itself was answered before"
    ),
    "protocol/run.py needs_clock: state.policy.min_pause_seconds > 0 with '>' turned": (
        "the clock is asked for a pause of nothing, which has passed whatever it says"
    ),
}


def noticed_by(name: str) -> str | None:
    """Return the test that notices a mutant which the simulation does not; None for any other."""
    return next((test for key, test in TESTED.items() if is_meant(name, key)), None)


def is_meant(name: str, key: str) -> bool:
    """Tell whether an entry means the mutant of this name."""
    return name.startswith(key) if key.endswith(" ") else name == key
