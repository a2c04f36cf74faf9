"""How often is a call of the store tried again, when the connection is lost or the run is locked?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from iteration_lib.errors import OutcomeUnknownError

T = TypeVar("T")
Sleep: TypeAlias = Callable[[float], None]

_logger = logging.getLogger(__name__)

_DELAYS_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0)  # a restarted server is back within these


def retry(call: Callable[[], T], what: str, *, sleep: Sleep = time.sleep) -> T:
    """Return what a call returns that may be repeated; raises OutcomeUnknownError when the store stays away."""
    for delay_seconds in _DELAYS_SECONDS:
        try:
            return call()
        except OutcomeUnknownError as err:
            _logger.warning("event=store_retry %s delay_seconds=%s error=%s", what, delay_seconds, err)
            sleep(delay_seconds)
    return call()
