"""What do durable epochs publish through sinks, and what of it is not committed yet?

The second phase of a two-phase commit has to be decided somewhere: here the decision to commit is the row of a
committable, stored in the very step in which a checkpoint makes its epoch durable. So what was prepared and is not
stored belongs to an epoch that was voided, and is aborted; what is stored is committed, as often as it takes (I19).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.command import Command, MarkCommitted, RecordCommittables
from iteration_lib.protocol.event import Committable, CommittablesCommitted
from iteration_lib.protocol.state import EpochState, RunState


def sinks_of(definition: Mapping[str, object]) -> dict[str, bool]:
    """Return the outputs of a definition that go to a sink, and whether those of every epoch do."""
    return cast("dict[str, bool]", definition.get("sinks", {}))  # JSON that model.definition.describe made


def store_committables(
    state: RunState, committables: Sequence[Committable], covered: Collection[EpochState]
) -> tuple[RunState, tuple[Command, ...]]:
    """Store what the epochs that have just become durable publish: all of it, or nothing becomes durable (I19).

    What an epoch that was durable before published is stored already.
    """
    first_epoch = min(epoch.epoch for epoch in covered)
    new = tuple(known for known in committables if known.epoch >= first_epoch)
    expected = {(epoch.epoch, output) for epoch in covered for output in _published_in(state, epoch)}
    found = [(known.epoch, known.output) for known in new]
    if sorted(found) != sorted(expected):
        raise ProtocolViolationError(f"epochs publish {sorted(expected)}, and {sorted(found)} was prepared (I19)")
    if not new:
        return state, ()
    uncommitted = {(known.epoch, known.output) for known in new if not known.in_store}
    return (
        replace(state, uncommitted=state.uncommitted | uncommitted),
        (RecordCommittables(committables=new),),
    )


def commit_committables(state: RunState, event: CommittablesCommitted) -> tuple[RunState, tuple[Command, ...]]:
    """Record that sinks show what was stored; repeating it is harmless."""
    committed = tuple(sorted(state.uncommitted & set(event.committed)))
    if not committed:
        return state, ()
    return (
        replace(state, uncommitted=state.uncommitted - set(committed)),
        (MarkCommitted(committed=committed),),
    )


def _published_in(state: RunState, epoch: EpochState) -> tuple[str, ...]:
    is_last = epoch.decision is not None and epoch.decision.terminated_by is not None
    return tuple(output for output, each_epoch in state.sinks.items() if each_epoch or is_last)
