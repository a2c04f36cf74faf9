-- The guards of what every epoch writes ask other tables once. What a person aborted before it began begins as aborted, where
-- it was pending until the end of its transaction; and nothing is aborted through an id while a checkpoint up to it is pending.

-- Every transaction that writes epochs or checkpoints locks a row of runs first: none is in the middle of its writes now.
LOCK TABLE runs IN EXCLUSIVE MODE;

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
        IF NEW.aborted_through > OLD.aborted_through THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                       AND checkpoints.status = 'PENDING' AND checkpoints.checkpoint_id <= NEW.aborted_through) THEN
                RAISE EXCEPTION 'a checkpoint of run % is not aborted, as all through % are', OLD.run_id,
                    NEW.aborted_through USING ERRCODE = 'check_violation';
            END IF;
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

CREATE OR REPLACE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
    may_move boolean;
    rule text;
    run record;
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
    IF TG_OP = 'INSERT' OR NEW.status IN ('OPEN', 'ALIGNED') THEN
        SELECT runs.max_epochs,
            EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                    AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS is_driven,
            (SELECT stops.kind FROM stops WHERE stops.run_id = NEW.run_id AND stops.resumed_at IS NULL) AS asked_to,
            (SELECT epochs.fencing_token FROM epochs WHERE epochs.run_id = NEW.run_id
             AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
             AND epochs.decision ->> 'terminated_by' IS NULL) AS previous_token
        INTO run FROM runs WHERE runs.run_id = NEW.run_id;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF run.previous_token IS NULL AND NEW.epoch >= 0 THEN
            IF NEW.epoch <> (SELECT coalesce(max(branches.epoch), -1) + 1 FROM branches
                             WHERE branches.run_id = NEW.run_id) THEN
                RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
            END IF;
        ELSIF run.previous_token = NEW.fencing_token AND run.asked_to = 'STOP' THEN
            RAISE EXCEPTION 'a person asks run % to stop before epoch %', NEW.run_id, NEW.epoch
                USING ERRCODE = 'check_violation';
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
                WHEN run.max_epochs <= NEW.epoch + 1 THEN 'max_epochs'
                WHEN run.asked_to = 'DRAIN' THEN 'drained'
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
    IF NEW.status IN ('OPEN', 'ALIGNED') THEN
        IF run.is_driven IS NOT TRUE THEN
            RAISE EXCEPTION 'nobody drives run % under token %, who would write an epoch', NEW.run_id,
                NEW.fencing_token USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER epochs_writer_guard ON epochs;

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
        IF OLD.status = 'PENDING' AND NEW.status IN ('COMPLETED', 'SUBSUMED') THEN
            IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
                           AND attempts.fencing_token = OLD.fencing_token AND attempts.ended_at IS NULL) THEN
                RAISE EXCEPTION 'nobody drives run % under token %, who would write a completed checkpoint',
                    OLD.run_id, OLD.fencing_token USING ERRCODE = 'check_violation';
            END IF;
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
DROP TRIGGER checkpoints_completion_guard ON checkpoints;

CREATE OR REPLACE FUNCTION checkpoints_issue_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    epoch record;
BEGIN
    SELECT runs.last_checkpoint_id, runs.aborted_through,
        EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS is_driven
    INTO epoch FROM epochs JOIN runs USING (run_id)
    WHERE epochs.run_id = NEW.run_id AND epochs.epoch = NEW.epoch AND epochs.fencing_token = NEW.fencing_token
        AND epochs.status = 'ALIGNED';
    IF epoch.last_checkpoint_id IS DISTINCT FROM NEW.checkpoint_id THEN
        RAISE EXCEPTION 'checkpoint % of epoch % was not issued, or its epoch has not aligned', NEW.checkpoint_id,
            NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status <> 'ABORTED' AND NEW.checkpoint_id <= epoch.aborted_through THEN
        RAISE EXCEPTION 'checkpoint % of run % was aborted before it began', NEW.checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NOT epoch.is_driven THEN
        RAISE EXCEPTION 'nobody drives run % under token %, who would write a checkpoint', NEW.run_id,
            NEW.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER checkpoints_writer_guard ON checkpoints;
DROP TRIGGER checkpoints_abort_guard ON checkpoints;
DROP FUNCTION checkpoints_abort_guard();

DROP TRIGGER checkpoints_durable_guard ON checkpoints;
DROP FUNCTION checkpoints_durable_guard();
DROP TRIGGER checkpoints_subsumed_guard ON checkpoints;
DROP FUNCTION checkpoints_subsumed_guard();
CREATE FUNCTION checkpoints_end_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'COMPLETED' THEN
        IF EXISTS (SELECT FROM checkpoints JOIN runs USING (run_id) WHERE checkpoints.run_id = NEW.run_id
                   AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch <> runs.last_durable_epoch) THEN
            RAISE EXCEPTION 'checkpoint % is completed, and epoch % is not the last durable one', NEW.checkpoint_id,
                NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
    ELSIF NEW.status = 'SUBSUMED' THEN
        IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                   AND checkpoints.checkpoint_id = NEW.checkpoint_id AND checkpoints.status = 'SUBSUMED')
           AND NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                           AND checkpoints.status = 'COMPLETED' AND checkpoints.checkpoint_id > NEW.checkpoint_id) THEN
            RAISE EXCEPTION 'no newer checkpoint subsumes checkpoint % of run %', NEW.checkpoint_id, NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER checkpoints_end_guard AFTER UPDATE OF status ON checkpoints
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION checkpoints_end_guard();
