-- Reads: the state that the protocol decides from (select_*_state), and the history that people look at (list_*).

-- select_run: one run by its id or its key; one that was deleted by its id alone (an index knows either)
SELECT run_id, run_key, reference, definition, params, state_uri, max_buckets, max_epochs, status, fencing_token,
    last_durable_epoch, last_checkpoint_id, aborted_through, terminated_by, failure, outputs, state_digest, created_at,
    finished_at, deleted_by, deleted_at, revision,
    (SELECT kind FROM stops WHERE stops.run_id = runs.run_id AND resumed_at IS NULL) AS asked_to
FROM runs WHERE run_key = :run AND status <> 'DELETED' OR run_id = CASE
    WHEN :run ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN CAST(CAST(:run AS text) AS uuid)
END
ORDER BY (run_key = :run) DESC LIMIT 1;

-- list_runs: every run, newest first
SELECT run_id, run_key, reference, definition, params, state_uri, max_buckets, max_epochs, status, fencing_token,
    last_durable_epoch, last_checkpoint_id, aborted_through, terminated_by, failure, outputs, state_digest, created_at,
    finished_at, deleted_by, deleted_at, revision,
    (SELECT kind FROM stops WHERE stops.run_id = runs.run_id AND resumed_at IS NULL) AS asked_to
FROM runs ORDER BY created_at DESC, run_id;

-- select_run_state: what the protocol knows of the run itself
SELECT runs.run_id, runs.status, runs.max_epochs, runs.fencing_token, runs.last_durable_epoch,
    runs.last_checkpoint_id, runs.aborted_through, runs.terminated_by, stop.stop_id, stop.kind AS stop_kind,
    stop.resumed_at IS NOT NULL AS is_resumed, coalesce(runs.definition -> 'sinks', '{}') AS sinks,
    branches.epoch AS origin_epoch,
    branches.run_id IS NOT NULL AND branches.released_at IS NULL AS holds_origin,
    ARRAY(
        SELECT pinning.origin_checkpoint_id FROM branches AS pinning
        WHERE pinning.origin_run_id = runs.run_id AND pinning.released_at IS NULL
    ) AS pinned,
    ARRAY(
        SELECT checkpoint_pins.checkpoint_id FROM checkpoint_pins WHERE checkpoint_pins.run_id = runs.run_id
    ) AS pinned_by_hand
FROM runs LEFT JOIN branches USING (run_id) LEFT JOIN LATERAL (
    SELECT stops.stop_id, stops.kind, stops.resumed_at FROM stops WHERE stops.run_id = runs.run_id
    ORDER BY stops.resumed_at DESC NULLS FIRST LIMIT 1
) AS stop ON true
WHERE runs.run_id = :run_id;

-- select_attempt_state: the attempt that holds the greatest token
SELECT attempt_id, fencing_token, holder, policy, checkpoint_failures, definition_changes, lease_expires_at, ended_at
FROM attempts WHERE run_id = :run_id ORDER BY fencing_token DESC LIMIT 1;

-- select_epochs_state: the epochs that are neither durable nor voided, with their reports; an index knows either status
SELECT epoch, status, records, decision, unaligned_by FROM epochs WHERE run_id = :run_id AND status = 'OPEN'
UNION ALL
SELECT epoch, status, records, decision, unaligned_by FROM epochs WHERE run_id = :run_id AND status = 'ALIGNED'
ORDER BY epoch;

-- select_checkpoints_state: the pending checkpoints and the completed one, with their acknowledgements
SELECT checkpoint_id, epoch, kind, status, acknowledgements, manifest_sha256, ended_at
FROM checkpoints WHERE run_id = :run_id AND status = 'PENDING'
UNION ALL
SELECT checkpoint_id, epoch, kind, status, acknowledgements, manifest_sha256, ended_at
FROM checkpoints WHERE run_id = :run_id AND status = 'COMPLETED'
ORDER BY checkpoint_id;

-- select_checkpoint_state: one checkpoint that was completed and is not discarded
SELECT checkpoint_id, epoch, kind, status, acknowledgements, manifest_sha256, ended_at
FROM checkpoints
WHERE run_id = :run_id AND checkpoint_id = :checkpoint_id AND status IN ('COMPLETED', 'SUBSUMED');

-- select_published: the outputs of which sinks have something of later epochs
SELECT DISTINCT output FROM committables WHERE run_id = :run_id AND epoch > :after_epoch;

-- select_finished_state: the operators that finished for good, and the pins
SELECT 'operator' AS what, operator_id AS name, NULL AS fingerprint
FROM operators WHERE run_id = :run_id AND finished_at IS NOT NULL
UNION ALL
SELECT 'pin', name, fingerprint FROM pins WHERE run_id = :run_id;

-- select_edges_state: the parts of edges of the epoch after the last durable one, and of operators that finish for good
SELECT epoch, operator_id, first_bucket, end_bucket, total
FROM edge_parts
WHERE run_id = :run_id AND voided_at IS NULL
    AND epoch = (SELECT last_durable_epoch + 1 FROM runs WHERE runs.run_id = :run_id)
UNION ALL
SELECT epoch, operator_id, first_bucket, end_bucket, total
FROM edge_parts
WHERE run_id = :run_id AND voided_at IS NULL AND epoch = -1
    AND NOT EXISTS (
        SELECT FROM operators WHERE operators.run_id = edge_parts.run_id
            AND operators.operator_id = edge_parts.operator_id AND operators.finished_at IS NOT NULL
    );

-- select_requests_state: the checkpoints that were asked for: what none has answered, and what the latest one did
SELECT request_id, checkpoint_id FROM checkpoint_requests WHERE run_id = :run_id AND checkpoint_id IS NULL
UNION ALL
SELECT request_id, checkpoint_id FROM checkpoint_requests
WHERE run_id = :run_id
    AND checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoint_requests WHERE run_id = :run_id);

-- select_notices_state: the last epoch that each listener has heard of, in steps that do not count the epochs
WITH RECURSIVE listeners AS (
    (SELECT listener_id FROM listener_notices WHERE run_id = :run_id ORDER BY listener_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT later.listener_id FROM listener_notices AS later
        WHERE later.run_id = :run_id AND later.listener_id > listeners.listener_id
        ORDER BY later.listener_id LIMIT 1
    )
    FROM listeners WHERE listeners.listener_id IS NOT NULL
)
SELECT listener_id, (
    SELECT max(epoch) FROM listener_notices
    WHERE listener_notices.run_id = :run_id AND listener_notices.listener_id = listeners.listener_id
) AS epoch
FROM listeners WHERE listener_id IS NOT NULL;

-- select_committables_state: what is stored and not committed
SELECT epoch, output FROM committables WHERE run_id = :run_id AND committed_at IS NULL;

-- list_attempts: who has driven a run
SELECT fencing_token, attempt_id, holder, policy, started_at, lease_expires_at, ended_at, outcome, reason,
    checkpoint_failures, definition_changes, failed_operator_id, failed_epoch, ignores_edges,
    lease_expires_at <= clock_timestamp() AS is_lease_over
FROM attempts WHERE run_id = :run_id ORDER BY fencing_token;

-- list_attempts_between: who has driven a run, from one token to another, as list_attempts has them
SELECT fencing_token, attempt_id, holder, policy, started_at, lease_expires_at, ended_at, outcome, reason,
    checkpoint_failures, definition_changes, failed_operator_id, failed_epoch, ignores_edges,
    lease_expires_at <= clock_timestamp() AS is_lease_over
FROM attempts WHERE run_id = :run_id AND fencing_token BETWEEN :first_attempt AND :last_attempt ORDER BY fencing_token;

-- list_epochs: the epochs of a run under every token, with the records that each head fed back
SELECT epochs.epoch, epochs.fencing_token, epochs.status, epochs.decision, epochs.metrics, epochs.seconds,
    epochs.opened_at, epochs.held_at, epochs.aligned_at, epochs.durable_at, epochs.unaligned_by, epochs.unaligned_at,
    epochs.records
FROM epochs WHERE run_id = :run_id AND epoch >= :first_epoch
ORDER BY epochs.epoch, epochs.fencing_token;

-- list_epochs_between: the epochs of a run from one to another, as list_epochs has them
SELECT epochs.epoch, epochs.fencing_token, epochs.status, epochs.decision, epochs.metrics, epochs.seconds,
    epochs.opened_at, epochs.held_at, epochs.aligned_at, epochs.durable_at, epochs.unaligned_by, epochs.unaligned_at,
    epochs.records
FROM epochs WHERE run_id = :run_id AND epoch BETWEEN :first_epoch AND :last_epoch
ORDER BY epochs.epoch, epochs.fencing_token;

-- list_spans: the epochs of a run counted together, so many at a time; a metric as [least, greatest, last]
SELECT counted.first_epoch, counted.last_epoch, counted.durable, counted.aligned, counted.open, counted.voided,
    counted.seconds, counted.first_attempt, counted.last_attempt, coalesce(measured.metrics, '{}') AS metrics
FROM (
    SELECT epoch / :width AS span, min(epoch) AS first_epoch, max(epoch) AS last_epoch,
        count(*) FILTER (WHERE status = 'DURABLE') AS durable,
        count(*) FILTER (WHERE status = 'ALIGNED') AS aligned,
        count(*) FILTER (WHERE status = 'OPEN') AS open,
        count(*) FILTER (WHERE status = 'VOIDED') AS voided,
        coalesce(sum(seconds) FILTER (WHERE status <> 'VOIDED'), 0) AS seconds,
        min(fencing_token) AS first_attempt, max(fencing_token) AS last_attempt
    FROM epochs WHERE run_id = :run_id GROUP BY span
) AS counted
LEFT JOIN (
    SELECT span, jsonb_object_agg(name, jsonb_build_array(least, greatest, last)) AS metrics
    FROM (
        SELECT epoch / :width AS span, key AS name, min(CAST(value AS double precision)) AS least,
            max(CAST(value AS double precision)) AS greatest,
            (array_agg(CAST(value AS double precision) ORDER BY epoch DESC))[1] AS last
        FROM epochs, jsonb_each_text(metrics) WHERE run_id = :run_id AND status <> 'VOIDED' GROUP BY span, key
    ) AS of_one
    GROUP BY span
) AS measured USING (span)
ORDER BY span;

-- list_edge_spans: in how many epochs of a span an operator left a durable edge, in how many of all its buckets, and in
-- how many the epoch's attempt found all of them, or some
SELECT epoch / :width * :width AS first_epoch, operator_id, count(*) AS edges,
    count(*) FILTER (WHERE marked = total) AS whole,
    count(*) FILTER (WHERE found = total) AS restored,
    count(*) FILTER (WHERE found > 0 AND found < total) AS restored_in_part
FROM (
    SELECT epochs.epoch, edge_parts.operator_id, max(edge_parts.total) AS total,
        sum(end_bucket - first_bucket) AS marked,
        sum(end_bucket - first_bucket) FILTER (WHERE edge_parts.fencing_token < epochs.fencing_token) AS found
    FROM edge_parts JOIN epochs ON (epochs.run_id, epochs.epoch) = (edge_parts.run_id, edge_parts.epoch)
    WHERE edge_parts.run_id = :run_id AND edge_parts.voided_at IS NULL AND epochs.status <> 'VOIDED'
    GROUP BY epochs.epoch, edge_parts.operator_id
) AS edges
GROUP BY epoch / :width, operator_id
ORDER BY first_epoch, operator_id COLLATE "C";

-- list_attempt_spans: which epochs some attempts opened, from one to another
SELECT fencing_token AS attempt, min(epoch) AS first_epoch, max(epoch) AS last_epoch,
    count(*) FILTER (WHERE status = 'DURABLE') AS durable
FROM epochs WHERE run_id = :run_id AND fencing_token BETWEEN :first_attempt AND :last_attempt
GROUP BY fencing_token ORDER BY fencing_token;

-- list_restarts: the attempts that began again behind a loss, counted together by their first epochs, so many at a time:
-- one that opened epochs again or fell back, or came behind one that was cut short, and of each span the last one's own
WITH opened AS (
    SELECT fencing_token, min(epoch) AS epoch, lag(fencing_token) OVER by_token AS token_before,
        lag(max(epoch)) OVER by_token AS epoch_before
    FROM epochs WHERE run_id = :run_id GROUP BY fencing_token WINDOW by_token AS (ORDER BY fencing_token)
), restarts AS (
    SELECT opened.fencing_token, opened.epoch, fallbacks.to_checkpoint_id
    FROM opened LEFT JOIN fallbacks
        ON fallbacks.run_id = :run_id AND fallbacks.fencing_token = opened.fencing_token
    WHERE opened.token_before IS NOT NULL
        AND (opened.epoch <= opened.epoch_before OR fallbacks.to_checkpoint_id IS NOT NULL OR EXISTS (
            SELECT FROM attempts
            WHERE attempts.run_id = :run_id AND attempts.fencing_token >= opened.token_before
                AND attempts.fencing_token < opened.fencing_token AND attempts.ended_at IS NOT NULL
                AND attempts.outcome <> 'FINISHED'
                AND (attempts.outcome <> 'RELEASED' OR attempts.reason IS NOT NULL)
        ))
)
SELECT count(*) AS attempts, max(fencing_token) AS attempt,
    (array_agg(epoch ORDER BY fencing_token DESC))[1] AS epoch,
    (array_agg(to_checkpoint_id ORDER BY fencing_token DESC))[1] AS to_checkpoint_id
FROM restarts GROUP BY restarts.epoch / :width ORDER BY restarts.epoch / :width;

-- list_forest: the runs of some prefixes that match, each behind the run it branched from; trees with new runs first;
-- behind the last page, the last one
WITH RECURSIVE matching AS (
    SELECT run_id, created_at, to_char(created_at, 'YYYYMMDDHH24MISSUS') || run_id AS place
    FROM runs
    WHERE CASE strpos(run_key, '/')
            WHEN 0 THEN CAST(:with_unprefixed AS boolean)
            ELSE split_part(run_key, '/', 1) = ANY (CAST(:prefixes AS text[]))
        END
        AND (status = CAST(:status AS text) OR CAST(:status AS text) IS NULL AND status <> 'DELETED')
        AND strpos(lower(run_key), lower(CAST(:key_part AS text))) > 0
        AND starts_with(run_key, CAST(:below AS text))
        AND (CAST(:run_ids AS uuid[]) IS NULL OR run_id = ANY (CAST(:run_ids AS uuid[])))
), forest AS (
    SELECT matching.run_id, matching.created_at, matching.run_id AS tree, 0 AS depth, ARRAY[matching.place] AS path
    FROM matching LEFT JOIN branches USING (run_id)
    WHERE NOT EXISTS (SELECT FROM matching AS origins WHERE origins.run_id = branches.origin_run_id)
    UNION ALL
    SELECT matching.run_id, matching.created_at, forest.tree, forest.depth + 1, forest.path || matching.place
    FROM forest JOIN branches ON branches.origin_run_id = forest.run_id JOIN matching ON matching.run_id = branches.run_id
), page AS (
    SELECT run_id, depth, count(*) OVER () AS total,
        row_number() OVER (ORDER BY newest DESC, tree, path COLLATE "C") AS place
    FROM (
        SELECT run_id, tree, depth, path, max(created_at) OVER (PARTITION BY tree) AS newest FROM forest
    ) AS dated
    ORDER BY place LIMIT :size
    OFFSET least(:skip, (SELECT greatest(count(*) - 1, 0) / :size * :size FROM forest))
)
SELECT runs.run_id, runs.run_key, runs.reference, runs.status, runs.last_durable_epoch + 1 AS epochs, runs.max_epochs,
    runs.created_at, runs.finished_at, page.depth, page.total, branches.origin_checkpoint_id,
    branches.run_id IS NOT NULL AND branches.origin_run_id IS NULL AS from_savepoint,
    (SELECT kind FROM stops WHERE stops.run_id = runs.run_id AND stops.resumed_at IS NULL) AS asked_to,
    coalesce((
        SELECT epochs.metrics FROM epochs
        WHERE epochs.run_id = runs.run_id AND epochs.epoch = runs.last_durable_epoch AND epochs.status = 'DURABLE'
    ), '{}') AS metrics
FROM page JOIN runs USING (run_id) LEFT JOIN branches USING (run_id)
ORDER BY page.place;

-- list_prefixes: which of some prefixes runs have that are not deleted
SELECT DISTINCT split_part(run_key, '/', 1) AS prefix FROM runs
WHERE strpos(run_key, '/') > 0 AND split_part(run_key, '/', 1) = ANY (CAST(:prefixes AS text[])) AND status <> 'DELETED'
ORDER BY prefix;

-- list_metric_spans: the metrics of several runs, so many epochs at a time
SELECT run_id, key AS name, min(epoch) AS first_epoch, max(epoch) AS last_epoch,
    min(CAST(value AS double precision)) AS least, max(CAST(value AS double precision)) AS greatest,
    (array_agg(CAST(value AS double precision) ORDER BY epoch DESC))[1] AS last
FROM epochs, jsonb_each_text(metrics)
WHERE run_id = ANY (CAST(:run_ids AS uuid[])) AND status <> 'VOIDED'
GROUP BY run_id, key, epoch / :width
ORDER BY run_id, key COLLATE "C", first_epoch;

-- list_operators: the operators of a run, in running order
SELECT operator_id, position, name, role, kind, finished_epoch, fencing_token, output, finished_at, added_under
FROM operators WHERE run_id = :run_id ORDER BY position;

-- list_pins: what the data streams of a run read
SELECT name, fencing_token, fingerprint, pin, pinned_at FROM pins WHERE run_id = :run_id ORDER BY name;

-- list_checkpoints: the checkpoints of a run, all or those of some ids, oldest first, with the branches and the person that pin each
SELECT checkpoints.checkpoint_id, checkpoints.epoch, checkpoints.fencing_token, checkpoints.kind, checkpoints.status,
    checkpoints.manifest_path, checkpoints.manifest_sha256, checkpoints.size_bytes, checkpoints.failure,
    checkpoints.reason, checkpoints.triggered_at, checkpoints.ended_at, checkpoint_needs.by_branches,
    checkpoint_needs.by_person, checkpoint_needs.safe_to_delete
FROM checkpoints JOIN checkpoint_needs USING (run_id, checkpoint_id)
WHERE checkpoints.run_id = :run_id
    AND (CAST(:ids AS bigint[]) IS NULL OR checkpoints.checkpoint_id = ANY (CAST(:ids AS bigint[])))
ORDER BY checkpoints.checkpoint_id;

-- list_needed_checkpoints: the checkpoints of a run that are needed, but for those from one id to another, oldest first
SELECT checkpoints.checkpoint_id, checkpoints.epoch, checkpoints.fencing_token, checkpoints.kind, checkpoints.status,
    checkpoints.manifest_path, checkpoints.manifest_sha256, checkpoints.size_bytes, checkpoints.failure,
    checkpoints.reason, checkpoints.triggered_at, checkpoints.ended_at, checkpoint_needs.by_branches,
    checkpoint_needs.by_person, checkpoint_needs.safe_to_delete
FROM (
    SELECT checkpoint_id FROM checkpoints WHERE run_id = :run_id AND status = 'COMPLETED'
    UNION
    SELECT checkpoint_id FROM checkpoint_pins WHERE run_id = :run_id
    UNION
    SELECT origin_checkpoint_id FROM branches WHERE origin_run_id = :run_id AND released_at IS NULL
) AS needed JOIN checkpoints USING (checkpoint_id) JOIN checkpoint_needs USING (run_id, checkpoint_id)
WHERE checkpoints.run_id = :run_id AND checkpoint_id NOT BETWEEN :first_id AND :last_id
    AND checkpoints.status IN ('COMPLETED', 'SUBSUMED')
ORDER BY checkpoint_id;

-- list_retained: the checkpoints of a run that were completed and are not discarded, with one metric of their epochs
SELECT checkpoints.checkpoint_id, checkpoints.epoch, (
        SELECT CAST(epochs.metrics ->> CAST(:metric AS text) AS double precision) FROM epochs
        WHERE epochs.run_id = checkpoints.run_id AND epochs.epoch = checkpoints.epoch
            AND epochs.fencing_token = checkpoints.fencing_token
    ) AS metric,
    EXISTS (
        SELECT FROM branches JOIN runs ON runs.run_id = branches.run_id
        WHERE branches.origin_run_id = checkpoints.run_id
            AND branches.origin_checkpoint_id = checkpoints.checkpoint_id
            AND branches.mode = 'CLAIM' AND branches.released_at IS NOT NULL
            AND runs.last_durable_epoch > branches.epoch
    ) AS is_claimed
FROM checkpoints WHERE checkpoints.run_id = :run_id AND checkpoints.status IN ('COMPLETED', 'SUBSUMED')
ORDER BY checkpoints.checkpoint_id;

-- select_branch: which checkpoint a run started from
SELECT run_id, origin_run_id, origin_checkpoint_id, epoch, uri, manifest_path, manifest_sha256, mode, keeps,
    branched_by, branched_at, released_at, carries
FROM branches WHERE run_id = :run_id;

-- list_branches: the runs that started from checkpoints of a run, oldest first
SELECT run_id, origin_run_id, origin_checkpoint_id, epoch, uri, manifest_path, manifest_sha256, mode, keeps,
    branched_by, branched_at, released_at, carries
FROM branches WHERE origin_run_id = :run_id ORDER BY branched_at, run_id;

-- select_completed: the completed checkpoint of a run
SELECT checkpoint_id, epoch, fencing_token, kind, status, manifest_path, manifest_sha256, size_bytes, failure, reason,
    triggered_at, ended_at, by_branches, by_person, safe_to_delete
FROM checkpoints JOIN checkpoint_needs USING (run_id, checkpoint_id, status)
WHERE run_id = :run_id AND status = 'COMPLETED';

-- list_parts: the parts of durable edges, voided ones too
SELECT epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics, finished_at, voided_at
FROM edge_parts WHERE run_id = :run_id
ORDER BY epoch, operator_id COLLATE "C", first_bucket, fencing_token, part_id;

-- list_live_parts: the parts of durable edges of the epoch after the last durable one, and of operators that finish for good
SELECT epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics, finished_at, voided_at
FROM (
    SELECT epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics, finished_at, voided_at
    FROM edge_parts
    WHERE run_id = :run_id AND voided_at IS NULL
        AND epoch = (SELECT last_durable_epoch + 1 FROM runs WHERE runs.run_id = :run_id)
    UNION ALL
    SELECT epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics, finished_at, voided_at
    FROM edge_parts
    WHERE run_id = :run_id AND voided_at IS NULL AND epoch = -1
) AS live
ORDER BY epoch, operator_id COLLATE "C", first_bucket;

-- list_requests: which checkpoints persons asked for
SELECT request_id, requested_by, requested_at, checkpoint_id
FROM checkpoint_requests WHERE run_id = :run_id ORDER BY requested_at, request_id;

-- list_committables: what sinks prepared of the durable epochs of a run
SELECT epoch, output, fencing_token, target, content, stored_at, committed_at
FROM committables WHERE run_id = :run_id ORDER BY epoch, output COLLATE "C";

-- list_uncommitted: the same, of what sinks may not show yet
SELECT epoch, output, fencing_token, target, content, stored_at, committed_at
FROM committables WHERE run_id = :run_id AND committed_at IS NULL ORDER BY epoch, output COLLATE "C";

-- list_stops: who asked a run to stop or to drain, and who resumed it
SELECT stop_id, kind, requested_by, requested_at, stopped_at, resumed_by, resumed_at
FROM stops WHERE run_id = :run_id ORDER BY requested_at, stop_id;

-- list_fallbacks: when a run went on from an older checkpoint, and why
SELECT fencing_token, from_checkpoint_id, to_checkpoint_id, epoch, reason, fell_back_at
FROM fallbacks WHERE run_id = :run_id ORDER BY fencing_token;

-- list_notices: what the listeners of a run have heard, or one of them
SELECT listener_id, epoch, fencing_token, effect, noticed_at, is_final
FROM listener_notices
WHERE run_id = :run_id AND listener_id = coalesce(CAST(:listener_id AS text), listener_id)
ORDER BY epoch, listener_id COLLATE "C";
