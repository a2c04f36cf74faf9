"""How does one attempt drive a run of an iteration?

The order of effects within an epoch:

    run the operators; where a checkpoint is to be expected, the tails go to new files on the way
    pass the boundary to the next epoch; `boundary` says what happens there

A crash leaves files that nothing names; the next attempt runs the epochs after the last durable one again, from its
variables, behind the operators whose edges are durable.
"""

from __future__ import annotations

from collections.abc import Mapping

from iteration_lib.driver.blame import in_epoch
from iteration_lib.driver.boundary import Boundary
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.epoch import EpochRunner
from iteration_lib.driver.listener import Listeners
from iteration_lib.driver.origin import keep_origin
from iteration_lib.driver.restore import read_completed_manifest, restore_carried
from iteration_lib.driver.sinks import Sinks
from iteration_lib.driver.streams import Streams
from iteration_lib.driver.sweep import sweep_scratch
from iteration_lib.marker import carried_in_force
from iteration_lib.protocol import RunState
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.runner.seam import Stream
from iteration_lib.state.manifest import Manifest


def drive_epochs(context: RunContext, *, until_epoch: int | None = None) -> RunState:
    """Run epochs until the run terminates or `until_epoch` (exclusive) is reached; all of them are durable then.

    One that found a run which is to stop, and had something to commit, has done what there was to do.
    """
    state = Sinks(context).recover(context.attempt.opened)
    is_to_stop = state.asked_to is StopKind.STOP and bool(context.attempt.opened.uncommitted)
    is_reached = until_epoch is not None and state.last_durable_epoch + 1 >= until_epoch
    if state.status is not RunStatus.RUNNING or is_to_stop or is_reached:
        return Listeners(context).notify_durable(state)
    sweep_scratch(context)
    manifest = _manifest_to_restore(context, state)
    streams = Streams(context)
    streams.check_pins()
    carried = restore_carried(context, streams, manifest) if manifest is not None else streams.first_values()
    context.observer.run_restored(context.run, next_epoch=state.last_durable_epoch + 1)
    boundary = Boundary(context, until_epoch=until_epoch)
    with boundary.settling():
        return _run_epochs(context, streams, boundary, carried)


def _manifest_to_restore(context: RunContext, state: RunState) -> Manifest | None:
    """Return what the attempt begins with: the completed checkpoint, what a branch started from, or nothing."""
    if state.completed is not None:
        manifest = read_completed_manifest(context.store, context.run, context.location)
        operators = context.store.list_operators(context.run.run_id)
        return carried_in_force(operators, manifest)
    return keep_origin(context) if state.holds_origin else None


def _run_epochs(context: RunContext, streams: Streams, boundary: Boundary, carried: Mapping[str, Stream]) -> RunState:
    """Run epochs after the last durable one until the attempt's last."""
    epoch, each_epoch = boundary.open_first(), {operator.operator_id for operator in context.graph.per_epoch()}
    while True:
        edges = boundary.edges(epoch, streams.edges.get(epoch, {}))
        boundary.enter(epoch)
        runner = EpochRunner(context, streams, carried, edges=edges, epoch=epoch)
        with in_epoch(epoch, each_epoch):
            with runner.capturing(), boundary.hearing_the_end():
                result = runner.run(is_saved=boundary.expects_checkpoint(epoch))
                boundary.align(result)
            is_over = boundary.checkpoint(result, finished=streams.finished, write=runner.write_outputs)
        runner.drop_scratch()  # not before: what is lazy may read it while outputs are written
        if is_over:
            return boundary.end(epoch)
        carried = result.variables
        epoch += 1
