"""How often is a call of the store tried again, when the connection is lost or the run is locked?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from iteration_lib.errors import OutcomeUnknownError

T = TypeVar("T")
Sleep: TypeAlias = Callable[[float], None]

_logger = logging.getLogger(__name__)

DELAYS_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0)  # a restarted server is back within these


def retry(
    call: Callable[[], T],
    what: str,
    *,
    sleep: Sleep = time.sleep,
    delays_seconds: Sequence[float] = DELAYS_SECONDS,
    but_for: tuple[type[OutcomeUnknownError], ...] = (),
) -> T:
    """Return what a call returns that may be repeated; raises OutcomeUnknownError when the store stays away.

    Errors of the kinds `but_for` are raised at once.
    """
    for delay_seconds in delays_seconds:
        try:
            return call()
        except but_for:
            raise
        except OutcomeUnknownError as err:
            _logger.warning("event=store_retry %s delay_seconds=%s error=%s", what, delay_seconds, err)
            sleep(delay_seconds)
    return call()
