"""Which committed rows break an invariant? Per rule a query that names the runs; it knows no guard and no core.

A deleted run's rows may be cleared away, so its are left out. `{behind}` is the epoch that a run begins behind.
"""
# ruff: noqa: S608 - every part of these queries is written here

from __future__ import annotations

import psycopg2.extensions

_BEHIND = "coalesce((SELECT branches.epoch FROM branches WHERE branches.run_id = r.run_id), -1)"

_QUERIES = {
    "I1: as many attempts as tokens": """
        SELECT r.run_id FROM runs AS r LEFT JOIN attempts USING (run_id) GROUP BY r.run_id
        HAVING r.fencing_token <> count(attempts.attempt_id)
            OR r.fencing_token <> coalesce(max(attempts.fencing_token), 0)""",
    "I1: the live attempt holds the token of a run that goes on": """
        SELECT run_id FROM runs AS r JOIN attempts USING (run_id) WHERE attempts.ended_at IS NULL
        AND ((r.fencing_token, r.attempt_id) <> (attempts.fencing_token, attempts.attempt_id)
            OR r.status NOT IN ('RUNNING', 'TERMINATING'))""",
    "I2: what is under way is the live attempt's": """
        SELECT run_id FROM epochs JOIN attempts USING (run_id) WHERE attempts.ended_at IS NULL
        AND epochs.status IN ('OPEN', 'ALIGNED') AND epochs.fencing_token <> attempts.fencing_token""",
    "I2: an attempt that has ended has nothing pending": """
        SELECT run_id FROM checkpoints JOIN attempts USING (run_id, fencing_token)
        WHERE checkpoints.status = 'PENDING' AND attempts.ended_at IS NOT NULL""",
    "I3: an epoch follows one that has aligned, or the origin": """
        SELECT epochs.run_id FROM epochs JOIN runs AS r USING (run_id)
        LEFT JOIN epochs AS before ON before.run_id = epochs.run_id AND before.epoch = epochs.epoch - 1
            AND before.status IN ('ALIGNED', 'DURABLE')
        WHERE epochs.status <> 'VOIDED' AND epochs.epoch <> {behind} + 1
            AND (before.epoch IS NULL OR epochs.epoch <= {behind})""",
    "I4: an aligned epoch has every report": """
        SELECT run_id FROM epochs WHERE status IN ('ALIGNED', 'DURABLE')
        AND (reports <> expected_reports OR jsonb_path_exists(records, '$.*[*] ? (@ == null)'))""",
    "I5: a decision is the sum of the reports and the rule, and nothing else": """
        SELECT run_id FROM epochs WHERE status IN ('ALIGNED', 'DURABLE')
        AND decision - 'terminated_by' IS DISTINCT FROM jsonb_build_object('records', (
            SELECT jsonb_object_agg(head, (SELECT sum(CAST(told AS numeric)) FROM jsonb_array_elements(counts) AS told))
            FROM jsonb_each(records) AS heads (head, counts)))""",
    "I5: an epoch after which nothing is fed back, or none is allowed, ends the run": """
        SELECT run_id FROM epochs JOIN runs USING (run_id) WHERE epochs.status IN ('ALIGNED', 'DURABLE')
        AND epochs.decision ->> 'terminated_by' IS NULL
        AND (NOT jsonb_path_exists(records, '$.*[*] ? (@ > 0)') OR runs.max_epochs <= epochs.epoch + 1)""",
    "I6: those up to the last durable epoch are durable": """
        SELECT run_id FROM epochs JOIN runs USING (run_id)
        WHERE epochs.status <> 'VOIDED' AND (epochs.status = 'DURABLE') <> (epochs.epoch <= runs.last_durable_epoch)""",
    "I6: none of the durable epochs is missing": """
        SELECT r.run_id FROM runs AS r LEFT JOIN epochs USING (run_id) GROUP BY r.run_id
        HAVING r.last_durable_epoch - {behind} <> count(epochs.epoch) FILTER (WHERE epochs.status = 'DURABLE')""",
    "I6: the completed checkpoint covers the last durable epoch": """
        SELECT r.run_id FROM runs AS r LEFT JOIN checkpoints
            ON checkpoints.run_id = r.run_id AND checkpoints.status = 'COMPLETED'
        WHERE checkpoints.epoch IS DISTINCT FROM nullif(r.last_durable_epoch, {behind})""",
    "I7: each id that was issued is a checkpoint's": """
        SELECT r.run_id FROM runs AS r LEFT JOIN checkpoints USING (run_id) GROUP BY r.run_id
        HAVING r.last_checkpoint_id <> count(checkpoints.checkpoint_id)
            OR r.last_checkpoint_id <> coalesce(max(checkpoints.checkpoint_id), 0)""",
    "I7: an attempt's newer checkpoint covers no less": """
        SELECT older.run_id FROM checkpoints AS older JOIN checkpoints AS newer USING (run_id, fencing_token)
        WHERE newer.checkpoint_id > older.checkpoint_id AND newer.epoch < older.epoch""",
    "I8: a completed checkpoint has every acknowledgement and a manifest": """
        SELECT run_id FROM checkpoints WHERE status NOT IN ('PENDING', 'ABORTED')
        AND (acknowledged <> expected OR manifest_path IS NULL OR manifest_sha256 !~ '^[0-9a-f]{{64}}$'
            OR jsonb_path_exists(acknowledgements, '$.*[*] ? (@ == null)'))""",
    "I8: a newer one subsumes": """
        SELECT older.run_id FROM checkpoints AS older WHERE older.status = 'SUBSUMED'
        AND NOT EXISTS (SELECT FROM checkpoints AS newer WHERE newer.run_id = older.run_id
            AND newer.checkpoint_id > older.checkpoint_id AND newer.status = 'COMPLETED')""",
    "I8: none is pending beside a newer completed one, but by hand": """
        SELECT older.run_id FROM checkpoints AS older JOIN checkpoints AS newer USING (run_id)
        WHERE newer.checkpoint_id > older.checkpoint_id AND newer.status = 'COMPLETED'
            AND older.status = 'PENDING' AND older.kind <> 'MANUAL'""",
    "I9: nothing follows the epoch that ends the run": """
        SELECT run_id FROM epochs JOIN epochs AS last USING (run_id)
        WHERE last.epoch < epochs.epoch AND last.decision ->> 'terminated_by' IS NOT NULL
            AND last.status <> 'VOIDED' AND epochs.status <> 'VOIDED'""",
    "I9: a run terminates by the durable epoch that decided so": """
        SELECT r.run_id FROM runs AS r WHERE r.terminated_by IS DISTINCT FROM (
            SELECT epochs.decision ->> 'terminated_by' FROM epochs WHERE epochs.run_id = r.run_id
            AND epochs.status = 'DURABLE' AND epochs.decision ->> 'terminated_by' IS NOT NULL)""",
    "I10: what rests is not under way": """
        SELECT run_id FROM runs WHERE status IN ('FINISHED', 'STOPPED')
        AND run_id IN (SELECT run_id FROM epochs WHERE status IN ('OPEN', 'ALIGNED')
            UNION ALL SELECT run_id FROM checkpoints WHERE status = 'PENDING'
            UNION ALL SELECT run_id FROM attempts WHERE ended_at IS NULL)""",
    "I11: who has finished for good may": """
        SELECT run_id FROM operators JOIN runs USING (run_id) WHERE operators.finished_at IS NOT NULL
        AND definition #>> ARRAY['operators', operator_id, 'finishes'] IS DISTINCT FROM 'true'""",
    "I11: the operators are those of the definition": """
        SELECT r.run_id FROM runs AS r WHERE (
            SELECT jsonb_object_agg(operator_id, jsonb_build_array(name, role, kind))
            FROM operators WHERE operators.run_id = r.run_id
        ) IS DISTINCT FROM (
            SELECT jsonb_object_agg(operator_id, jsonb_build_array(says -> 'name', says -> 'role', says -> 'kind'))
            FROM jsonb_each(r.definition -> 'operators') AS declared (operator_id, says))""",
    "I13: the final checkpoint is that of the epoch which ends the run": """
        SELECT run_id FROM checkpoints JOIN epochs USING (run_id, epoch, fencing_token)
        WHERE (checkpoints.kind = 'FINAL') <> (epochs.decision ->> 'terminated_by' IS NOT NULL)""",
    "I13: what is made by hand, or ends the run, answers who asked before": """
        SELECT run_id FROM checkpoint_requests JOIN checkpoints USING (run_id)
        WHERE checkpoint_requests.checkpoint_id IS NULL AND checkpoints.checkpoint_id > checkpoint_requests.behind
            AND checkpoints.kind <> 'PERIODIC'""",
    "I13: an answer began after the request, or has ended the run": """
        SELECT run_id FROM checkpoint_requests JOIN checkpoints USING (run_id, checkpoint_id)
        WHERE checkpoints.kind = 'PERIODIC' OR checkpoints.checkpoint_id <= checkpoint_requests.behind
            AND (checkpoints.kind <> 'FINAL' OR checkpoints.status <> 'COMPLETED')""",
    "I13: nobody waits for a run that has ended": """
        SELECT run_id FROM checkpoint_requests JOIN runs USING (run_id)
        WHERE checkpoint_requests.checkpoint_id IS NULL AND runs.terminated_by IS NOT NULL""",
    "I14: no more are pending than the policy allows": """
        SELECT run_id FROM attempts JOIN checkpoints USING (run_id)
        WHERE attempts.ended_at IS NULL AND checkpoints.status = 'PENDING'
        GROUP BY run_id, policy HAVING count(*) > CAST(policy ->> 'max_pending' AS integer)""",
    "I14: an epoch with every report aligns, unless it is held": """
        SELECT run_id FROM epochs JOIN attempts USING (run_id, fencing_token)
        WHERE epochs.status = 'OPEN' AND epochs.reports = epochs.expected_reports AND attempts.ended_at IS NULL
            AND CAST(policy ->> 'max_pending' AS integer) > (SELECT count(*) FROM checkpoints
                WHERE checkpoints.run_id = epochs.run_id AND checkpoints.status = 'PENDING')""",
    "I15: an edge is of the epoch after the last durable one": """
        SELECT run_id FROM edge_parts JOIN runs USING (run_id)
        WHERE edge_parts.voided_at IS NULL AND edge_parts.epoch > runs.last_durable_epoch + 1""",
    "I16: a listener hears of durable epochs": """
        SELECT run_id FROM listener_notices JOIN runs USING (run_id)
        WHERE listener_notices.epoch > runs.last_durable_epoch""",
    "I16: of each in turn": """
        SELECT r.run_id FROM runs AS r JOIN listener_notices USING (run_id) WHERE NOT is_final
        GROUP BY r.run_id, listener_id HAVING max(epoch) - {behind} <> count(*)""",
    "I17: what a person has aborted is not pending": """
        SELECT run_id FROM checkpoints JOIN runs USING (run_id)
        WHERE checkpoints.status = 'PENDING' AND checkpoints.checkpoint_id <= runs.aborted_through""",
    "I18: what is pinned is there": """
        SELECT checkpoints.run_id FROM checkpoints WHERE status NOT IN ('COMPLETED', 'SUBSUMED') AND (
            (run_id, checkpoint_id) IN (SELECT run_id, checkpoint_id FROM checkpoint_pins)
            OR (run_id, checkpoint_id) IN (SELECT origin_run_id, origin_checkpoint_id FROM branches
                WHERE released_at IS NULL))""",
    "I18: a branch lets its origin go with its first checkpoint": """
        SELECT run_id FROM branches WHERE (released_at IS NOT NULL) <> EXISTS (
            SELECT FROM checkpoints WHERE checkpoints.run_id = branches.run_id AND checkpoints.status = 'COMPLETED')""",
    "I19: what is published is of a durable epoch": """
        SELECT run_id FROM committables JOIN epochs USING (run_id, epoch, fencing_token)
        WHERE epochs.status <> 'DURABLE'""",
    "I19: a durable epoch has all that it publishes": """
        SELECT run_id FROM epochs JOIN runs USING (run_id)
        CROSS JOIN jsonb_each(definition -> 'sinks') AS sinks (output, each_epoch)
        WHERE runs.defined_under = 0  -- what an earlier definition published is not told
            AND epochs.status = 'DURABLE' AND (each_epoch = 'true' OR epochs.decision ->> 'terminated_by' IS NOT NULL)
            AND (run_id, epoch, sinks.output) NOT IN (SELECT run_id, epoch, output FROM committables)""",
    "I19: a finished run has committed all": """
        SELECT run_id FROM runs JOIN committables USING (run_id)
        WHERE runs.status = 'FINISHED' AND committables.committed_at IS NULL""",
    "I20: a run is stopped exactly where a person's request says so": """
        SELECT runs.run_id FROM runs LEFT JOIN stops USING (run_id) GROUP BY runs.run_id
        HAVING (runs.status = 'STOPPED')
            <> coalesce(bool_or(stopped_at IS NOT NULL AND resumed_at IS NULL), false)""",
    "I20: none goes on undriven that a person asks to stop": """
        SELECT run_id FROM runs JOIN stops USING (run_id)
        WHERE runs.status = 'RUNNING' AND stops.kind = 'STOP' AND stops.resumed_at IS NULL
            AND run_id NOT IN (SELECT run_id FROM attempts WHERE ended_at IS NULL)""",
    "I21: a fallback has given up all behind it": """
        SELECT run_id FROM fallbacks JOIN epochs USING (run_id)
        WHERE epochs.epoch > fallbacks.epoch AND epochs.fencing_token < fallbacks.fencing_token
            AND epochs.status <> 'VOIDED'""",
}

_THERE = "(SELECT run_id FROM runs WHERE status <> 'DELETED')"
_BROKEN = " UNION ALL ".join(
    f"SELECT '{rule.replace(chr(39), chr(39) * 2)}' AS rule, CAST(broken.run_id AS text) FROM "
    f"({query.format(behind=_BEHIND)}) AS broken (run_id) WHERE broken.run_id IN {_THERE}"
    for rule, query in _QUERIES.items()
)
RULES = frozenset(_QUERIES)


def find_broken(cursor: psycopg2.extensions.cursor) -> dict[str, set[str]]:
    """Return the runs that break a rule, by the rule."""
    found: dict[str, set[str]] = {}
    cursor.execute(_BROKEN)
    for rule, run in cursor.fetchall():
        found.setdefault(rule, set()).add(run)
    return found
