-- The third version: branches, which start from another run's checkpoint and pin it; checkpoints that are discarded; runs
-- that are deleted (I18).

ALTER TABLE runs
    DROP CONSTRAINT runs_run_key_key,
    ADD COLUMN deleted_by text,
    ADD COLUMN deleted_at timestamptz;
CREATE UNIQUE INDEX runs_run_key_key ON runs (run_key) WHERE status <> 'DELETED';

-- A run that is over counts its revisions on: its checkpoints may still be discarded.
CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status IN ('FINISHED', 'DELETED') AND NEW.status = OLD.status
       AND to_jsonb(NEW) - 'revision' <> to_jsonb(OLD) - 'revision' THEN
        RAISE EXCEPTION 'run % is over and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.fencing_token < OLD.fencing_token OR NEW.last_durable_epoch < OLD.last_durable_epoch
       OR NEW.last_checkpoint_id < OLD.last_checkpoint_id OR NEW.aborted_through < OLD.aborted_through
       OR NEW.revision < OLD.revision THEN
        RAISE EXCEPTION 'run %: tokens, durable epochs and checkpoint ids only grow', OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.last_durable_epoch <> OLD.last_durable_epoch THEN
        IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch = NEW.last_durable_epoch)
           OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                      AND epochs.epoch BETWEEN OLD.last_durable_epoch + 1 AND NEW.last_durable_epoch
                      AND epochs.status IN ('OPEN', 'ALIGNED')) THEN
            RAISE EXCEPTION 'run %: no completed checkpoint makes every epoch up to % durable', OLD.run_id,
                NEW.last_durable_epoch USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION runs_row_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.run_id, NEW.run_key, NEW.reference, NEW.max_buckets, NEW.created_at)
           IS DISTINCT FROM (OLD.run_id, OLD.run_key, OLD.reference, OLD.max_buckets, OLD.created_at) THEN
            RAISE EXCEPTION 'the identity of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF (NEW.attempt_id IS DISTINCT FROM OLD.attempt_id) <> (NEW.fencing_token <> OLD.fencing_token) THEN
            RAISE EXCEPTION 'who holds the token of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('RUNNING', 'TERMINATING'), ('TERMINATING', 'FINISHED'), ('RUNNING', 'FAILED'),
            ('TERMINATING', 'FAILED'), ('FAILED', 'RUNNING'), ('FAILED', 'TERMINATING'), ('RUNNING', 'DELETED'),
            ('TERMINATING', 'DELETED'), ('FAILED', 'DELETED'), ('FINISHED', 'DELETED')) THEN
            RAISE EXCEPTION 'run % cannot go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
            RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'DELETED' AND EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
               AND attempts.ended_at IS NULL) THEN
            RAISE EXCEPTION 'run % is driven and cannot be deleted', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status IN ('FINISHED', 'DELETED') THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id AND checkpoints.status = 'PENDING')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'OPEN')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'ALIGNED') THEN
                RAISE EXCEPTION 'run % has something that is not durable', OLD.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.run_key = '' THEN 'runs_run_key_check'
        WHEN NEW.max_buckets < 1 THEN 'runs_max_buckets_check'
        WHEN NEW.max_epochs < 1 THEN 'runs_max_epochs_check'
        WHEN NEW.status NOT IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED', 'DELETED') THEN 'runs_status_check'
        WHEN NEW.fencing_token < 0 THEN 'runs_fencing_token_check'
        WHEN NEW.last_durable_epoch < -1 THEN 'runs_last_durable_epoch_check'
        WHEN NEW.aborted_through NOT BETWEEN 0 AND NEW.last_checkpoint_id + 1 THEN 'runs_aborted_through_check'
        WHEN NEW.terminated_by NOT IN ('criteria', 'empty_feedback', 'max_epochs') THEN 'runs_terminated_by_check'
        WHEN NEW.status IN ('TERMINATING', 'FINISHED')
            AND (NEW.terminated_by IS NULL OR NEW.last_durable_epoch < 0) THEN 'runs_terminating_check'
        WHEN NEW.status = 'RUNNING' AND NEW.terminated_by IS NOT NULL THEN 'runs_running_check'
        WHEN (NEW.status = 'DELETED') <> (NEW.deleted_by IS NOT NULL)
            OR (NEW.status = 'DELETED') <> (NEW.deleted_at IS NOT NULL) THEN 'runs_deleted_check'
        WHEN NEW.status <> 'DELETED' AND ((NEW.status = 'FINISHED') <> (NEW.outputs IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.state_digest IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.finished_at IS NOT NULL)) THEN 'runs_finished_check'
        WHEN NEW.status <> 'DELETED' AND (NEW.status = 'FAILED') <> (NEW.failure IS NOT NULL) THEN 'runs_failure_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'run % breaks %', NEW.run_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs';
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER runs_row_guard ON runs;
CREATE TRIGGER runs_row_guard BEFORE INSERT OR UPDATE OF
    run_id, run_key, reference, max_buckets, max_epochs, created_at, status, fencing_token, attempt_id, aborted_through,
    terminated_by, failure, outputs, state_digest, finished_at, deleted_by, deleted_at ON runs
    FOR EACH ROW EXECUTE FUNCTION runs_row_guard();

-- The first epoch of a branch follows the checkpoint that it started from.
CREATE OR REPLACE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.records <> OLD.records THEN
        IF jsonb_path_exists(NEW.records, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
           OR jsonb_path_exists(NEW.records, 'strict $.*[*] ? (@.type() != "null" && @.type() != "number"
               || @.type() == "number" && (@ < 0 || @.floor() != @))', '{}', true) THEN
            RAISE EXCEPTION 'the reports of epoch % are no counts of subtasks', NEW.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.expected_reports := jsonb_array_length(jsonb_path_query_array(NEW.records, '$.*[*]'));
        NEW.reports := jsonb_array_length(jsonb_path_query_array(NEW.records, '$.*[*] ? (@ != null)'));
        IF TG_OP = 'UPDATE' AND (OLD.status <> 'OPEN' OR OLD.held_at IS NOT NULL
               OR jsonb_path_query_array(NEW.records, '$.keyvalue().key')
                  <> jsonb_path_query_array(OLD.records, '$.keyvalue().key')
               OR jsonb_path_query_array(NEW.records, '$.*.size()')
                  <> jsonb_path_query_array(OLD.records, '$.*.size()')) THEN
            RAISE EXCEPTION 'the reports of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
    ELSIF (NEW.reports, NEW.expected_reports) IS DISTINCT FROM (OLD.reports, OLD.expected_reports) THEN
        RAISE EXCEPTION 'the reports of epoch % are counted, not told', OLD.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF (NEW.epoch > 0 OR EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id))
           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
               AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
               AND epochs.decision ->> 'terminated_by' IS NULL)
           AND NOT EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id
               AND branches.epoch = NEW.epoch - 1) THEN
            RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
    ELSE
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token) IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('OPEN', 'ALIGNED'), ('ALIGNED', 'DURABLE'), ('OPEN', 'VOIDED'), ('ALIGNED', 'VOIDED')) THEN
            RAISE EXCEPTION 'epoch % cannot go from % to %', OLD.epoch, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.decision IS NOT NULL AND NEW.decision IS DISTINCT FROM OLD.decision THEN
            RAISE EXCEPTION 'the decision of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF (NEW.unaligned_by, NEW.unaligned_at) IS DISTINCT FROM (OLD.unaligned_by, OLD.unaligned_at)
           AND (OLD.unaligned_by IS NOT NULL OR NEW.status <> 'OPEN') THEN
            RAISE EXCEPTION 'epoch % switches to unaligned once, while it is open', OLD.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.held_at IS NOT NULL AND (NEW.held_at, NEW.metrics, NEW.seconds)
           IS DISTINCT FROM (OLD.held_at, OLD.metrics, OLD.seconds) THEN
            RAISE EXCEPTION 'what epoch % measured cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.epoch < 0 THEN 'epochs_epoch_check'
        WHEN NEW.status NOT IN ('OPEN', 'ALIGNED', 'DURABLE', 'VOIDED') THEN 'epochs_status_check'
        WHEN NEW.expected_reports < 1 THEN 'epochs_reports_check'
        WHEN NEW.status = 'OPEN' AND (NEW.aligned_at IS NOT NULL OR NEW.decision IS NOT NULL) THEN 'epochs_open_check'
        WHEN NEW.status IN ('ALIGNED', 'DURABLE') AND (NEW.reports <> NEW.expected_reports
            OR NEW.decision IS NULL OR NEW.aligned_at IS NULL) THEN 'epochs_aligned_check'
        WHEN (NEW.held_at IS NOT NULL) <> (NEW.reports = NEW.expected_reports) THEN 'epochs_held_check'
        WHEN NEW.unaligned_by NOT IN ('timeout', 'preemption') THEN 'epochs_unaligned_by_check'
        WHEN (NEW.unaligned_by IS NULL) <> (NEW.unaligned_at IS NULL) THEN 'epochs_unaligned_check'
        WHEN (NEW.status = 'DURABLE') <> (NEW.durable_at IS NOT NULL) THEN 'epochs_durable_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'epoch % breaks %', NEW.epoch, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'epochs';
    END IF;
    RETURN NEW;
END $$;

-- What somebody needs is not discarded.
CREATE OR REPLACE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.acknowledgements <> OLD.acknowledgements THEN
        IF jsonb_path_exists(NEW.acknowledgements, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
           OR jsonb_path_exists(NEW.acknowledgements, 'strict $.*[*] ? (@.type() != "null" && @.type() != "number"
               || @.type() == "number" && @ != 1)', '{}', true) THEN
            RAISE EXCEPTION 'the acknowledgements of checkpoint % are not those of subtasks', NEW.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.expected := jsonb_array_length(jsonb_path_query_array(NEW.acknowledgements, '$.*[*]'));
        NEW.acknowledged := jsonb_array_length(jsonb_path_query_array(NEW.acknowledgements, '$.*[*] ? (@ != null)'));
        IF TG_OP = 'UPDATE' AND (OLD.status <> 'PENDING'
               OR jsonb_path_query_array(NEW.acknowledgements, '$.keyvalue().key')
                  <> jsonb_path_query_array(OLD.acknowledgements, '$.keyvalue().key')
               OR jsonb_path_query_array(NEW.acknowledgements, '$.*.size()')
                  <> jsonb_path_query_array(OLD.acknowledgements, '$.*.size()')) THEN
            RAISE EXCEPTION 'the acknowledgements of checkpoint % cannot change', OLD.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
    ELSIF (NEW.acknowledged, NEW.expected) IS DISTINCT FROM (OLD.acknowledged, OLD.expected) THEN
        RAISE EXCEPTION 'the acknowledgements of checkpoint % are counted, not told', OLD.checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.run_id, NEW.checkpoint_id, NEW.epoch, NEW.fencing_token, NEW.kind)
           IS DISTINCT FROM (OLD.run_id, OLD.checkpoint_id, OLD.epoch, OLD.fencing_token, OLD.kind) THEN
            RAISE EXCEPTION 'the identity of checkpoint % cannot change', OLD.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('PENDING', 'COMPLETED'), ('PENDING', 'ABORTED'), ('PENDING', 'SUBSUMED'), ('COMPLETED', 'SUBSUMED'),
            ('SUBSUMED', 'DISCARDED'), ('COMPLETED', 'DISCARDED')) THEN
            RAISE EXCEPTION 'checkpoint % cannot go from % to %', OLD.checkpoint_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'DISCARDED' AND OLD.status <> 'DISCARDED' THEN
            IF EXISTS (SELECT FROM branches WHERE branches.origin_run_id = OLD.run_id
                       AND branches.origin_checkpoint_id = OLD.checkpoint_id AND branches.released_at IS NULL)
               OR OLD.status = 'COMPLETED' AND NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id
                       AND runs.status = 'DELETED') THEN
                RAISE EXCEPTION 'checkpoint % of run % is needed', OLD.checkpoint_id, OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF OLD.manifest_sha256 IS NOT NULL AND (NEW.manifest_path, NEW.manifest_sha256)
           IS DISTINCT FROM (OLD.manifest_path, OLD.manifest_sha256) THEN
            RAISE EXCEPTION 'the manifest of checkpoint % cannot change', OLD.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.ended_at IS NOT NULL AND (NEW.ended_at, NEW.failure, NEW.reason)
           IS DISTINCT FROM (OLD.ended_at, OLD.failure, OLD.reason) THEN
            RAISE EXCEPTION 'how checkpoint % ended cannot change', OLD.checkpoint_id USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.checkpoint_id < 1 THEN 'checkpoints_checkpoint_id_check'
        WHEN NEW.kind NOT IN ('PERIODIC', 'MANUAL', 'FINAL') THEN 'checkpoints_kind_check'
        WHEN NEW.status NOT IN ('PENDING', 'COMPLETED', 'ABORTED', 'SUBSUMED', 'DISCARDED')
            THEN 'checkpoints_status_check'
        WHEN NEW.expected < 1 THEN 'checkpoints_acknowledged_check'
        WHEN NEW.status NOT IN ('PENDING', 'ABORTED') AND (NEW.acknowledged <> NEW.expected
            OR NEW.manifest_path IS NULL OR NEW.size_bytes IS NULL) THEN 'checkpoints_completed_check'
        WHEN (NEW.manifest_path IS NULL) <> (NEW.manifest_sha256 IS NULL)
            OR NEW.manifest_sha256 !~ '^[0-9a-f]{64}$' THEN 'checkpoints_manifest_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.reason IS NOT NULL) THEN 'checkpoints_aborted_check'
        WHEN NEW.failure NOT IN ('DECLINED', 'EXPIRED', 'ABORTED_BY_USER', 'SUBSUMED', 'ATTEMPT_ENDED')
            THEN 'checkpoints_failure_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.failure IS NOT NULL) THEN 'checkpoints_failed_check'
        WHEN (NEW.status = 'PENDING') <> (NEW.ended_at IS NULL) THEN 'checkpoints_ended_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'checkpoint % breaks %', NEW.checkpoint_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'checkpoints';
    END IF;
    RETURN NEW;
END $$;

CREATE TABLE branches (
    run_id                uuid PRIMARY KEY REFERENCES runs,
    origin_run_id         uuid,
    origin_checkpoint_id  bigint,
    epoch                 bigint NOT NULL,
    uri                   text NOT NULL,
    manifest_path         text NOT NULL,
    manifest_sha256       text NOT NULL,
    mode                  text NOT NULL,
    keeps                 jsonb NOT NULL,
    branched_by           text NOT NULL,
    branched_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at           timestamptz,
    CONSTRAINT branches_origin_fkey FOREIGN KEY (origin_run_id, origin_checkpoint_id) REFERENCES checkpoints,
    CONSTRAINT branches_origin_check CHECK ((origin_run_id IS NULL) = (origin_checkpoint_id IS NULL)),
    CONSTRAINT branches_epoch_check CHECK (epoch >= 0),
    CONSTRAINT branches_manifest_sha256_check CHECK (manifest_sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT branches_mode_check CHECK (mode IN ('NO_CLAIM', 'CLAIM'))
);
CREATE INDEX branches_origin_idx ON branches (origin_run_id, origin_checkpoint_id);

COMMENT ON TABLE branches IS
    'Which checkpoint a run started from; it is pinned until the run has a completed one of its own (I18).';

-- A branch is begun by a run that nobody has driven, from a checkpoint that is there, and is released once (I18).
CREATE FUNCTION branches_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.released_at IS NOT NULL OR to_jsonb(NEW) - 'released_at' <> to_jsonb(OLD) - 'released_at'
           OR NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                          AND checkpoints.status = 'COMPLETED')
              AND NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status = 'DELETED') THEN
            RAISE EXCEPTION 'run % is released once, by a checkpoint of its own', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND runs.fencing_token = 0
                   AND runs.last_durable_epoch = NEW.epoch) THEN
        RAISE EXCEPTION 'run % does not begin behind epoch %', NEW.run_id, NEW.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.origin_run_id IS NOT NULL THEN  -- the lock keeps it from being discarded until this is committed
        PERFORM FROM checkpoints WHERE checkpoints.run_id = NEW.origin_run_id
            AND checkpoints.checkpoint_id = NEW.origin_checkpoint_id AND checkpoints.epoch = NEW.epoch
            AND checkpoints.manifest_sha256 = NEW.manifest_sha256
            AND checkpoints.status IN ('COMPLETED', 'SUBSUMED') FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'checkpoint % of run % is not there', NEW.origin_checkpoint_id, NEW.origin_run_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'branches_origin_gone', TABLE = 'branches';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER branches_guard BEFORE INSERT OR UPDATE ON branches FOR EACH ROW EXECUTE FUNCTION branches_guard();

-- Who needs a checkpoint besides its own run, and whether it may go without anybody missing it.
CREATE VIEW checkpoint_needs AS
SELECT checkpoints.run_id, checkpoints.checkpoint_id, checkpoints.status, needed.by_branches,
    checkpoints.status IN ('ABORTED', 'DISCARDED') OR cardinality(needed.by_branches) = 0 AND (
        checkpoints.status = 'SUBSUMED' OR checkpoints.status = 'COMPLETED' AND runs.status = 'DELETED'
    ) AS safe_to_delete
FROM checkpoints JOIN runs USING (run_id) CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(branches.run_id ORDER BY branches.branched_at, branches.run_id), '{}') AS by_branches
    FROM branches
    WHERE branches.origin_run_id = checkpoints.run_id AND branches.origin_checkpoint_id = checkpoints.checkpoint_id
        AND branches.released_at IS NULL
) AS needed;

COMMENT ON VIEW checkpoint_needs IS 'Per checkpoint: the branches that pin it, and whether it is safe to delete (I18).';
