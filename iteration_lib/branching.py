"""How does a run start from a checkpoint of another one? As a branch, with parameters and code of its own.

What names a checkpoint: `RUN` (its newest), `RUN@CHECKPOINT`, or the folder of a savepoint. Nothing is copied here: the
branch pins the checkpoint, and its first attempt copies what it needs (driver.origin).

What the origin computed once and for all (pins of data streams, operators that finished for good) is taken over where
the branch would have computed the same: same code, same inputs, and no parameter that the operator takes and that is
another one now. A data stream that takes parameters, where these are other ones, is taken over if it names the same
Parquet files still; of one that reads by Spark nobody can tell, and whoever branches has to say. What code an older
checkpoint was written with no row says: an output that the origin itself does not take for finished any more is left
behind when the rest is copied (savepoint.finished_in_force). What operators carried is settled when the branch is made:
nothing is carried on of one that the origin has removed since, also where it has added another one of that id, and
whoever branches with an operator of that id has to say so; of one that it removes later, all is carried on.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from iteration_lib.config import Settings
from iteration_lib.driver.restore import read_origin_manifest
from iteration_lib.errors import (
    IllegalBranchError,
    OriginGoneError,
    RunMismatchError,
    RunNotFoundError,
    StateCorruptedError,
    StateLocationError,
    UsageError,
)
from iteration_lib.launch import max_epochs_of, new_run
from iteration_lib.marker import held_in, read_under_one_definition, there_since
from iteration_lib.model.definition import carrying_of, declared_as, describe, load_iteration, params_differences
from iteration_lib.model.evolution import check_branch, evolution_of, kept_by_branch
from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.loop import LOOP_REFERENCE
from iteration_lib.model.operator import Operator, Role
from iteration_lib.model.params import Scalar, params_json, parse_params
from iteration_lib.model.source import ParquetSource
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import CheckpointStatus, RestoreMode
from iteration_lib.runner.calling import call_source
from iteration_lib.savepoint import SAVEPOINT_FILE, open_savepoint
from iteration_lib.saving import checkpoints_with_files, newest_of
from iteration_lib.state.files import read_if_there, read_whole
from iteration_lib.state.location import StateLocation
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import BranchRecord, CheckpointRecord, NewRun, OperatorRecord, Origin, RunRecord
from iteration_lib.store.seam import StoreWithHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRequest:
    """A branch as somebody asks for it. `params` are those that are to be other ones, as values or texts.

    `epoch` names the checkpoint by its epoch instead of its id. With `data` "new" data streams read their sources anew,
    with "kept" they read what the origin read, whatever the parameters. `reference` is the iteration that it has to be
    of. With `more_epochs` the parameter `max_epochs` is so many epochs behind the checkpoint.
    """

    checkpoint: str
    run_key: str
    branched_by: str
    epoch: int | None = None
    reference: str | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    more_epochs: int | None = None
    mode: RestoreMode = RestoreMode.NO_CLAIM
    state_uri: str | None = None
    data: Literal["new", "kept"] | None = None
    allow_dropped_state: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A checkpoint that a run may start from, and what its own run was made of."""

    shown: str
    origin_run_id: RunId | None
    origin_checkpoint_id: int | None
    epoch: int
    uri: str
    manifest_path: str
    manifest_sha256: str
    reference: str
    definition: Mapping[str, object]
    params: Mapping[str, Scalar]
    carries: tuple[str, ...]
    max_buckets: int
    state_uri: str | None
    is_needed_by_its_run: bool


def branch_run(store: StoreWithHistory, settings: Settings, request: BranchRequest) -> RunRecord:
    """Return the branch of this key, made now if there is none; starts nothing.

    Raises RunNotFoundError, UsageError for a checkpoint that is not there, IllegalBranchError with every reason why
    none can start from it, ParameterError, RunMismatchError when the key belongs to another run, and
    StateCorruptedError where the checkpoint's manifest has to be read and cannot be.
    """
    source = _find_source(store, request)
    if source.reference == LOOP_REFERENCE:
        raise IllegalBranchError(source.shown, ("its epochs are a loop in a script of its own, which only that runs",))
    if request.reference not in (None, source.reference):
        reason = f"it is of the iteration {source.reference}, and the run is to be one of {request.reference}"
        raise IllegalBranchError(source.shown, (reason,))
    iteration = load_iteration(source.reference)
    graph = iteration.graph()
    parsed = parse_params(iteration.params, {**_known(iteration, source.params), **_asked(source, request)})
    params = params_json(parsed)
    origin = Origin(
        origin_run_id=source.origin_run_id,
        origin_checkpoint_id=source.origin_checkpoint_id,
        epoch=source.epoch,
        uri=source.uri,
        manifest_path=source.manifest_path,
        manifest_sha256=source.manifest_sha256,
        mode=request.mode,
        keeps=_keeps(source, iteration, parsed, data=request.data),
        branched_by=request.branched_by,
        carries=source.carries,
    )
    new = new_run(
        dataclasses.replace(settings, state_uri=request.state_uri or source.state_uri or settings.state_uri),
        run_key=request.run_key,
        reference=source.reference,
        definition=describe(graph),
        params=params,
        max_buckets=source.max_buckets,
    )
    if store.find_run(request.run_key) is None:
        try:
            _check(source, graph, request, params, origin)
            store.add_run(new, origin)
        except (StateCorruptedError, OriginGoneError):
            if _find_source(store, request).manifest_path == source.manifest_path:
                raise
            return branch_run(store, settings, request)  # retention has let go what was the newest when it was found
    found = find_run(store, request.run_key)
    _check_same(store, found, new, origin, data=request.data)
    return found


def _check(source: _Source, graph: Graph, request: BranchRequest, params: Mapping[str, Scalar], origin: Origin) -> None:
    """Raise IllegalBranchError with every reason why the branch cannot be."""
    carried = {declared_as(source.definition, operator_id) for operator_id in source.carries}
    reasons = list(
        check_branch(
            evolution_of(source.definition, graph), stateful=carried, allow_dropped_state=request.allow_dropped_state
        )
    )
    if not request.allow_dropped_state:
        reasons += _left_behind(origin, describe(graph))
    max_epochs = max_epochs_of(params)
    if max_epochs is not None and source.epoch + 1 >= max_epochs:
        reasons.append(
            f"it is of epoch {source.epoch}, and max_epochs is {max_epochs}: no epoch is left; "
            "give a greater one with --param max_epochs=..."
        )
    if request.mode is RestoreMode.CLAIM and source.is_needed_by_its_run:
        reasons.append(
            "it is the newest of its run, which needs it, so nobody can claim it; branch with --mode no-claim"
        )
    if request.mode is RestoreMode.CLAIM and source.origin_run_id is None:
        reasons.append("it is a savepoint, which its owner alone removes; branch with --mode no-claim")
    reasons += _data_reasons(source, graph, request, params, origin.keeps)
    if reasons:
        raise IllegalBranchError(source.shown, tuple(reasons))


def _left_behind(origin: Origin, definition: Mapping[str, object]) -> Iterator[str]:
    """Say which states the checkpoint holds for ids that the branch has, and does not carry on."""
    begins_anew = set(carrying_of(definition)).difference(origin.carries or ())
    held = read_origin_manifest(origin).states if begins_anew else {}
    for operator_id in sorted(begins_anew & held.keys()):
        yield (
            f"it holds the state of an operator {declared_as(definition, operator_id)!r} that its run has removed "
            "since, and the branch's own would begin with none; give it another operator_id, or say "
            "--allow-dropped-state"
        )


def _data_reasons(
    source: _Source, graph: Graph, request: BranchRequest, params: Mapping[str, Scalar], keeps: Sequence[str]
) -> Iterator[str]:
    """Say which data streams nobody knows to be the same, and which no epoch of the branch would see anew."""
    has_others = _has_others(source, params)
    for operator in graph.data:
        is_unclear = {"params", "spark"} <= set(operator.injected) and has_others
        if is_unclear and request.data is None:
            yield (
                f"data stream {operator.operator_id!r} reads by Spark and takes parameters, which are others now; say "
                "whether it reads anew (--new-data, in Airflow start_data: new) or what the origin read (--keep-data, "
                "start_data: kept)"
            )
        elif not operator.replays and operator.operator_id not in keeps:
            yield f"data stream {operator.operator_id!r} comes once, in epoch 0: no epoch of a branch would see it anew"


def _has_others(source: _Source, params: Mapping[str, Scalar]) -> bool:
    """Tell whether parameters are others that data may depend on: how long a run is makes no other data."""
    before, after = ({**found, "max_epochs": None} for found in (source.params, params))
    return bool(params_differences(before, after))


def _asked(source: _Source, request: BranchRequest) -> Mapping[str, object]:
    """Return the parameters that are to be other ones."""
    if request.more_epochs is None:
        return request.params
    return {**request.params, "max_epochs": source.epoch + 1 + request.more_epochs}


def _known(iteration: Iteration, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the parameters that the iteration still has."""
    names = {field.name for field in dataclasses.fields(iteration.params)}
    return {name: value for name, value in params.items() if name in names}


def _keeps(
    source: _Source, iteration: Iteration, parsed: object, *, data: Literal["new", "kept"] | None
) -> tuple[str, ...]:
    """Return the ids of the data streams and finished operators that the branch takes over."""
    graph, params = iteration.graph(), params_json(parsed)
    before = parse_params(iteration.params, {**params, **_known(iteration, source.params)})
    has_other_params, has_others = bool(params_differences(source.params, params)), _has_others(source, params)
    streams = {
        operator.operator_id
        for operator in graph.data
        if data == "kept" or (data is None and (not has_others or _reads_the_same(operator, before, parsed)))
    }
    finishing = [operator for operator in graph.operators if operator.finishes]
    takes_other_params = {
        operator.operator_id
        for operator in finishing
        if has_other_params and not {"params", "rng"}.isdisjoint(operator.injected)
    }
    computed = streams.union(operator.operator_id for operator in finishing)
    evolution = evolution_of(source.definition, graph)
    return tuple(sorted(kept_by_branch(evolution, computed, takes_other_params=takes_other_params)))


def _reads_the_same(operator: Operator, before: object, after: object) -> bool:
    """Tell whether a data stream reads the same with other parameters; one that reads by Spark is asked about."""
    if "params" not in operator.injected or "spark" in operator.injected:
        return True
    sources = call_source(operator, before), call_source(operator, after)
    return isinstance(sources[0], ParquetSource) and sources[0] == sources[1]


def _check_same(
    store: StoreWithHistory, found: RunRecord, new: NewRun, origin: Origin, *, data: Literal["new", "kept"] | None
) -> None:
    """Raise RunMismatchError where the key belongs to a run that is not this branch.

    What it keeps was settled when it was made, for its origin may have gone on with other operators since; but for the
    data streams where somebody says now whether they are to be kept.
    """
    if found.run_id == new.run_id:
        return
    known = store.find_branch(found.run_id)
    differences = [*params_differences(found.params, new.params)]
    if known is None or (known.uri, known.manifest_path) != (origin.uri, origin.manifest_path):
        differences.insert(0, "it did not start from this checkpoint")
    else:
        if known.mode is not origin.mode:
            differences.append(f"it is in mode {known.mode.value}")
        if data is not None and not _reads_as_said(store, known, origin, data):
            differences.append(f"it keeps {', '.join(known.keeps) or 'nothing'} of its origin")
    if differences:
        raise RunMismatchError(found.run_key, tuple(differences))


def _reads_as_said(store: StoreWithHistory, known: BranchRecord, origin: Origin, data: Literal["new", "kept"]) -> bool:
    """Tell whether the data streams that a branch began with read anew, or are all kept that could be.

    None could be that its origin has had only since the branch was made. Of a live attempt at the origin that had not
    opened an epoch by then nobody can tell: it is taken to have settled its operators later.
    """
    operators = store.list_operators(known.run_id)
    began_with = there_since(operators, fencing_token=0)
    streams = {found.operator_id for found in operators if found.role == Role.DATA.value} & began_with
    kept = streams.intersection(known.keeps)
    if data == "new":
        return not kept
    if known.origin_run_id is not None and known.origin_checkpoint_id is not None:
        streams &= there_since(
            store.list_operators(known.origin_run_id), _driven_until(store, known.origin_run_id, known)
        )
    return streams.intersection(origin.keeps) <= kept


def _driven_until(store: StoreWithHistory, origin_run_id: RunId, branch: BranchRecord) -> int:
    """Return the last attempt at its origin that had settled the operators when a branch was made.

    An attempt has them when it opens an epoch; until then it may be waiting for Spark.
    """
    at = branch.branched_at
    epochs, attempts = store.list_epochs(origin_run_id, branch.epoch), store.list_attempts(origin_run_id)
    opened = [found.fencing_token for found in epochs if found.opened_at <= at]
    ended = [found.fencing_token for found in attempts if found.ended_at is not None and found.ended_at <= at]
    return max((*opened, *ended), default=0)


def _find_source(store: StoreWithHistory, request: BranchRequest) -> _Source:
    """Return the checkpoint that a text names."""
    name, separator, number = request.checkpoint.rpartition("@")
    run = store.find_run(request.checkpoint)
    if run is not None:
        return _of_run(store, run, request, checkpoint_id=None)
    is_numbered = bool(separator) and number.isdecimal()
    numbered = store.find_run(name) if is_numbered else None
    if numbered is None and not _is_savepoint(request.checkpoint):  # whose folder may be called so, too
        raise RunNotFoundError(name if is_numbered else request.checkpoint, is_savepoint_allowed=not is_numbered)
    if request.epoch is not None:
        problem = "names a checkpoint already; give --epoch with a run's id or key alone"
        raise UsageError(f"{request.checkpoint!r} {problem}")
    if numbered is not None:
        return _of_run(store, numbered, request, checkpoint_id=int(number))
    return _of_savepoint(request.checkpoint)


def _is_savepoint(uri: str) -> bool:
    try:
        return read_if_there(StateLocation(uri), SAVEPOINT_FILE) is not None
    except StateLocationError as err:
        if err.is_passing:  # it cannot be known
            raise
        return False


def _of_run(store: StoreWithHistory, run: RunRecord, request: BranchRequest, *, checkpoint_id: int | None) -> _Source:
    def as_of(run: RunRecord) -> _Source:
        checkpoint = _choose(store, run, request, checkpoint_id=checkpoint_id)
        return _source(run, checkpoint, store.list_operators(run.run_id))

    return read_under_one_definition(store, run, as_of)


def _source(run: RunRecord, checkpoint: CheckpointRecord, operators: Sequence[OperatorRecord]) -> _Source:
    as_then = there_since(operators, checkpoint.fencing_token)
    return _Source(
        shown=f"checkpoint {checkpoint.checkpoint_id} of run {run.run_key!r}",
        origin_run_id=run.run_id,
        origin_checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        uri=StateLocation(run.state_uri).below(run.run_id).uri,
        manifest_path=str(checkpoint.manifest_path),
        manifest_sha256=str(checkpoint.manifest_sha256),
        reference=run.reference,
        definition=run.definition,
        params=run.params,
        carries=tuple(known for known in carrying_of(run.definition) if known in as_then),
        max_buckets=run.max_buckets,
        state_uri=run.state_uri,
        is_needed_by_its_run=checkpoint.status is CheckpointStatus.COMPLETED,
    )


def _choose(
    store: StoreWithHistory, run: RunRecord, request: BranchRequest, *, checkpoint_id: int | None
) -> CheckpointRecord:
    """Return the newest of the checkpoints that are meant.

    Asked again, it is the one that the branch started from: its origin may have gone on, or have discarded it.
    """

    def is_meant(known: CheckpointRecord) -> bool:
        return checkpoint_id in (None, known.checkpoint_id) and request.epoch in (None, known.epoch)

    begun_from = [known for known in _begun_from(store, run, request.run_key) if is_meant(known)]
    there = checkpoints_with_files(store, run)
    meant = begun_from or [known for known in there if is_meant(known)]
    return newest_of(meant, run, there, problem="has no such checkpoint")


def _begun_from(store: StoreWithHistory, run: RunRecord, run_key: str) -> Sequence[CheckpointRecord]:
    """Return the checkpoint of a run that the run of a key started from, if it did."""
    known = store.find_run(run_key)
    branch = store.find_branch(known.run_id) if known is not None else None
    if branch is None or branch.origin_run_id != run.run_id or branch.origin_checkpoint_id is None:
        return ()
    return store.list_checkpoints(run.run_id, [branch.origin_checkpoint_id])


def _of_savepoint(uri: str) -> _Source:
    savepoint = open_savepoint(uri)
    manifest, location = savepoint.manifest, savepoint.location
    return _Source(
        shown=f"the savepoint {location.uri}",
        origin_run_id=None,
        origin_checkpoint_id=None,
        epoch=manifest.epoch,
        uri=location.uri,
        manifest_path=SAVEPOINT_FILE,
        manifest_sha256=hashlib.sha256(read_whole(location, SAVEPOINT_FILE)).hexdigest(),
        reference=manifest.reference,
        definition=savepoint.definition,
        params=savepoint.params,
        carries=held_in(manifest, carrying_of(savepoint.definition)),  # that may be newer
        max_buckets=manifest.max_buckets,
        state_uri=None,
        is_needed_by_its_run=False,
    )
