-- Writes of the coordinator. The run's row is locked first, by one of the first two, but for renew_lease and what begins a
-- run; every write of an attempt names the token that it writes for and touches nothing where another token is in force;
-- who calls it says how many rows it has to touch.

-- lock_run: wait for the run's row, then read what decides whether a cached state still holds, and the time
WITH locked AS MATERIALIZED (
    SELECT revision, attempt_id, last_checkpoint_id FROM runs WHERE run_id = :run_id FOR NO KEY UPDATE
)
SELECT revision, CAST(attempt_id AS text) AS attempt_id, last_checkpoint_id, clock_timestamp() AS now FROM locked;

-- lock_unchanged_run: wait for the run's row, and divide by zero where anybody has changed the run since: an error, so
-- that nothing behind it in its message is executed. The commit waits for the disk if it is to be flushed
SELECT 1 / count(*), CASE WHEN NOT :is_flushed THEN set_config('synchronous_commit', 'off', true) END FROM (
    SELECT FROM runs
    WHERE run_id = :run_id AND revision = :revision AND last_checkpoint_id = :last_checkpoint_id
        AND attempt_id IS NOT DISTINCT FROM CAST(:attempt_id AS uuid)
    FOR NO KEY UPDATE
) AS unchanged;

-- lock_lease: let nobody renew the lease of the live attempt before the transaction ends, where it is over
SELECT FROM attempts
WHERE run_id = :run_id AND ended_at IS NULL AND lease_expires_at <= :now
FOR NO KEY UPDATE;

-- insert_run: create a run, unless its key or its id is taken; the same run may come twice, at once
INSERT INTO runs
    (run_id, run_key, reference, definition, params, state_uri, max_buckets, max_epochs, last_durable_epoch)
VALUES (:run_id, :run_key, :reference, :definition, :params, :state_uri, :max_buckets, :max_epochs,
    :last_durable_epoch)
ON CONFLICT DO NOTHING
RETURNING run_id;

-- insert_branch: say which checkpoint a new run starts from; it is pinned from here on
INSERT INTO branches
    (run_id, origin_run_id, origin_checkpoint_id, epoch, uri, manifest_path, manifest_sha256, mode, keeps,
        branched_by, carries)
VALUES (:run_id, :origin_run_id, :origin_checkpoint_id, :epoch, :uri, :manifest_path, :manifest_sha256, :mode, :keeps,
    :branched_by, :carries);

-- touch_origin: count the pin of a checkpoint as a change of its run
UPDATE runs SET revision = revision + 1 WHERE run_id = :run_id;

-- insert_operators: list the operators of a new run
INSERT INTO operators (run_id, operator_id, position, name, role, kind)
SELECT :run_id, operator_id, position, name, role, kind
FROM unnest(
    CAST(:operator_ids AS text[]), CAST(:names AS text[]), CAST(:roles AS text[]), CAST(:kinds AS text[])
) WITH ORDINALITY AS listed (operator_id, name, role, kind, position);

-- touch_run: count a change of a run whose own row stays as it is; the other updates of runs count it themselves
UPDATE runs SET revision = revision + 1 WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- issue_token: make the next fencing token the one in force, and say whose it is
UPDATE runs SET revision = revision + 1, fencing_token = :fencing_token, attempt_id = :attempt_id
WHERE run_id = :run_id AND fencing_token = :fencing_token - 1;

-- insert_attempt: list the attempt that holds the token in force
INSERT INTO attempts (run_id, fencing_token, attempt_id, holder, policy, lease_expires_at, ignores_edges)
SELECT run_id, fencing_token, attempt_id, :holder, :policy, :lease_expires_at, :ignores_edges
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- end_attempt: end a live attempt
UPDATE attempts SET ended_at = clock_timestamp(), outcome = :outcome, reason = :reason,
    failed_operator_id = :failed_operator_id, failed_epoch = :failed_epoch
WHERE run_id = :run_id AND fencing_token = :fencing_token AND ended_at IS NULL;

-- renew_lease: keep a live attempt alive, once nobody is at it who found it over or changes it; no row: it has ended
WITH live AS MATERIALIZED (
    SELECT run_id, fencing_token FROM attempts
    WHERE run_id = :run_id AND fencing_token = :fencing_token AND attempt_id = :attempt_id AND ended_at IS NULL
    FOR NO KEY UPDATE
)
UPDATE attempts SET lease_expires_at = clock_timestamp() + make_interval(secs => :lease_ttl_seconds)
FROM live WHERE attempts.run_id = live.run_id AND attempts.fencing_token = live.fencing_token;

-- record_definition_changes: let a live attempt say how its operators are others than the run's
UPDATE attempts SET definition_changes = CAST(:changes AS text[])
WHERE run_id = :run_id AND fencing_token = :fencing_token AND ended_at IS NULL;

-- void_dropped_parts: void what operators left that nobody will read again
UPDATE edge_parts SET voided_at = clock_timestamp()
FROM runs
WHERE edge_parts.run_id = :run_id AND edge_parts.operator_id = ANY (CAST(:dropped AS text[]))
    AND edge_parts.epoch = -1 AND edge_parts.voided_at IS NULL
    AND runs.run_id = edge_parts.run_id AND runs.fencing_token = :fencing_token;

-- delete_operators: take away the operators that are no more, and those that lose their marker
DELETE FROM operators USING runs
WHERE operators.run_id = :run_id
    AND (operators.operator_id = ANY (CAST(:dropped AS text[]))
        OR operators.finished_at IS NULL AND operators.operator_id <> ALL (CAST(:operator_ids AS text[])))
    AND runs.run_id = operators.run_id AND runs.fencing_token = :fencing_token;

-- replace_operators: the operators that the run has from now on, matched by id
INSERT INTO operators (run_id, operator_id, position, name, role, kind, added_under)
SELECT runs.run_id, listed.operator_id, listed.position, listed.name, listed.role, listed.kind, runs.fencing_token
FROM runs CROSS JOIN unnest(
    CAST(:operator_ids AS text[]), CAST(:names AS text[]), CAST(:roles AS text[]), CAST(:kinds AS text[])
) WITH ORDINALITY AS listed (operator_id, name, role, kind, position)
WHERE runs.run_id = :run_id AND runs.fencing_token = :fencing_token
ON CONFLICT (run_id, operator_id) DO UPDATE
SET position = EXCLUDED.position, name = EXCLUDED.name, role = EXCLUDED.role, kind = EXCLUDED.kind;

-- replace_definition: what the run is made of, now that no other operator is left; a finished one never goes unasked
UPDATE runs SET revision = revision + 1, definition = :definition
WHERE run_id = :run_id AND fencing_token = :fencing_token
    AND NOT EXISTS (
        SELECT FROM operators
        WHERE operators.run_id = runs.run_id AND operators.operator_id <> ALL (CAST(:operator_ids AS text[]))
    );

-- set_run_status: set the status, the rule that ended the run, and the failure
UPDATE runs SET revision = revision + 1, status = :status, terminated_by = :terminated_by, failure = :failure
WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- record_fallback: a run goes on from an older checkpoint, because its newest one is broken
INSERT INTO fallbacks (run_id, fencing_token, from_checkpoint_id, to_checkpoint_id, epoch, reason)
SELECT run_id, fencing_token, :from_checkpoint_id, :checkpoint_id, :epoch, :reason
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- discard_newer_checkpoints: completed or subsumed → discarded, of those after the one that the run falls back to
UPDATE checkpoints SET status = 'DISCARDED'
FROM runs
WHERE checkpoints.run_id = :run_id AND checkpoints.checkpoint_id > :checkpoint_id
    AND checkpoints.status IN ('COMPLETED', 'SUBSUMED')
    AND runs.run_id = checkpoints.run_id AND runs.fencing_token = :fencing_token;

-- complete_again: subsumed → completed, of the one that the run falls back to
UPDATE checkpoints SET status = 'COMPLETED'
FROM runs
WHERE checkpoints.run_id = :run_id AND checkpoints.checkpoint_id = :checkpoint_id
    AND checkpoints.status = 'SUBSUMED'
    AND runs.run_id = checkpoints.run_id AND runs.fencing_token = :fencing_token;

-- void_durable_epochs: durable → voided, of those after the one that the run falls back to
UPDATE epochs SET status = 'VOIDED', durable_at = NULL
FROM runs
WHERE epochs.run_id = :run_id AND epochs.epoch > :after AND epochs.status = 'DURABLE'
    AND runs.run_id = epochs.run_id AND runs.fencing_token = :fencing_token;

-- fall_back_run: the run's last durable epoch, an earlier one
UPDATE runs SET revision = revision + 1, last_durable_epoch = :epoch
WHERE run_id = :run_id AND fencing_token = :fencing_token AND status = 'RUNNING';

-- publish_outputs: terminating → finished, with where the outputs are
UPDATE runs SET revision = revision + 1, status = 'FINISHED', outputs = :outputs, state_digest = :state_digest,
    finished_at = clock_timestamp()
WHERE run_id = :run_id AND fencing_token = :fencing_token AND status = 'TERMINATING';

-- insert_pin: record what a data stream reads
INSERT INTO pins (run_id, name, fencing_token, fingerprint, pin)
SELECT run_id, :name, fencing_token, :fingerprint, :pin
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- insert_epoch: open an epoch
INSERT INTO epochs (run_id, epoch, fencing_token, records)
SELECT run_id, :epoch, fencing_token, :records
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- record_reports: store what the subtasks of an open epoch have reported up to now
UPDATE epochs SET records = :records
WHERE run_id = :run_id AND epoch = :epoch AND fencing_token = :fencing_token AND status = 'OPEN' AND held_at IS NULL;

-- measure_epoch: every report of an open epoch, and what it measured
UPDATE epochs SET records = :records, metrics = :metrics, seconds = :seconds, held_at = clock_timestamp()
WHERE run_id = :run_id AND epoch = :epoch AND fencing_token = :fencing_token AND status = 'OPEN' AND held_at IS NULL;

-- measure_and_align_epoch: open → aligned, with every report, with what it measured, and with the decision
UPDATE epochs SET status = 'ALIGNED', records = :records, metrics = :metrics, seconds = :seconds, decision = :decision,
    held_at = clock_timestamp(), aligned_at = clock_timestamp()
WHERE run_id = :run_id AND epoch = :epoch AND fencing_token = :fencing_token AND status = 'OPEN' AND held_at IS NULL;

-- align_epoch: open → aligned, of one that was held, with the decision
UPDATE epochs SET status = 'ALIGNED', decision = :decision, aligned_at = clock_timestamp()
WHERE run_id = :run_id AND epoch = :epoch AND fencing_token = :fencing_token AND status = 'OPEN'
    AND held_at IS NOT NULL;

-- switch_to_unaligned: let an open epoch have durable edges, once
UPDATE epochs SET unaligned_by = :by, unaligned_at = clock_timestamp()
WHERE run_id = :run_id AND epoch = :epoch AND fencing_token = :fencing_token AND status = 'OPEN'
    AND unaligned_by IS NULL;

-- insert_parts: mark buckets of operators' outputs as durable
INSERT INTO edge_parts
    (run_id, epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics)
SELECT runs.run_id, :epoch, part.operator_id, part.first_bucket, part.end_bucket, part.total, runs.fencing_token,
    CAST(part.output AS jsonb), CAST(part.metrics AS jsonb)
FROM runs CROSS JOIN unnest(
    CAST(:operator_ids AS text[]), CAST(:first_buckets AS integer[]), CAST(:end_buckets AS integer[]),
    CAST(:totals AS integer[]), CAST(:outputs AS text[]), CAST(:metrics AS text[])
) AS part (operator_id, first_bucket, end_bucket, total, output, metrics)
WHERE runs.run_id = :run_id AND runs.fencing_token = :fencing_token;

-- void_edges: void the edges of every epoch after one, whoever wrote them, but those of some operators
UPDATE edge_parts SET voided_at = clock_timestamp()
FROM runs
WHERE edge_parts.run_id = :run_id AND edge_parts.epoch > :after AND edge_parts.voided_at IS NULL
    AND edge_parts.operator_id <> ALL (CAST(:keeping AS text[]))
    AND runs.run_id = edge_parts.run_id AND runs.fencing_token = :fencing_token;

-- void_epochs: void what superseded attempts left that is not durable
UPDATE epochs SET status = 'VOIDED'
FROM runs
WHERE epochs.run_id = :run_id AND epochs.epoch > :after AND epochs.status IN ('OPEN', 'ALIGNED')
    AND runs.run_id = epochs.run_id AND runs.fencing_token = :fencing_token;

-- make_epochs_durable: aligned → durable, up to the epoch that a checkpoint covers, the run's last durable one then
WITH covered AS (
    UPDATE epochs SET status = 'DURABLE', durable_at = clock_timestamp()
    WHERE run_id = :run_id AND epoch > (SELECT last_durable_epoch FROM runs WHERE run_id = :run_id)
        AND epoch <= :through AND fencing_token = :fencing_token AND status = 'ALIGNED'
    RETURNING epoch
)
UPDATE runs SET revision = revision + 1, last_durable_epoch = last.epoch
FROM (SELECT max(epoch) AS epoch FROM covered) AS last
WHERE runs.run_id = :run_id AND runs.fencing_token = :fencing_token AND last.epoch = :through;

-- finish_operator: mark an operator as finished for good, once
UPDATE operators SET finished_epoch = :epoch, fencing_token = runs.fencing_token, output = :output,
    finished_at = clock_timestamp()
FROM runs
WHERE operators.run_id = :run_id AND operators.operator_id = :operator_id AND operators.finished_at IS NULL
    AND runs.run_id = operators.run_id AND runs.fencing_token = :fencing_token;

-- trigger_checkpoint: give out the next checkpoint id, and begin a checkpoint of an aligned epoch under it
WITH issued AS (
    UPDATE runs SET revision = revision + 1, last_checkpoint_id = :checkpoint_id
    WHERE run_id = :run_id AND fencing_token = :fencing_token
    RETURNING run_id, last_checkpoint_id, fencing_token
)
INSERT INTO checkpoints (run_id, checkpoint_id, epoch, fencing_token, kind, acknowledgements)
SELECT run_id, last_checkpoint_id, :epoch, fencing_token, :kind, :acknowledgements FROM issued;

-- trigger_aborted_checkpoint: use up the next checkpoint id, under which a checkpoint was aborted before it began
WITH issued AS (
    UPDATE runs SET revision = revision + 1, last_checkpoint_id = :checkpoint_id
    WHERE run_id = :run_id AND fencing_token = :fencing_token
    RETURNING run_id, last_checkpoint_id, fencing_token, clock_timestamp() AS at
)
INSERT INTO checkpoints
    (run_id, checkpoint_id, epoch, fencing_token, kind, acknowledgements, status, failure, reason, triggered_at, ended_at)
SELECT run_id, last_checkpoint_id, :epoch, fencing_token, :kind, :acknowledgements,
    'ABORTED', :failure, :reason, issued.at, issued.at
FROM issued;

-- abort_through: no checkpoint up to an id will begin any more
UPDATE runs SET revision = revision + 1, aborted_through = :checkpoint_id
WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- record_request: a person asks for a checkpoint
INSERT INTO checkpoint_requests (request_id, run_id, requested_by)
SELECT :request_id, run_id, :requested_by
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- answer_requests: say which checkpoint answers every request that none has answered
UPDATE checkpoint_requests SET checkpoint_id = :checkpoint_id
FROM runs
WHERE checkpoint_requests.run_id = :run_id AND checkpoint_requests.checkpoint_id IS NULL
    AND runs.run_id = checkpoint_requests.run_id AND runs.fencing_token = :fencing_token;

-- record_stop: a person asks a run to stop, or to drain
INSERT INTO stops (stop_id, run_id, kind, requested_by)
SELECT :stop_id, run_id, :kind, :requested_by
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- stop_run: running or failed → stopped
UPDATE runs SET revision = revision + 1, status = 'STOPPED', failure = NULL
WHERE run_id = :run_id AND fencing_token = :fencing_token AND status IN ('RUNNING', 'FAILED');

-- answer_stop: when the run has stopped that a person asked to
UPDATE stops SET stopped_at = clock_timestamp()
FROM runs
WHERE stops.run_id = :run_id AND stops.stop_id = :stop_id AND stops.stopped_at IS NULL
    AND runs.run_id = stops.run_id AND runs.fencing_token = :fencing_token;

-- resume_stop: who lets a stopped run go on; behind those before, also by a clock that was set back
UPDATE stops SET resumed_by = :resumed_by, resumed_at = greatest(
    clock_timestamp(),
    (SELECT max(known.resumed_at) + interval '1 microsecond' FROM stops AS known WHERE known.run_id = :run_id)
)
FROM runs
WHERE stops.run_id = :run_id AND stops.stop_id = :stop_id AND stops.resumed_at IS NULL
    AND runs.run_id = stops.run_id AND runs.fencing_token = :fencing_token;

-- resume_run: stopped → running
UPDATE runs SET revision = revision + 1, status = 'RUNNING'
WHERE run_id = :run_id AND fencing_token = :fencing_token AND status = 'STOPPED';

-- record_acknowledgements: store which subtasks have acknowledged a pending checkpoint up to now
UPDATE checkpoints SET acknowledgements = :acknowledgements
WHERE run_id = :run_id AND checkpoint_id = :checkpoint_id AND fencing_token = :fencing_token AND status = 'PENDING';

-- complete_checkpoint: pending → completed, or subsumed where a newer one came first, with every acknowledgement
UPDATE checkpoints SET status = :status, manifest_path = :manifest_path, manifest_sha256 = :manifest_sha256,
    size_bytes = :size_bytes, ended_at = coalesce(:completed_at, clock_timestamp())
WHERE run_id = :run_id AND checkpoint_id = :checkpoint_id AND fencing_token = :fencing_token AND status = 'PENDING';

-- acknowledge_and_complete_checkpoint: the last acknowledgements, and pending → completed or subsumed with them
UPDATE checkpoints SET acknowledgements = :acknowledgements, status = :status, manifest_path = :manifest_path,
    manifest_sha256 = :manifest_sha256, size_bytes = :size_bytes, ended_at = coalesce(:completed_at, clock_timestamp())
WHERE run_id = :run_id AND checkpoint_id = :checkpoint_id AND fencing_token = :fencing_token AND status = 'PENDING';

-- subsume_and_complete_checkpoint: completed → subsumed; pending → completed in its place, with its last acknowledgements
WITH subsumed AS (
    UPDATE checkpoints SET status = 'SUBSUMED'
    FROM runs
    WHERE checkpoints.run_id = :run_id AND checkpoints.checkpoint_id = :subsumed_id
        AND checkpoints.status = 'COMPLETED'
        AND runs.run_id = checkpoints.run_id AND runs.fencing_token = :fencing_token
    RETURNING runs.run_id, runs.fencing_token
)
UPDATE checkpoints SET acknowledgements = :acknowledgements, status = :status, manifest_path = :manifest_path,
    manifest_sha256 = :manifest_sha256, size_bytes = :size_bytes, ended_at = coalesce(:completed_at, clock_timestamp())
FROM subsumed
WHERE checkpoints.run_id = subsumed.run_id AND checkpoints.checkpoint_id = :checkpoint_id
    AND checkpoints.fencing_token = subsumed.fencing_token AND checkpoints.status = 'PENDING';

-- subsume_checkpoint: completed → subsumed, when a newer one takes its place
UPDATE checkpoints SET status = 'SUBSUMED'
FROM runs
WHERE checkpoints.run_id = :run_id AND checkpoints.checkpoint_id = :checkpoint_id
    AND checkpoints.status = 'COMPLETED'
    AND runs.run_id = checkpoints.run_id AND runs.fencing_token = :fencing_token;

-- abort_checkpoint: pending → aborted, with the reason
UPDATE checkpoints SET status = 'ABORTED', failure = :failure, reason = :reason, ended_at = clock_timestamp()
FROM runs
WHERE checkpoints.run_id = :run_id AND checkpoints.checkpoint_id = :checkpoint_id
    AND checkpoints.status = 'PENDING'
    AND runs.run_id = checkpoints.run_id AND runs.fencing_token = :fencing_token;

-- store_committables: what sinks prepared of epochs that are durable; those in the store are committed with it
INSERT INTO committables (run_id, epoch, output, fencing_token, target, content, committed_at)
SELECT runs.run_id, prepared.epoch, prepared.output, runs.fencing_token, prepared.target,
    CAST(prepared.content AS jsonb), CASE WHEN prepared.in_store THEN clock_timestamp() END
FROM runs CROSS JOIN unnest(
    CAST(:epochs AS bigint[]), CAST(:outputs AS text[]), CAST(:targets AS text[]), CAST(:contents AS text[]),
    CAST(:in_store AS boolean[])
) AS prepared (epoch, output, target, content, in_store)
WHERE runs.run_id = :run_id AND runs.fencing_token = :fencing_token;

-- mark_committed: what sinks show
UPDATE committables SET committed_at = clock_timestamp()
FROM runs, unnest(CAST(:epochs AS bigint[]), CAST(:outputs AS text[])) AS shown (epoch, output)
WHERE committables.run_id = :run_id AND committables.epoch = shown.epoch AND committables.output = shown.output
    AND committables.committed_at IS NULL
    AND runs.run_id = committables.run_id AND runs.fencing_token = :fencing_token;

-- record_notice: a listener has heard of an epoch
INSERT INTO listener_notices (run_id, listener_id, epoch, fencing_token, effect, is_final)
SELECT run_id, :listener_id, :epoch, fencing_token, :effect, :is_final
FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- discard_checkpoints: subsumed, or the newest of a deleted run → discarded, of as many as are there still
UPDATE checkpoints SET status = 'DISCARDED'
FROM runs
WHERE checkpoints.run_id = :run_id AND checkpoints.checkpoint_id = ANY (CAST(:checkpoint_ids AS bigint[]))
    AND checkpoints.status IN ('COMPLETED', 'SUBSUMED')
    AND runs.run_id = checkpoints.run_id AND runs.fencing_token = :fencing_token;

-- pin_checkpoint: a person keeps a checkpoint
INSERT INTO checkpoint_pins (run_id, checkpoint_id, pinned_by)
SELECT run_id, :checkpoint_id, :pinned_by FROM runs WHERE run_id = :run_id AND fencing_token = :fencing_token;

-- release_checkpoint: a person keeps a checkpoint no longer
DELETE FROM checkpoint_pins
USING runs
WHERE checkpoint_pins.run_id = :run_id AND checkpoint_pins.checkpoint_id = :checkpoint_id
    AND runs.run_id = checkpoint_pins.run_id AND runs.fencing_token = :fencing_token;

-- release_origin: a branch does not need the checkpoint any more that it started from
UPDATE branches SET released_at = clock_timestamp()
FROM runs
WHERE branches.run_id = :run_id AND branches.released_at IS NULL
    AND runs.run_id = branches.run_id AND runs.fencing_token = :fencing_token;

-- delete_run: any status → deleted
UPDATE runs SET revision = revision + 1, status = 'DELETED', deleted_by = :deleted_by, deleted_at = clock_timestamp()
WHERE run_id = :run_id AND fencing_token = :fencing_token AND status <> 'DELETED';
