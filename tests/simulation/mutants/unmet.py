"""Which turned comparisons does the simulation not tell apart, and which tests do? And which can nobody tell apart?

A key is the name of one of `compared`, or how it begins; of several the longest counts. The simulation does not come to
those places (settings are drawn to make sense, a program's operators are in order, a plan is made for people), or so
seldom that a test is quicker.
"""

from __future__ import annotations

_ABORT, _EDGE, _FALLBACK = (f"unit/protocol/test_{name}.py" for name in ("abort", "edge", "fallback"))
_FINISHED, _LEASE, _STOP = (f"unit/protocol/test_{name}.py" for name in ("finished", "lease", "stop"))
_RETENTION = "unit/protocol/test_retention.py"
_SETTINGS = "unit/model/test_checkpointing.py"

TESTED = {
    "protocol/abort.py check_goes_on: state.status is RunStatus.FINISHED": _ABORT,
    "protocol/bucket_range.py ": "unit/protocol/test_bucket_range.py",
    "protocol/checkpoint.py _answer_requests: ": "unit/protocol/test_failure.py",
    "protocol/checkpoint.py _complete: NO_EPOCH < edge.epoch <= completed.epoch": _EDGE,
    "protocol/edge.py _is_behind: edge.total != part.total": _EDGE,
    "protocol/edge.py _mark: first < part.end_bucket": _EDGE,
    "protocol/fallback.py ": _FALLBACK,
    "protocol/edge.py void_edges: ": _EDGE,
    "protocol/finished.py change_definition: ": _FINISHED,
    "protocol/finished.py publish_outputs: state.status is not RunStatus.TERMINATING or state.pending": _ABORT,
    "protocol/finished.py pin_data: known == event.fingerprint": _FINISHED,
    "protocol/lease.py end_attempt: event.reason is None": _STOP,
    "protocol/lease.py end_attempt: stops and event.reason is None": _LEASE,
    "protocol/lease.py is_last_word_again: finishes and": _LEASE,
    "protocol/lease.py open_attempt: not state.epochs": _STOP,
    "protocol/lease.py open_attempt: not state.uncommitted": _STOP,
    "protocol/legality.py ": "unit/protocol/test_legality.py",
    "protocol/legality.py check_restored_epoch: ": _LEASE,
    "protocol/pacing.py has_paused: completed_at + pause <= now": "unit/protocol/test_pacing.py",
    "protocol/policy.py check_seconds: ": _SETTINGS,
    "protocol/policy.py _check_count: ": _SETTINGS,
    "protocol/policy.py __post_init__: ": _SETTINGS,
    "protocol/policy.py _check_retention: ": _RETENTION,
    "protocol/resume.py ": "unit/protocol/test_resume.py",
    "protocol/retention.py discardable: known.is_claimed or known.checkpoint_id not in kept": _RETENTION,
    "protocol/topology.py ": "unit/protocol/test_topology.py",
}
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
}
