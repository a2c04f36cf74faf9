"""Which statements might somebody send to the store by hand? Random ones, and steps of a driver in pieces."""
# ruff: noqa: S608 - every part of these statements is written here

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.illegal_row import SHA

# How often a table is written to.
TABLES = {
    "runs": 6,
    "attempts": 6,
    "epochs": 8,
    "checkpoints": 8,
    "stops": 4,
    "fallbacks": 3,
    "operators": 2,
    "pins": 1,
    "checkpoint_requests": 2,
    "edge_parts": 2,
    "listener_notices": 2,
    "committables": 2,
    "branches": 2,
    "checkpoint_pins": 2,
}

_ONE_OF = "ctid = (SELECT ctid FROM {} WHERE run_id = %(run)s ORDER BY random() LIMIT 1)"
_FILLED = (
    "(SELECT jsonb_object_agg(name, (SELECT jsonb_agg({1}) FROM jsonb_array_elements(counts))) "
    "FROM jsonb_each({0}) AS named (name, counts))"
)
_HEARD = _FILLED.format("records", 3)
_SAYS = (
    "(SELECT jsonb_object_agg(name, 3 * jsonb_array_length(counts)) FROM jsonb_each(records) AS named (name, counts))"
)
_ALIGNED = (
    f"status = 'ALIGNED', records = {_HEARD}, held_at = coalesce(held_at, now()), aligned_at = now(), "
    f"decision = jsonb_build_object('records', {_SAYS}, 'terminated_by', NULL)"
)
_WRITTEN = (
    f"acknowledgements = {_FILLED.format('acknowledgements', 1)}, manifest_path = coalesce(manifest_path, 'p'), "
    f"manifest_sha256 = coalesce(manifest_sha256, {SHA}), size_bytes = coalesce(size_bytes, 1), "
    "ended_at = coalesce(ended_at, now())"
)
_DECIDED = (
    "(SELECT decision ->> 'terminated_by' FROM epochs WHERE epochs.run_id = runs.run_id "
    "AND epochs.epoch = runs.last_durable_epoch AND epochs.status = 'DURABLE')"
)
# What goes with a status, so that the row is legal by itself.
_MOVES: Mapping[str, Sequence[str]] = {
    "epochs": (_ALIGNED, "status = 'DURABLE', durable_at = now()", "status = 'VOIDED', durable_at = NULL"),
    "checkpoints": (
        f"status = 'COMPLETED', {_WRITTEN}",
        f"status = 'SUBSUMED', {_WRITTEN}",
        "status = 'ABORTED', failure = 'DECLINED', reason = 'x', ended_at = now()",
        "status = 'ABORTED', failure = 'ABORTED_BY_USER', reason = 'x', ended_at = now()",
        "status = 'DISCARDED'",
    ),
    "runs": (
        "status = 'RUNNING', failure = NULL",
        f"status = 'TERMINATING', failure = NULL, terminated_by = {_DECIDED}",
        "status = 'FAILED', failure = 'x'",
        "status = 'STOPPED', failure = NULL",
        "status = 'FINISHED', failure = NULL, outputs = '{}', state_digest = 'd', finished_at = now()",
        "last_durable_epoch = last_durable_epoch + 1",
        "last_durable_epoch = last_durable_epoch - 1",
        "fencing_token = fencing_token + 1, attempt_id = gen_random_uuid()",
        "last_checkpoint_id = last_checkpoint_id + 1",
        "aborted_through = last_checkpoint_id + 1",
    ),
    "attempts": tuple(
        f"ended_at = now(), reason = 'x', outcome = '{outcome}'"
        for outcome in ("RELEASED", "FAILED", "FINISHED", "SUPERSEDED")
    ),
    "stops": ("stopped_at = now()", "resumed_at = now(), resumed_by = 'bob'"),
}

_CLAIMED = (
    "INSERT INTO attempts (run_id, fencing_token, attempt_id, holder, lease_expires_at, policy) "
    "SELECT run_id, fencing_token, attempt_id, '{}', now(), '{\"max_pending\": 2, \"tolerable_failures\": 1}' "
    "FROM runs WHERE run_id = %(run)s"
)
_OPENED = (
    "INSERT INTO epochs (run_id, epoch, fencing_token, records) SELECT run_id, coalesce((SELECT max(epoch) FROM epochs "
    "WHERE epochs.run_id = runs.run_id AND status <> 'VOIDED'), last_durable_epoch) + 1, fencing_token, "
    "'{\"centroids\": [null]}' FROM runs WHERE run_id = %(run)s"
)
_TRIGGERED = (
    "INSERT INTO checkpoints (run_id, checkpoint_id, epoch, fencing_token, kind, acknowledgements) "
    "SELECT run_id, last_checkpoint_id, (SELECT epoch FROM epochs WHERE epochs.run_id = runs.run_id "
    "AND status = 'ALIGNED' ORDER BY {0} LIMIT 1), fencing_token, '{1}', '{{\"centroids\": [null]}}' "
    "FROM runs WHERE run_id = %(run)s"
)
_FALLEN = (
    "INSERT INTO fallbacks (run_id, fencing_token, from_checkpoint_id, to_checkpoint_id, epoch, reason) "
    "SELECT run_id, runs.fencing_token, newest.checkpoint_id, older.checkpoint_id, older.epoch, 'x' FROM runs "
    "JOIN checkpoints AS newest USING (run_id) JOIN checkpoints AS older USING (run_id) WHERE run_id = %(run)s "
    "AND newest.status = 'COMPLETED' AND older.status = 'SUBSUMED' ORDER BY random() LIMIT 1"
)
_KINDS = ("PERIODIC", "MANUAL", "FINAL")
_PINNED = (
    "INSERT INTO checkpoint_pins (run_id, checkpoint_id, pinned_by) SELECT run_id, checkpoint_id, 'ann' "
    "FROM checkpoints WHERE run_id = %(run)s ORDER BY random() LIMIT 1"
)
# New rows that are mostly legal.
_ADDED: Mapping[str, Sequence[str]] = {
    "attempts": (_CLAIMED,),
    "epochs": (_OPENED,),
    "checkpoints": tuple(_TRIGGERED.format("random()", kind) for kind in _KINDS),
    "stops": tuple(
        f"INSERT INTO stops (stop_id, run_id, kind, requested_by) VALUES (gen_random_uuid(), %(run)s, '{kind}', 'ann')"
        for kind in ("STOP", "DRAIN")
    ),
    "checkpoint_requests": (
        "INSERT INTO checkpoint_requests (request_id, run_id, requested_by) VALUES (gen_random_uuid(), %(run)s, 'ann')",
    ),
    "fallbacks": (_FALLEN,),
    "listener_notices": tuple(
        "INSERT INTO listener_notices (run_id, listener_id, epoch, fencing_token, is_final) "
        f"SELECT run_id, '{listener}', {epoch}, fencing_token, {is_final} FROM runs WHERE run_id = %(run)s"
        for listener, epoch, is_final in (("log", 1, False), ("log", 2, False), ("new", 0, False), ("new", 2, True))
    ),
    "checkpoint_pins": (_PINNED,),
}

_COVERED = "(SELECT epoch FROM checkpoints WHERE checkpoints.run_id = %(run)s AND status = 'COMPLETED')"
_NEWEST = (
    "ctid = (SELECT ctid FROM checkpoints WHERE run_id = %(run)s AND status = 'PENDING' "
    "ORDER BY checkpoint_id DESC LIMIT 1)"
)
_ATTEMPT_ENDED = "status = 'ABORTED', failure = 'ATTEMPT_ENDED', reason = 'x', ended_at = now()"


def _set(table: str, columns: str, *conditions: str) -> str:
    return f"UPDATE {table} SET {columns} WHERE {' AND '.join(('run_id = %(run)s', *conditions))}"


def _to(column: str) -> str:
    return f"(SELECT fallbacks.{column} FROM fallbacks JOIN runs USING (run_id, fencing_token) WHERE run_id = %(run)s)"


# What a driver does in one transaction.
_STEPS: Sequence[Sequence[str]] = (
    (
        _FALLEN,
        _set(
            "checkpoints",
            "status = 'DISCARDED'",
            *("status IN ('COMPLETED', 'SUBSUMED')", f"checkpoint_id > {_to('to_checkpoint_id')}"),
        ),
        _set("checkpoints", "status = 'COMPLETED'", f"checkpoint_id = {_to('to_checkpoint_id')}"),
        _set("epochs", "status = 'VOIDED', durable_at = NULL", "status = 'DURABLE'", f"epoch > {_to('epoch')}"),
        _set("runs", f"last_durable_epoch = {_to('epoch')}"),
    ),
    (
        _set("checkpoints", _ATTEMPT_ENDED, "status = 'PENDING'"),
        _set("attempts", "ended_at = now(), outcome = 'RELEASED'", "ended_at IS NULL"),
        _set("runs", "fencing_token = fencing_token + 1, attempt_id = gen_random_uuid()"),
        _CLAIMED,
        _set("epochs", "status = 'VOIDED'", "status IN ('OPEN', 'ALIGNED')"),
    ),
    (
        _set("checkpoints", "status = 'SUBSUMED'", "status = 'COMPLETED'"),
        _set("checkpoints", f"status = 'COMPLETED', {_WRITTEN}", _NEWEST),
        _set("epochs", "status = 'DURABLE', durable_at = now()", "status = 'ALIGNED'", f"epoch <= {_COVERED}"),
        _set("runs", f"last_durable_epoch = {_COVERED}"),
        _set("branches", "released_at = now()", "released_at IS NULL"),
    ),
    (
        _set("epochs", _ALIGNED, "status = 'OPEN'"),
        _set("runs", "last_checkpoint_id = last_checkpoint_id + 1"),
        _TRIGGERED.format("epoch DESC", "PERIODIC"),
        _OPENED,
    ),
)

# Values that no row has.
_STRANGE = {
    "bigint": ("0", "1", "2", "3", "-1", "{0} + 1", "{0} - 1"),
    "integer": ("0", "1", "4", "{0} + 1", "{0} - 1"),
    "text": ("''", "'x'"),
    "uuid": ("gen_random_uuid()",),
    "timestamp with time zone": ("now()",),
    "jsonb": ("'{}'", "'[]'", "'null'"),
    "boolean": ("true", "false"),
    "double precision": ("1",),
}


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements on one of some runs. `columns` are a table's with their types, `values` what the tables hold."""

    runs: Sequence[str]
    columns: Mapping[str, Mapping[str, str]]
    values: Mapping[tuple[str, str], Sequence[str]]
    rng: random.Random

    def transaction(self) -> list[str]:
        """A step of a driver, which may lack a statement, have one more, or be out of order; or some statements."""
        if self.rng.random() > 0.35:
            return [self._statement() for _ in range(self.rng.choice((1, 1, 2, 3)))]
        steps, kind = list(self.rng.choice(_STEPS)), self.rng.random()
        if kind < 0.4:
            steps.pop(self.rng.randrange(len(steps)))
        if 0.2 < kind < 0.3:
            self.rng.shuffle(steps)
        if kind > 0.6:
            steps.insert(self.rng.randrange(len(steps) + 1), self._statement())
        return steps

    def _statement(self) -> str:
        (table,) = self.rng.choices(list(TABLES), list(TABLES.values()))
        kind = self.rng.random()
        if kind < 0.35 and table in _MOVES:
            return f"UPDATE {table} SET {self.rng.choice(_MOVES[table])} WHERE {_ONE_OF.format(table)}"
        if kind < 0.6:
            changed = ", ".join(f"{name} = {value}" for name, value in self._changed(table).items())
            return f"UPDATE {table} SET {changed} WHERE {_ONE_OF.format(table)}"
        if kind < 0.7 and table != "committables":  # which a person may give up: docs/sinks.md
            return f"DELETE FROM {table} WHERE {_ONE_OF.format(table)}"
        if kind < 0.9 and table in _ADDED:
            return self.rng.choice(_ADDED[table])
        changes = self._changed(table)
        selected = ", ".join(changes.get(name, name) for name in self.columns[table])
        return (
            f"INSERT INTO {table} ({', '.join(self.columns[table])}) "
            f"SELECT {selected} FROM {table} WHERE {_ONE_OF.format(table)}"
        )

    def _changed(self, table: str) -> dict[str, str]:
        columns = self.columns[table]
        names = self.rng.sample(list(columns), k=min(self.rng.choice((1, 1, 2, 3)), len(columns)))
        return {name: self._value(table, name, columns[name]) for name in names}

    def _value(self, table: str, name: str, kind: str) -> str:
        strange = [value.format(name) if "{0}" in value else value for value in _STRANGE.get(kind, ())]
        return self.rng.choice([*self.values[table, name], *strange, "NULL"])
