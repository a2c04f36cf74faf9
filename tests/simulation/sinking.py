"""Where do simulated runs publish, and is what they show what an undisturbed run would show, each epoch once (I19)?

A target is outside of the store: a sink of any attempt reaches it whenever its process goes on, superseded or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from iteration_lib.errors import SinkTargetError
from iteration_lib.sinks.seam import Publication, SinkTransaction
from iteration_lib.state.files import read_bytes
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Violate
from tests.simulation.fiber import Call, Fate, ask, current_attempt, current_fiber
from tests.simulation.programs import Program, Rows
from tests.simulation.reference import Reference, flat
from tests.simulation.runner import decode

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun

Key = tuple[int, str]  # an epoch and an output


class SinkOracle(Checks):
    """The target of one run, which watches who prepares, commits and aborts what, and the rows that say so."""

    def __init__(self, program: Program, reference: Reference, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self._sinks = {output: sink.each_epoch for output, sink in program.graph.sinks.items()}
        self._operators = {
            output: program.graph.operator(program.graph.outputs[output]).operator_id for output in self._sinks
        }
        self.reference = reference
        self._counters = counters
        self._prepared: dict[tuple[int, str, int], tuple[Rows, bool]] = {}  # and whether by whom was in force
        self._shown: dict[Key, tuple[int, Rows]] = {}

    def check(self, change: Change) -> None:
        """Check one commit of the store."""
        before, after = change.before.committables, change.after.committables
        for key, row in before.items():
            now = after.get(key)
            is_same = now is not None and {**now, "committed_at": None} == {**row, "committed_at": None}
            self._require(is_same, "I19", "what was stored of {} changed", key)
            self._require(row["committed_at"] in (None, now and now["committed_at"]), "I19", "{} is open again", key)
        for key, row in after.items():
            is_committed = row["committed_at"] is not None
            self._require(not is_committed or key in self._shown, "I19", "{} counts as committed, not shown", key)
        for known, epoch in change.epochs:
            if epoch["status"] == "DURABLE" and known is not None and known["status"] != "DURABLE":
                wanted = {(epoch["epoch"], output) for output in self._published_in(epoch["epoch"])}
                stored = {key for key in after if key[0] == epoch["epoch"]}
                self._require(stored == wanted, "I19", "epoch {} stores {}", epoch["epoch"], sorted(stored))
        new = after.keys() - before.keys()
        for epoch, output in new:
            token, row = after[epoch, output]["fencing_token"], change.after.epochs.get((epoch, change.token))
            is_durable = row is not None and row["status"] == "DURABLE"
            self._require(token == change.token, "I19", "{} is stored under token {}", output, token)
            self._require(is_durable, "I19", "{} of epoch {} is stored, which is not durable", output, epoch)
            is_there = (epoch, output, token) in self._prepared
            self._require(is_there, "I19", "{} of epoch {} is stored, and was not prepared", output, epoch)
        if change.after.run["status"] == "FINISHED" != change.before.run["status"]:
            self.finished(change.after)

    def finished(self, rows: MemoryRun) -> None:
        """See that everything is shown, and that nothing lies about but what superseded attempts prepared late."""
        first = rows.branch["epoch"] + 1 if rows.branch is not None else 0
        epochs = range(first, self.reference.last_epoch + 1)
        wanted = {(epoch, output) for epoch in epochs for output in self._published_in(epoch)}
        self._require(set(self._shown) == wanted, "I19", "shown is {}", sorted(self._shown))
        left = [key for key, (_, was_in_force) in self._prepared.items() if was_in_force]
        self._require(not left, "I19", "{} was prepared, and neither committed nor aborted", left)

    def prepared(self, transaction: SinkTransaction, rows: Rows, *, is_in_force: bool) -> None:
        """Keep what a sink prepared; whoever is not in force any more prepares what nobody will see."""
        key = _key_of(transaction)
        self._prepared[(*key, transaction.fencing_token)] = (rows, is_in_force)
        self._counters["prepared by an attempt not in force"] += not is_in_force

    def committed(self, transaction: SinkTransaction, stored: MemoryRun) -> None:
        """Show what was prepared, unless it is shown."""
        key, token = _key_of(transaction), transaction.fencing_token
        row = stored.committables.get(key)
        self._require(row is not None, "I19", "{} is committed, and was not stored", key)
        self._require(row is None or row["fencing_token"] == token, "I19", "{} is committed of token {}", key, token)
        if key in self._shown:
            self._counters["committed again"] += 1
            self._require(self._shown[key][0] == token, "I19", "{} is committed under two tokens", key)
            return
        found = self._prepared.pop((*key, token), None)
        if found is None:
            self._violate("I19", f"{key} is committed, and is not prepared any more")
            return
        expected = flat(self.reference.results[key[0]][self._operators[key[1]]])
        self._require(found[0] == expected, "I19", "{} shows {}, not {}", key, found[0], expected)
        self._shown[key] = (token, found[0])

    def aborted(self, transaction: SinkTransaction, stored: MemoryRun) -> None:
        """Drop what was prepared, which nobody has stored."""
        key, token = _key_of(transaction), transaction.fencing_token
        row = stored.committables.get(key)
        self._require(row is None or row["fencing_token"] != token, "I19", "{} is aborted, and was stored", key)
        found = self._prepared.pop((*key, token), None)
        self._counters["prepared and aborted"] += found is not None

    def _published_in(self, epoch: int) -> list[str]:
        is_last = epoch == self.reference.last_epoch
        return [output for output, each_epoch in self._sinks.items() if each_epoch or is_last]


class SimulatedSink:
    """See Sink: each call may fail before it acts, or after, or hang."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        """See Sink."""
        rows: Rows = ()
        for file in publication.files:
            rows += flat(decode(read_bytes(publication.location, file.path, sha256=file.sha256)))
        _ask(Call.SINK)
        attempt = current_attempt()
        is_in_force = attempt is not None and self._run.oracle.is_in_force(attempt)
        self._run.oracle.sinks.prepared(transaction, rows, is_in_force=is_in_force)
        _ask(Call.SINK_DONE)
        return {"transaction": transaction.transaction_id}

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        """See Sink."""
        _ask(Call.SINK)
        self._run.oracle.sinks.committed(transaction, self._run.rows)
        if committable["transaction"] != transaction.transaction_id:
            self._run.oracle.violate("I19", f"{transaction.transaction_id} was prepared as {committable}")
        _ask(Call.SINK_DONE)

    def abort(self, transaction: SinkTransaction) -> None:
        """See Sink."""
        _ask(Call.SINK)
        self._run.oracle.sinks.aborted(transaction, self._run.rows)
        _ask(Call.SINK_DONE)


def _ask(call: Call) -> None:
    """Ask for the fate of a call; raises SinkTargetError where it fails."""
    if ask(call) is Fate.GO:
        return
    fiber = current_fiber()
    if fiber is not None:
        fiber.process.fail("sink")
    raise SinkTargetError("the target", "does not answer", is_passing=True, way_out="wait")


def _key_of(transaction: SinkTransaction) -> Key:
    return transaction.epoch, transaction.output
