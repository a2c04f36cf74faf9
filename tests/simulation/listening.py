"""What does a simulated listener do? It asks for its fate, and the oracle hears of the call.

Called outside of any fiber, as the reference does, it only returns.
"""

from __future__ import annotations

from tests.simulation.fiber import Call, Fate, ask, current_attempt


def listen(listener_id: str, epoch: int, effect_id: str | None = None) -> None:
    """Tell the oracle that a listener is called; raises ValueError where it is to fail."""
    fate = ask(Call.LISTEN, (listener_id, epoch))
    attempt = current_attempt()
    if attempt is None:
        return
    if fate is Fate.FAIL:
        attempt.fail("run")
        raise ValueError("injected")
    attempt.run.oracle.listener_was_called(attempt, listener_id, epoch, effect_id)
