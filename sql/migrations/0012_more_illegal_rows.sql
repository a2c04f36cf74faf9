-- More rows and steps that invariants speak against. What was written before stays as it is.

-- A run is terminated only by the rule that its last durable epoch decided by, whatever else becomes of it.
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
            ('TERMINATING', 'FAILED'), ('FAILED', 'RUNNING'), ('FAILED', 'TERMINATING'), ('RUNNING', 'STOPPED'),
            ('FAILED', 'STOPPED'), ('STOPPED', 'RUNNING'), ('RUNNING', 'DELETED'), ('TERMINATING', 'DELETED'),
            ('FAILED', 'DELETED'), ('FINISHED', 'DELETED'), ('STOPPED', 'DELETED')) THEN
            RAISE EXCEPTION 'run % cannot go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
            RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND NEW.status IN ('FINISHED', 'FAILED', 'STOPPED', 'DELETED')
           AND EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL) THEN
            RAISE EXCEPTION 'run % is driven and cannot be %', OLD.run_id, lower(NEW.status)
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (NEW.status = 'STOPPED' OR OLD.status = 'STOPPED' AND NEW.status = 'RUNNING')
           AND (NEW.status = 'STOPPED') <> EXISTS (SELECT FROM stops WHERE stops.run_id = OLD.run_id
               AND stops.kind = 'STOP' AND stops.resumed_at IS NULL) THEN
            RAISE EXCEPTION 'nobody asked run % to go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND NEW.status = 'TERMINATING'
           OR OLD.terminated_by IS NULL AND NEW.terminated_by IS NOT NULL THEN
            IF NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                           AND epochs.epoch = NEW.last_durable_epoch AND epochs.status = 'DURABLE'
                           AND epochs.decision ->> 'terminated_by' = NEW.terminated_by) THEN
                RAISE EXCEPTION 'the last durable epoch of run % did not decide that it terminates', OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.status IN ('FINISHED', 'STOPPED', 'DELETED') THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id AND checkpoints.status = 'PENDING')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'OPEN')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'ALIGNED') THEN
                RAISE EXCEPTION 'run % has something that is not durable', OLD.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.status = 'FINISHED' AND EXISTS (SELECT FROM committables WHERE committables.run_id = OLD.run_id
               AND committables.committed_at IS NULL) THEN
            RAISE EXCEPTION 'run % has something that is not committed', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.run_key = '' THEN 'runs_run_key_check'
        WHEN NEW.max_buckets < 1 THEN 'runs_max_buckets_check'
        WHEN NEW.max_epochs < 1 THEN 'runs_max_epochs_check'
        WHEN NEW.status NOT IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED', 'STOPPED', 'DELETED')
            THEN 'runs_status_check'
        WHEN NEW.fencing_token < 0 THEN 'runs_fencing_token_check'
        WHEN NEW.last_durable_epoch < -1 THEN 'runs_last_durable_epoch_check'
        WHEN NEW.aborted_through NOT BETWEEN 0 AND NEW.last_checkpoint_id + 1 THEN 'runs_aborted_through_check'
        WHEN NEW.terminated_by NOT IN ('criteria', 'empty_feedback', 'max_epochs', 'drained')
            THEN 'runs_terminated_by_check'
        WHEN NEW.status IN ('TERMINATING', 'FINISHED')
            AND (NEW.terminated_by IS NULL OR NEW.last_durable_epoch < 0) THEN 'runs_terminating_check'
        WHEN NEW.status IN ('RUNNING', 'STOPPED') AND NEW.terminated_by IS NOT NULL THEN 'runs_running_check'
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

-- A run begins with nothing behind it; only a branch begins behind an epoch, that of its origin's checkpoint, and its row
-- follows in the same transaction.
CREATE FUNCTION runs_start_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % begins as one that was driven', NEW.run_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER runs_start_guard BEFORE INSERT ON runs FOR EACH ROW
    WHEN ((NEW.status, NEW.revision, NEW.fencing_token, NEW.last_checkpoint_id, NEW.aborted_through)
              IS DISTINCT FROM ('RUNNING', 0, 0, 0, 0)
          OR num_nonnulls(NEW.attempt_id, NEW.terminated_by, NEW.failure, NEW.outputs, NEW.state_digest,
              NEW.finished_at, NEW.deleted_by, NEW.deleted_at) > 0)
    EXECUTE FUNCTION runs_start_guard();

CREATE FUNCTION runs_branch_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id
                   AND branches.epoch = NEW.last_durable_epoch) THEN
        RAISE EXCEPTION 'run % begins behind epoch % and is no branch', NEW.run_id, NEW.last_durable_epoch
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER runs_branch_guard AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.last_durable_epoch >= 0) EXECUTE FUNCTION runs_branch_guard();

-- What every epoch was decided from is what was reported, and by the rule that holds, not only where that ends the run.
CREATE OR REPLACE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
    previous bigint;
    may_move boolean;
    rule text;
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
    IF (TG_OP = 'INSERT' OR NEW.metrics <> OLD.metrics)
       AND jsonb_path_exists(NEW.metrics, 'strict $.* ? (@.type() != "number")') THEN
        RAISE EXCEPTION 'what epoch % measured is no number', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        SELECT epochs.fencing_token INTO previous FROM epochs WHERE epochs.run_id = NEW.run_id
            AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
            AND epochs.decision ->> 'terminated_by' IS NULL;
        IF previous IS NULL AND NEW.epoch >= 0 THEN
            IF NEW.epoch <> (SELECT coalesce(max(branches.epoch), -1) + 1 FROM branches
                             WHERE branches.run_id = NEW.run_id) THEN
                RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
            END IF;
        ELSIF previous = NEW.fencing_token THEN
            IF EXISTS (SELECT FROM stops WHERE stops.run_id = NEW.run_id
                       AND stops.kind = 'STOP' AND stops.resumed_at IS NULL) THEN
                RAISE EXCEPTION 'a person asks run % to stop before epoch %', NEW.run_id, NEW.epoch
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    ELSE
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token) IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        may_move := OLD.status = NEW.status OR CASE OLD.status
            WHEN 'OPEN' THEN NEW.status IN ('ALIGNED', 'VOIDED')
            WHEN 'ALIGNED' THEN NEW.status IN ('DURABLE', 'VOIDED')
            ELSE false
        END;
        IF OLD.status = 'DURABLE' AND NEW.status = 'VOIDED' THEN
            may_move := EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                WHERE fallbacks.run_id = OLD.run_id AND fallbacks.epoch < OLD.epoch);
        END IF;
        IF NOT may_move THEN
            RAISE EXCEPTION 'epoch % cannot go from % to %', OLD.epoch, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status = 'ALIGNED' AND NEW.status = 'DURABLE' THEN
            IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                           AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch >= OLD.epoch) THEN
                RAISE EXCEPTION 'no completed checkpoint covers epoch %', OLD.epoch USING ERRCODE = 'check_violation';
            END IF;
        ELSIF OLD.status = 'OPEN' AND NEW.status = 'ALIGNED' AND jsonb_typeof(NEW.decision) = 'object' THEN
            IF NEW.decision -> 'records' IS DISTINCT FROM (
                   SELECT jsonb_object_agg(head.key, (SELECT coalesce(sum(CAST(told.count AS numeric)), 0)
                       FROM jsonb_array_elements_text(head.value) AS told (count)))
                   FROM jsonb_each(NEW.records) AS head) THEN
                RAISE EXCEPTION 'epoch % decided by what was not reported', OLD.epoch
                    USING ERRCODE = 'check_violation';
            END IF;
            rule := CASE
                WHEN NOT jsonb_path_exists(NEW.records, '$.*[*] ? (@ > 0)') THEN 'empty_feedback'
                WHEN NEW.records ? 'criteria' AND NOT jsonb_path_exists(NEW.records, '$.criteria[*] ? (@ > 0)')
                    THEN 'criteria'
                WHEN EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND runs.max_epochs <= NEW.epoch + 1)
                    THEN 'max_epochs'
                WHEN EXISTS (SELECT FROM stops WHERE stops.run_id = NEW.run_id AND stops.kind = 'DRAIN') THEN 'drained'
            END;
            IF NEW.decision ->> 'terminated_by' IS DISTINCT FROM rule THEN
                RAISE EXCEPTION 'epoch % decided by another rule than %', OLD.epoch, coalesce(rule, 'none')
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.decision IS DISTINCT FROM OLD.decision
           AND (OLD.decision IS NOT NULL OR OLD.status <> 'OPEN' OR NEW.status = 'VOIDED') THEN
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
        WHEN jsonb_typeof(NEW.decision) <> 'object' THEN 'epochs_decision_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'epoch % breaks %', NEW.epoch, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'epochs';
    END IF;
    RETURN NEW;
END $$;

DROP TRIGGER epochs_start_guard ON epochs;
CREATE TRIGGER epochs_start_guard BEFORE INSERT ON epochs FOR EACH ROW
    WHEN (NEW.status IN ('ALIGNED', 'DURABLE') OR NEW.decision IS NOT NULL) EXECUTE FUNCTION start_guard('an epoch');

-- How many bytes a checkpoint has does not change either, once it names its manifest.
CREATE OR REPLACE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
    may_move boolean;
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
        may_move := OLD.status = NEW.status OR CASE OLD.status
            WHEN 'PENDING' THEN NEW.status IN ('COMPLETED', 'ABORTED', 'SUBSUMED')
            WHEN 'COMPLETED' THEN NEW.status IN ('SUBSUMED', 'DISCARDED')
            WHEN 'SUBSUMED' THEN NEW.status = 'DISCARDED'
            ELSE false
        END;
        IF OLD.status = 'SUBSUMED' AND NEW.status = 'COMPLETED' THEN
            may_move := EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                WHERE fallbacks.run_id = OLD.run_id AND fallbacks.to_checkpoint_id = OLD.checkpoint_id);
        END IF;
        IF NOT may_move THEN
            RAISE EXCEPTION 'checkpoint % cannot go from % to %', OLD.checkpoint_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'DISCARDED' AND OLD.status <> 'DISCARDED' THEN
            IF EXISTS (SELECT FROM branches WHERE branches.origin_run_id = OLD.run_id
                       AND branches.origin_checkpoint_id = OLD.checkpoint_id AND branches.released_at IS NULL)
               OR EXISTS (SELECT FROM checkpoint_pins WHERE checkpoint_pins.run_id = OLD.run_id
                       AND checkpoint_pins.checkpoint_id = OLD.checkpoint_id)
               OR OLD.status = 'COMPLETED' AND NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id
                       AND runs.status = 'DELETED')
                   AND NOT EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                       WHERE fallbacks.run_id = OLD.run_id
                       AND fallbacks.from_checkpoint_id = OLD.checkpoint_id) THEN
                RAISE EXCEPTION 'checkpoint % of run % is needed', OLD.checkpoint_id, OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF OLD.manifest_sha256 IS NOT NULL AND (NEW.manifest_path, NEW.manifest_sha256, NEW.size_bytes)
           IS DISTINCT FROM (OLD.manifest_path, OLD.manifest_sha256, OLD.size_bytes) THEN
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
            OR length(NEW.manifest_sha256) <> 64 OR translate(NEW.manifest_sha256, '0123456789abcdef', '') <> ''
            THEN 'checkpoints_manifest_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.reason IS NOT NULL) THEN 'checkpoints_aborted_check'
        WHEN NEW.failure NOT IN ('DECLINED', 'EXPIRED', 'ABORTED_BY_USER', 'SUBSUMED', 'ATTEMPT_ENDED')
            THEN 'checkpoints_failure_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.failure IS NOT NULL) THEN 'checkpoints_failed_check'
        WHEN (NEW.status = 'PENDING') <> (NEW.ended_at IS NULL) THEN 'checkpoints_ended_check'
        WHEN NEW.size_bytes < 0 THEN 'checkpoints_size_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'checkpoint % breaks %', NEW.checkpoint_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'checkpoints';
    END IF;
    RETURN NEW;
END $$;

-- What is subsumed is so by a newer one that is completed (I8).
CREATE FUNCTION checkpoints_subsumed_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
               AND checkpoints.checkpoint_id = NEW.checkpoint_id AND checkpoints.status = 'SUBSUMED')
       AND NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.checkpoint_id > NEW.checkpoint_id) THEN
        RAISE EXCEPTION 'no newer checkpoint subsumes checkpoint % of run %', NEW.checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER checkpoints_subsumed_guard AFTER UPDATE OF status ON checkpoints
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.status <> 'SUBSUMED' AND NEW.status = 'SUBSUMED')
    EXECUTE FUNCTION checkpoints_subsumed_guard();

-- What a person aborted before it began stays aborted (I17); it is pending for no longer than it takes to write so.
CREATE FUNCTION checkpoints_abort_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM checkpoints JOIN runs USING (run_id) WHERE checkpoints.run_id = NEW.run_id
               AND checkpoints.checkpoint_id = NEW.checkpoint_id AND checkpoints.status <> 'ABORTED'
               AND checkpoints.checkpoint_id <= runs.aborted_through) THEN
        RAISE EXCEPTION 'checkpoint % of run % was aborted before it began', NEW.checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER checkpoints_abort_guard AFTER INSERT ON checkpoints DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION checkpoints_abort_guard();

-- The operators of a deleted run may be cleared away with all that is left of it.
CREATE OR REPLACE FUNCTION definition_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed CONSTANT uuid := CASE TG_OP WHEN 'INSERT' THEN NEW.run_id ELSE OLD.run_id END;
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM runs WHERE runs.run_id = changed AND runs.status = 'DELETED') THEN
        RETURN OLD;
    END IF;
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = changed AND attempts.ended_at IS NULL
                   AND attempts.definition_changes IS NOT NULL AND attempts.fencing_token > coalesce((
                       SELECT epochs.fencing_token FROM epochs
                       WHERE epochs.run_id = changed AND epochs.status <> 'VOIDED'
                       ORDER BY epochs.epoch DESC LIMIT 1), 0)) THEN
        RAISE EXCEPTION 'the operators of run % cannot change now', changed USING ERRCODE = 'check_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- What was written of a run stays until the run is deleted; then whoever owns the tables may clear away its rows.
CREATE FUNCTION kept_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status <> 'DELETED') THEN
        RAISE EXCEPTION '% of run %, which is not deleted, cannot go', TG_TABLE_NAME, OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER runs_kept_guard BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER attempts_kept_guard BEFORE DELETE ON attempts FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER pins_kept_guard BEFORE DELETE ON pins FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER epochs_kept_guard BEFORE DELETE ON epochs FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER checkpoints_kept_guard BEFORE DELETE ON checkpoints FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER checkpoint_requests_kept_guard BEFORE DELETE ON checkpoint_requests FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER stops_kept_guard BEFORE DELETE ON stops FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER edge_parts_kept_guard BEFORE DELETE ON edge_parts FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER listener_notices_kept_guard BEFORE DELETE ON listener_notices FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER committables_kept_guard BEFORE DELETE ON committables FOR EACH ROW
    WHEN (OLD.committed_at IS NOT NULL) EXECUTE FUNCTION kept_guard();
CREATE TRIGGER fallbacks_kept_guard BEFORE DELETE ON fallbacks FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER branches_kept_guard BEFORE DELETE ON branches FOR EACH ROW EXECUTE FUNCTION kept_guard();

-- Who owns the tables may give up what can never be committed, while nobody drives the run, which would commit it.
CREATE FUNCTION committables_given_up_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL) THEN
        RAISE EXCEPTION 'run % is driven, and gives up nothing', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER committables_given_up_guard BEFORE DELETE ON committables FOR EACH ROW
    WHEN (OLD.committed_at IS NULL) EXECUTE FUNCTION committables_given_up_guard();
