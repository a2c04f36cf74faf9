"""Do rows become states, also where a later version wrote them?"""

from __future__ import annotations

import dataclasses

from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import AttemptId, AttemptState
from iteration_lib.store import row as rows
from tests.protocol_script import HOLDER, LATER


def test_attempt_is_read_without_the_fields_of_a_later_version() -> None:
    policy = CheckpointPolicy(every_epochs=3)

    assert AttemptState(
        attempt_id=AttemptId("a"), fencing_token=1, holder=HOLDER, lease_expires_at=LATER, policy=policy
    ) == rows.attempt_state(
        {
            "attempt_id": "a",
            "fencing_token": 1,
            "holder": {**dataclasses.asdict(HOLDER), "zone": "eu-1"},
            "policy": {**dataclasses.asdict(policy), "compression": "zstd"},
            "lease_expires_at": LATER,
            "definition_changes": None,
        }
    )
