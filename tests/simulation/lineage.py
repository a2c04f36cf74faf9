"""Which program ran which epochs of a run, and since which attempt is each of its operators there?

An operator that comes back under the id of one that was removed is another one. It carries nothing over that was
computed before it came, be its code the same: neither from the epoch before, nor from the one that a run falls back to,
nor from the checkpoint that a branch starts from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Row, origin_epoch
from tests.simulation.evolution_rules import has_checkpoint
from tests.simulation.programs import Program
from tests.simulation.reference import Leg
from tests.simulation.versions import SLOTS, EvolvingProgram

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun


_STATEFUL = frozenset(known for known, slot in SLOTS.items() if slot.has_state)
_BEHIND_THE_ORIGIN = 0.5  # neither there in what a branch starts from, nor added by an attempt of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reign:
    """A program that a run goes on with since an attempt; `born` are its operators, by the token that added each."""

    since: int
    program: Program
    born: Mapping[str, float]


class Lineage:
    """The programs of one run, oldest first. `dropped` are the ids of operators that were ever removed from it."""

    def __init__(self, run: SimulatedRun) -> None:
        program, origin = run.program, run.origin
        born: dict[str, float] = dict.fromkeys(program.declared, 0) if isinstance(program, EvolvingProgram) else {}
        if run.rows.branch is not None:
            left = _STATEFUL - carried_by(run.rows.branch)
            born |= dict.fromkeys(left & born.keys(), _BEHIND_THE_ORIGIN)
        self._reigns = [_Reign(since=0, program=program, born=born)]
        self._of_origin = origin.lineage.through(origin.rows, origin_epoch(run.rows)) if origin is not None else ()
        self.dropped: set[str] = set()

    @property
    def programs(self) -> list[Program]:
        """The programs that the run has had, the one that it has now last."""
        return [reign.program for reign in self._reigns]

    def carried(self, token: int, *, since: int) -> list[frozenset[str]]:
        """Return whose states a branch carries on from a checkpoint under a token: by each program since that one."""
        reigns = self._reigns[since:]
        return [frozenset(known for known in _STATEFUL if one.born.get(known, math.inf) <= token) for one in reigns]

    @property
    def born(self) -> Mapping[str, float]:
        """The token under which each operator was added that is there now, 0 for what the run began with."""
        return self._reigns[-1].born

    def held(self, token: int) -> frozenset[str]:
        """Return the operators whose states a checkpoint under a token holds: all that there were then."""
        reign = next(known for known in reversed(self._reigns) if known.since <= token)
        return _STATEFUL.intersection(reign.born)

    def stateful(self, rows: MemoryRun) -> frozenset[str]:
        """Return whose states the run goes on with."""
        if not has_checkpoint(rows):
            return frozenset()
        known = _STATEFUL.intersection(self.born)
        return frozenset(one for one in known if SLOTS[one].decorator == "variable" or self.has_state(rows, one))

    def has_state(self, rows: MemoryRun, operator_id: str) -> bool:
        """Tell whether the last durable epoch left a state of an operator, of itself and no other of its id."""
        last = rows.run["last_durable_epoch"]
        tokens = [
            row["fencing_token"] for row in rows.epochs.values() if (row["epoch"], row["status"]) == (last, "DURABLE")
        ]
        born = self.born.get(operator_id, 0)
        if tokens:
            return born <= int(tokens[0])
        return bool(self._of_origin) and born == 0 and _carries(self._of_origin[-1].program, operator_id)

    def evolve(self, token: int, program: EvolvingProgram) -> None:
        """Note that a run goes on with another program."""
        born = self.born
        self.dropped |= born.keys() - program.declared.keys()
        self._reigns.append(
            _Reign(since=token, program=program, born={known: born.get(known, token) for known in program.declared})
        )

    def kept_from_origin(self, rows: MemoryRun) -> frozenset[str]:
        """Return what a branch takes over from its origin as long as it holds that: nothing that it has added."""
        if rows.branch is None or rows.branch["released_at"] is not None:
            return frozenset()
        return frozenset(known for known in rows.branch["keeps"] if self.born.get(known) == 0)

    def legs(self, rows: MemoryRun) -> tuple[Leg, ...]:
        """Return what the run is made of: its epochs in force, and those to come."""
        now = self._reigns[-1]
        is_one = len(self._reigns) == 1 and [leg.program for leg in self._of_origin] in ([], [now.program])
        if is_one and not any(now.born.values()):
            return (Leg(program=now.program),)
        legs, token = self._legs(rows)
        return _go_on(legs, now, after=token, through=None)

    def through(self, rows: MemoryRun, epoch: int) -> tuple[Leg, ...]:
        """Return what the epochs up to this one are made of."""
        return self._legs(rows, last=epoch)[0]

    def _legs(self, rows: MemoryRun, *, last: float = math.inf) -> tuple[tuple[Leg, ...], int]:
        """Return what epochs are made of, and the token of the last of them."""
        epochs = ((row["epoch"], row["fencing_token"]) for row in rows.epochs.values() if row["status"] != "VOIDED")
        legs, after = self._of_origin, 0
        for epoch, token in sorted(epochs):
            if epoch <= last:
                reign = next(known for known in reversed(self._reigns) if known.since <= token)
                legs, after = _go_on(legs, reign, after=after, through=epoch), token
        return legs, after


def carried_by(branch: Row) -> frozenset[str]:
    """Return whose states a branch's row says that it carries on."""
    return frozenset(known.removesuffix(".state") for known in branch["carries"])


def _carries(program: Program, operator_id: str) -> bool:
    return any(operator.part_of == operator_id for operator in program.graph.operators)


def _go_on(legs: tuple[Leg, ...], reign: _Reign, *, after: int, through: int | None) -> tuple[Leg, ...]:
    """Return legs and what comes behind them, which is none of its own where nothing is another one."""
    newer = frozenset(known for known, born in reign.born.items() if born > after and SLOTS[known].has_state)
    fresh = newer if legs else frozenset()
    if legs and legs[-1].program is reign.program and not fresh:
        return (*legs[:-1], replace(legs[-1], through=through))
    return (*legs, Leg(program=reign.program, through=through, fresh=fresh))
