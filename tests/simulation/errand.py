"""What does somebody do to a run that takes more than one call? Collect its garbage, or branch it, beside its attempts.

Each is a process of its own: others go on between two of its calls, and it may end in the middle. What the command line
puts together for a person, this puts together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, cast

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.config import Settings
from iteration_lib.errors import (
    IllegalBranchError,
    OutcomeUnknownError,
    RunMismatchError,
    RunNotFoundError,
    StateCorruptedError,
    StateLocationError,
    UsageError,
)
from iteration_lib.garbage import collect_garbage
from iteration_lib.model.operator import Role
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.status import RestoreMode, RunStatus
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory
from tests.simulation.change import Row, of_status
from tests.simulation.disk import STATE_URI
from tests.simulation.ends import names_a_bad_file
from tests.simulation.evolution_rules import kept_by_branch, refused_to_branch
from tests.simulation.fiber import Call, ask, current_fiber
from tests.simulation.lineage import carried_by
from tests.simulation.ports import SimulatedCoordinator
from tests.simulation.process import SimulatedProcess
from tests.simulation.programs import Program
from tests.simulation.versions import EvolvingProgram, program_of

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun

OTHER_RUNS = "until the other runs are collected"

_SETTINGS = Settings(store_url=None, state_uri=STATE_URI)
_THERE = 0.9  # how often a checkpoint is named that was completed, as far as anybody has seen
_NEWEST = 0.4  # how often somebody branches the newest checkpoint, which may break
_BUSY = 0.5  # how often who has read the run collects the garbage of others first
_DROPS = 0.6  # how often a branch of a program that changes may drop state
_OLD_KEY = 0.2  # how often the key is that of a branch that is there


class Errand(SimulatedProcess):
    """A process that does one thing; `may_fail` tells whether an error is no fault of it."""

    def __init__(
        self,
        run: SimulatedRun,
        number: int,
        name: str,
        work: Callable[[], None],
        *,
        may_fail: Callable[[BaseException], bool],
    ) -> None:
        super().__init__(run, number, f"{name} {number}")
        self._do = work
        self._may_fail = may_fail

    def _work(self) -> None:
        self._do()

    def _ended(self) -> None:
        error = self.error
        self.world.counters[f"{self.name.rstrip('0123456789')}ended: {type(error).__name__ if error else 'well'}"] += 1
        if error is None or (isinstance(error, OutcomeUnknownError) and "store" in self.hurt):
            return
        is_hurt = isinstance(error, StateCorruptedError) and ("get" in self.hurt or names_a_bad_file(self.world, error))
        if isinstance(error, StateLocationError):  # what cannot be removed is left, but where it was a try to write
            is_hurt = bool({"put", "list"} & self.hurt) or ("remove" in self.hurt and "be written" in str(error))
        if not is_hurt and not self._may_fail(error):
            self.run.oracle.violate("errors", f"{self.name} ended with {error!r}")


class Seen:
    """What somebody who branches a run may have seen of it, and of the file, since he began."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self._programs = len(run.lineage.programs)
        self._versions = len(run.world.file.versions) if run.world.file is not None else 0

    def may_be_kept(self, program: Program, request: BranchRequest, checkpoint_id: int) -> list[tuple[str, ...]]:
        """Return what a branch may take over that begins with a program."""
        if not isinstance(program, EvolvingProgram):
            once = (o.operator_id for o in program.graph.operators if o.role is Role.DATA or o.finishes)
            return [tuple(sorted(once))]
        found = self._found(request, checkpoint_id)
        return [kept_by_branch(of, program) for of in self._origins if not all(judge(of, program) for judge in found)]

    def may_be_carried(self, checkpoint_id: int) -> list[frozenset[str]]:
        """Return whose states a branch of a checkpoint may carry on."""
        token = self._run.rows.checkpoints[checkpoint_id]["fencing_token"]
        return self._run.lineage.carried(token, since=self._programs - 1)

    def may_be_refused(self, request: BranchRequest) -> bool:
        """Tell whether the state of the checkpoint may not have fitted the file."""
        file = self._run.world.file
        versions = [program_of(version) for version in file.versions[self._versions - 1 :]] if file is not None else []
        asked = [
            row["checkpoint_id"] for row in self._run.rows.checkpoints.values() if _is_meant(self._run, request, row)
        ]
        found = [judge for checkpoint_id in asked for judge in self._found(request, checkpoint_id)]
        return any(judge(of, program) for judge in found for of in self._origins for program in versions)

    def _found(self, request: BranchRequest, checkpoint_id: int) -> list[Callable[..., frozenset[str]]]:
        """Return the rule for a branch of a checkpoint, by what its run may have carried on since."""
        held = self._run.lineage.held(self._run.rows.checkpoints[checkpoint_id]["fencing_token"])
        rule = partial(refused_to_branch, held=held, allows_drop=request.allow_dropped_state)
        return [partial(rule, carried=carried) for carried in self.may_be_carried(checkpoint_id)]

    @property
    def _origins(self) -> list[EvolvingProgram]:
        return cast("list[EvolvingProgram]", self._run.lineage.programs[self._programs - 1 :])


def collector(run: SimulatedRun, number: int) -> Errand:
    """Return who discards what the last attempt's policy lets go, and then removes the files that nobody needs."""
    store = cast("StoreWithHistory", run.world.ports)  # it lacks only what nobody here asks
    is_busy = run.world.random.random() < _BUSY

    def collect() -> None:
        record = cast("RunRecord", store.find_run(run.run_id))
        if is_busy:
            ask(Call.WAIT, OTHER_RUNS)
        attempts = store.list_attempts(run.run_id)
        policy = attempts[-1].policy if attempts else CheckpointPolicy()
        SimulatedCoordinator(run.world).discard(run.run_id, policy)
        collect_garbage(store, record, is_deleted=record.status is RunStatus.DELETED)

    return Errand(run, number, f"collection of {run.name}, process", collect, may_fail=lambda _: False)


def brancher(run: SimulatedRun, number: int) -> Errand:
    """Return who branches a run, from a checkpoint that may have no files, or none any more."""
    request = _draw_request(run)
    store = cast("StoreWithHistory", run.world.ports)
    seen = Seen(run)

    def branch() -> None:
        made = branch_run(store, _SETTINGS, request)
        _check_branch(run, request, made, seen)
        run.world.counters[f"branched: {request.mode.value}"] += 1

    return Errand(
        run,
        number,
        f"branching of {run.name}, process",
        branch,
        may_fail=lambda error: _is_refused_rightly(run, request, error, seen),
    )


def _draw_request(run: SimulatedRun) -> BranchRequest:
    """Draw a checkpoint, by its id or its epoch. None of the last epoch: behind that there is no other."""
    random = run.world.random
    last_epoch = run.oracle.reference.last_epoch
    rows = [row for row in run.rows.checkpoints.values() if row["epoch"] < last_epoch]
    with_files = [row for row in rows if row["manifest_path"] is not None]
    newest = [row for row in rows if row["status"] == "COMPLETED" and random.random() < _NEWEST]
    row = random.choice(newest or (with_files if with_files and random.random() < _THERE else rows))
    has_id = random.random() < 0.7
    claims = 0.1 if row["status"] == "COMPLETED" else 0.6  # the newest one nobody can claim
    return BranchRequest(
        checkpoint=f"{run.run_id}@{row['checkpoint_id']}" if has_id else run.run_id,
        epoch=None if has_id else row["epoch"],
        run_key=_draw_key(run, random),
        branched_by="ann",
        mode=RestoreMode.CLAIM if random.random() < claims else RestoreMode.NO_CLAIM,
        data=random.choice((None, None, "new", "kept")),
        allow_dropped_state=run.world.file is not None and random.random() < _DROPS,
    )


def _draw_key(run: SimulatedRun, random: Random) -> str:
    """Draw a key that is free, or now and then one that a branch has."""
    taken = [known.rows.run["run_key"] for known in run.world.runs if known.origin is not None]
    return str(random.choice(taken)) if taken and random.random() < _OLD_KEY else f"branch-{len(run.world.runs)}"


def _is_refused_rightly(run: SimulatedRun, request: BranchRequest, error: BaseException, seen: Seen) -> bool:
    """Tell whether a branch may be refused so: what is asked for is not there, illegal, or its key is another run's."""
    run.world.counters[f"branch refused: {type(error).__name__}"] += 1
    if isinstance(error, RunMismatchError):  # of the branch that it has just made, nobody may be told so
        others = [known for known in run.world.runs if known.maker is not current_fiber()]
        return request.run_key in {known.rows.run["run_key"] for known in others}
    if isinstance(error, RunNotFoundError):  # the key was another branch's, which was deleted before it was read
        return request.run_key in {known.rows.run["run_key"] for known in run.world.runs if known.status == "DELETED"}
    if isinstance(error, IllegalBranchError):
        return _is_illegal(run, request) or _was_newest(run, request) or seen.may_be_refused(request)
    gone = [row for row in of_status(run.rows.checkpoints, "DISCARDED") if _is_meant(run, request, row)]
    return type(error) is UsageError and (not _meant(run, request) or bool(gone))  # or another of its epoch came since


def _check_branch(run: SimulatedRun, request: BranchRequest, made: RunRecord, seen: Seen) -> None:
    """See that a branch is what was asked for, and that it may be."""
    branch = run.world.run_of(made.run_id)
    was_there = branch.maker is not current_fiber()
    if run.world.file is not None and was_there:
        return  # of another version by now
    row = branch.rows.branch or {}
    asked = [known["checkpoint_id"] for known in run.rows.checkpoints.values() if _is_meant(run, request, known)]
    may_be_kept = seen.may_be_kept(branch.lineage.programs[0], request, row["origin_checkpoint_id"])
    keeps = [() if request.data == "new" else known for known in may_be_kept]
    keeps += [row.get("keeps", ())] if was_there and request.data is None else []
    wanted = [(run.run_id, request.mode.value, known) for known in keeps]
    found = (row.get("origin_run_id"), row.get("mode"), row.get("keeps"))
    may_be_newest_since = bool(run.rows.fallbacks)  # an older one became it, which was claimed by then, or about to be
    is_illegal = _is_illegal(run, request) and not may_be_newest_since
    run.world.counters["branched with another version"] += branch.lineage.programs[0] not in run.lineage.programs
    is_carried = run.world.file is None or carried_by(row) in seen.may_be_carried(row["origin_checkpoint_id"])
    if found not in wanted or row.get("origin_checkpoint_id") not in asked or is_illegal or not is_carried:
        run.oracle.violate("branches", f"{request} made the branch {row}")


def _is_illegal(run: SimulatedRun, request: BranchRequest) -> bool:
    """Tell whether the run needs a checkpoint that is to be claimed, or no epoch of the branch would see some data."""
    is_newest = any(row["status"] == "COMPLETED" for row in _meant(run, request))
    never_comes = any(o.role is Role.DATA and not o.replays for o in run.program.graph.operators)
    return (request.mode is RestoreMode.CLAIM and is_newest) or (request.data == "new" and never_comes)


def _was_newest(run: SimulatedRun, request: BranchRequest) -> bool:
    """Tell whether the run may have needed what is to be claimed when it was read.

    What operators it has is read afterwards; the run may go on, or be deleted, before the answer.
    """
    had_files = of_status(run.rows.checkpoints, "SUBSUMED", "DISCARDED")
    return request.mode is RestoreMode.CLAIM and any(_is_meant(run, request, row) for row in had_files)


def _meant(run: SimulatedRun, request: BranchRequest) -> list[Row]:
    """Return the checkpoints with files that a request may mean."""
    there = of_status(run.rows.checkpoints, "COMPLETED", "SUBSUMED")
    return [row for row in there if _is_meant(run, request, row)]


def _is_meant(run: SimulatedRun, request: BranchRequest, row: Row) -> bool:
    if request.epoch is not None:
        return bool(row["epoch"] == request.epoch)
    return request.checkpoint == f"{run.run_id}@{row['checkpoint_id']}"
