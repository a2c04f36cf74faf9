-- Reads: the state that the protocol decides from (select_*_state), and the history that people look at (list_*).

-- select_run: one run by its id or its key
SELECT run_id, run_key, reference, definition, params, state_uri, max_buckets, max_epochs, status, fencing_token,
    last_durable_epoch, last_checkpoint_id, terminated_by, failure, outputs, state_digest, created_at, finished_at
FROM runs WHERE run_key = :run OR CAST(run_id AS text) = :run
ORDER BY (run_key = :run) DESC LIMIT 1;

-- list_runs: every run, newest first
SELECT run_id, run_key, reference, definition, params, state_uri, max_buckets, max_epochs, status, fencing_token,
    last_durable_epoch, last_checkpoint_id, terminated_by, failure, outputs, state_digest, created_at, finished_at
FROM runs ORDER BY created_at DESC, run_id;

-- select_run_state: what the protocol knows of the run itself
SELECT run_id, status, max_epochs, fencing_token, last_durable_epoch, last_checkpoint_id, terminated_by
FROM runs WHERE run_id = :run_id;

-- select_attempt_state: the attempt that holds the greatest token
SELECT attempt_id, fencing_token, holder, lease_expires_at, ended_at
FROM attempts WHERE run_id = :run_id ORDER BY fencing_token DESC LIMIT 1;

-- select_epochs_state: the epochs after the last durable one that are not voided, with their reports
SELECT epochs.epoch, epochs.status, epochs.decision, head_reports.head, head_reports.records
FROM epochs JOIN runs ON runs.run_id = epochs.run_id
    JOIN head_reports ON head_reports.run_id = epochs.run_id AND head_reports.epoch = epochs.epoch
        AND head_reports.fencing_token = epochs.fencing_token
WHERE epochs.run_id = :run_id AND epochs.epoch > runs.last_durable_epoch AND epochs.status IN ('OPEN', 'ALIGNED')
ORDER BY epochs.epoch, head_reports.head COLLATE "C";

-- select_checkpoints_state: the pending checkpoints and the completed one, with their acknowledgements
SELECT checkpoints.checkpoint_id, checkpoints.epoch, checkpoints.kind, checkpoints.status,
    checkpoints.manifest_sha256, acknowledgements.participant, acknowledgements.subtasks
FROM checkpoints
    JOIN acknowledgements ON acknowledgements.run_id = checkpoints.run_id
        AND acknowledgements.checkpoint_id = checkpoints.checkpoint_id
WHERE checkpoints.run_id = :run_id AND checkpoints.status IN ('PENDING', 'COMPLETED')
ORDER BY checkpoints.checkpoint_id, acknowledgements.participant COLLATE "C";

-- select_finished_state: the operators that finished for good, and the pins
SELECT 'operator' AS what, operator_id AS name, NULL AS fingerprint
FROM operators WHERE run_id = :run_id AND finished_at IS NOT NULL
UNION ALL
SELECT 'pin', name, fingerprint FROM pins WHERE run_id = :run_id;

-- list_attempts: who has driven a run
SELECT fencing_token, attempt_id, holder, started_at, lease_expires_at, ended_at, outcome, reason
FROM attempts WHERE run_id = :run_id ORDER BY fencing_token;

-- list_epochs: the epochs of a run under every token, with the records that each head fed back
SELECT epochs.epoch, epochs.fencing_token, epochs.status, epochs.decision, epochs.metrics, epochs.seconds,
    epochs.opened_at, epochs.aligned_at, epochs.durable_at,
    (SELECT jsonb_object_agg(head, to_jsonb(records)) FROM head_reports
     WHERE head_reports.run_id = epochs.run_id AND head_reports.epoch = epochs.epoch
         AND head_reports.fencing_token = epochs.fencing_token) AS records
FROM epochs WHERE run_id = :run_id AND epoch >= :first_epoch
ORDER BY epochs.epoch, epochs.fencing_token;

-- list_operators: the operators of a run, in running order
SELECT operator_id, position, name, role, kind, finished_epoch, fencing_token, output, finished_at
FROM operators WHERE run_id = :run_id ORDER BY position;

-- list_pins: what the data streams of a run read
SELECT name, fencing_token, fingerprint, pin, pinned_at FROM pins WHERE run_id = :run_id ORDER BY name;

-- list_checkpoints: the checkpoints of a run, oldest first
SELECT checkpoint_id, epoch, fencing_token, kind, status, expected, acknowledged, manifest_path, manifest_sha256,
    size_bytes, reason, triggered_at, ended_at
FROM checkpoints WHERE run_id = :run_id ORDER BY checkpoint_id;
