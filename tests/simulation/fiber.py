"""Where may the scheduler take over? At every call of a port: each asks before it acts, and is told its fate.

An attempt runs the driver in a fiber, its heartbeat beats in another, and each checkpoint that is written beside the
epochs has one of its own; so does whoever collects garbage or branches. Whoever asks from outside any fiber (the
oracle, a probe, a person) goes on at once.
"""

from __future__ import annotations

import enum
from contextlib import contextmanager
from typing import TYPE_CHECKING

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]  # it has no annotations

from iteration_lib.errors import OutcomeUnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iteration_lib.protocol.policy import CheckpointPolicy
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.ports import Said
    from tests.simulation.process import SimulatedProcess


class Call(enum.Enum):
    """What a fiber is about to do."""

    BEGIN = "begin"
    TRANSACTION = "transaction"
    COMMITTED = "hear that it is committed"
    READ_ROWS = "read rows"
    RENEW = "renew the lease"
    RENEWED = "hear that the lease is renewed"
    PUT = "put the file"
    PUT_DONE = "hear that the file is put"
    GET = "get the file"
    LIST = "list the files"
    REMOVE = "remove the file"
    RUN = "run the operator"
    LISTEN = "call the listener"
    SINK = "use the sink"
    SINK_DONE = "hear that the sink is through"
    POINT = "pass the crash point"
    WAIT = "wait"
    AWAIT = "wait for a job"
    JOIN = "wait for the heartbeat"
    DIE = "die"

    __hash__ = object.__hash__  # quicker than Enum's own; members are compared by identity


class Fate(enum.Enum):
    """What becomes of a call."""

    GO = "goes well"
    LOST = "the connection is lost"
    FAIL = "fails"
    TEAR = "half of it is written, and it fails"
    TEAR_UNSEEN = "half of it is written, and it seems to go well"
    TEAR_AND_DIE = "half of it is written, and the process dies"
    STRAY = "goes well, and a failed task leaves a file beside it"
    HANG = "does not return"
    FORGET = "goes well, and the server forgets it if it was not flushed"

    __hash__ = object.__hash__


class Killed(GreenletExit):  # type: ignore[misc]  # as above
    """The process is gone."""


class Fiber(greenlet):  # type: ignore[misc]  # greenlet has no annotations that mypy follows here
    """One thread of a process. `waiting_for` is the call that it is about to make.

    One that `is_beside` the driver may hang in a call without holding the process up. `saying` is what it is sending,
    and `keeping` the policy by which it discards checkpoints. `has_lost_the_store` once it has heard that, from its own
    call or from a job.
    """

    def __init__(
        self, process: SimulatedProcess, name: str, body: Callable[[], None], *, is_beside: bool = False
    ) -> None:
        beginner = getcurrent()
        super().__init__(parent=beginner.parent if isinstance(beginner, Fiber) else beginner)  # always the scheduler
        self.process = process
        self.name = name
        self.is_beside = is_beside
        self.is_hanging = False
        self.waiting_for: tuple[Call, object] = (Call.BEGIN, None)
        self.saying: Said | None = None
        self.keeping: CheckpointPolicy | None = None
        self.has_lost_the_store = False
        self._body = body

    def run(self, _fate: Fate) -> None:
        """Run the body to its end, or until the process is killed."""
        if not self.process.is_killed:
            self._body()

    def ask(self, call: Call, what: object) -> Fate:
        """Wait until the scheduler lets this call happen; raises Killed, then and ever after, if it never does."""
        if self.process.is_killed:
            raise Killed
        self.waiting_for = (call, what)
        fate: Fate = self.parent.switch()
        return fate


def ask(call: Call, what: object = None) -> Fate:
    """Ask for the fate of a call."""
    current = getcurrent()
    return current.ask(call, what) if isinstance(current, Fiber) else Fate.GO


def current_fiber() -> Fiber | None:
    """Return the fiber that this is called in; None outside of any."""
    current = getcurrent()
    return current if isinstance(current, Fiber) else None


@contextmanager
def noting_loss() -> Iterator[None]:
    """Note in the fiber that this is called in that the store is lost, for good."""
    try:
        yield
    except OutcomeUnknownError:
        fiber = current_fiber()
        if fiber is not None:
            fiber.has_lost_the_store = True
        raise


def current_attempt() -> SimulatedAttempt | None:
    """Return whose fiber this is; None outside of any."""
    current = getcurrent()
    return current.process.attempt if isinstance(current, Fiber) else None
