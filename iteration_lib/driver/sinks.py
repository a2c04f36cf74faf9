"""How do outputs get to their sinks, each epoch's once? Prepared before an epoch is durable, committed after it.

Beside the next epoch, and before its checkpoint is completed, what each covered epoch publishes is prepared; the store
keeps the committables in the step that completes the checkpoint, and then they are committed. A table in the store's
own database is filled in that very step. The next attempt commits what is stored and may not have been committed, and
aborts whatever was prepared of epochs that are void now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.keepable import as_json
from iteration_lib.errors import (
    CheckpointFailedError,
    ProtocolViolationError,
    SinkTargetError,
    StateCorruptedError,
    StateLocationError,
    UsageError,
    say,
)
from iteration_lib.interrupt import RAISED_BY_USERS, ToldToEnd
from iteration_lib.protocol.event import Committable, CommittablesCommitted
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import EpochStatus
from iteration_lib.sinks.postgres import PostgresSink
from iteration_lib.sinks.seam import Publication, Sink, SinkTransaction, check_sink, describe_sink

if TYPE_CHECKING:
    from iteration_lib.driver.context import RunContext
    from iteration_lib.model.graph import Graph
    from iteration_lib.protocol import RunState
    from iteration_lib.state.saved import SavedStream
    from iteration_lib.store.record import CommittableRecord

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5

Key: TypeAlias = tuple[int, str]  # an epoch and an output


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSink:
    """A sink as a run uses it, and whether its table lies in the store's own database."""

    sink: Sink
    in_store: bool = False


def open_sinks(graph: Graph, params: object, *, store_url: str | None) -> dict[str, OpenSink]:
    """Return the sink of each output that has one; raises UsageError for a table of a store that is no database.

    A function stands for the sink that it returns for a run's parameters.
    """
    found: dict[str, OpenSink] = {}
    for output, declared in graph.sinks.items():
        given = declared.sink
        with _named(given, output, "making its sink"):
            made = given if hasattr(given, "prepare") else cast("Callable[[object], object]", given)(params)
        sink = cast("Sink", made)
        in_store = isinstance(sink, PostgresSink) and sink.is_in_store
        if isinstance(sink, PostgresSink) and in_store:
            if store_url is None:
                raise UsageError(f"{sink.describe()}: this store is no database of its own; give the sink a url=")
            sink = sink.at(store_url)
        found[output] = OpenSink(sink=sink, in_store=in_store)
    return found


def names_of(sink: Sink, output: str) -> tuple[str, ...]:
    """Return what committables call the target of a sink: by now, and older ones, which name no database.

    Raises SinkTargetError, whatever the sink raises: it tells nothing yet of the target or of files.
    """
    try:
        older = (sink.describe_table(),) if isinstance(sink, PostgresSink) else ()
        return (describe_sink(sink), *older)
    except (SinkTargetError, ToldToEnd):
        raise
    except RAISED_BY_USERS as err:  # the border to the user's code: whatever a sink raises
        raise _failure(sink, output, "describe", err) from err


def other_target(sinks: Mapping[str, OpenSink], stored: CommittableRecord) -> SinkTargetError | None:
    """Return the error of an output that waits for another target than it goes to now, or whose sink cannot say."""
    found = sinks.get(stored.output)
    try:
        names = names_of(found.sink, stored.output) if found is not None else ()
    except SinkTargetError as err:
        return err
    if stored.target in names:
        return None
    now = names[0] if names else "no sink"
    problem = f"waits for output {stored.output!r} of epoch {stored.epoch}, which goes to {now} now"
    way_out = "give the output its sink back until the run has gone on, and change it then"
    return SinkTargetError(stored.target, problem, way_out=way_out)


def or_given_up(err: SinkTargetError, stored: CommittableRecord) -> SinkTargetError:
    """Return the error of a commit that does not pass by itself, with the other way out."""
    given_up = f"or give output {stored.output!r} of epoch {stored.epoch} up, as docs/sinks.md says"
    return SinkTargetError(err.target, err.problem, way_out=f"{err.way_out} ({given_up})")


class Sinks:
    """The sinks of one attempt's run. Safe to share between the driver and the checkpoints that are being written."""

    def __init__(self, context: RunContext) -> None:
        """Begin with nothing to publish."""
        self._context = context
        self._lock = context.background.lock()
        self._prepared: dict[Key, Committable] = {}
        self._durable = NO_EPOCH

    def recover(self, state: RunState) -> RunState:
        """Commit what is stored, and abort what attempts before prepared of epochs that are void; see `commit`.

        A sink that hangs has the time of a checkpoint; raises CheckpointFailedError then.
        """
        if not (self._context.sinks or state.uncommitted):
            return state
        context, timeout_seconds = self._context, self._context.policy.timeout_seconds
        deadline = context.clock.monotonic_seconds() + timeout_seconds
        job = context.background.start("recovery-0", lambda: self._recover(state))
        while not job.done():
            if context.clock.monotonic_seconds() >= deadline:
                problem = f"what its sinks had to be told first was not committed within {timeout_seconds:g} seconds"
                raise CheckpointFailedError(state.run_id, state.last_durable_epoch, problem)
            context.background.wait([job], timeout_seconds=min(_POLL_SECONDS, timeout_seconds))
        return job.result()

    def _recover(self, state: RunState) -> RunState:
        if state.last_durable_epoch == state.origin_epoch:
            for output, found in self._context.sinks.items():
                with _named(found.sink, output, "check"):
                    check_sink(found.sink)
        state = self.commit(state)
        for epoch in self._context.store.list_epochs(state.run_id, state.last_durable_epoch + 1):
            if epoch.status is EpochStatus.VOIDED and epoch.aligned_at is not None:
                self._abort(epoch.epoch, epoch.fencing_token)
        return state

    def prepare(
        self, written: Mapping[Key, SavedStream], *, keeps: Mapping[str, SavedStream]
    ) -> tuple[Committable, ...]:
        """Prepare what is in files, each output of an epoch once, and return the committables.

        The files go once they are prepared, but for those that the run `keeps`: the outputs of its last epoch. What
        cannot be removed is garbage, and no reason to decline a checkpoint.
        """
        with self._lock:
            keys = sorted(key for key in written if key[0] > self._durable)
            for key in keys:
                if key in self._prepared:
                    continue
                self._prepared[key] = self._prepare(*key, written[key])
                self._context.crash_plan.reach(CrashPoint.SINK_PREPARED, key[0])
                if written[key] != keeps.get(key[1]):
                    self._remove(written[key])
            return tuple(self._prepared[key] for key in keys)

    def publish(self, committable: Committable, cursor: Any) -> None:  # noqa: ANN401 - psycopg2's
        """Commit into the store's own database, in the transaction that a cursor is in."""
        sink = cast("PostgresSink", self._context.sinks[committable.output].sink)
        token = self._context.attempt.fencing_token
        transaction = self._transaction(committable.epoch, committable.output, token)
        # The run is locked meanwhile: what hangs must end, and with it this checkpoint.
        timeout_seconds = self._context.policy.timeout_seconds
        sink.publish(cursor, transaction, committable.content, timeout_seconds=timeout_seconds)

    def commit(self, state: RunState) -> RunState:
        """Commit what is stored and may not have been committed, in order; raises SinkTargetError."""
        with self._lock:
            self._durable = max(self._durable, state.last_durable_epoch)
            self._prepared = {key: known for key, known in self._prepared.items() if key[0] > self._durable}
            stored = self._context.store.list_uncommitted(state.run_id) if state.uncommitted else ()
            if not stored:
                return state
            for known in stored:
                self._commit(known)
                self._context.crash_plan.reach(CrashPoint.SINK_COMMITTED, known.epoch)
            committed = tuple((known.epoch, known.output) for known in stored)
            return self._context.attempt.apply(
                CommittablesCommitted(**self._context.attempt.guard, committed=committed)
            )

    def _prepare(self, epoch: int, output: str, saved: SavedStream) -> Committable:
        found = self._context.sinks[output]
        transaction = self._transaction(epoch, output, self._context.attempt.fencing_token)
        with _named(found.sink, output, "prepare"):
            content = found.sink.prepare(transaction, Publication(location=self._context.location, stream=saved))
            return Committable(
                epoch=epoch,
                output=output,
                target=describe_sink(found.sink),
                content=as_json(dict(content)),  # as the store will give it back
                in_store=found.in_store,
            )

    def _remove(self, prepared: SavedStream) -> None:
        folder = str(PurePosixPath(prepared.files[0].path).parent)
        try:
            self._context.location.remove(folder)
        except StateLocationError as err:
            _logger.warning("event=prepared_left folder=%s error=%s", folder, err)

    def _commit(self, stored: CommittableRecord) -> None:
        try:
            self._show(stored)
        except SinkTargetError as err:
            if err.is_passing:
                raise
            raise or_given_up(err, stored) from err

    def _show(self, stored: CommittableRecord) -> None:
        error = other_target(self._context.sinks, stored)
        if error is not None:
            raise error
        found = self._context.sinks[stored.output]
        with _named(found.sink, stored.output, "commit"):
            found.sink.commit(self._transaction(stored.epoch, stored.output, stored.fencing_token), stored.content)
        _logger.info(
            "event=output_committed run_id=%s output=%s epoch=%s target=%s",
            self._context.run.run_id,
            stored.output,
            stored.epoch,
            stored.target,
        )

    def _abort(self, epoch: int, fencing_token: int) -> None:
        for output, found in self._context.sinks.items():
            with _named(found.sink, output, "abort"):
                found.sink.abort(self._transaction(epoch, output, fencing_token))
        self._context.crash_plan.reach(CrashPoint.SINK_ABORTED, epoch)

    def _transaction(self, epoch: int, output: str, fencing_token: int) -> SinkTransaction:
        run = self._context.run
        return SinkTransaction(
            run_id=run.run_id,
            run_key=run.run_key,
            run_created_at=run.created_at,
            output=output,
            epoch=epoch,
            fencing_token=fencing_token,
        )


@contextmanager
def _named(sink: object, output: str, method: str) -> Iterator[None]:
    """Have an error of a user's own sink say whose it is: it is the target's, for whoever decides what it ends.

    Those that tell of the target, or of the files that it gets, pass; any other of this project tells of another run.
    """
    try:
        yield
    except (SinkTargetError, StateLocationError, StateCorruptedError, ProtocolViolationError, ToldToEnd):
        raise
    except RAISED_BY_USERS as err:  # the border to the user's code: whatever a sink raises
        if type(err) is UsageError:  # of the target too, in the sink's own words
            raise
        raise _failure(sink, output, method, err) from err


def _failure(sink: object, output: str, method: str, err: BaseException) -> SinkTargetError:
    target, problem = f"the {type(sink).__name__} of output {output!r}", f"failed in {method}"
    return SinkTargetError(target, f"{problem} ({say(err)})")
