"""By what right does a simulated attempt claim a run that another holds?"""

from __future__ import annotations

import enum

LEASE_SECONDS = 30.0


class Right(enum.Enum):
    """By what right an attempt claims a run that another holds."""

    NONE = "no right"
    LEASE = "the lease"
    PROOF = "a proof"
    WORD = "a person's word"
